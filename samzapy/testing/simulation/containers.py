"""An execution as a small state machine, with the container's own rules where they are pure.

What it does to the world it does in single steps, so that anything may come between two of them: read the stream,
send a heartbeat, take a transactional id, begin a transaction, commit it. It is as careful as the design asks
(section 6) and no more: in particular it looks at its lease only before it begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from samzapy.container.orders import Orders, follow
from samzapy.container.start import positions_of, starts_of, superseded_keys
from samzapy.coordinator.commands import HeldGrant
from samzapy.errors import DeadlineError, FencedError, ProducerError
from samzapy.model.checkpoint import Checkpoint, Progress
from samzapy.model.container import ContainerPhase, driver_transactional_id, slot_transactional_id
from samzapy.model.grant import Grant
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.model.ssp import SspKeyBucket
from samzapy.stream.codec import encode
from samzapy.stream.log import Write
from samzapy.stream.records import CheckpointPut, ProgressPut
from samzapy.testing.memory_log import MemoryLog, MemoryTopic
from samzapy.testing.simulation.checks import Ledger, decoded
from samzapy.testing.simulation.inputs import FINEST, Inputs

SLOT_COUNT = 1
STOPS_NOW = 0.3
"""The luck of one that stops without delay."""
WORKS_MUCH = 0.9
"""... and of one that has the largest batches, and no mishap."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What an open transaction will have done, once it is committed."""

    log: MemoryLog
    ranges: tuple[tuple[SspKeyBucket, int, int], ...]
    # Whether it records what was only read past, and removes what nobody asks for.
    is_of_driver: bool = False


