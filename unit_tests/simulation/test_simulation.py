"""Histories of a whole job from its seed, with each step judged (`simulation`).

`SAMZAPY_SIMULATIONS` is the number of histories; CI sets it in `.ci/run`. The seeds are always the same ones: the even
ones here, the others in `test_simulation_of_odd_seeds`, which runs beside this one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from samzapy.coordinator.action_performer import ActionPerformer, LeaderView
from samzapy.coordinator.actions import ResolveStarts
from samzapy.coordinator.assignment.liveness import Liveness
from samzapy.coordinator.service import CoordinatorService
from samzapy.coordinator.state import CoordinatorState
from samzapy.inspection import standstill
from samzapy.inspection.standstill import Cause
from samzapy.model.container import Container
from simulation.checks import BrokenLawError
from simulation.command import simulate as simulate_command
from simulation.configurations import Kind
from simulation.simulate import simulate
from simulation.standstills import OF_HISTORIES
from simulation.world import EVENT_COUNT, History, World

pytestmark = pytest.mark.slow

COUNT = int(os.environ.get("SAMZAPY_SIMULATIONS", "100"))
PARTS = 10
"""Tests that share the histories; each takes every tenth seed."""


@pytest.mark.parametrize("part", range(0, PARTS, 2))
def test_no_history_breaks_a_law_and_each_comes_to_rest(part: int) -> None:
    for seed in range(part, COUNT, PARTS):
        simulate(seed)


def test_no_history_breaks_a_law_while_another_program_writes_to_the_stream() -> None:
    """A compacted stream with foreign records folds to the state of the leaders' ones."""
    histories = [simulate(seed, kind=Kind.FOREIGN) for seed in range(COUNT // 10)]

    assert sum(history.faults["another program writes"] for history in histories) >= 10 * len(histories)
    assert sum(history.restored for history in histories) >= 5 * len(histories)


@dataclass(frozen=True, slots=True)
class Shown:
    """A history that showed a fault, before that was mended, and the fault."""

    seed: int
    fault: str
    event_count: int = EVENT_COUNT
    kind: Kind | None = None


SHOWN = (
    Shown(4, "who led ended over an expansion whose plan was torn off its fact", 600, Kind.WALK),
    Shown(67, "a task whose parent never began waited for a copy (`starts.copies_awaited`)", 600, Kind.WALK),
    Shown(6705, "a check took a request to wait for a query of a processor without tasks of its own"),
    Shown(140, "a standby took over from a container that was told to stop and lived", 600, Kind.LAUNCHED),
    Shown(710747, "a review asked for a second time wrote another plan behind one torn off its fact", 600, Kind.WALK),
)
"""Beside the unit tests that came of them. They last as long as the simulation draws its luck in the same order; of
mutants there is such a list too (`test_simulation_kills_mutants.SHOWN_BY`)."""


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: str(shown.seed))
def test_a_history_that_showed_a_fault_shows_none_any_more(shown: Shown) -> None:
    simulate(shown.seed, shown.event_count, kind=shown.kind)


def test_the_same_seed_gives_the_same_history_in_every_process() -> None:
    """The runs are equal to the byte: the digest covers the trace and both topics.

    Sets and dicts differ between the processes.
    """
    command = [sys.executable, "-m", "simulation.command", "--seed", "1000", "--count", "12"]

    outputs = [
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True)
        for seed in ("1", "2")
    ]

    assert outputs[0].stdout == outputs[1].stdout
    assert outputs[0].stdout.count("digest") == 12


def test_the_same_seed_gives_the_same_history_twice_in_one_process() -> None:
    assert simulate(7).digest == simulate(7).digest != simulate(8).digest


