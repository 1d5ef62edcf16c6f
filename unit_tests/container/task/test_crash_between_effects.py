"""A process dies between any two effects, and each message counts exactly once.

One task keeps a running sum per key, so each output depends on every earlier message of the key. A lost, doubled or
misplaced message shows in the values. The task reads one input, or two whose messages share the sums.

The start procedure is the real one (`restore.catch_up_or_rebuild`, the start rule) on the records of the Kafka in
memory. The last tests take one safeguard away each and see it go wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samzapy.adapters.host.threads import HostThreads
from samzapy.config import JobConfig
from samzapy.container.local_state import restore
from samzapy.container.local_state.restore import RestoreJob, catch_up_or_rebuild
from samzapy.container.start_rules import Positions, committed_of, positions_of, stale_keys, starts_of
from samzapy.container.task.ports import LocalPosition
from samzapy.container.task.runner import TaskRunner
from samzapy.container.task.transaction import TransactionLimits
from samzapy.container.task.work_plan import Rows
from samzapy.declared_task import Declared
from samzapy.errors import ProducerError
from samzapy.model.grant import BucketStart, ChangelogStart, Grant
from samzapy.model.job import ExecutionId
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.topics import changelog_topic, checkpoint_topic
from samzapy.stream.changelog import changelog_key
from samzapy.stream.codec import decode
from samzapy.stream.log import LogRecord
from samzapy.task import LoadedTask, TaskFactory
from samzapy.testing.memory.kafka import MemoryKafka, MemoryProducer
from samzapy.testing.memory.local_state import MemoryEnvironment, MemoryLocalTransaction, MemoryStateDirectory
from samzapy.testing.memory.process import Crash, CrashAt, Trace
from samzapy.testing.memory.slot import MemorySlot
from samzapy.testing.memory.topics import MemoryTopics
from unit_tests.fixtures.container_worlds import SSP_KB, TASK, a_job, a_plan, sum_up

CONFIG = a_job()
ONE_INPUT = (SSP_KB,)
TWO_INPUTS = (SSP_KB, SspKeyBucket.parse("kafka.refunds.0:0/1"))
CRASH_POINTS = ("before-begin", "after-produce", "before-commit", "after-kafka-commit", "after-local-commit")
# Places inside the effects themselves: the commit request on its way, and the local commit (of a restore too).
ENDS = (*CRASH_POINTS, "kafka-commit", "local-commit", "unknown-committed", "unknown-aborted")
# ... and those of a start that removes the remains of an earlier run.
REMOVAL_ENDS = ("before-removal", "kafka-commit", "after-removal", "local-commit")


@pytest.fixture(scope="module", autouse=True)
def _restores_take_several_transactions() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restore, "_RECORDS_PER_COMMIT", 2)
        yield


@dataclass(frozen=True, slots=True)
class Message:
    offset: int
    key: str
    amount: int


@dataclass(frozen=True, slots=True)
class Life:
    """One process from its start to its end.

    Attributes:
        end, at_hit: where it dies; nowhere if `end` is empty, and then it works until everything is done.
        host: whose disk it has; state on another one is older, or gone if `disk_lost`.
        moved: it is a new execution under a new epoch, with a grant of its own.
        new_run: ... in a new run of a bounded job, which begins at the beginning and without state.
        replayed: so many messages before the start are delivered again.
        batch, chunk: messages per batch, and per run of rows in it.
        bytes_max: of a transaction.
    """

    end: str = ""
    at_hit: int = 1
    host: int = 0
    disk_lost: bool = False
    moved: bool = False
    new_run: bool = False
    replayed: int = 0
    batch: int = 3
    chunk: int = 2
    bytes_max: int = 40


class World:
    """The job, its cluster and its hosts.

    A mutant changes methods that are seams, and nothing else is one.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        inputs: Sequence[SspKeyBucket] = ONE_INPUT,
        config: JobConfig = CONFIG,
    ) -> None:
        self.config = config
        self.stores = [store.name for store in config.stores]
        self.messages = messages
        self.inputs = inputs
        self.wall_ms = 0
        self.declared = Declared()
        self.new_task: Callable[[], LoadedTask] = lambda: LoadedTask(process=sum_up, init=None, close=None)
        self.kafka = MemoryKafka()
        self.deaths: list[str] = []
        self.disks = [self.new_disk(host) for host in range(2)]
        self.grant = Grant(
            task_name=TASK,
            epoch=1,
            execution_id=ExecutionId("e1"),
            generation=1,
            partition_id=0,
            changelog_partition=0,
            starts=tuple(BucketStart(ssp_kb=ssp_kb, offset_next=0) for ssp_kb in inputs),
        )
        # Where the run's outputs begin.
        self.outputs_from = 0

    def route_of(self, message: Message) -> int:
        """The input of a message, by its index."""
        return message.offset % len(self.inputs)

    def run(self, lives: Sequence[Life]) -> None:
        for life in (*lives, Life()):
            try:
                self.live(life)
            except (Crash, ProducerError) as died:
                self.deaths.append(str(died))

    def live(self, life: Life) -> None:
        if life.disk_lost:
            self.disks[life.host] = self.new_disk(life.host)
        crash_points = CrashAt(life.end, life.at_hit)
        self.fence()
        if life.new_run:
            self.begin_run()
        elif life.moved:
            self.move()
        starts, environment = self.start(self.disks[life.host], crash_points)
        slot = self.slot(crash_points)
        if life.end.startswith("unknown"):
            slot.producer().commit_fails = life.end
        self.consume(life, starts, environment, slot, crash_points)

    def new_disk(self, host: int) -> MemoryStateDirectory:
        return MemoryStateDirectory(f"host-{host}")

    def fence(self) -> None:
        self.kafka.init(self.transactional_id)
        self.kafka.init(f"{self.transactional_id}/driver")

    @property
    def transactional_id(self) -> str:
        return f"samzapy/{self.config.job}/{self.grant.execution_id}/0"

    def move(self) -> None:
        """The acts of the coordinator: another execution and epoch, and a computed start.

        The start comes from all that is on record.
        """
        epoch = self.grant.epoch + 1
        starts = starts_of([self.grant], self.positions())
        self.grant = replace(
            self.grant,
            epoch=epoch,
            execution_id=ExecutionId(f"e{epoch}"),
            starts=tuple(BucketStart(ssp_kb=ssp_kb, offset_next=starts[ssp_kb]) for ssp_kb in self.inputs),
        )

    def begin_run(self) -> None:
        """The first grant of a new run begins at the beginning.

        Records that were written before, under earlier epochs, do not count.
        """
        epoch = self.grant.epoch + 1
        self.outputs_from = self.kafka.offset_end("totals")
        self.grant = replace(
            self.grant,
            epoch=epoch,
            execution_id=ExecutionId(f"e{epoch}"),
            starts=tuple(BucketStart(ssp_kb=ssp_kb, offset_next=0) for ssp_kb in self.inputs),
            counts_after=epoch - 1,
            changelog_starts=tuple(
                ChangelogStart(store=store, offset=self.kafka.offset_end(changelog_topic(self.config.job, store)))
                for store in self.stores
            ),
        )

    def start(
        self, disk: MemoryStateDirectory, crash_points: CrashAt
    ) -> tuple[Mapping[SspKeyBucket, int], MemoryEnvironment]:
        positions = self.positions()
        starts = starts_of([self.grant], positions)
        disk.crash_points = crash_points
        self.remove(checkpoint_topic(self.config.job), stale_keys([self.grant], positions), crash_points)
        topics = self.topics()
        environment = catch_up_or_rebuild(
            disk,
            RestoreJob(
                topics=topics,
                bounds={store: topics.changelog_bounds([(store, 0)])[store, 0] for store in self.stores},
                topic_ids=topics.changelog_topic_ids(self.stores),
                grant=self.grant,
                starts=starts,
                committed=committed_of([self.grant], positions),
                config=self.config,
                now_ms=0,
                write=lambda store, writes: self.remove(
                    changelog_topic(self.config.job, store), [key for key, _ in writes], crash_points
                ),
            ),
        )
        return starts, cast(MemoryEnvironment, environment)

    def remove(self, topic: str, keys: Sequence[bytes], crash_points: CrashAt) -> None:
        """Tombstones in one transaction of the driver's id."""
        if not keys:
            return
        producer = MemoryProducer(self.kafka, f"{self.transactional_id}/driver", Trace(), crash_points)
        producer.begin()
        crash_points.hit("before-removal")
        for key in keys:
            producer.produce(topic, key, None, 0)
        producer.commit()
        crash_points.hit("after-removal")

    def positions(self) -> Positions:
        topic = checkpoint_topic(self.config.job)
        return positions_of(decode(record, topic=topic) for record in self.kafka.committed(topic))

    def topics(self) -> MemoryTopics:
        return MemoryTopics(self.kafka, self.config)

    def slot(self, crash_points: CrashAt) -> MemorySlot:
        return MemorySlot(self.kafka, self.transactional_id, crash_points=crash_points)

    def consume(
        self,
        life: Life,
        starts: Mapping[SspKeyBucket, int],
        environment: MemoryEnvironment,
        slot: MemorySlot,
        crash_points: CrashAt,
    ) -> None:
        runner = self.runner(life, environment, crash_points)
        done = [m for m in self.messages if m.offset < starts[self.inputs[self.route_of(m)]]]
        left = [m for m in self.messages if m not in done]
        delivered = sorted([*done[max(0, len(done) - life.replayed) :], *left], key=_offset)
        for first in range(0, len(delivered), life.batch):
            batch = sorted(delivered[first : first + life.batch], key=lambda m: (self.route_of(m), m.offset))
            chunks = [
                _rows(route, messages[index : index + life.chunk])
                for route, group in groupby(batch, key=self.route_of)
                for messages in [list(group)]
                for index in range(0, len(messages), life.chunk)
            ]
            runner.run(chunks, slot)
            self.handled(runner, slot)

    def runner(self, life: Life, environment: MemoryEnvironment, crash_points: CrashAt) -> TaskRunner:
        plan = a_plan(self.config, epoch=self.grant.epoch, execution_id=self.grant.execution_id, ssp_kbs=self.inputs)
        return TaskRunner(
            plan=plan,
            routes=range(len(self.inputs)),
            new_task=TaskFactory(self.declared, self.new_task),
            environment=environment,
            limits=TransactionLimits(
                duration_max_s=5,
                bytes_max=life.bytes_max,
                now_s=lambda: 0.0,
                wall_ms=lambda: self.wall_ms,
                boot_ms=lambda: self.wall_ms,
            ),
            crash_points=crash_points,
            is_interrupted=lambda: False,
            threads=HostThreads(),
        )

    def handled(self, runner: TaskRunner, slot: MemorySlot) -> None:
        """A batch has been handled."""

    def check(self) -> None:
        """Everything is there exactly once, and each input in order.

        Outputs, changelog, checkpoints and the last disk agree.
        """
        by_offset = {message.offset: message for message in self.messages}
        sums: dict[str, int] = {}
        handled: dict[int, list[int]] = {}
        for record in self.kafka.committed("totals", 0, self.outputs_from):
            value = json.loads(record.value or b"")
            message = by_offset[value["offset"]]
            sums[message.key] = sums.get(message.key, 0) + message.amount
            handled.setdefault(self.route_of(message), []).append(message.offset)
            assert (message.key.encode(), sums[message.key]) == (record.key, value["total"])
        offsets: dict[int, list[int]] = {}
        for message in self.messages:
            offsets.setdefault(self.route_of(message), []).append(message.offset)
        assert offsets == handled

        by_store_key = {changelog_key(key.encode(), b""): total for key, total in sums.items()}
        assert by_store_key == _numbers(_latest(self.kafka.committed(changelog_topic(self.config.job, "sums"))))
        assert by_store_key == _numbers(self.disks[0].opened[-1].values("sums"))
        checkpoints = self.positions().checkpoints
        assert {self.inputs[route]: handled[-1] + 1 for route, handled in offsets.items()} == {
            ssp_kb: checkpoint.offset_next for ssp_kb, checkpoint in checkpoints.items()
        }


