"""A stateful job that is scaled while processors die, leave and return.

`scripts/chaos --scale` runs it for long, a test for eight changes. A seed decides the factors and the acts of each
process. Each change is a request on the placement topic; it must succeed, although in each a process is killed at a
random moment, and another one dies at a named crash point, or leaves. Then the job comes to rest, and each key bucket
must have exactly one owner, one that lives. In the middle the input gets more partitions.
"""

from __future__ import annotations

import time
import uuid as uuids
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from integration_tests.comings_and_goings import DONE_WITHIN_S, ComingsAndGoings, terminal_status
from integration_tests.ledger_run import INPUT, Seen, Subject, stopped_worker
from integration_tests.support.coordinator_audit import Audit
from integration_tests.support.job_process import kill
from integration_tests.support.ledger import Violation
from samzapy.adapters.host.crash_points import CrashPoint, arming
from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.placement import ContainerPlacementMetadataStore, StatusCode
from samzapy.testing.broker import DevBroker

T = TypeVar("T")

FACTORS = (1, 2, 4, 8)
PROCESSORS = 2
PARTITIONS = 3
CRASH_POINTS = {
    "driver": ("after-fence", "after-inheritance", "after-restore"),
    "worker": (
        "before-init",
        "before-begin",
        "after-produce",
        "before-commit",
        "after-kafka-commit",
        "after-local-commit",
    ),
}
"""Crash points of a container, by the process that dies of them."""
_HITS_MAX = 8
_LOOK_EVERY_S = 0.3
_EXPANDING = {"job.coordinator.monitor-partition-change.frequency.ms": "1000", "job.expansion.settle.ms": "5000"}
KILLS = ("leader", "driver", "jvm", "worker")
"""The victims of a change: the coordinator, a container (driver or JVM), or a worker."""
_LEAVES = 0.25
"""The changes in which all processors run."""
_DISTURBED_AFTER_S = (0.0, 3.0)


@dataclass(slots=True)
class Changes:
    """The counts of changes. `at_rest`: how often each key bucket had one owner then."""

    factors: list[int] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    crash_points: list[str] = field(default_factory=list)
    disturbed: dict[str, int] = field(default_factory=dict)
    at_rest: int = 0
    late_leaves: int = 0
    asked_again: int = 0
    longest_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class ArmedPoint:
    """The crash point at which one start of a processor dies."""

    point: CrashPoint
    is_disarmed: bool = False

    @property
    def is_of_the_driver(self) -> bool:
        return self.point.name in CRASH_POINTS["driver"]

    def has_fired(self) -> bool:
        return not self.is_disarmed and self.point.flag.exists()

    def disarm(self) -> None:
        try:
            self.point.flag.touch(exist_ok=False)
        except FileExistsError:
            return
        self.is_disarmed = True


