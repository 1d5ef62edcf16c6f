"""Histories of a whole job, each made from its seed, each step judged (`testing.simulation`).

`SAMZAPY_SIMULATIONS` says how many histories; CI runs 5,000. The seeds are always the same ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from samzapy.coordinator.actions import ResolveStarts
from samzapy.coordinator.service import CoordinatorService
from samzapy.testing.simulation.checks import BrokenLawError
from samzapy.testing.simulation.world import World, simulate

COUNT = int(os.environ.get("SAMZAPY_SIMULATIONS", "100"))
PARTS = 10

ONCE_BROKEN = {
    2: "an append failed in the second try of a round, and the coordinator went on as the leader of before",
}
"""Seeds that showed a fault, and which one. They run whatever the count is."""


@pytest.mark.parametrize("part", range(PARTS))
def test_no_history_breaks_a_law_and_each_comes_to_rest(part: int) -> None:
    for seed in range(part, COUNT, PARTS):
        simulate(seed)


@pytest.mark.parametrize("seed", ONCE_BROKEN, ids=ONCE_BROKEN.get)
def test_a_history_that_showed_a_fault_once(seed: int) -> None:
    simulate(seed)


def test_the_same_seed_gives_the_same_history_in_every_process() -> None:
    """To the byte: the digest covers the trace and both topics. Sets and dicts differ between the processes."""
    program = "import sys; from samzapy.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "dev", "simulate", "--seed", "1000", "--count", "12"]

    told = [
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True)
        for seed in ("1", "2")
    ]

    assert told[0].stdout == told[1].stdout
    assert told[0].stdout.count("digest") == 12


def test_the_same_seed_gives_the_same_history_twice_in_one_process() -> None:
    assert simulate(7).digest == simulate(7).digest != simulate(8).digest


def test_histories_are_long_and_full_of_faults_of_every_kind() -> None:
    histories = [simulate(seed) for seed in range(60)]

    faults = sum((history.faults for history in histories), Counter[str]())
    assert all(history.events >= 400 for history in histories)
    assert len(faults) >= 15, sorted(faults)
    assert sum(faults.values()) / len(histories) >= 15
    assert sum(history.commits for history in histories) / len(histories) >= 10
    assert sum(history.terms for history in histories) / len(histories) >= 3


def test_a_broken_law_tells_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CoordinatorService, "leave_office", lambda self: None)

    with pytest.raises(BrokenLawError, match=r"samzapy dev simulate --seed 2 --events 400"):
        simulate(2)


def test_a_world_in_which_nothing_is_granted_does_not_come_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = CoordinatorService._resolved

    def nothing(self: CoordinatorService, wanted: list[ResolveStarts]) -> object:
        return resolved(self, wanted[:0]) if wanted else ()

    monkeypatch.setattr(CoordinatorService, "_resolved", nothing)

    with pytest.raises(BrokenLawError, match=r"no rest after|L3"):
        World(3).run(50)