def _offset(message: Message) -> int:
    return message.offset


def _rows(route: int, messages: Sequence[Message]) -> Rows:
    return Rows(
        route,
        [message.offset for message in messages],
        [message.key.encode() for message in messages],
        [str(message.amount).encode() for message in messages],
        [0 for _ in messages],
        None,
    )


def _latest(records: Sequence[LogRecord]) -> dict[bytes, bytes]:
    latest = {record.key or b"": record.value for record in records}
    return {key: value for key, value in latest.items() if value is not None}


def _numbers(entries: Mapping[bytes, bytes]) -> dict[bytes, int]:
    return {key: int(value) for key, value in entries.items()}


def a_workload(*texts: str, gap: int = 1) -> list[Message]:
    """`a_workload("a1", "b2")`: one message per text, with `gap` offsets between them."""
    return [Message(gap * index, text[0], int(text[1:])) for index, text in enumerate(texts)]


WORKLOAD = a_workload("a1", "b2", "a3", "c4", "a5", "b6", "a7", "c8", gap=2)
WORKLOAD_OF_TWO = a_workload("a1", "b2", "a3", "c4", "a5", "b6", "a7", "c8", gap=3)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("at_hit", [1, 2, 3])
@pytest.mark.parametrize("moved", [False, True], ids=["restarted", "moved"])
@pytest.mark.parametrize("disk", ["kept", "lost", "another"])
@pytest.mark.parametrize("inputs", [ONE_INPUT, TWO_INPUTS], ids=["one-input", "two-inputs"])
def test_a_crash_at_any_place_leaves_everything_exactly_once(
    end: str, at_hit: int, moved: bool, disk: str, inputs: Sequence[SspKeyBucket]
) -> None:
    world = World(WORKLOAD if inputs is ONE_INPUT else WORKLOAD_OF_TWO, inputs)
    first = Life(end=end, at_hit=at_hit, host=1 if disk == "another" else 0)
    # The second one works for a while on the remains of the first one, and is killed too.
    second = Life(end="after-produce", at_hit=2, moved=moved, disk_lost=disk == "lost", replayed=2)

    world.run([first, second])

    world.check()
    assert 2 == len(world.deaths)