class FactorWalk(ComingsAndGoings):
    """A ledger run over changes of the factor and of the number of partitions.

    Attributes:
        wrong: the violations on the way.
    """

    def __init__(
        self,
        directory: Path,
        *,
        seed: int,
        environment: Mapping[str, str] | None = None,
        subject: Subject | None = None,
        broker: DevBroker | None = None,
    ) -> None:
        super().__init__(
            directory,
            seed=seed,
            processors=PROCESSORS,
            partitions=PARTITIONS,
            environment=environment,
            overrides=_EXPANDING,
            subject=subject,
            broker=broker,
        )
        self.changes = Changes()
        self.wrong: list[Violation] = []
        self._points: list[ArmedPoint] = []
        # The crash point of each start of a processor.
        self._armed: dict[str, ArmedPoint] = {}

    def walk(self, count: int, *, expansions: int) -> None:
        """Change the factor `count` times, with a kill each, then start all processors.

        Doublings of the partitions are spread over the changes.
        """
        expanded_before = {count * number // (expansions + 1) for number in range(1, expansions + 1)}
        for number in range(count):
            self._be_quiet()
            if number in expanded_before:
                self.expand(INPUT, 2 * self.inputs[INPUT])
                self.changes.partitions.append(self.inputs[INPUT])
            factor = self._chance.choice([factor for factor in FACTORS if factor != self.factor])
            self.change(factor, self._chance.choice(KILLS), leave=self._chance.random() < _LEAVES)
        self.end()

    def change(self, factor: int, killed: str, *, leave: bool = False) -> None:
        """Change the factor once, kill a process, start the absent ones, come to rest.

        Args:
            killed: one of `KILLS`.
            leave: whether a processor leaves too, if none is absent.
        """
        begun_s = time.monotonic()
        request = self._ask(factor)
        self._disturb(killed, leave=leave)
        self._wait(partial(self._has_ended, request), f"factor {factor} to be at work")
        while self._ended_with_its_run(request):
            # The last container left in good order while the other one was away: that ends a run and its requests.
            self.changes.asked_again += 1
            request = self._ask(factor)
            self._wait(partial(self._has_ended, request), f"factor {factor} to be at work in the next run")
        assert self._status(request) is StatusCode.SUCCEEDED, self._response_text(request)
        self.factor = factor
        self.changes.factors.append(factor)
        self.changes.longest_s = max(self.changes.longest_s, round(time.monotonic() - begun_s, 1))
        self.wrong += self._check_owners()
        self.changes.at_rest += 1

    def _ended_with_its_run(self, request: uuids.UUID) -> bool:
        with self._store() as store:
            if _is_gone(store, request):
                return True
        ended = self._status(request) is StatusCode.FAILED
        return ended and "of the job ended before it was done" in self._response_text(request)

    def _has_ended(self, request: uuids.UUID) -> bool:
        with self._store() as store:
            return terminal_status(store, request) is not None or _is_gone(store, request)

    def _wait(self, condition: Callable[[], T | None], what: str, poll_interval_s: float = 0.05) -> T:
        """`wait`, with a processor that runs: all may have died."""

        def asked() -> tuple[T | None] | None:
            answer = condition()
            return (answer,) if answer or not self._running() else None

        while True:
            (answer,) = self.wait(asked, DONE_WITHIN_S, what, poll_interval_s=poll_interval_s)
            if answer:
                return answer
            self._join(self._chance.choice(sorted(self.processors)))

    def end(self) -> None:
        """Disarm all crash points, and start the absent processors."""
        for armed in self._points:
            armed.disarm()
        self.changes.crash_points = [armed.point.name for armed in self._points if armed.has_fired()]
        running = self._running()
        self._join(*(name for name in self.processors if name not in running or name in self._ended))

    def keep_running(self) -> None:
        """A processor that has died at its crash point is absent from now on."""
        self._ended |= {name for name, armed in self._armed.items() if armed.is_of_the_driver and armed.has_fired()}
        super().keep_running()

    def _leave(self, name: str) -> int:
        """Leave without a crash; a dead processor need not leave."""
        if name in self._armed:
            self._armed[name].disarm()
        self.keep_running()
        if not self.processors[name].is_running() or name in self._ended:
            return 0
        code = super()._leave(name)
        self.changes.late_leaves += code != 0
        return code

    def _join(self, *names: str, environment: Mapping[str, str] | None = None) -> None:
        for name in names:
            self.processors[name].wait_gone()
            if environment is None:
                self._armed.pop(name, None)
        super()._join(*names, environment=environment)

    def _arm(self, name: str) -> Mapping[str, str]:
        """A crash point for its next start."""
        kind = self._chance.choice(sorted(CRASH_POINTS))
        point = CrashPoint(
            name=self._chance.choice(CRASH_POINTS[kind]),
            at_hit=self._chance.randint(1, _HITS_MAX),
            flag=self.directory / f"crash-{len(self._points)}",
        )
        self._armed[name] = ArmedPoint(point=point)
        self._points.append(self._armed[name])
        return arming([point])

    def _ask(self, factor: int) -> uuids.UUID:
        with self._store() as store:
            return store.write_scale_request(self._run_id(), factor, request_expiry=timedelta(seconds=DONE_WITHIN_S))

    @property
    def deaths(self) -> int:
        """Of processes, of our doing: at a moment of chance, or at a crash point."""
        at_points = sum(armed.has_fired() for armed in self._points)
        return self.comings.kills + self.figures.faults.get("worker", 0) + at_points

    def _disturb(self, killed: str, *, leave: bool) -> None:
        """At random moments: one process dies; an absent one comes back, or one leaves."""
        running = self._running()
        absent = [name for name in self.processors if name not in running]
        kinds = [killed, *(["join"] if absent else ["leave"] if leave else [])]
        self._chance.shuffle(kinds)
        for kind in kinds:
            at_s = time.monotonic() + self._chance.uniform(*_DISTURBED_AFTER_S)
            self.wait(lambda at_s=at_s: time.monotonic() >= at_s, 60, "the moment of the disturbance")  # type: ignore[misc]
            if kind == "join":
                self._come_back(self._chance.choice(absent))
            else:
                self._do(kind)
            self.changes.disturbed[kind] = self.changes.disturbed.get(kind, 0) + 1

    def _come_back(self, name: str) -> None:
        """Start with a crash point, unless no other processor ran before."""
        if name not in self._running():
            self._join(name, environment=self._arm(name))

    def _do(self, kind: str) -> None:
        """To one of those that run; all may have died of their crash points, or left."""
        name = self._wait(self._leader_or_none if kind == "leader" else self._one_that_runs, "a running processor")
        if kind == "worker":
            self._kill_worker(name)
        elif kind == "leave":
            self._leave(name)
        else:
            self._kill(name, "driver" if kind == "leader" else kind)

    def _leader_or_none(self) -> str | None:
        leader = self._living_leader()
        return leader if leader in self._running() else None

    def _one_that_runs(self) -> str | None:
        running = self._running()
        return self._chance.choice(running) if running else None

    def _kill_worker(self, name: str) -> None:
        """In its slot, so at work; it takes a while while a query is started anew."""
        processor = self.processors[name]

        def stopped() -> tuple[ProcessIdentity, bool] | bool:
            return stopped_worker(processor) or not processor.is_running()

        stopped_slot = self.wait(stopped, DONE_WITHIN_S, "a worker in its slot")
        # The processor may have died of a crash point before.
        if isinstance(stopped_slot, tuple):
            worker, is_open = stopped_slot
            kill(worker)
            self.fault("worker", is_open)

    def finish(self) -> list[Violation]:
        return [*self.wrong, *super().finish()]

    def _wait_settled(self) -> Sequence[Seen]:
        return self._wait(self._settled, "each key bucket to have one owner that lives", _LOOK_EVERY_S)

    def _has_settled(self, audited: Audit) -> bool:
        """In the middle of a walk a processor may be absent."""
        owners = audited.owners_of_buckets().values()
        newest = audited.newest_executions()
        return (
            len(audited.owners()) == self.task_count * self.factor
            and all(len(executions) == 1 for executions in owners)
            and {executions[0] for executions in owners} == {newest.get(name) for name in self._running()}
        )

    def summary(self) -> str:
        return f"{super().summary()}, {self.changes}"

    def _check_undisturbed(self) -> Iterator[Violation]:
        """A change of the factor changes all grants; other tests check kept ones."""
        yield from ()


def _is_gone(store: ContainerPlacementMetadataStore, request: uuids.UUID) -> bool:
    """Whether a new run has removed the requests of the run before, with its answers."""
    return store.read_container_placement_request_message(request) is None
