"""Histories of a whole job, each made from its seed, each step judged (`testing.simulation`).

`SAMZAPY_SIMULATIONS` says how many histories; CI sets it in `.ci/run`. The seeds are always the same ones: the even
ones here, the others in `test_simulation_of_odd_seeds`, which runs beside this one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest
from click.testing import CliRunner

from samzapy.cli.dev import dev
from samzapy.coordinator.actions import ResolveStarts
from samzapy.coordinator.service import CoordinatorService
from samzapy.testing.simulation.checks import BrokenLawError
from samzapy.testing.simulation.simulate import simulate
from samzapy.testing.simulation.world import Kind, World

COUNT = int(os.environ.get("SAMZAPY_SIMULATIONS", "100"))
PARTS = 10
"""Tests that share the histories; each takes every tenth seed."""


@pytest.mark.parametrize("part", range(0, PARTS, 2))
def test_no_history_breaks_a_law_and_each_comes_to_rest(part: int) -> None:
    for seed in range(part, COUNT, PARTS):
        simulate(seed)


def test_a_task_whose_parent_never_began_has_a_copy_that_nobody_went_on_with() -> None:
    """Which seed shows it without the wait in `coordinator.starts.copies_awaited`: 67."""
    simulate(67, 600, kind=Kind.WALK)


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
    assert sum(history.elastic_grants for history in histories) / len(histories) >= 5
    assert sum(history.floored_grants for history in histories) >= 10
    assert {history.kind for history in histories} == {*Kind} - {Kind.WALK, Kind.LAUNCHED}
    assert sum(history.rewound_grants for history in histories) >= 50
    assert sum(history.inherited_copies for history in histories) >= 10
    assert sum(history.runs for history in histories if history.kind is Kind.BOUNDED) >= 15


def test_a_broken_law_tells_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CoordinatorService, "leave_office", lambda self: None)

    told = {}
    for seed in range(50):
        try:
            simulate(seed)
        except BrokenLawError as error:
            told[seed] = str(error)
            break

    ((seed, text),) = told.items()
    assert f"samzapy dev simulate --seed {seed} --events 400" in text


@pytest.mark.parametrize("kind", Kind)
def test_the_command_that_shows_a_history_again_is_one(kind: Kind) -> None:
    command = ["simulate", "--seed", "5", "--count", "2", "--events", "1", "--kind", str(kind)]

    told = CliRunner().invoke(dev, command)

    assert 0 == told.exit_code, told.output
    assert 2 == told.output.count(f": {kind}, ")


def test_a_world_in_which_nothing_is_granted_does_not_come_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(self: CoordinatorService, wanted: list[ResolveStarts]) -> object:
        return ()

    monkeypatch.setattr(CoordinatorService, "_resolved", nothing)

    with pytest.raises(BrokenLawError, match=r"no rest after|L3"):
        World(3).run(50)