@pytest.mark.parametrize("end", REMOVAL_ENDS)
@pytest.mark.parametrize("at_hit", [1, 2, 3, 4])
@pytest.mark.parametrize("moved", [False, True], ids=["restarted", "moved"])
@pytest.mark.parametrize("disk", ["kept", "lost", "another"])
@pytest.mark.parametrize("before", [Life(end="after-produce", at_hit=7), Life()], ids=["unfinished", "finished"])
def test_a_new_run_that_dies_at_any_place_of_its_beginning_has_the_figures_of_a_first_one(
    end: str, at_hit: int, moved: bool, disk: str, before: Life
) -> None:
    """Wherever the run before had stopped, and on whichever disk its state is."""
    world = World(WORKLOAD)
    first = Life(end=end, at_hit=at_hit, host=1 if disk == "another" else 0, new_run=True)
    second = Life(end="after-produce", at_hit=2, moved=moved, disk_lost=disk == "lost", replayed=2)

    world.run([before, first, second])

    world.check()
    assert {end} & {death.partition(",")[0] for death in world.deaths} or (end, at_hit) in NEVER_REACHED


NEVER_REACHED = {(end, at_hit) for end in ("before-removal", "after-removal") for at_hit in (3, 4)}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("at_hit", [1, 2])
@pytest.mark.parametrize("disk", ["kept", "lost", "another"])
def test_runs_that_die_one_after_the_other_leave_nothing_to_the_next(end: str, at_hit: int, disk: str) -> None:
    world = World(WORKLOAD)
    host = 1 if disk == "another" else 0

    world.run(
        [
            Life(end=end, at_hit=at_hit),
            Life(end=end, at_hit=at_hit, new_run=True, host=host),
            Life(end=end, at_hit=at_hit, new_run=True, disk_lost=disk == "lost"),
            Life(end=end, at_hit=at_hit, host=host),
        ]
    )

    world.check()


