"""A stateful job that is scaled again and again while its processors die, leave and come back, under a ledger.

`scripts/chaos --scale` runs it for long, a test for eight changes. A seed decides the factors and who does what when.
Each change is a request on the placement topic; it must succeed, whoever is killed meanwhile, at a random moment or at
a named crash point. In the middle the input gets more partitions.
"""

from __future__ import annotations

import time
import uuid as uuids
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from integration_tests.comings_and_goings import DONE_WITHIN_S, ComingsAndGoings
from integration_tests.ledger_run import INPUT, Subject, stopped_worker
from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.placement import StatusCode
from samzapy.testing.crash_points import CrashPoint, arming
from samzapy.testing.job_process import kill
from samzapy.testing.ledger import Violation

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
"""Of a container, by who dies of them (design section 13)."""
_HITS_MAX = 8
_EXPANDING = {"job.coordinator.monitor-partition-change.frequency.ms": "1000", "job.expansion.settle.ms": "5000"}
_DISTURBANCES = ("leader", "driver", "jvm", "worker", "leave", "nothing")
_DISTURBED_AFTER_S = (0.0, 3.0)


@dataclass(slots=True)
class Changes:
    """What was changed, for the record."""

    factors: list[int] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    crash_points: list[str] = field(default_factory=list)
    disturbed: dict[str, int] = field(default_factory=dict)
    late_leaves: int = 0
    longest_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class ArmedPoint:
    """What one start of a processor will die of, if it gets there."""

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
    """A ledger run over changes of the factor and of the number of partitions."""

    def __init__(
        self,
        directory: Path,
        *,
        seed: int,
        environment: Mapping[str, str] | None = None,
        subject: Subject | None = None,
    ) -> None:
        super().__init__(
            directory,
            seed=seed,
            processors=PROCESSORS,
            partitions=PARTITIONS,
            environment=environment,
            overrides=_EXPANDING,
            subject=subject,
        )
        self.changes = Changes()
        self._points: list[ArmedPoint] = []
        # What a processor was started with.
        self._armed: dict[str, ArmedPoint] = {}

    def walk(self, count: int, *, expansions: int) -> None:
        """`count` changes of the factor, each with something that goes wrong meanwhile, and doublings of the partitions
        spread over them; then everybody is there."""
        expanded_before = {count * number // (expansions + 1) for number in range(1, expansions + 1)}
        for number in range(count):
            self._be_quiet()
            if number in expanded_before:
                self.expand(INPUT, 2 * self.inputs[INPUT])
                self.changes.partitions.append(self.inputs[INPUT])
            factor = self._chance.choice([found for found in FACTORS if found != self.factor])
            self.change(factor, self._chance.choice(_DISTURBANCES))
        self.end()

    def change(self, factor: int, disturbance: str) -> None:
        """One change of the factor, and what goes wrong meanwhile: whoever is absent comes back, else `disturbance`."""
        begun_s = time.monotonic()
        request = self._ask(factor)
        self._disturb(disturbance)
        self._wait_done(request, f"factor {factor} to be at work")
        assert self._status(request) is StatusCode.SUCCEEDED, self._response_text(request)
        self.factor = factor
        self.changes.factors.append(factor)
        self.changes.longest_s = max(self.changes.longest_s, round(time.monotonic() - begun_s, 1))

    def _wait_done(self, request: uuids.UUID, what: str) -> None:
        while self.wait(lambda: self._status(request) or not self._running(), DONE_WITHIN_S, what) is True:
            self._join(self._chance.choice(sorted(self.processors)))

    def end(self) -> None:
        """Nobody dies of a crash point any more, and who is absent comes back."""
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
        """Without dying on the way; who has died already need not leave."""
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

    def _disturb(self, kind: str) -> None:
        """At a moment of chance: somebody comes back, dies or leaves, or nothing happens."""
        at_s = time.monotonic() + self._chance.uniform(*_DISTURBED_AFTER_S)
        self.wait(lambda: time.monotonic() >= at_s, 60, "the moment of the disturbance")
        running = self._running()
        absent = [name for name in self.processors if name not in running]
        if absent:
            kind = "join"
            name = self._chance.choice(absent)
            self._join(name, environment=self._arm(name))
        elif kind == "leader":
            self._kill(self._leader(), "driver")
        elif kind in ("driver", "jvm"):
            self._kill(self._chance.choice(running), kind)
        elif kind == "worker":
            self._kill_worker(self._chance.choice(running))
        elif kind == "leave":
            self._leave(self._chance.choice(running))
        self.changes.disturbed[kind] = self.changes.disturbed.get(kind, 0) + 1

    def _kill_worker(self, name: str) -> None:
        """In its slot, so at work; it takes a while while a query is started anew."""
        processor = self.processors[name]

        def stopped() -> tuple[ProcessIdentity, bool] | bool:
            return stopped_worker(processor) or not processor.is_running()

        found = self.wait(stopped, DONE_WITHIN_S, "a worker in its slot")
        # The processor may have died without us, of a crash point.
        if isinstance(found, tuple):
            worker, is_open = found
            kill(worker)
            self.fault("worker", is_open)

    def told(self) -> str:
        return f"{super().told()}, {self.changes}"

    def _check_undisturbed(self) -> Iterator[Violation]:
        """Every change of the factor is one of everybody's grants; who kept them is looked at elsewhere."""
        yield from ()
