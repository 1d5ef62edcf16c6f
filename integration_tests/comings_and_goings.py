"""Processors of a stateful job that join, leave, die and return, under a ledger.

`scripts/chaos` runs it for ten minutes, a test for three. A seed decides the acts of each process (the machine's
own timing stays its own). Each fault is proven: the process was killed, or has ended with 0.
"""

from __future__ import annotations

import random
import time
import uuid as uuids
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from integration_tests.ledger_run import INPUT, PARTITIONS, TAILS, LedgerRun, Seen, Subject
from integration_tests.support.coordinator_audit import Audit
from integration_tests.support.grant_changes import grant_changes, transactions
from integration_tests.support.job_process import JobProcess, kill
from integration_tests.support.ledger import Violation
from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.container.service import QUERY_PAUSED
from samzapy.errors import DeadlineError, ExitCode
from samzapy.model.job import ProcessorId
from samzapy.placement import ANY_HOST, ContainerPlacementMetadataStore, StatusCode
from samzapy.stream.records import ConfigPut, ContainerPut, PlacedPut, RunPut, TermPut
from samzapy.testing.broker import DevBroker
from samzapy.testing.waiting import wait_until

PROCESSORS = 3
RECORDS_PER_S = 300
DONE_WITHIN_S = 240.0
"""A request; it expires then."""
_LEAVES_WITHIN_S = 90.0
_APPEARS_WITHIN_S = 300.0
_LOOK_EVERY_S = 0.3
_QUIET_S = (4.0, 10.0)
_MOVES = 0.4
"""Of all that happens, if any does."""
_RESTARTED = "the grants changed; the query is started anew"
_FAILED = "the query failed and is started anew"
# Short, so that many changes fit into a run: joins are collected, and a processor back at once has its tasks.
_SOON = {
    "job.debounce.time.ms": "1000",
    "job.processor.grace.ms": "2000",
    "task.transaction.max.ms": "200",
    # An election on a busy machine pauses no query.
    "job.container.lease.ms": "60000",
    "job.container.lost.ms": "65000",
    **TAILS,
}


@dataclass(slots=True)
class Comings:
    """The counts of events, for the log."""

    joins: int = 0
    leaves: int = 0
    kills: int = 0
    kills_of_the_leader: int = 0
    terms: int = 0
    returns: int = 0
    changes_seen_by_others: int = 0
    query_restarts: int = 0
    reasons_to_restart: int = 0
    moves: dict[str, int] = field(default_factory=dict)