lives = st.builds(
    Life,
    end=st.sampled_from((*ENDS, *REMOVAL_ENDS)),
    new_run=st.booleans(),
    at_hit=st.integers(1, 5),
    host=st.integers(0, 1),
    disk_lost=st.booleans(),
    moved=st.booleans(),
    replayed=st.integers(0, 4),
    batch=st.integers(1, 6),
    chunk=st.integers(1, 4),
    bytes_max=st.sampled_from([0, 20, 60, 1000]),
)


@st.composite
def workloads(draw: st.DrawFn) -> list[Message]:
    gaps = draw(st.lists(st.integers(1, 3), max_size=20))
    offset, messages = 0, []
    for gap in gaps:
        messages.append(Message(offset, draw(st.sampled_from("abc")), draw(st.integers(1, 9))))
        offset += gap
    return messages


@settings(max_examples=300, deadline=None)
@given(workloads(), st.lists(lives, max_size=6), st.sampled_from([ONE_INPUT, TWO_INPUTS]))
def test_no_workload_no_batches_and_no_sequence_of_crashes_change_the_result(
    messages: list[Message], lives: list[Life], inputs: Sequence[SspKeyBucket]
) -> None:
    world = World(messages, inputs)

    world.run(lives)

    world.check()


# --- without one of the safeguards it goes wrong ---


