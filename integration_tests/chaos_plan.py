"""The decisions of `scripts/chaos --cluster`: order of faults, and a whole job."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from integration_tests.support.ledger import Violation
from samzapy.coordinator.launching.standbys import LAG_MAX

KINDS: Mapping[str, str] = {
    "move": "an operator moves a processor to another worker",
    "restart": "an operator replaces a container",
    "failover": "kill -9 of the driver whose processor has a standby",
    "worker": "kill -9 of a Spark worker, which is started again",
    "master": "kill -9 of Spark's master, which is started again",
    "coordinator": "kill -9 of the leader: the other candidate leads, and the killed one is started again",
    "cut-http": "a container's way to the coordinator is cut until it was given up",
    "cut-kafka": "a container's way to Kafka is cut for longer than its transactions may take",
    "cut-both": "both ways are cut until it was given up",
    "zombie": "SIGSTOP of a whole container until a standby has its tasks; then SIGCONT",
}
_HEARD_WITHIN_MS = 5000


def plan_of(seed: int, count: int, kinds: Collection[str] = tuple(KINDS)) -> tuple[str, ...]:
    """The kinds of `count` faults: passes over all `kinds`, each in its own order.

    So a run of as many faults as there are kinds has each of them, and two seeds meet different neighbours.
    """
    chance, faults = random.Random(seed), list[str]()
    while kinds and len(faults) < count:
        faults.extend(chance.sample(sorted(kinds), len(kinds)))
    return tuple(faults[:count])


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where an execution of a processor is."""

    processor_id: str
    execution_id: str
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A job that lacks nothing.

    Attributes:
        runners: by processor, the container that runs its tasks.
        standbys: by processor, the containers with a copy of their state.
        term: of the coordinator that reported it.
    """

    runners: Mapping[str, Seat]
    standbys: Mapping[str, Seat]
    term: int

    def seats(self) -> tuple[Seat, ...]:
        return (*self.runners.values(), *self.standbys.values())


def whole_of(status: Mapping[str, Any] | None, *, containers: int, standbys: int, lag_max: int) -> Whole | str:
    """The job in `GET /status` if it is whole; otherwise a text: what it lacks.

    Whole is: every task is run, by so many containers that were heard of just now; beside them there are so many
    standbys, all ready, and no other container; and no more than `lag_max` messages wait.
    """
    if status is None:
        return "no leader answers"
    living = {container["executionId"]: container for container in status["containers"]}
    owners = {task["owner"] for task in status["tasks"]}
    if None in owners or not owners <= living.keys() or not owners:
        return "a task that no container runs"
    if len(owners) != containers:
        return f"{len(owners)} containers that run tasks, not {containers}"
    silent = [name for name, container in living.items() if (container["heartbeatAgeMs"] or 0) > _HEARD_WITHIN_MS]
    unheard = [name for name, container in living.items() if container["heartbeatAgeMs"] is None]
    if silent or unheard:
        return f"nothing heard of {', '.join(sorted([*silent, *unheard]))}"
    at_rest = [living[name]["phase"] for name in owners if living[name]["phase"] != "RUNNING"]
    if at_rest:
        return f"an owner that is {at_rest[0]}"
    beside = [container for name, container in sorted(living.items()) if name not in owners]
    if len(beside) != standbys:
        return f"{len(beside)} containers beside those, not {standbys}"
    cold = [container["executionId"] for container in beside if not _is_ready(container, status["tasks"])]
    if cold:
        return f"{cold[0]} is not ready to take over"
    lag = status["totals"]["lag"]
    if lag is None or lag > lag_max:
        return f"a lag of {lag}, not {lag_max} at most"
    return Whole(
        runners=_by_processor(living[name] for name in owners), standbys=_by_processor(beside), term=status["term"]
    )


def _is_ready(container: Mapping[str, Any], tasks: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a standby has the state of all its tasks, as `launching.standbys` asks."""
    warm = container["warm"]
    count = sum(task["processorId"] == container["processorId"] for task in tasks)
    return (
        container["standby"] is not None
        and warm is not None
        and warm["tasks"] == warm["level"] == count
        and warm["lag"] <= LAG_MAX
        # Only reported by containers that try their query out first.
        and warm.get("rehearsed", True)
    )


def _by_processor(containers: Iterable[Mapping[str, Any]]) -> Mapping[str, Seat]:
    seats = [
        Seat(processor_id=container["processorId"], execution_id=container["executionId"], host=container["host"])
        for container in containers
    ]
    return {seat.processor_id: seat for seat in sorted(seats, key=lambda seat: seat.processor_id)}


def disturbed(before: Whole, after: Whole, hit: Collection[str]) -> Sequence[str]:
    """The processors that another execution runs although none of theirs was `hit`."""
    return [
        processor_id
        for processor_id, seat in before.runners.items()
        if seat.execution_id not in hit and after.runners[processor_id].execution_id != seat.execution_id
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A position on the checkpoint topic, with the execution that committed it."""

    at: int
    execution_id: str
    position: str


def zombie_writes(written: Iterable[Written], shut_out: Mapping[str, int]) -> Iterator[Violation]:
    """Rule Z: nothing of an execution is committed once it is FENCED.

    Args:
        written: the committed positions of the checkpoint topic.
        shut_out: executions that are FENCED, and where the checkpoint topic ended at a moment after that.
    """
    for record in written:
        end = shut_out.get(record.execution_id)
        if end is not None and record.at >= end:
            yield Violation(
                "Z", f"{record.position} at {record.at} is of {record.execution_id}, which was shut out at {end}"
            )