class ComingsAndGoings(LedgerRun):
    """A ledger run whose job is several processes, each of one processor."""

    def __init__(
        self,
        directory: Path,
        *,
        seed: int,
        processors: int = PROCESSORS,
        partitions: int = PARTITIONS,
        environment: Mapping[str, str] | None = None,
        overrides: Mapping[str, str] | None = None,
        subject: Subject | None = None,
        broker: DevBroker | None = None,
    ) -> None:
        super().__init__(
            directory,
            seed=seed,
            inputs={INPUT: partitions},
            task_count=partitions,
            environment=environment,
            overrides={**_SOON, **(overrides or {})},
            subject=subject,
            broker=broker,
        )
        self.comings = Comings()
        self.processors = {f"p{number}": self._processor(f"p{number}") for number in range(processors)}
        self._chance = random.Random(seed)
        # Those whose end is the test's doing.
        self._ended: set[str] = set()
        self._moves: list[uuids.UUID] = []

    def __exit__(self, *error: object) -> None:
        for processor in self.processors.values():
            processor.kill_everything()
        super().__exit__(*error)  # type: ignore[arg-type]

    def _processor(self, name: str) -> JobProcess:
        return self.another_job(name, overrides={"processor.id": name}, spark_options=("--master", "local[1]"))

    def keep_running(self) -> None:
        """Start no process; complain of a process that ended by itself."""
        for name, processor in self.processors.items():
            code = processor.exit_code()
            if code is not None and name not in self._ended:
                raise AssertionError(f"{name} ended by itself with {code}:\n{processor.log_text()[-4000:]}")

    def start_all(self, *, in_tails: bool = True) -> None:
        """Start all processors at once; returns when they are at work (`await_work`)."""
        self._join(*self.processors)
        self.await_work(in_tails=in_tails)

    def disturb(self, for_s: float, *, moves: bool = False) -> None:
        """Let processors come and go until the time is up; in the end all run again.

        The death of the leader comes first, then a processor leaves in order. At the end each has its own tasks.

        Args:
            moves: whether an operator moves processors meanwhile.
        """
        until_s = time.monotonic() + for_s
        self._kill(self._leader(), "jvm")
        self._be_quiet()
        self._leave(self._chance.choice(self._running()))
        while time.monotonic() < until_s:
            self._be_quiet()
            if moves and self._chance.random() < _MOVES:
                self._move(self._chance.choice(sorted(self.processors)), ANY_HOST)
            else:
                self._one_of_them()
        running = self._running()
        self._join(*(name for name in self.processors if name not in running))
        if moves:
            self._bring_home()

    def _move(self, name: str, host: str) -> uuids.UUID:
        """Ask for a move; its outcome is checked at the end."""
        with self._store() as store:
            request = store.write_container_placement_request_message(
                self._run_id(), name, host, timedelta(seconds=DONE_WITHIN_S)
            )
        self._moves.append(request)
        return request

    def _bring_home(self) -> None:
        """Each processor has its own tasks again, and each request one terminal answer."""
        for name in sorted({str(record.processor_id) for record in self.stream() if isinstance(record, PlacedPut)}):
            request = self._move(name, self._host_of(name))
            self.wait(lambda move=request: self._status(move), DONE_WITHIN_S, f"{name} to be home")  # type: ignore[misc]
            assert self._status(request) is StatusCode.SUCCEEDED, self._response_text(request)
        for request in self._moves:
            status = self.wait(lambda move=request: self._status(move), DONE_WITHIN_S, "an answer")  # type: ignore[misc]
            self.comings.moves[status.value] = self.comings.moves.get(status.value, 0) + 1

    def _host_of(self, name: str) -> str:
        hosts = [
            record.container.host
            for record in self.stream()
            if isinstance(record, ContainerPut) and record.container.processor_id == name
        ]
        return hosts[-1]

    def _status(self, request: uuids.UUID) -> StatusCode | None:
        """The terminal status, once there is one."""
        with self._store() as store:
            return terminal_status(store, request)

    def _response_text(self, request: uuids.UUID) -> str:
        with self._store() as store:
            response = store.read_container_placement_response_message(request)
        return "" if response is None else response.response_message

    def _store(self) -> ContainerPlacementMetadataStore:
        return ContainerPlacementMetadataStore(self.broker.bootstrap_servers, job=self.subject.name)

    def _run_id(self) -> str:
        def latest() -> str | None:
            runs = [record.run_id for record in self.stream() if isinstance(record, RunPut)]
            return runs[-1] if runs else None

        return wait_until(latest, 60.0, "a run of the job")

    def _running(self) -> list[str]:
        return [name for name, processor in self.processors.items() if processor.is_running()]

    def _be_quiet(self) -> None:
        until_s = time.monotonic() + self._chance.uniform(*_QUIET_S)
        self.wait(lambda: time.monotonic() > until_s, 60, "some seconds to go by")

    def _one_of_them(self) -> None:
        running = self._running()
        absent = [name for name in self.processors if name not in running]
        if absent and (len(running) == 1 or self._chance.random() < 0.5):
            self._join(self._chance.choice(absent))
            return
        name = self._chance.choice(running)
        if self._chance.random() < 0.5:
            self._leave(name)
        else:
            self._kill(name, self._chance.choice(["jvm", "driver"]))

    def _join(self, *names: str, environment: Mapping[str, str] | None = None) -> None:
        """Restart all at once; returns when each has a new execution."""
        before = {name: self._executions_of(name) for name in names}
        for name in names:
            self.comings.returns += name in self._ended
            self._ended.discard(name)
            self.processors[name].start(environment)
        for name in names:
            self.wait(
                lambda name=name: self._executions_of(name) - before[name],  # type: ignore[misc]
                _APPEARS_WITHIN_S,
                f"{name} to have joined",
            )
            self.comings.joins += 1

    def _leave(self, name: str) -> int:
        """Let a processor leave; on a busy machine its drain may not end in time."""
        self._ended.add(name)
        processor = self.processors[name]
        code = processor.terminate(_LEAVES_WITHIN_S)
        assert code in (0, ExitCode.TIMED_OUT), f"{name} left with {code}:\n{processor.log_text()[-4000:]}"
        self.comings.leaves += 1
        return code

    def _kill(self, name: str, part: str) -> None:
        processor = self.processors[name]
        find: Callable[[], ProcessIdentity | None] = processor.jvm if part == "jvm" else processor.driver
        wait_until(lambda: find() or not processor.is_running(), _APPEARS_WITHIN_S, f"the {part} of {name}")
        victim = find()
        if victim is None:
            # It died before the kill; `keep_running` checks whether it was expected to.
            return
        driver = processor.driver()
        is_leader = driver is not None and driver.pid == self._leader_pid()
        self._ended.add(name)
        try:
            kill(victim)
        except ProcessLookupError:
            self._ended.discard(name)  # As above, a moment later.
            return
        self.comings.kills_of_the_leader += is_leader
        # All its processes end when one is killed.
        processor.wait_gone()
        self.comings.kills += 1

    def _executions_of(self, name: str) -> frozenset[str]:
        return frozenset(
            record.container.execution_id
            for record in self.stream()
            if isinstance(record, ContainerPut) and record.container.processor_id == name
        )

    def _leader_pid(self) -> int | None:
        terms = [record.pid for record in self.stream() if isinstance(record, TermPut)]
        return terms[-1] if terms else None

    def _leader(self) -> str:
        """The name of the processor whose process leads."""
        return self.wait(self._living_leader, _APPEARS_WITHIN_S, "a leader")

    def _living_leader(self) -> str | None:
        pid = self._leader_pid()
        drivers = {name: processor.driver() for name, processor in self.processors.items()}
        return next((name for name, driver in drivers.items() if driver is not None and driver.pid == pid), None)

    def _last_records(self) -> str:
        return "\n".join(repr(record) for record in self.stream()[-100:] if not isinstance(record, ConfigPut))

    # --- the rules of this run ---

    def _check_owners(self) -> Iterator[Violation]:
        try:
            records = self._wait_settled()
        except DeadlineError as error:
            error.add_note(f"the coordinator stream's last records:\n{self._last_records()}")
            for name, processor in self.processors.items():
                error.add_note(f"the end of the log of {name}:\n{processor.log_text()[-4000:]}")
            raise
        yield from self._check_owners_of(records)

    def _wait_settled(self) -> Sequence[Seen]:
        """Wait until every processor has its share; returns the stream of then."""
        return self.wait(
            self._settled, _APPEARS_WITHIN_S, "every processor to have its share", poll_interval_s=_LOOK_EVERY_S
        )

    def _settled(self) -> Sequence[Seen] | None:
        records = self.read(self.coordinator, 0)
        return records if self._has_settled(self._audit(records)) else None

    def _has_settled(self, audited: Audit) -> bool:
        owners = audited.owners()
        return len(owners) == self.task_count * self.factor and len(set(owners.values())) == len(self.processors)

    def _stop(self) -> None:
        for name, processor in self.processors.items():
            if processor.is_running():
                self._leave(name)

    def _orphans(self) -> Iterator[Violation]:
        for processor in self.processors.values():
            try:
                processor.wait_gone(60)
            except Exception as error:
                yield Violation("K", str(error))

    def _check_coordinator(self) -> Iterator[Violation]:
        yield from super()._check_coordinator()
        yield from self._check_undisturbed()
        self.comings.terms = sum(isinstance(record, TermPut) for record in self.stream())

    def summary(self) -> str:
        """The events of the run, in a line or two."""
        return ", ".join(filter(None, (f"{self.figures}, {self.comings}", self.subject.summary())))

    def _check_undisturbed(self) -> Iterator[Violation]:
        """Each restart of a query has a change of that execution's own grants.

        All changes of one transaction are one change. The containers' own logs are compared with the coordinator
        stream.
        """
        changes = grant_changes(transactions(self.stream_by_offset()))
        self.comings.changes_seen_by_others = changes.kept_by_others
        for name, processor in self.processors.items():
            text = processor.all_log_text()
            for start in text.split("\n--- ")[1:] if "\n--- " in text else [text]:
                if _FAILED in start or QUERY_PAUSED in start:
                    yield Violation("U", f"a query of {name} failed or paused:\n{start[-3000:]}")
            restarts, reasons = text.count(_RESTARTED), changes.reasons.get(ProcessorId(name), 0)
            self.comings.query_restarts += restarts
            self.comings.reasons_to_restart += reasons
            if restarts > reasons:
                yield Violation("U", f"{name} started its query anew {restarts} times for {reasons} changes")
        if changes.kept_by_others == 0:
            yield Violation(
                "U", "no container ever kept its grants while others' changed: this run has proven nothing"
            )


def terminal_status(store: ContainerPlacementMetadataStore, request: uuids.UUID) -> StatusCode | None:
    """The status of a request that is answered for good; None before that."""
    response = store.read_container_placement_response_message(request)
    return response.status_code if response is not None and response.status_code.is_terminal else None