class _LateCommit(MemoryProducer):
    """Commits when the slot is marked clean: the local store was first."""

    def commit(self) -> None:
        self.is_waiting = True

    def commit_late(self) -> None:
        super().commit()


class _LocalFirstSlot(MemorySlot):
    def producer(self) -> MemoryProducer:
        if self._producer is None:
            self._producer = _LateCommit(self._kafka, self._transactional_id, self.trace, self._crash_points)
        return self._producer

    def mark_clean(self) -> None:
        assert isinstance(self._producer, _LateCommit)
        self._producer.commit_late()
        super().mark_clean()


class LocalFirst(World):
    """The local store commits before Kafka."""

    def slot(self, crash_points: CrashAt) -> MemorySlot:
        return _LocalFirstSlot(self.kafka, self.transactional_id, crash_points=crash_points)


class LocalFirstAndTrusting(LocalFirst):
    """... and the start does not notice that the local state is ahead."""

    def start(
        self, disk: MemoryStateDirectory, crash_points: CrashAt
    ) -> tuple[Mapping[SspKeyBucket, int], MemoryEnvironment]:
        if disk.contents.position is not None:
            disk.damage_position(offsets_next={})
        return super().start(disk, crash_points)


class _CheckpointFirst(MemoryProducer):
    """Positions are there when they are written, all else at the commit."""

    def produce(self, topic: str, key: bytes | None, value: bytes | None, *args: Any, **named: Any) -> None:
        if topic == checkpoint_topic(CONFIG.job):
            self._kafka.write(topic, 0, [(key, value)])
        else:
            super().produce(topic, key, value, *args, **named)


class _CheckpointFirstSlot(MemorySlot):
    def producer(self) -> MemoryProducer:
        if self._producer is None:
            self._producer = _CheckpointFirst(self._kafka, self._transactional_id, self.trace, self._crash_points)
        return self._producer


class CheckpointBeforeOutput(World):
    """A worker commits its positions before the outputs and changelog they cover."""

    def slot(self, crash_points: CrashAt) -> MemorySlot:
        return _CheckpointFirstSlot(self.kafka, self.transactional_id, crash_points=crash_points)


class WithoutCatchUp(World):
    """Local state is taken as it is found."""

    def topics(self) -> MemoryTopics:
        topics = MemoryTopics(self.kafka, CONFIG)
        topics.changelog_records = lambda *_: iter(())  # type: ignore[method-assign]
        return topics