class SimulatedContainer:
    """One execution.

    Attributes:
        alive: the process is there; a paused one is, too.
        said_to_be_lost: a heartbeat was answered `alive: false`.
        lease_until_ms: in true time.
        serving: what its query runs with; only under these it commits.
        is_commit_in_flight: it was killed after it had sent a commit, which may still arrive.
    """

    def __init__(
        self,
        *,
        stream: MemoryTopic,
        checkpoints: MemoryTopic,
        ledger: Ledger,
        inputs: Inputs,
        job: str,
        execution_id: str,
        processor_id: str,
        host: str,
        pid: int,
    ) -> None:
        self.execution_id = ExecutionId(execution_id)
        self.processor_id = ProcessorId(processor_id)
        self.host = host
        self.pid = pid
        self.alive = True
        self.paused = False
        self.stopping = False
        self.is_commit_in_flight = False
        self.said_to_be_lost = False
        self.state = ContainerPhase.STARTED
        self.lease_until_ms = 0
        self.orders = Orders(execution_id=self.execution_id)
        # What was read off which orders: it is asked for at each step.
        self._wanted: tuple[Orders | None, tuple[Grant, ...]] = (None, ())
        self.serving: tuple[Grant, ...] = ()
        self.positions: dict[SspKeyBucket, int] = {}
        # By bucket of the finest factor: the first offset that is not done, where the query began.
        self._begins: dict[SspKeyBucket, Mapping[int, int]] = {}
        # What was read past and is not recorded; what another factor left on the checkpoint topic.
        self._idle: dict[SspKeyBucket, int] = {}
        self._superseded: Sequence[bytes] = ()
        self._stream = stream
        self._checkpoints = checkpoints
        self._ledger = ledger
        self._inputs = inputs
        self._slot = MemoryLog(checkpoints, slot_transactional_id(job, self.execution_id, 0))
        self._driver = MemoryLog(checkpoints, driver_transactional_id(job, self.execution_id))
        # The newest order to restart that what it serves with was started after.
        self.restart = 0
        self._work: _Work | None = None
        self._is_level = False

    # --- the coordinator stream ---

    def follow(self, count_max: int | None = None) -> int:
        """Read on, as far as can be read without waiting; how many records came."""
        records, offset_next = self._stream.read_stable(self.orders.offset_next, count_max)
        if offset_next == self.orders.offset_next:
            return 0
        found = [decoded(record, topic=self._stream.name) for record in records]
        self.orders = follow(self.orders, found, offset_next)
        return len(found)

    @property
    def is_given_up(self) -> bool:
        return self.orders.is_given_up or self.said_to_be_lost

    def wanted(self) -> tuple[Grant, ...]:
        """What it should serve."""
        known, wanted = self._wanted
        if known is not self.orders:
            wanted = self.orders.own_grants()
            self._wanted = self.orders, wanted
        return wanted

    def held(self) -> frozenset[HeldGrant]:
        """A grant once read stands in the list until it is let go."""
        wanted = () if self.state is ContainerPhase.STOPPED else self.wanted()
        return frozenset(HeldGrant(grant.task_name, grant.epoch) for grant in (*wanted, *self.serving))

    # --- work ---

    def may_commit(self, other: Grant) -> list[int]:
        """The epochs under which it could still commit: under `other` if that is released, else for any part of it."""
        if not (self.alive or self.is_commit_in_flight) or not (self._slot.is_owner or self._driver.is_owner):
            return []
        return [
            grant.epoch
            for grant in self.serving
            if (grant.epoch == other.epoch) is other.released
            and (
                grant.task_name == other.task_name
                or any(mine.ssp_kb.overlaps(start.ssp_kb) for mine in grant.starts for start in other.starts)
            )
        ]

    def die(self, luck: float) -> None:
        """As by SIGKILL. `luck` says whether a commit was on its way."""
        self.alive = False
        self.is_commit_in_flight = self._work is not None and luck < 0.5

    def commit_arrives(self) -> str:
        """What a killed one had sent reaches the broker after all."""
        self.is_commit_in_flight = False
        return "" if self._work is None else self._commit(self._work, 0.5)

    def step(self, now_ms: int, luck: float) -> str:
        """Do the next thing there is to do; says what it was.

        Args:
            luck: in [0, 1), chooses between what may happen.
        """
        if self.is_given_up:
            # Like a killed one: what it had open stays open until the broker or the coordinator ends it.
            self.alive = False
            return "ends: given up"
        if self._work is not None:
            return self._commit(self._work, luck)
        if self.state is ContainerPhase.STOPPED:
            if luck < 0.03 or luck == STOPS_NOW:
                self.alive = False
                return "ends"
            return "has stopped"
        if self.stopping and luck < 0.3 and self.serving:
            # Its query does not end in time: it says that it stops, and that it has not let go.
            self.state = ContainerPhase.STOPPED
            return "stops without letting go"
        if self.stopping:
            self._let_go()
            self.state = ContainerPhase.STOPPED
            return "stops"
        if self.serving != self.wanted() or (self.serving and self.restart < self.orders.restart):
            return self._start()
        if now_ms < self.lease_until_ms:
            return self._begin(luck)
        return "has no lease"

    def _start(self) -> str:
        """The start procedure, which is also recovery: own the ids, read both topics to the end."""
        self._let_go()
        if not (self._slot.is_owner and self._driver.is_owner and self._is_level):
            self._slot.take_over()
            self._driver.take_over()
            self._is_level = True
            return "takes its ids"
        if not self._has_read_to_the_end():
            return "waits for an open transaction"
        if self.is_given_up:
            return "finds that it was given up"
        try:
            records = list(MemoryLog(self._checkpoints).read())
        except DeadlineError:
            return "waits for positions"
        positions = positions_of(decoded(record, topic=self._checkpoints.name) for record in records)
        self.serving, self.restart = self.wanted(), self.orders.restart
        self.positions = dict(starts_of(self.serving, positions))
        self._begins = {
            start.ssp_kb: replace(start, offset_next=self.positions[start.ssp_kb]).positions(FINEST)
            for grant in self.serving
            for start in grant.starts
        }
        epochs = {grant.epoch for grant in self.orders.grants.values()}
        self._superseded = superseded_keys(self.serving, positions, epochs)
        self.state = ContainerPhase.RUNNING
        return f"serves {[f'{grant.task_name}@{grant.epoch}' for grant in self.serving]}"

    def _has_read_to_the_end(self) -> bool:
        end = self._stream.end_offset
        self.follow()
        return self.orders.offset_next >= end

    def _begin(self, luck: float) -> str:
        """Take up what came, or record what was read past: the driver's part of the work, which waits for a while."""
        behind = [ssp_kb for ssp_kb, position in self.positions.items() if position < self._inputs.end(ssp_kb.ssp)]
        is_due = not behind or 0.4 < luck < 0.5
        if (self._idle or self._superseded) and is_due:
            return self._begin_of_driver()
        if not behind:
            return "has nothing to do"
        ranges: list[tuple[SspKeyBucket, int, int]] = []
        # Some of them, not always the same ones: parts of a partition come to be at different places.
        begin = int(luck * 1000) % len(behind)
        for ssp_kb in (behind + behind)[begin : begin + 1 + int(luck * len(behind) / 2)]:
            first = self.positions[ssp_kb]
            end = min(self._inputs.end(ssp_kb.ssp), first + 1 + int(luck * luck * 16))
            last = self._inputs.last_of(ssp_kb.ssp, self._begins[ssp_kb], first, end)
            if last is None:
                self.positions[ssp_kb] = self._idle[ssp_kb] = end
            else:
                ranges.append((ssp_kb, first, last + 1))
        if not ranges:
            return "reads past what is not its own"
        return self._begin_work(_Work(self._slot, tuple(ranges)), ())

    def _begin_of_driver(self) -> str:
        ranges = tuple((ssp_kb, end, end) for ssp_kb, end in self._idle.items())
        removed = [Write(key=key, value=None) for key in self._superseded]
        return self._begin_work(_Work(self._driver, ranges, is_of_driver=True), removed)

    def _begin_work(self, work: _Work, writes: Sequence[Write]) -> str:
        grant_of = {start.ssp_kb: grant for grant in self.serving for start in grant.starts}
        moved = [self._write(grant_of[ssp_kb], ssp_kb, end, work.is_of_driver) for ssp_kb, _, end in work.ranges]
        try:
            work.log.append_and_stop([*moved, *writes])
        except (FencedError, ProducerError):
            return self._fail("is fenced at its begin")
        self._work = work
        if work.is_of_driver:
            return f"begins to record what it read past, {len(work.ranges)} positions, and to remove {len(writes)}"
        return f"begins {', '.join(f'{ssp_kb} {first}-{end}' for ssp_kb, first, end in work.ranges)}"

    def _write(self, grant: Grant, ssp_kb: SspKeyBucket, offset_next: int, is_idle: bool) -> Write:
        record: CheckpointPut | ProgressPut
        if is_idle:
            record = ProgressPut(
                progress=Progress(
                    ssp_kb=ssp_kb, offset_next=offset_next, epoch=grant.epoch, execution_id=self.execution_id
                )
            )
        else:
            record = CheckpointPut(
                checkpoint=Checkpoint(
                    ssp_kb=ssp_kb,
                    offset_next=offset_next,
                    epoch=grant.epoch,
                    task_name=grant.task_name,
                    execution_id=self.execution_id,
                )
            )
        key, value = encode(record)
        return Write(key=key, value=value)

    def _commit(self, work: _Work, luck: float) -> str:
        self._work = None
        try:
            if luck < 0.08:
                work.log.abort()
                return self._fail("aborts")
            work.log.commit()
        except (FencedError, ProducerError):
            return self._fail("is fenced at its commit")
        for ssp_kb, first, end in work.ranges:
            begins = {bucket: max(first, begin) for bucket, begin in self._begins[ssp_kb].items()}
            self._ledger.commit(ssp_kb.ssp, begins, end, f"{self.execution_id}")
            self.positions[ssp_kb] = max(end, self.positions[ssp_kb])
        if work.is_of_driver:
            self._idle, self._superseded = {}, ()
        else:
            # The checkpoint is further now than what was read past before it.
            for ssp_kb, _, _ in work.ranges:
                self._idle.pop(ssp_kb, None)
        if luck > 0.95:
            return self._fail("commits and does not hear of it")
        return "commits"

    def _fail(self, text: str) -> str:
        """Any failure of a batch ends the query; the start procedure is the way back."""
        self._let_go()
        self._is_level = False
        return text

    def _let_go(self) -> None:
        self.serving, self.positions, self._begins, self._idle, self._superseded = (), {}, {}, {}, ()