def test_histories_are_long_and_have_many_faults_of_every_kind() -> None:
    histories = [simulate(seed) for seed in range(60)]

    faults = sum((history.faults for history in histories), Counter[str]())
    assert all(history.events >= 400 for history in histories)
    assert len(faults) >= 15, sorted(faults)
    assert sum(faults.values()) / len(histories) >= 15
    assert sum(history.commits for history in histories) / len(histories) >= 10
    assert sum(history.terms for history in histories) / len(histories) >= 3
    assert sum(history.elastic_grants for history in histories) / len(histories) >= 5
    assert sum(history.floored_grants for history in histories) >= 10
    assert {history.kind for history in histories} == {*Kind} - {Kind.WALK, Kind.LAUNCHED, Kind.FOREIGN}
    assert sum(history.rewound_grants for history in histories) >= 50
    assert sum(history.inherited_copies for history in histories) >= 10
    assert sum(history.runs for history in histories if history.kind is Kind.BOUNDED) >= 15
    causes = Counter(cause for history in histories for cause in history.causes)
    assert OF_HISTORIES <= causes.keys(), causes


def simulate_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        simulate(seed)


@pytest.mark.parametrize(
    ("wrong", "denial"),
    [
        (Cause.GRANT, "its last heartbeat lists the grant"),
        (Cause.NO_CONTAINER, "can commit for it"),
        (Cause.BROKER, "no history can have that"),
    ],
    ids=lambda value: str(value),
)
def test_a_cause_that_the_world_denies_breaks_a_law(
    monkeypatch: pytest.MonkeyPatch, wrong: Cause, denial: str
) -> None:
    """A leader that names another cause for tasks that are at work."""
    monkeypatch.setattr(standstill, "_at_work", lambda *_: (wrong, "container e1"))
    monkeypatch.setattr(standstill, "STILL_MS", 1)

    with pytest.raises(BrokenLawError, match=denial):
        simulate_all(range(10))


def test_a_leader_that_takes_a_container_for_silent_too_soon_breaks_a_law(monkeypatch: pytest.MonkeyPatch) -> None:
    def since_the_term_began(
        container: Container, state: CoordinatorState, liveness: Liveness, now_ms: int
    ) -> tuple[Cause, int, str] | None:
        for_ms = now_ms - liveness.listening_since_ms
        return (Cause.SILENT, for_ms, "container") if for_ms >= standstill.STILL_MS else None

    monkeypatch.setattr(standstill, "_unheard", since_the_term_began)

    with pytest.raises(BrokenLawError, match="but its heartbeat came"):
        simulate_all(range(10))


def test_a_broken_law_names_the_command_that_repeats_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CoordinatorService, "step_down", lambda self: None)

    histories = {}
    for seed in range(50):
        try:
            simulate(seed)
        except BrokenLawError as error:
            histories[seed] = str(error)
            break

    ((seed, text),) = histories.items()
    assert f"scripts/simulate --seed {seed} --events 400" in text


def test_an_error_of_the_product_names_the_command_that_repeats_it_and_the_run_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(self: World, event_count: int) -> History:
        raise KeyError("kafka.orders.0")

    monkeypatch.setattr(World, "run", fails)

    with pytest.raises(KeyError) as caught:
        simulate(11, 50, kind=Kind.WALK)
    result = CliRunner().invoke(simulate_command, ["--seed", "11", "--count", "2", "--events", "50"])

    assert ["See it happen with: scripts/simulate --seed 11 --events 50 --kind walk"] == caught.value.__notes__
    assert (1, "") == (result.exit_code, result.stderr)
    assert [
        line
        for seed in (11, 12)
        for line in (
            f"seed {seed}: KeyError: 'kafka.orders.0' (test_simulation.py, line {fails.__code__.co_firstlineno + 1}, "
            "in fails)",
            f"See it happen with: scripts/simulate --seed {seed} --events 50",
        )
    ] == result.stdout.splitlines()


@pytest.mark.parametrize("kind", Kind)
def test_the_command_in_a_message_is_a_command_of_the_simulation(kind: Kind) -> None:
    command = ["--seed", "5", "--count", "2", "--events", "1", "--kind", str(kind)]

    result = CliRunner().invoke(simulate_command, command)

    assert 0 == result.exit_code, result.output
    assert 2 == result.output.count(f": {kind}, ")


def test_a_world_in_which_nothing_is_granted_does_not_come_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(self: ActionPerformer, starts: list[ResolveStarts], view: LeaderView) -> object:
        return ()

    monkeypatch.setattr(ActionPerformer, "_resolve", nothing)

    with pytest.raises(BrokenLawError, match=r"no rest after|L3"):
        World(3).run(50)