class WithoutCheckpoints(World):
    """A start reads from the grant's start, whatever was committed since."""

    def positions(self) -> Positions:
        return Positions()


class WithStateOfAnEarlierRun(World):
    """A new run begins anew, but its grant does not say that the state is void."""

    def begin_run(self) -> None:
        super().begin_run()
        self.grant = replace(self.grant, counts_after=0, changelog_starts=())


class WithChangelogOfAnEarlierRun(World):
    """The grant of a new run voids local state, but no entry of the changelog."""

    def begin_run(self) -> None:
        super().begin_run()
        self.grant = replace(self.grant, changelog_starts=())


class WithoutRemoving(World):
    """The records of an earlier run stay on the topics."""

    def remove(self, topic: str, keys: Sequence[bytes], crash_points: CrashAt) -> None:
        pass


class WithoutFencing(World):
    """A start does not end the open transaction of the one before."""

    def fence(self) -> None:
        pass


class _ForgetfulTransaction(MemoryLocalTransaction):
    def position(self) -> LocalPosition | None:
        position = super().position()
        return None if position is None else replace(position, offsets_next={str(SSP_KB): 0})


class _ForgetfulEnvironment(MemoryEnvironment):
    def begin(self) -> MemoryLocalTransaction:
        super().begin().abort()
        return _ForgetfulTransaction(self)


class WithoutSkipping(World):
    """A worker handles every message it gets, also those below the next offset."""

    def start(
        self, disk: MemoryStateDirectory, crash_points: CrashAt
    ) -> tuple[Mapping[SspKeyBucket, int], MemoryEnvironment]:
        starts, environment = super().start(disk, crash_points)
        return starts, _ForgetfulEnvironment(environment.directory, environment.contents, Trace(), crash_points)


@pytest.mark.parametrize(
    ("mutant", "lives"),
    [
        (LocalFirstAndTrusting, [Life(end="after-local-commit")]),
        (CheckpointBeforeOutput, [Life(end="before-commit")]),
        (CheckpointBeforeOutput, [Life(end="kafka-commit", at_hit=2)]),
        (WithoutCatchUp, [Life(end="after-kafka-commit")]),
        (WithoutCheckpoints, [Life(end="after-local-commit")]),
        (WithoutSkipping, [Life(end="after-local-commit"), Life(replayed=2)]),
        (WithStateOfAnEarlierRun, [Life(), Life(new_run=True)]),
        (WithChangelogOfAnEarlierRun, [Life(), Life(new_run=True)]),
    ],
)
def test_without_a_safeguard_a_crash_shows_in_the_result(mutant: type[World], lives: list[Life]) -> None:
    whole, broken = World(WORKLOAD), mutant(WORKLOAD)
    whole.run(lives)
    broken.run(lives)

    whole.check()
    with pytest.raises(AssertionError):
        broken.check()


def test_without_removal_the_state_of_an_earlier_run_stays() -> None:
    world = WithoutRemoving(WORKLOAD)
    world.live(Life())

    world.messages = WORKLOAD[:1]
    world.live(Life(new_run=True))

    with pytest.raises(AssertionError):
        world.check()
    whole = World(WORKLOAD)
    whole.live(Life())
    whole.messages = WORKLOAD[:1]
    whole.live(Life(new_run=True))
    whole.check()


def test_without_fencing_no_reader_reaches_the_end() -> None:
    world = WithoutFencing(WORKLOAD)

    with pytest.raises(Exception, match="an open transaction from offset"):
        world.run([Life(end="after-produce")])


def test_local_state_that_is_ahead_is_thrown_away() -> None:
    """The order of the two commits is not the only thing that keeps it right."""
    world = LocalFirst(WORKLOAD)
    with pytest.raises(Crash):
        world.live(Life(end="after-local-commit"))
    number = world.disks[0].number

    world.live(Life())

    world.check()
    assert number + 1 == world.disks[0].number
