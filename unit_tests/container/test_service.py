from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice, pairwise
from typing import Any

import pytest

from samzapy.config import JobConfig, recorded_properties
from samzapy.container.batch_limit import COLD_MS
from samzapy.container.local_state.cleanup import REMOVED_AT_ONCE_MAX, UNUSED_MS
from samzapy.container.orders import Orders
from samzapy.container.ports import BatchDone, QueryFailed, TopicBounds
from samzapy.container.query_retries import STARTS_MIN
from samzapy.container.service import ContainerIdentity, ContainerPorts, ContainerService
from samzapy.container.task.work_plan import Report, ReportKind
from samzapy.errors import (
    BrokerUnavailableError,
    ConfigError,
    DataError,
    ExitCode,
    FencedError,
    LostContainerError,
    LostRangeError,
    MissingTopicError,
    ProducerError,
    SamzapyError,
    SlowMessageError,
    TaskError,
    TopicIdentityError,
    UndeliveredError,
)
from samzapy.model.checkpoint import Checkpoint
from samzapy.model.container import ContainerPhase
from samzapy.model.grant import BucketStart, ChangelogStart, Grant
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.launch import LaunchPhase, LaunchRole
from samzapy.model.ssp import SystemStream, SystemStreamPartition
from samzapy.model.standby_progress import StandbyProgress
from samzapy.model.topics import changelog_topic, checkpoint_topic, coordinator_topic
from samzapy.stream.changelog import changelog_key
from samzapy.stream.codec import encode
from samzapy.stream.log import LogRecord
from samzapy.stream.records import (
    CheckpointPut,
    ConfigPut,
    ContainerPut,
    GrantPut,
    InputEndPut,
    InputPut,
    LaunchPut,
    PlacedPut,
    Removed,
    RestartPut,
    RunPut,
    TermPut,
)
from samzapy.testing.builders import a_container, a_grant, a_launch, an_ssp, an_ssp_kb
from samzapy.testing.virtual_clock import VirtualClock
from unit_tests.fixtures.container_fakes import (
    Crash,
    CrashAt,
    MemoryEnvironment,
    MemoryFence,
    MemoryHeartbeats,
    MemoryKafka,
    MemoryProgressLog,
    MemorySlots,
    MemoryStateDirectory,
    MemoryStream,
    MemoryTail,
    MemoryTopics,
    ScriptedQuery,
    StopFlag,
    Trace,
)
from unit_tests.fixtures.container_worlds import a_job, plan_in_force

ORDERS_0, ORDERS_1 = an_ssp_kb("kafka.orders.0:0/1"), an_ssp_kb("kafka.orders.1:0/1")


class AContainer:
    """Execution `e1` with grants of two tasks, a, of orders.0, and b, of orders.1; stops when its script is over."""

    def __init__(self, *, grants: tuple[Grant, ...] | None = None, **properties: str) -> None:
        self.config = a_job(**properties)
        self.trace = Trace()
        self.clock = VirtualClock()
        self.kafka = MemoryKafka()
        self.stream = MemoryStream(self.trace)
        self.topics = MemoryTopics(self.kafka, self.config)
        self.topics.trace = self.trace
        self.tail = MemoryTail(self.kafka, self.config)
        self.slots = MemorySlots(self.trace)
        self.fence = MemoryFence(self.trace)
        self.progress = MemoryProgressLog(self.trace)
        self.heartbeats = MemoryHeartbeats(self.trace)
        self.stop = StopFlag()
        self.query = ScriptedQuery(self.trace, self.clock, self.ask_to_stop)
        self.disks: dict[str, MemoryStateDirectory] = {}
        self.crash_points = CrashAt()
        self.pauses_ms: list[int] = []
        self.while_pausing: Callable[[], None] = lambda: None
        for grant in (a_task("a"), a_task("b")) if grants is None else grants:
            self.stream.records.append(GrantPut(grant=grant))

    def ask_to_stop(self) -> None:
        self.stop.asked = True

    def run(self, *steps: Any) -> None:
        self.query.steps.extend(steps)
        service = ContainerService(
            self.config,
            ContainerIdentity(
                execution_id=ExecutionId("e1"),
                slot_count=2,
                job_file="job.py",
                scratch_dir="/scratch",
            ),
            ContainerPorts(
                clock=self.clock,
                stream=self.stream,
                topics=self.topics,
                tail=self.tail,
                slots=self.slots,
                fence=self.fence,
                progress=self.progress,
                query=self.query,
                heartbeats=self.heartbeats,
                stop=self.stop,
                crash_points=self.crash_points,
                state_of=lambda name: self.disks.setdefault(name, MemoryStateDirectory(name)),
                tasks_here=lambda: [TaskName(name) for name, disk in sorted(self.disks.items()) if disk.number],
                pause=self._pause,
            ),
        )
        service.run()

    def _pause(self, ms: int) -> None:
        self.pauses_ms.append(ms)
        assert len(self.pauses_ms) < 10_000, "waits for ever"
        self.clock.advance(ms)
        self.while_pausing()

    def commit(self, offset_next: int, *, task: str = "a", epoch: int = 1) -> None:
        """What a worker does."""
        checkpoint = Checkpoint(
            ssp_kb=ORDERS_0 if task == "a" else ORDERS_1,
            offset_next=offset_next,
            epoch=epoch,
            task_name=TaskName(task),
            execution_id=ExecutionId("e1"),
        )
        self.kafka.write(checkpoint_topic(self.config.job), 0, [encode(CheckpointPut(checkpoint=checkpoint))])


def a_task(name: str, *, epoch: int = 1, execution_id: str = "e1", offset_next: int = 0) -> Grant:
    ssp_kb = {"a": ORDERS_0, "b": ORDERS_1}[name]
    return a_grant(name, epoch=epoch, execution_id=execution_id, ssp_kb=str(ssp_kb), offset_next=offset_next)


def a_recorded(config: JobConfig) -> list[ConfigPut]:
    """What stands on the coordinator stream of `config`."""
    return [ConfigPut(config_key=key, value=value) for key, value in recorded_properties(config).items()]


def a_report(
    route: int = 0,
    *,
    offset_next: int = 1,
    commits: int = 1,
    kind: ReportKind = ReportKind.COMMITTED,
    error: str = "",
) -> Report:
    return Report(
        kind=kind,
        route=route,
        offset_next=offset_next,
        records_in=10,
        records_out=20,
        dead_letters=1,
        commits=commits,
        error=error,
    )


def a_batch(*reports: Report, **ends: int) -> BatchDone:
    """`a_batch(a_report(), orders_0=5)`: the batch ended at offset 5 of orders.0."""
    return BatchDone(
        reports=reports, offsets_end={an_ssp(f"kafka.{name.replace('_', '.')}"): end for name, end in ends.items()}
    )


def test_the_driver_s_producer_is_served_while_it_waits_and_while_nothing_comes_in() -> None:
    idle = AContainer(grants=())
    idle.while_pausing = lambda: idle.ask_to_stop() if len(idle.pauses_ms) == 5 else None
    running = AContainer()

    idle.run()
    running.run(*[None] * 100)

    assert idle.progress.served >= 5
    assert running.progress.served >= 100


# --- start ---


def test_a_container_whose_configuration_is_not_the_recorded_one_ends_before_it_does_anything() -> None:
    """Two that start a new job at the same moment both find it without one; the first leader's counts."""
    container = AContainer(task_hang_timeout_ms="5", processor_id="9", systems_kafka_client_sasl_password="mine")
    recorded = a_job(task_hang_timeout_ms="6", job_debounce_time_ms="7", systems_kafka_client_sasl_password="theirs")
    container.stream.records[:0] = a_recorded(recorded)

    with pytest.raises(ConfigError) as refused:
        container.run()

    assert (
        "found job.debounce.time.ms=(not set) instead of 7; task.hang.timeout.ms=5 instead of 6. Nothing was processed"
    ) in str(refused.value)
    assert ExitCode.USAGE == refused.value.exit_code
    assert [] == container.query.started
    assert not any(effect.startswith(("admit", "read", "fence")) for effect in container.trace)


def test_a_container_works_beside_others_that_differ_in_what_is_their_own() -> None:
    container = AContainer(processor_id="9", systems_kafka_client_sasl_password="mine")
    recorded = a_job(systems_kafka_client_sasl_password="theirs")
    # What was set before and is no more does not count.
    container.stream.records[:0] = [
        ConfigPut(config_key="job.id", value="1"),
        *a_recorded(recorded),
        Removed(key="config/job.id"),
    ]

    container.run()

    assert 1 == len(container.query.started)


def test_a_start_is_slots_block_fence_to_the_end_checkpoints_bounds_restore_admit_start() -> None:
    container = AContainer(grants=(a_task("a"),))
    container.slots.open_slots = {0, 1}
    container.kafka.write(changelog_topic("flights-1", "sums"), 0, [(changelog_key(b"k", b""), b"1")])

    container.run()

    assert [
        "take slots",
        "block 1",
        "fence samzapy/flights-1/e1/0, samzapy/flights-1/e1/1",
        "renew [0, 1]",
        "to the end",
        "read checkpoints",
        "input bounds",
        "read changelog",
        "admit 1",
        "start query 1",
    ] == container.trace[1 : container.trace.index("start query 1") + 1]
    assert "take slots" == container.trace[0]
    assert {changelog_key(b"k", b""): b"1"} == container.disks["a"].opened[-1].values("sums")


def test_clean_slots_are_neither_fenced_nor_renewed() -> None:
    container = AContainer()

    container.run()

    assert [] == [effect for effect in container.trace if effect.startswith(("fence", "renew"))]


def test_the_plan_routes_each_bucket_to_its_task_its_epoch_and_its_state() -> None:
    container = AContainer(grants=(a_task("b", epoch=7, offset_next=3), a_task("a", epoch=6)))
    container.commit(40, task="b", epoch=7)
    container.commit(50, task="a", epoch=5)

    container.run()

    ((plan, starts),) = container.query.started
    assert {ORDERS_0: 0, ORDERS_1: 40} == starts
    assert [("a", 6, ORDERS_0, "a/2"), ("b", 7, ORDERS_1, "b/2")] == [
        (route.task_name, route.epoch, route.ssp_kb, route.environment_dir) for route in plan.routes
    ]
    assert ("e1", 1, "job.py", "/scratch", 2, 2) == (
        plan.execution_id,
        plan.query_number,
        plan.job_file,
        plan.scratch_dir,
        plan.slot_count,
        plan.stream_offset,
    )


def test_a_task_takes_what_is_broadcast_first_and_old_partitions_before_new_ones() -> None:
    texts = ("kafka.orders.10:0/1", "kafka.audits.2:0/1", "kafka.orders.2:0/1", "kafka.zones.1@a", "kafka.zones.0@a")
    starts = tuple(BucketStart(ssp_kb=an_ssp_kb(text), offset_next=number) for number, text in enumerate(texts))
    container = AContainer(
        grants=(replace(a_task("a"), starts=starts), a_task("b")),
        task_inputs="kafka.audits,kafka.orders",
        task_broadcast_inputs="kafka.zones",
    )

    container.run()

    ((plan, started),) = container.query.started
    assert [
        "kafka.zones.0@a",
        "kafka.zones.1@a",
        "kafka.audits.2:0/1",
        "kafka.orders.2:0/1",
        "kafka.orders.10:0/1",
        "kafka.orders.1:0/1",
    ] == [str(route.ssp_kb) for route in plan.routes]
    assert {start.ssp_kb: start.offset_next for start in starts} | {ORDERS_1: 0} == started


def test_a_position_in_a_broadcast_input_is_each_task_s_own() -> None:
    grants = tuple(
        replace(
            a_task(task, epoch=epoch), starts=(BucketStart(ssp_kb=an_ssp_kb(f"kafka.zones.0@{task}"), offset_next=5),)
        )
        for task, epoch in (("a", 1), ("b", 2))
    )
    container = AContainer(grants=grants)
    done = Checkpoint(
        ssp_kb=an_ssp_kb("kafka.zones.0@b"),
        offset_next=9,
        epoch=2,
        task_name=TaskName("b"),
        execution_id=ExecutionId("e1"),
    )
    container.kafka.write(checkpoint_topic(container.config.job), 0, [encode(CheckpointPut(checkpoint=done))])
    read = BatchDone(reports=(a_report(0, offset_next=40),), offsets_end={an_ssp("kafka.zones.0"): 40})

    container.run(read, *[None] * 20)

    ((_, started),) = container.query.started
    assert {"kafka.zones.0@a": 5, "kafka.zones.0@b": 9} == {str(ssp_kb): offset for ssp_kb, offset in started.items()}
    assert [("kafka.zones.0@b", 40, 2)] == [
        (str(found.ssp_kb), found.offset_next, found.epoch) for found in container.progress.written
    ]


def test_each_local_state_is_level_and_closed_before_workers_come_in() -> None:
    container = AContainer()
    container.commit(40)

    still_open: list[Any] = []

    def look() -> None:
        still_open.extend(found for disk in container.disks.values() for found in disk.opened if found.is_open)

    container.run(look)

    assert [] == still_open
    position = container.disks["a"].contents.position
    assert position is not None
    assert ({str(ORDERS_0): 40}, "e1", 1) == (dict(position.offsets_next), position.execution_id, position.epoch)


def test_grants_of_one_plan_are_waited_for_and_started_together() -> None:
    container = AContainer(grants=(a_task("a"),))

    def second_grant() -> None:
        if len(container.pauses_ms) == 3:
            container.stream.records.append(GrantPut(grant=a_task("b")))

    container.while_pausing = second_grant

    container.run()

    ((plan, _),) = container.query.started
    assert ["a", "b"] == [route.task_name for route in plan.routes]
    # They are waited for from the last one that came on.
    assert sum(container.pauses_ms[3:]) >= 300


def test_who_has_all_that_the_plan_has_for_it_waits_for_no_more() -> None:
    container = AContainer(grants=())
    container.stream.records[0:0] = [ContainerPut(container=a_container("e1", processor_id="0"))]

    def grant() -> None:
        if len(container.pauses_ms) == 10:
            container.stream.records += [
                *plan_in_force(1, a="0", b="1"),
                GrantPut(grant=a_task("a")),
            ]

    container.while_pausing = grant

    container.run()

    ((plan, _),) = container.query.started
    assert ["a"] == [route.task_name for route in plan.routes]
    # At most the look that found it.
    assert sum(container.pauses_ms[10:]) <= 50


def test_a_look_that_finds_nothing_new_is_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is done many times a second, and what it would look through is as long as the job is large."""
    folded: list[int] = []
    own_grants = Orders.own_grants
    monkeypatch.setattr(Orders, "own_grants", lambda self: folded.append(1) or own_grants(self))
    container = AContainer()

    container.run(*[None] * 50)

    assert 1 == len(folded)


def test_grants_of_other_executions_start_nothing() -> None:
    container = AContainer(grants=(a_task("a", execution_id="e2"),))
    container.while_pausing = lambda: container.ask_to_stop() if len(container.pauses_ms) > 50 else None

    container.run()

    assert [] == container.query.started


def test_a_container_that_is_stopped_before_it_was_granted_anything_stops_cleanly() -> None:
    container = AContainer(grants=())
    container.ask_to_stop()

    container.run()

    assert [("STOPPED", ())] == [(content.state, content.held) for content in container.heartbeats.sent]


@pytest.mark.parametrize("where", ["fence", "checkpoints"])
def test_a_temporary_error_puts_the_start_off_and_does_not_count_as_a_failed_start(where: str) -> None:
    container = AContainer()
    container.slots.open_slots = {1}
    errors: list[Exception] = [BrokerUnavailableError("nobody there")] * (STARTS_MIN + 1)
    (container.fence if where == "fence" else container.topics).fails = errors

    container.run()

    ((plan, _),) = container.query.started
    assert STARTS_MIN + 2 == plan.query_number
    assert STARTS_MIN + 1 == container.pauses_ms.count(1000)
    assert "fence samzapy/flights-1/e1/1" in container.trace


def test_a_container_that_no_broker_answers_says_so_in_its_heartbeats_and_stops_saying_so() -> None:
    container = AContainer()

    def silent(ms: int) -> Callable[[], None]:
        def step() -> None:
            container.stream.silence_ms = ms

        return step

    container.run(silent(900), silent(12_000), silent(0))

    told = [content.kafka_silent_ms for content in container.heartbeats.contents]
    assert [0, 12_000, 0] == [ms for ms, before in zip(told, [None, *told], strict=False) if ms != before]


def test_a_start_outside_what_the_topic_holds_ends_the_container_before_anything_is_restored() -> None:
    container = AContainer()
    container.topics.inputs[an_ssp("kafka.orders.0")] = TopicBounds(offset_first=5, offset_end=9)

    with pytest.raises(LostRangeError, match="5 offsets, 0 to 4, are gone unread"):
        container.run()

    (last,) = container.heartbeats.sent
    assert (ExitCode.BAD_DATA, "STARTED") == (last.exit_code, last.state)
    assert "5 offsets, 0 to 4, are gone unread" in last.reason

    assert ({}, []) == (container.disks, container.query.started)
    assert ["stop query", "kill holders", "take slots"] == container.trace.since("stop query")[:3]


def test_an_input_that_was_made_again_ends_the_container_at_its_start_and_while_it_runs() -> None:
    recorded = InputPut(
        system_stream=SystemStream("kafka", "orders"),
        partition_count=2,
        partition_count_first=2,
        topic_id="id-of-kafka.orders",
    )
    at_start, running = AContainer(), AContainer()
    for container in (at_start, running):
        container.stream.records.append(recorded)
    at_start.kafka.topic_ids["kafka.orders"] = "another"

    with pytest.raises(TopicIdentityError):
        at_start.run()
    with pytest.raises(TopicIdentityError):
        running.run(None, lambda: running.kafka.topic_ids.update({"kafka.orders": "another"}), *[None] * 10)

    assert ([], 1) == (at_start.query.started, len(running.query.started))


@pytest.mark.parametrize("point", ["after-fence", "after-restore"])
def test_a_driver_that_dies_in_a_start_has_let_nobody_in(point: str) -> None:
    container = AContainer()
    container.crash_points = CrashAt(point)

    with pytest.raises(Crash):
        container.run()

    assert [] == [effect for effect in container.trace if effect.startswith(("admit", "start query"))]


# --- recovery ---


def test_a_failed_query_is_started_anew_from_what_was_committed() -> None:
    container = AContainer()

    def fail() -> QueryFailed:
        container.commit(7)
        container.slots.open_slots = {1}
        return QueryFailed(reason="a worker died")

    container.run(fail)

    assert [(1, 0), (2, 7)] == [(plan.query_number, starts[ORDERS_0]) for plan, starts in container.query.started]
    assert ["stop query", "take slots", "block 2", "fence samzapy/flights-1/e1/1"] == container.trace.since(
        "stop query"
    )[:4]


def failing_for_ever(container: AContainer, failure: QueryFailed) -> Iterator[Callable[[], QueryFailed]]:
    """A query that fails five seconds after each start."""

    def fail() -> QueryFailed:
        container.clock.advance(5000)
        return failure

    while True:
        yield fail


def test_a_query_that_fails_is_started_again_for_the_time_that_is_set_and_then_ends_the_container() -> None:
    container = AContainer(task_query_retry_ms="60000")
    begun_ms = container.clock.monotonic_ms()

    with pytest.raises(
        SamzapyError, match=r"task.query.retry.ms \(60000\) .* last failure: no memory. Unread are"
    ) as e:
        container.run(*islice(failing_for_ever(container, QueryFailed(reason="no memory")), 100))

    assert ExitCode.FAILED == e.value.exit_code
    assert 60_000 <= container.clock.monotonic_ms() - begun_ms < 120_000
    assert 3 < len(container.query.started) < 12


def test_three_starts_are_made_however_long_they_take() -> None:
    container = AContainer(task_query_retry_ms="0")

    with pytest.raises(SamzapyError, match="in 3 starts over .* last failure: third"):
        container.run(QueryFailed(reason="first"), QueryFailed(reason="second"), QueryFailed(reason="third"))

    assert 3 == len(container.query.started)
    assert ["stop query", "kill holders", "take slots", "block 5", "send heartbeat"] == container.trace[-5:]


@pytest.mark.parametrize(
    ("kind", "raised"),
    [(SlowMessageError, TaskError), (ConfigError, ConfigError), (LostRangeError, DataError)],
)
def test_what_is_sure_to_come_again_ends_the_container_after_three_starts(
    kind: type[SamzapyError], raised: type[SamzapyError]
) -> None:
    container = AContainer()
    failed = QueryFailed(reason="task a failed at kafka.orders.0 offset 7", kind=kind)

    with pytest.raises(
        raised, match="3 starts .* found none; last failure: task a failed at kafka.orders.0 offset 7"
    ):
        container.run(failed, failed, failed)

    assert 3 == len(container.query.started)


def test_a_worker_that_is_killed_from_outside_uses_less_of_the_time_than_an_error() -> None:
    killed, failed = AContainer(task_query_retry_ms="60000"), AContainer(task_query_retry_ms="60000")
    failure = QueryFailed(reason="SparkException: Python worker exited unexpectedly (crashed)")
    began_ms = killed.clock.monotonic_ms()

    for container, reason in ((killed, failure), (failed, QueryFailed(reason="an error"))):
        with pytest.raises(SamzapyError):
            container.run(*islice(failing_for_ever(container, reason), 100))

    assert killed.clock.monotonic_ms() - began_ms > 2 * (failed.clock.monotonic_ms() - began_ms)


def test_failed_starts_wait_longer_each_time() -> None:
    container = AContainer()
    starts_ms: list[int] = []

    def fail() -> QueryFailed:
        starts_ms.append(container.clock.monotonic_ms())
        return QueryFailed(reason="again")

    container.run(*[fail] * 9)

    pauses_ms = [(later - earlier) // 100 * 100 for earlier, later in pairwise(starts_ms)]
    # Grants settle for 0.3 s before a start.
    assert [500, 1300, 3300, 6300, 12_300, 24_300, 30_300, 30_300] == pauses_ms


def test_heartbeats_report_a_query_that_fails_until_it_commits() -> None:
    container = AContainer()
    failed = QueryFailed(reason="no memory")

    def committed() -> BatchDone:
        reported = container.heartbeats.contents[-1].failing
        assert reported is not None
        assert (2, "no memory") == (reported.attempts, reported.reason)
        assert 0 < reported.for_ms < 10_000
        assert 590_000 < reported.left_ms < 600_000
        return a_batch(a_report(), orders_0=1)

    container.run(failed, failed, committed, *[None] * 10)

    told = [content.failing for content in container.heartbeats.contents]
    assert None is told[-1]
    assert [1, 2] == sorted({content.attempts for content in told if content is not None})


def test_heartbeats_report_the_step_of_a_start_and_none_while_the_query_runs_or_the_start_waits() -> None:
    container = AContainer()
    container.topics.fails.append(BrokerUnavailableError("no broker answers"))

    container.run(*[None] * 3)

    steps = [content.step for content in container.heartbeats.contents]
    assert [step for step, _ in groupby(steps)][1:] == [
        "shutting earlier workers out",
        "reading positions",
        "",
        "shutting earlier workers out",
        "reading positions",
        "bringing local state level",
        "starting the query",
        "",
    ]


def test_a_batch_that_committed_begins_the_count_of_failed_starts_anew() -> None:
    container = AContainer(task_query_retry_ms="0")
    failed = QueryFailed(reason="again")

    container.run(failed, failed, a_batch(a_report(), orders_0=1), failed, failed)

    assert 5 == len(container.query.started)


@pytest.mark.parametrize(
    "news",
    [
        [GrantPut(grant=a_task("a", epoch=2))],
        [*plan_in_force(2, a="0", b="0")],
        [RestartPut(processor_id=ProcessorId("0"), number=1, uuid="")],
    ],
    ids=["grant", "plan", "restart"],
)
def test_a_grant_a_plan_and_an_order_to_restart_begin_the_count_anew_and_end_the_pause(news: list[Any]) -> None:
    container = AContainer(task_query_retry_ms="0")
    container.stream.records += [ContainerPut(container=a_container("e1")), *plan_in_force(1, a="0", b="0")]
    failed = QueryFailed(reason="again")

    def fail_with_news() -> QueryFailed:
        begun = len(container.pauses_ms)
        at_pauses(container, **{f"p{begun + 1}": lambda: container.stream.records.extend(news)})
        return failed

    container.run(failed, fail_with_news, failed, failed)

    assert 5 == len(container.query.started)


def test_a_batch_that_committed_nothing_resets_nothing() -> None:
    container = AContainer(task_query_retry_ms="0")
    failed = QueryFailed(reason="again")

    with pytest.raises(SamzapyError, match="in 3 starts"):
        container.run(failed, failed, a_batch(a_report(commits=0)), failed)


def test_failures_of_a_quiet_job_that_are_hours_apart_do_not_add_up() -> None:
    container = AContainer()
    for ssp in ("kafka.orders.0", "kafka.orders.1"):
        container.topics.inputs[an_ssp(ssp)] = TopicBounds(offset_first=0, offset_end=0)
    failed = QueryFailed(reason="again")

    def after_an_hour() -> QueryFailed:
        container.clock.advance(3_600_000)
        return failed

    container.run(*[after_an_hour] * 5)
    assert 6 == len(container.query.started)

    container = AContainer(task_query_retry_ms="0")
    with pytest.raises(SamzapyError, match="in 3 starts"):
        container.run(after_an_hour, failed, failed)
    # The one after the hour was the first.
    assert 3 == len(container.query.started)


def test_brokers_that_are_away_are_waited_for_and_end_no_container() -> None:
    container = AContainer()

    container.run(*[QueryFailed(reason="nobody takes the outputs", kind=UndeliveredError)] * 9)

    assert 10 == len(container.query.started)
    assert 9 * 3000 == sum(pause for pause in container.pauses_ms if pause > 50)


def test_what_a_failed_batch_committed_before_it_failed_counts_as_a_commit() -> None:
    container = AContainer()

    def fail_after_a_commit() -> QueryFailed:
        container.commit(len(container.query.started))
        return QueryFailed(reason="a worker died in the middle of a long batch")

    container.run(*[fail_after_a_commit] * 7)

    assert 8 == len(container.query.started)


def test_a_task_that_failed_by_policy_ends_the_container_with_what_its_report_says() -> None:
    container = AContainer()
    failed = a_report(1, kind=ReportKind.TASK_FAILED, error="task b failed at offset 3")

    with pytest.raises(TaskError, match="task b failed at offset 3"):
        container.run(a_batch(a_report(0), failed))

    assert ["stop query", "kill holders", "take slots"] == container.trace.since("stop query")[:3]
    assert [ExitCode.TASK_FAILED] == [content.exit_code for content in container.heartbeats.sent]


def test_a_batch_that_hangs_ends_the_container_by_name() -> None:
    container = AContainer(task_hang_timeout_ms="10000")
    container.topics.inputs[an_ssp("kafka.orders.0")] = TopicBounds(offset_first=0, offset_end=5)

    with pytest.raises(SamzapyError, match=r"wanted a micro-batch to end within task.hang.timeout.ms \(10000\)"):
        container.run(*[None] * 100)


def test_a_container_without_traffic_does_not_hang() -> None:
    container = AContainer(task_hang_timeout_ms="10000")
    for ssp in ("kafka.orders.0", "kafka.orders.1"):
        container.topics.inputs[an_ssp(ssp)] = TopicBounds(offset_first=0, offset_end=0)

    container.run(*[None] * 100)


def test_what_comes_after_a_quiet_hour_has_all_its_time() -> None:
    container = AContainer(task_hang_timeout_ms="10000")
    inputs = container.topics.inputs
    for ssp in ("kafka.orders.0", "kafka.orders.1"):
        inputs[an_ssp(ssp)] = TopicBounds(offset_first=0, offset_end=0)
    quiet = [lambda: container.clock.advance(1000)] * 60
    more = [lambda: inputs.update({an_ssp("kafka.orders.0"): TopicBounds(offset_first=0, offset_end=1)})]
    slow = [lambda: container.clock.advance(1000)]

    container.run(*quiet, *more, *slow * 8, a_batch(a_report(), orders_0=1))
    assert 1 == len(container.query.started)

    hangs = AContainer(task_hang_timeout_ms="10000")
    hangs.topics.inputs = inputs
    with pytest.raises(SamzapyError, match="found one running for 10[0-9]{3} ms"):
        hangs.run(*[None] * 200)


# --- what is told of it ---


def test_a_start_tells_what_was_granted_how_far_the_state_is_and_what_the_first_batch_brought(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "samzapy.container.service")
    container = AContainer()
    read = container.topics.changelog_records
    container.kafka.write(changelog_topic("flights-1", "sums"), 0, [(changelog_key(b"k", b""), b"1")])

    def slowly(store: str, partition: int, offset_from: int) -> Iterator[LogRecord]:
        container.clock.advance(3000)
        return read(store, partition, offset_from)

    container.topics.changelog_records = slowly  # type: ignore[method-assign]
    container.run(None, a_batch(a_report()), a_batch(a_report()))

    assert [
        "granted: a, b; bringing local state level",
        "query 1 starts after 6.0 s",
        "the first micro-batch of query 1 ended after 0.2 s: 10 records in, 20 out",
    ] == [record.getMessage() for record in caplog.records]


def test_a_long_restore_tells_how_far_it_is_every_few_seconds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "samzapy.container.local_state.restore")
    caplog.set_level("INFO", "samzapy.container.service")
    container = AContainer()
    read = container.topics.changelog_records
    for partition in (0, 1):
        entry = (changelog_key(b"k", b""), b"1")
        container.kafka.write(changelog_topic("flights-1", "sums"), partition, [entry])

    def slowly(store: str, partition: int, offset_from: int) -> Iterator[LogRecord]:
        container.clock.advance(5000)
        return read(store, partition, offset_from)

    container.topics.changelog_records = slowly  # type: ignore[method-assign]
    container.run(None)

    told = "restoring local state: 0 of 2 tasks are level, 1 of 2 records were read, about 5 s left"
    assert [told] == [record.getMessage() for record in caplog.records if "restoring" in record.getMessage()]
    figures = [content.figures for content in container.heartbeats.contents]
    said = [(found["restored"], found["restoreTotal"]) for found in figures if "restored" in found]
    assert {(1, 2)} == set(said)
    assert "restored" not in figures[-1]


def test_while_a_task_is_restored_the_next_ones_are_fetched() -> None:
    container = AContainer()
    container.kafka.write(changelog_topic("flights-1", "sums"), 0, [(changelog_key(b"k", b""), b"1")])

    container.run(None)

    # What is fetched is what is asked for then; both tasks are of one partition.
    assert [("sums", 0, 0)] * 2 == container.topics.changelog_reads
    assert [[("sums", 0, 0)], [("sums", 0, 0)], []] == container.topics.read_aheads


def test_a_start_with_state_that_is_level_fetches_nothing_ahead() -> None:
    container = AContainer()

    container.run(None)

    assert [] == container.topics.read_aheads


# --- local state of tasks long gone ---


def a_host_with_leftovers() -> AContainer:
    """A container of a and b, where c was run long ago."""
    container = AContainer()
    container.stream.records.extend(
        (ContainerPut(container=a_container("e1", processor_id="0")), *plan_in_force(1, a="0", b="0"))
    )
    for name in ("a", "c"):
        container.disks[name] = MemoryStateDirectory(name)
        container.disks[name].fresh().close()
    return container


def test_state_of_a_task_long_gone_is_removed_when_the_query_runs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "samzapy.container.service")
    container = a_host_with_leftovers()
    left: list[int] = []

    container.run(lambda: left.append(container.disks["c"].number), None, None)

    assert ([1], 0) == (left, container.disks["c"].number)
    assert container.disks["a"].number and container.disks["b"].number
    assert 1 == caplog.text.count("removed local state of tasks that are no more: c")


def test_what_was_let_go_of_only_now_waits_for_its_time_and_a_later_look_finds_it() -> None:
    container = a_host_with_leftovers()
    container.disks["c"].written_at_ms = container.clock.wall_ms()
    found: list[int] = []

    def after(ms: int) -> Callable[[], BatchDone]:
        def step() -> BatchDone:
            found.append(container.disks["c"].number)
            container.clock.advance(ms)
            return a_batch(a_report())

        return step

    container.run(None, after(UNUSED_MS - 1000), after(1000), after(3_600_000), after(0))

    # It becomes too old a moment after a look, and the next one comes an hour later.
    assert [1, 1, 1, 0] == found


def test_where_there_are_many_the_next_ones_go_a_minute_later() -> None:
    container = a_host_with_leftovers()
    old_ms = container.disks["c"].written_at_ms
    others = [TaskName(f"d{number:02}") for number in range(REMOVED_AT_ONCE_MAX)]
    for name in others:
        container.disks[name] = MemoryStateDirectory(name)
        container.disks[name].fresh().close()
        container.disks[name].written_at_ms = old_ms
    left: list[int] = []

    def after(ms: int) -> Callable[[], BatchDone]:
        def step() -> BatchDone:
            left.append(sum(container.disks[name].number > 0 for name in ("c", *others)))
            container.clock.advance(ms)
            return a_batch(a_report())

        return step

    container.run(None, after(59_000), after(1000), after(0))

    assert [1, 1, 0] == left


def test_without_a_plan_nothing_is_known_of_who_needs_what() -> None:
    container = AContainer()
    container.disks["c"] = MemoryStateDirectory("c")
    container.disks["c"].fresh().close()

    container.run(None, None)

    assert 1 == container.disks["c"].number


# --- who may work ---


def test_an_execution_that_was_given_up_is_found_out_after_its_ids_are_initialised() -> None:
    container = AContainer()
    container.slots.open_slots = {0}
    lost = ContainerPut(container=a_container("e1", phase=ContainerPhase.FENCED, reason="no heartbeat for 15 s"))
    fence = container.fence.fence

    def fence_and_be_lost(transactional_ids: Any) -> None:
        fence(transactional_ids)
        container.stream.records.append(lost)

    container.fence.fence = fence_and_be_lost  # type: ignore[method-assign]

    with pytest.raises(
        LostContainerError, match="was given up by the coordinator .no heartbeat for 15 s.; its tasks"
    ):
        container.run()

    assert ["to the end", "stop query", "kill holders"] == container.trace[-3:]


@pytest.mark.parametrize("word", ["record", "heartbeat"])
def test_a_container_that_is_given_up_while_it_runs_kills_its_workers_and_ends(word: str) -> None:
    container = AContainer()

    def give_up() -> None:
        if word == "record":
            lost = a_container("e1", phase=ContainerPhase.LOST, reason="away")
            container.stream.records.append(ContainerPut(container=lost))
        else:
            container.heartbeats.reason = "away"

    with pytest.raises(LostContainerError, match="given up by the coordinator .away."):
        container.run(give_up)

    assert ["stop query", "kill holders"] == container.trace[-2:]
    assert [] == container.heartbeats.sent


def test_without_a_lease_nothing_is_begun_and_with_it_again_the_query_starts_anew() -> None:
    container = AContainer()

    def lose_the_lease() -> None:
        container.heartbeats.ran_out_at_ms = container.clock.monotonic_ms()

    def get_it_back() -> None:
        if container.heartbeats.ran_out_at_ms is not None and len(container.pauses_ms) > 100:
            assert not container.query.runs
            container.heartbeats.ran_out_at_ms = None

    container.while_pausing = get_it_back

    container.run(lose_the_lease)

    assert [1, 2] == [plan.query_number for plan, _ in container.query.started]
    assert ["input bounds", "drain", "take slots"] == container.trace.since("start query 1")[1:4]


def test_after_the_grace_without_a_coordinator_the_container_ends_by_name() -> None:
    container = AContainer(job_container_grace_ms="60000")
    container.heartbeats.ran_out_at_ms = container.clock.monotonic_ms()
    begun_at_ms = container.clock.monotonic_ms()

    with pytest.raises(LostContainerError, match=r"within job.container.grace.ms \(60000\) after the lease ran out"):
        container.run()

    assert 60_000 < container.clock.monotonic_ms() - begun_at_ms < 61_000
    assert [] == container.query.started


def test_changed_grants_restart_the_query_after_a_drain() -> None:
    container = AContainer(grants=(a_task("a"),))

    container.run(None, lambda: container.stream.records.append(GrantPut(grant=a_task("b", epoch=2))))

    assert [["a"], ["a", "b"]] == [[route.task_name for route in plan.routes] for plan, _ in container.query.started]
    assert ["start query 1", "input bounds", "drain", "take slots"] == container.trace.since("start query 1")[:4]


# Before it a micro-batch has longer.
A_FIRST_BATCH = a_batch(a_report(0, offset_next=1), orders_0=1)


def test_a_micro_batch_that_takes_too_long_is_ended_and_the_next_ones_are_smaller() -> None:
    container = AContainer(task_batch_max_ms="1000", task_batch_offsets_max="8000")

    def has_run(ms: int) -> Callable[[], None]:
        return lambda: setattr(container.query, "batch_has_run_ms", ms)

    container.run(A_FIRST_BATCH, has_run(1000), has_run(1001), None)

    assert [8000, 2000] == [plan.batch_offsets_max for plan, _ in container.query.started]
    assert ["start query 1", "input bounds", "drain", "take slots"] == container.trace.since("start query 1")[:4]


def test_the_first_micro_batch_of_a_process_has_longer_and_the_next_ones_of_another_query_have_not() -> None:
    container = AContainer(task_batch_max_ms="1000", task_batch_offsets_max="8000")

    def has_run(ms: int) -> Callable[[], None]:
        return lambda: setattr(container.query, "batch_has_run_ms", ms)

    container.run(has_run(1000 + COLD_MS), has_run(1001 + COLD_MS), None, A_FIRST_BATCH, has_run(1001), None)

    assert [8000, 2000, 500] == [plan.batch_offsets_max for plan, _ in container.query.started]


def test_full_micro_batches_that_are_short_may_be_larger_again() -> None:
    container = AContainer(task_batch_max_ms="1000", task_batch_offsets_max="8000")

    def overruns() -> None:
        container.query.batch_has_run_ms = 1001

    full = replace(a_batch(a_report(0, offset_next=2000), orders_0=2000), duration_ns=125_000_000)
    container.run(A_FIRST_BATCH, overruns, None, full, None)

    assert [8000, 2000, 8000] == [plan.batch_offsets_max for plan, _ in container.query.started]


def test_what_is_broadcast_fills_a_micro_batch_too_so_it_does_not_stay_small_for_ever() -> None:
    """Spark bounds a batch over all partitions, so while rules are caught up hardly anything else may be in it."""
    rules = an_ssp_kb("kafka.rules.0@a")
    grant = replace(
        a_task("a"), starts=tuple(BucketStart(ssp_kb=found, offset_next=0) for found in (ORDERS_0, rules))
    )
    container = AContainer(grants=(grant,), task_batch_max_ms="1000", task_batch_offsets_max="8000")

    def overruns() -> None:
        container.query.batch_has_run_ms = 1001

    full = replace(a_batch(a_report(0, offset_next=1990), orders_0=10, rules_0=1990), duration_ns=125_000_000)
    container.run(A_FIRST_BATCH, overruns, None, full, None)

    assert [8000, 2000, 8000] == [plan.batch_offsets_max for plan, _ in container.query.started]


def test_one_that_ends_while_its_query_is_drained_for_it_took_too_long_all_the_same() -> None:
    container = AContainer(task_batch_max_ms="1000", task_batch_offsets_max="8000")

    def overruns() -> None:
        container.query.batch_has_run_ms = 1001

    ended = replace(a_batch(a_report(0, offset_next=8000), orders_0=8000), duration_ns=1_100_000_000)
    container.run(A_FIRST_BATCH, overruns, ended, None)

    assert [8000, 2000] == [plan.batch_offsets_max for plan, _ in container.query.started]


def an_order(number: int, processor_id: str = "0") -> RestartPut:
    return RestartPut(processor_id=ProcessorId(processor_id), number=number, uuid="u")


def test_an_order_to_restart_drains_and_starts_the_query_anew_and_is_then_said_to_be_done() -> None:
    container = AContainer()
    container.stream.records.append(ContainerPut(container=a_container("e1")))
    said: list[int] = []

    def ordered() -> None:
        container.stream.records.append(an_order(1))

    container.run(None, ordered, None, lambda: said.append(container.heartbeats.contents[-1].restart), None)

    assert 2 == len(container.query.started)
    assert ["start query 1", "input bounds", "drain", "take slots"] == container.trace.since("start query 1")[:4]
    assert [1] == said
    # Not before the new query was started: the old one ran without knowing the order.
    before = [content.restart for content in container.heartbeats.contents]
    assert before == sorted(before)
    assert container.trace.index("start query 2") > container.trace.index("drain")


def test_an_order_that_was_read_before_the_start_restarts_nothing_and_is_done_by_it() -> None:
    container = AContainer()
    container.stream.records.extend([ContainerPut(container=a_container("e1")), an_order(7)])

    container.run(None, None)

    assert 1 == len(container.query.started)
    assert 7 == container.heartbeats.contents[-1].restart


def test_an_order_for_another_processor_is_no_matter() -> None:
    container = AContainer()
    container.stream.records.append(ContainerPut(container=a_container("e1")))

    container.run(None, lambda: container.stream.records.append(an_order(1, "1")), None)

    assert 1 == len(container.query.started)
    assert 0 == container.heartbeats.contents[-1].restart


def test_a_failover_alone_stops_nobody() -> None:
    container = AContainer()
    term = TermPut(
        term=2,
        coordinator_id="c",
        host="h",
        boot_id="b",
        pid=1,
        process_started_ms=1,
        url="http://h:1",
        started_at_ms=1,
    )

    container.run(None, lambda: container.stream.records.append(term), None)

    assert 1 == len(container.query.started)
    assert (2, "http://h:1") == (
        container.heartbeats.contents[-1].term,
        container.heartbeats.contents[-1].coordinator_url,
    )


# --- what a plan takes away ---


def handing_over(container: AContainer) -> None:
    """Processor 0 is ours; a new plan gives task b to processor 1."""
    container.stream.records.insert(0, ContainerPut(container=a_container("e1", processor_id="0")))

    def plan_anew() -> None:
        container.stream.records.extend(plan_in_force(2, a="0", b="1"))

    container.query.steps.extend([None, plan_anew])


def listed(container: AContainer) -> list[tuple[int, list[str]]]:
    """What the heartbeats said they hold, and at which offset; each once."""
    said = [(sent.stream_offset, [task for task, _ in sent.held]) for sent in container.heartbeats.contents]
    return [now for before, now in zip([None, *said], said, strict=False) if now != before]


def test_what_the_plan_takes_away_is_let_go_after_the_drain_and_the_rest_goes_on() -> None:
    container = AContainer()
    container.heartbeats.publish = said_in(container)  # type: ignore[method-assign]
    handing_over(container)

    container.run()

    assert [["a", "b"], ["a"]] == [[route.task_name for route in plan.routes] for plan, _ in container.query.started]
    trace = container.trace
    assert trace.index("drain") < trace.index("block 2") < trace.index("holds a")
    assert trace.index("holds a") < trace.index("start query 3")
    # It had read the plan before that, and still listed b.
    assert (3, ["a", "b"]) in listed(container)
    assert container.disks["b"].contents.is_synced


def said_in(container: AContainer) -> Callable[[Any], None]:
    def publish(content: Any) -> None:
        container.heartbeats.contents.append(content)
        container.trace.append(f"holds {', '.join(task for task, _ in content.held)}")

    return publish


def test_what_a_cancelled_batch_left_open_is_aborted_before_it_is_let_go() -> None:
    container = AContainer()
    container.heartbeats.publish = said_in(container)  # type: ignore[method-assign]
    container.query.drains_in_time = False
    handing_over(container)
    container.query.steps.insert(1, lambda: container.slots.open_slots.add(1))

    container.run()

    trace = container.trace
    fenced = next(index for index, effect in enumerate(trace) if effect.startswith("fence"))
    assert trace.index("drain") < fenced < trace.index("renew [1]") < trace.index("holds a")


def test_while_nothing_can_be_aborted_nothing_is_let_go() -> None:
    container = AContainer()
    handing_over(container)
    container.query.steps.insert(1, lambda: container.slots.open_slots.add(1))
    held_at_each_try: list[list[str]] = []

    class Broker:
        def fence(self, ids: Any) -> None:
            held_at_each_try.append([task for task, _ in container.heartbeats.contents[-1].held])
            if len(held_at_each_try) < 3:
                raise BrokerUnavailableError("no broker answered")

    container.fence.fence = Broker().fence  # type: ignore[method-assign]

    container.run()

    assert [["a", "b"]] * 3 == held_at_each_try[:3]
    assert ["a"] == [route.task_name for route in container.query.started[-1][0].routes]


def test_who_has_nothing_left_waits_and_begins_again_with_what_it_is_granted() -> None:
    container = AContainer(grants=(a_task("a"),))
    container.stream.records.insert(0, ContainerPut(container=a_container("e1", processor_id="0")))
    container.query.steps.extend(
        [None, lambda: container.stream.records.extend(plan_in_force(2, a="1"))]  # type: ignore[list-item]
    )

    def plan_back() -> None:
        if not container.heartbeats.contents[-1].held and container.stream.records[-1] != returned[-1]:
            container.stream.records.extend(returned)

    returned = (*plan_in_force(3, a="0"), GrantPut(grant=a_task("a", epoch=5)))
    container.while_pausing = plan_back

    container.run()

    assert [[1], [5]] == [[route.epoch for route in plan.routes] for plan, _ in container.query.started]
    assert [] in [held for _, held in listed(container)]


def test_who_has_let_go_says_no_more_how_far_it_came() -> None:
    container = AContainer()
    for partition in range(2):
        container.topics.inputs[an_ssp(f"kafka.orders.{partition}")] = TopicBounds(offset_first=0, offset_end=100)
    container.query.steps.extend([a_batch(orders_0=40, orders_1=50), *[None] * 6])
    handing_over(container)

    container.run()

    told = [
        ([task for task, _ in sent.held], sent.figures["positions"].keys()) for sent in container.heartbeats.contents
    ]
    assert (["a", "b"], {"kafka.orders.0:0/1", "kafka.orders.1:0/1"}) in told
    assert {frozenset({"kafka.orders.0:0/1"})} == {frozenset(said) for held, said in told if held == ["a"] and said}


def test_who_has_nothing_left_and_is_stopped_has_no_progress_to_tell() -> None:
    container = AContainer(grants=(a_task("a"),))
    container.stream.records.insert(0, ContainerPut(container=a_container("e1", processor_id="0")))
    # The first progress is written at once, the second one would be three seconds later.
    container.query.steps.extend(
        [
            a_batch(orders_0=40),
            None,
            a_batch(orders_0=50),
            lambda: container.stream.records.extend(plan_in_force(2, a="1")),  # type: ignore[list-item]
        ]
    )

    def stop_with_nothing() -> None:
        container.stop.asked |= not container.heartbeats.contents[-1].held

    container.while_pausing = stop_with_nothing

    container.run()

    assert [40] == [found.offset_next for found in container.progress.written]
    assert "STOPPED" == container.heartbeats.contents[-1].state


def test_a_batch_that_ends_while_the_query_drains_counts_before_what_it_was_of_is_let_go() -> None:
    container = AContainer(grants=(a_task("a"),))
    container.stream.records.insert(0, ContainerPut(container=a_container("e1", processor_id="0")))
    container.query.steps.extend(
        [
            lambda: container.stream.records.extend(plan_in_force(2, a="1")),  # type: ignore[list-item]
            a_batch(a_report(offset_next=40), orders_0=50),
        ]
    )
    let_go_with: list[Any] = []

    def stop_with_nothing() -> None:
        if not container.heartbeats.contents[-1].held:
            let_go_with.append(container.heartbeats.contents[-1].figures)
            container.stop.asked = True

    container.while_pausing = stop_with_nothing

    container.run()

    # Not only when the container stops, by when nobody knows any more under which epoch that was read.
    assert 1 == let_go_with[0]["commits"]
    assert ([], "STOPPED") == (container.progress.written, container.heartbeats.contents[-1].state)


def test_a_task_that_is_taken_away_during_the_start_is_not_begun() -> None:
    """Read after the ids were initialised: from the heartbeat on that lacks it, it is somebody else's."""
    container = AContainer()
    container.stream.records.insert(0, ContainerPut(container=a_container("e1", processor_id="0")))
    to_the_end = container.stream.to_the_end

    def meanwhile() -> Any:
        if not container.query.started and container.stream.records[-1] != plan_in_force(2, a="0", b="1")[-1]:
            container.stream.records.extend(plan_in_force(2, a="0", b="1"))
        return to_the_end()

    container.stream.to_the_end = meanwhile  # type: ignore[method-assign]

    container.run()

    assert [["a"]] == [[route.task_name for route in plan.routes] for plan, _ in container.query.started]


def test_a_plan_that_changes_only_others_stops_nothing() -> None:
    container = AContainer()
    container.stream.records.insert(0, ContainerPut(container=a_container("e1", processor_id="0")))

    container.run(None, lambda: container.stream.records.extend(plan_in_force(2, a="0", b="0")), None)

    assert 1 == len(container.query.started)
    # At the end, when it is asked to stop.
    assert 1 == container.trace.count("drain")


# --- what heartbeats say ---


def test_a_grant_stands_in_the_list_from_when_it_is_read_and_offset_and_list_are_of_one_moment() -> None:
    container = AContainer(grants=(a_task("a", epoch=4),))
    container.while_pausing = lambda: (
        container.stream.records.append(GrantPut(grant=a_task("b", epoch=5)))
        if len(container.pauses_ms) == 2
        else None
    )

    container.run()

    seen = list(dict.fromkeys((content.stream_offset, content.held) for content in container.heartbeats.contents))
    assert [(1, (("a", 4),)), (2, (("a", 4), ("b", 5))), (2, ())] == seen


def test_the_state_is_started_running_stopped() -> None:
    container = AContainer()

    container.run(None)

    assert ["STARTED", "RUNNING", "STOPPED"] == list(
        dict.fromkeys(content.state for content in container.heartbeats.contents)
    )


def test_time_to_bring_the_state_of_each_task_level_is_in_its_figures() -> None:
    container = AContainer()

    class SlowDisk(MemoryStateDirectory):
        """A directory that takes so long to be opened."""

        took_ms = 0

        def open(self) -> MemoryEnvironment:
            container.clock.advance(self.took_ms)
            return super().open()

    for name, took_ms in (("a", 3000), ("b", 500)):
        disk = container.disks[name] = SlowDisk(name)
        disk.took_ms = took_ms

    container.run()

    told = container.heartbeats.contents[-1].figures["tasks"]
    assert {"a": 3_000_000_000, "b": 500_000_000} == {
        name: figures["storeIdentifyNs"] for name, figures in told.items()
    }


def test_figures_count_what_was_committed_and_show_where_the_input_ends() -> None:
    container = AContainer(grants=(a_task("a"),))
    container.topics.inputs[an_ssp("kafka.orders.0")] = TopicBounds(offset_first=0, offset_end=100)

    container.run(None, a_batch(a_report(), a_report(), orders_0=40), *[None] * 6)

    figures = container.heartbeats.contents[-1].figures
    assert (20, 40, 2, 2, 1, 0) == (
        figures["recordsIn"],
        figures["recordsOut"],
        figures["deadLetters"],
        figures["commits"],
        figures["batches"],
        figures["recoveries"],
    )
    assert {"kafka.orders.0:0/1": {"offsetNext": 40, "offsetEnd": 100, "recordsIn": 20}} == figures["positions"]


# --- idle buckets ---


def test_progress_is_written_for_a_bucket_that_committed_nothing_and_for_no_other() -> None:
    container = AContainer(grants=(a_task("a", epoch=3), a_task("b", epoch=4)))

    container.run(a_batch(a_report(0, offset_next=40), orders_0=40, orders_1=50), *[None] * 20)

    assert [(ORDERS_1, 50, 4, "e1")] == [
        (found.ssp_kb, found.offset_next, found.epoch, found.execution_id) for found in container.progress.written
    ]


def test_progress_is_written_for_a_bucket_whose_last_message_was_not_the_batch_s_last() -> None:
    """What came behind it is of other buckets: without this it would never come to the end of a quiet partition."""
    container = AContainer(grants=(a_task("a", epoch=3), a_task("b", epoch=4)))

    container.run(
        a_batch(a_report(0, offset_next=38), a_report(1, offset_next=50), orders_0=40, orders_1=50), *[None] * 20
    )

    assert [(ORDERS_0, 40)] == [(found.ssp_kb, found.offset_next) for found in container.progress.written]


def test_progress_that_did_not_move_is_not_written_again() -> None:
    container = AContainer()

    container.run(a_batch(orders_0=40), *[None] * 20, a_batch(orders_0=40), *[None] * 20)

    assert [40] == [found.offset_next for found in container.progress.written]


def test_a_bucket_that_commits_before_its_progress_is_written_has_no_progress() -> None:
    container = AContainer()

    container.run(
        a_batch(orders_0=40, orders_1=40),
        # Written at once; from here on nothing is for three seconds.
        a_batch(orders_0=50, orders_1=50),
        a_batch(a_report(0, offset_next=60), orders_0=60, orders_1=50),
        *[None] * 20,
    )

    assert [(ORDERS_0, 40), (ORDERS_1, 40), (ORDERS_1, 50)] == [
        (found.ssp_kb, found.offset_next) for found in container.progress.written
    ]


def test_progress_is_written_every_few_seconds_at_most() -> None:
    container = AContainer(grants=(a_task("a"),))
    steps: list[Any] = []
    for end in range(1, 51):
        steps += [a_batch(orders_0=end), None]
    begun_at_ms = container.clock.monotonic_ms()

    container.run(*steps)

    took_ms = container.clock.monotonic_ms() - begun_at_ms
    # And once more at the end.
    assert 2 <= len(container.progress.written) <= took_ms // 3000 + 2


def test_a_container_that_stops_tells_how_far_it_came_at_once() -> None:
    container = AContainer(grants=(a_task("a"),))

    container.run(a_batch(orders_0=40), a_batch(orders_0=50))

    assert 50 == container.progress.written[-1].offset_next


def test_progress_of_a_query_that_failed_is_not_written_afterwards() -> None:
    container = AContainer(grants=(a_task("a"),))

    container.run(a_batch(orders_0=40), a_batch(orders_0=50), QueryFailed(reason="died"), *[None] * 30)

    assert [40] == [found.offset_next for found in container.progress.written]


def test_progress_under_an_earlier_grant_is_never_written_under_a_new_one() -> None:
    """A rewind gives the same bucket anew, with an earlier start; told 50 under that epoch, 10 to 49 would be lost."""
    container = AContainer(grants=(a_task("a"),))
    container.stream.records.insert(0, ContainerPut(container=a_container("e1", processor_id="0")))
    bounds = container.topics.input_bounds
    fence_fails = [BrokerUnavailableError("no broker answered")]

    class Broker:
        def fence(self, ids: Any) -> None:
            if fence_fails:
                raise fence_fails.pop()

    def rewind() -> None:
        container.slots.open_slots = {1}
        container.fence.fence = Broker().fence  # type: ignore[method-assign]
        container.stream.records.extend([*plan_in_force(2, a="0"), GrantPut(grant=a_task("a", epoch=5))])
        container.topics.input_bounds = fail_and_stop  # type: ignore[method-assign]

    def fail_and_stop(*_: Any, **__: Any) -> Any:
        if not fence_fails and [5] == [epoch for _, epoch in container.heartbeats.contents[-1].held]:
            container.stop.asked = True
            raise BrokerUnavailableError("no broker answered")
        return bounds(*_, **__)

    # What the first batch told was written at once; the second one's would be written after three seconds.
    container.run(a_batch(orders_0=40), None, a_batch(orders_0=50), rewind)

    assert [] == fence_fails, "letting go was to fail once"
    assert container.stop.asked
    assert [(40, 1)] == [(found.offset_next, found.epoch) for found in container.progress.written]


def test_progress_that_could_not_be_written_is_a_saving_lost_and_is_tried_again() -> None:
    container = AContainer(grants=(a_task("a"),))
    container.progress.fails = [ProducerError("broken")]

    container.run(a_batch(orders_0=40), *[None] * 40)

    assert [40] == [found.offset_next for found in container.progress.written]
    assert 1 == len(container.query.started)


def test_who_takes_the_progress_id_then_asks_whether_it_still_may() -> None:
    container = AContainer(grants=(a_task("a"),))
    own = container.progress.own

    def own_and_be_lost() -> None:
        own()
        container.stream.records.append(ContainerPut(container=a_container("e1", phase=ContainerPhase.LOST)))

    container.progress.own = own_and_be_lost  # type: ignore[method-assign]

    with pytest.raises(LostContainerError):
        container.run(a_batch(orders_0=40), *[None] * 20)

    assert [] == container.progress.written
    assert "to the end" == container.trace.since("own progress")[1]


def test_who_took_the_progress_id_and_could_not_ask_takes_it_anew() -> None:
    container = AContainer(grants=(a_task("a"),))
    to_the_end, own = container.stream.to_the_end, container.progress.own
    fails = [BrokerUnavailableError("nobody answers")]

    def own_and_get_no_answer() -> None:
        own()
        container.stream.to_the_end = unanswered  # type: ignore[method-assign]

    def unanswered() -> Sequence[LogRecord]:
        if fails:
            raise fails.pop()
        return to_the_end()

    container.progress.own = own_and_get_no_answer  # type: ignore[method-assign]

    container.run(a_batch(orders_0=40), *[None] * 40)

    assert [40] == [found.offset_next for found in container.progress.written]
    assert 2 == list(container.trace).count("own progress")


# --- the end ---


def test_a_stop_drains_closes_the_state_and_says_that_nothing_is_held() -> None:
    container = AContainer()

    container.run(None)

    assert ["drain", "take slots", "block 2", "send heartbeat"] == container.trace.since("drain")
    for disk in container.disks.values():
        assert disk.contents.position is not None
        assert disk.contents.is_synced and not disk.opened[-1].is_open
    assert [("STOPPED", ())] == [(content.state, content.held) for content in container.heartbeats.sent]


def test_a_container_drains_and_ends_when_the_coordinator_tells_it_to() -> None:
    container = AContainer()
    started = LaunchPut(launch=a_launch("e1"))
    told = LaunchPut(launch=a_launch("e1", phase=LaunchPhase.STOPPING))
    container.stream.records.append(started)

    container.run(None, None, lambda: container.stream.records.append(told), *[None] * 50)

    last = container.heartbeats.contents[-1]
    assert ("STOPPED", "drained", ()) == (last.state, last.reason, last.held)
    # Not because its script was over.
    assert len(container.query.steps) > 40


def test_batches_that_end_during_the_drain_are_counted() -> None:
    container = AContainer()

    container.run(None, container.ask_to_stop, a_batch(a_report(), orders_0=5), a_batch(a_report(), orders_0=6))

    assert 2 == container.heartbeats.sent[0].figures["commits"]


def test_a_transaction_that_a_worker_left_open_is_aborted_and_everything_released() -> None:
    container = AContainer()

    container.run(lambda: container.slots.open_slots.add(1))

    assert [
        *("drain", "take slots", "block 2", "fence samzapy/flights-1/e1/1", "renew [1]", "to the end"),
        "send heartbeat",
    ] == container.trace.since("drain")
    assert [("STOPPED", ())] == [(content.state, content.held) for content in container.heartbeats.sent]


@pytest.mark.parametrize("finishes", [True, False])
def test_nothing_is_released_while_a_transaction_is_open_that_could_not_be_aborted(finishes: bool) -> None:
    container = AContainer()
    container.query.drains_in_time = finishes
    container.fence.fails.append(BrokerUnavailableError("nobody answers"))

    container.run(lambda: container.slots.open_slots.add(1))

    assert [] == container.heartbeats.sent
    assert (("a", 1), ("b", 1)) == container.heartbeats.contents[-1].held
    assert all(
        disk.contents.position is not None and not disk.contents.is_synced for disk in container.disks.values()
    )


def test_a_container_that_was_given_up_meanwhile_does_not_say_that_it_ended_cleanly() -> None:
    container = AContainer()
    lost = ContainerPut(container=a_container("e1", phase=ContainerPhase.LOST, reason="no heartbeat for 15 s"))
    fence = container.fence.fence

    def fence_and_be_lost(transactional_ids: Any) -> None:
        fence(transactional_ids)
        container.stream.records.append(lost)

    container.fence.fence = fence_and_be_lost  # type: ignore[method-assign]
    container.run(lambda: container.slots.open_slots.add(1))

    assert [] == container.heartbeats.sent


def test_a_batch_that_does_not_finish_in_time_is_cancelled_and_what_it_left_open_aborted() -> None:
    container = AContainer()
    container.query.drains_in_time = False

    container.run(lambda: container.slots.open_slots.add(0))

    assert [
        *("drain", "kill holders", "take slots", "block 2"),
        *("fence samzapy/flights-1/e1/0", "renew [0]", "to the end", "send heartbeat"),
    ] == container.trace.since("drain")


def test_a_container_that_ends_by_name_leaves_no_transaction_open() -> None:
    container = AContainer()

    def failed() -> BatchDone:
        container.slots.open_slots.add(1)
        return a_batch(a_report(kind=ReportKind.TASK_FAILED, error="task a failed"))

    with pytest.raises(TaskError, match="task a failed"):
        container.run(failed)

    assert [
        *("stop query", "kill holders", "take slots", "block 2"),
        *("fence samzapy/flights-1/e1/1", "renew [1]", "to the end", "send heartbeat"),
    ] == container.trace.since("stop query")


# --- what an earlier run left ---


def in_a_new_run() -> AContainer:
    """Task a, in a run before which epoch 5 was the last; key k of its store and orders.0 were left at 30."""
    container = AContainer(grants=(replace(a_task("a", epoch=7), counts_after=5, changelog_starts=(BEGIN,)),))
    container.commit(30, epoch=5)
    changelog = changelog_topic(container.config.job, "sums")
    container.kafka.write(changelog, 0, [(changelog_key(b"k", b""), b"1")])
    return container


BEGIN = ChangelogStart(store="sums", offset=1)


def test_what_an_earlier_run_left_is_removed_before_the_query_starts_by_who_still_may() -> None:
    container = in_a_new_run()

    container.run(None)

    job = container.config.job
    assert [
        (checkpoint_topic(job), 0, [b"checkpoint/kafka.orders.0:0/1"]),
        (changelog_topic(job, "sums"), 0, [changelog_key(b"k", b"")]),
    ] == container.progress.removed
    effects = container.trace.since("own progress")
    assert ["own progress", "to the end", f"remove {checkpoint_topic(job)}"] == effects[:3]
    assert effects.index(f"remove {changelog_topic(job, 'sums')}") < effects.index("start query 1")
    ((_, starts),) = container.query.started
    assert {ORDERS_0: 0} == starts
    assert {} == container.disks["a"].opened[-1].values("sums")


def test_a_removal_that_fails_puts_the_start_off() -> None:
    container = in_a_new_run()
    container.progress.fails = [ProducerError("broken"), FencedError("by its own time-out")]

    container.run(None)

    assert [1000, 1000] == [ms for ms in container.pauses_ms if ms != 50]
    assert 2 == len(container.progress.removed)
    ((plan, _),) = container.query.started
    assert 3 == plan.query_number


def test_who_is_given_up_when_it_takes_its_id_removes_nothing() -> None:
    container = in_a_new_run()
    own = container.progress.own

    def own_and_be_lost() -> None:
        own()
        container.stream.records.append(ContainerPut(container=a_container("e1", phase=ContainerPhase.LOST)))

    container.progress.own = own_and_be_lost  # type: ignore[method-assign]

    with pytest.raises(LostContainerError):
        container.run(None)

    assert [] == container.progress.removed


def test_a_job_that_goes_on_removes_nothing_and_takes_no_id_for_it() -> None:
    container = AContainer(grants=(a_task("a", epoch=7),))
    container.commit(30, epoch=5)

    container.run(None)

    assert ([], False) == (container.progress.removed, container.progress.is_owned())


# --- bounded inputs ---


class ABoundedContainer(AContainer):
    """Its inputs end at 10, behind which the topics go on; `finishes` is what the leader writes about the run."""

    def __init__(self, **properties: str) -> None:
        super().__init__(systems_kafka_samza_offset_end="head", **properties)
        ends = [InputEndPut(ssp=ssp_kb.ssp, run_id="r", offset_end=10) for ssp_kb in (ORDERS_0, ORDERS_1)]
        registered = ContainerPut(container=a_container("e1", phase=ContainerPhase.STARTED))
        self.stream.records[:0] = [registered, RunPut(run_id="r", ended=False), *ends]
        for ssp_kb in (ORDERS_0, ORDERS_1):
            self.topics.inputs[ssp_kb.ssp] = TopicBounds(offset_first=0, offset_end=99)

    def finishes(self) -> Callable[[], None]:
        return lambda: self.stream.records.append(RunPut(run_id="r", ended=False, finished=True))


def said_finished(container: AContainer) -> list[bool]:
    found = [content.finished for content in container.heartbeats.contents]
    return [said for index, said in enumerate(found) if index == 0 or found[index - 1] != said]


def test_a_container_says_that_it_has_finished_when_all_it_holds_was_read_to_its_end() -> None:
    container = ABoundedContainer()

    container.run(None, a_batch(a_report(0), orders_0=15, orders_1=9), a_batch(a_report(1), orders_1=10), *[None] * 8)

    first = next(content for content in container.heartbeats.contents if content.finished)
    assert [False, True, False] == said_finished(container)
    assert {("a", 1), ("b", 1)} == set(first.held)
    # What stands behind the end is nobody's lag, and no position.
    positions = container.heartbeats.contents[-2].figures["positions"]
    assert [{"offsetNext": 10, "offsetEnd": 10, "recordsIn": 10}] * 2 == [
        positions[name] for name in sorted(positions)
    ]


def test_inputs_that_begin_at_their_end_are_finished_from_the_start() -> None:
    container = ABoundedContainer()
    container.commit(10, task="a")
    container.commit(10, task="b")

    container.run(None)

    assert True in said_finished(container)


def test_an_input_without_an_end_is_never_finished() -> None:
    container = ABoundedContainer()
    container.stream.records[:] = [
        record for record in container.stream.records if not isinstance(record, InputEndPut) or record.ssp.partition
    ]

    container.run(None, a_batch(a_report(0), a_report(1), orders_0=99, orders_1=99), *[None] * 8)

    assert [False] == said_finished(container)


def test_a_container_stops_by_itself_when_the_run_is_finished() -> None:
    container = ABoundedContainer()

    container.run(None, container.finishes(), *[None] * 50)

    last = container.heartbeats.contents[-1]
    assert ("STOPPED", "finished", ()) == (last.state, last.reason, last.held)
    # Not because its script was over.
    assert len(container.query.steps) > 40


def test_a_grant_that_is_new_takes_the_word_back() -> None:
    container = ABoundedContainer()
    container.stream.records[:] = [
        found for found in container.stream.records if found != GrantPut(grant=a_task("b"))
    ]
    granted = GrantPut(grant=a_task("b"))

    container.run(
        None,
        a_batch(a_report(0), orders_0=10),
        *[None] * 8,
        lambda: container.stream.records.append(granted),
        *[None] * 20,
    )

    held_when_finished = {content.held for content in container.heartbeats.contents if content.finished}
    assert {(("a", 1),)} == held_when_finished


# --- bootstrap inputs ---

TABLE = an_ssp_kb("kafka.ztable.0:0/1")


def a_container_with_a_table(**properties: str) -> AContainer:
    """Task a joins orders.0, which ends at 100, with a bootstrap input that ends at 50; task b has orders.1 alone."""
    starts = tuple(BucketStart(ssp_kb=ssp_kb, offset_next=0) for ssp_kb in (ORDERS_0, TABLE))
    container = AContainer(
        grants=(replace(a_task("a"), starts=starts), a_task("b")),
        task_inputs="kafka.orders,kafka.ztable",
        systems_kafka_streams_ztable_samza_bootstrap="true",
        **properties,
    )
    container.topics.inputs |= {
        ORDERS_0.ssp: TopicBounds(offset_first=0, offset_end=100),
        TABLE.ssp: TopicBounds(offset_first=0, offset_end=50),
    }
    return container


def test_a_bootstrap_input_is_read_to_where_it_ended_before_the_other_inputs_of_its_task() -> None:
    container = a_container_with_a_table()

    container.run(
        *[None] * 6,
        a_batch(a_report(0, offset_next=20), ztable_0=20),
        lambda: container.topics.inputs.update({TABLE.ssp: TopicBounds(offset_first=0, offset_end=70)}),
        *[None] * 6,
        a_batch(a_report(0, offset_next=50), ztable_0=50),
        None,
        a_batch(a_report(0, offset_next=60), ztable_0=60),
    )

    (first, started_first), (second, started_second) = container.query.started
    assert ({TABLE, ORDERS_1}, [TABLE, ORDERS_1]) == (set(started_first), [route.ssp_kb for route in first.routes])
    assert [TABLE, ORDERS_0, ORDERS_1] == [route.ssp_kb for route in second.routes]
    # As it would be after a commit, which the workers make.
    assert {ORDERS_0: 0, TABLE: 0, ORDERS_1: 0} == started_second


def test_a_query_that_fails_before_the_bootstrap_input_is_read_goes_on_with_the_bootstrap_input_alone() -> None:
    container = a_container_with_a_table()

    container.run(
        a_batch(a_report(0, offset_next=20), ztable_0=20),
        QueryFailed(reason="a worker died"),
        None,
        a_batch(a_report(0, offset_next=50), ztable_0=50),
        None,
    )

    assert [{TABLE, ORDERS_1}, {TABLE, ORDERS_1}, {TABLE, ORDERS_0, ORDERS_1}] == [
        set(starts) for _, starts in container.query.started
    ]


def test_a_task_that_is_granted_meanwhile_bootstraps_too_and_one_that_is_done_reads_nothing_again() -> None:
    container = a_container_with_a_table()
    table_1 = an_ssp_kb("kafka.ztable.1:0/1")
    container.topics.inputs[table_1.ssp] = TopicBounds(offset_first=0, offset_end=9)
    starts = tuple(BucketStart(ssp_kb=ssp_kb, offset_next=0) for ssp_kb in (ORDERS_1, table_1))
    joined = GrantPut(grant=replace(a_task("b", epoch=2), starts=starts))

    container.run(
        a_batch(a_report(0, offset_next=50), ztable_0=50),
        lambda: container.stream.records.append(joined),
        *[None] * 10,
    )

    # What task a read of its table is not in question any more.
    assert [{TABLE, ORDERS_1}, {TABLE, ORDERS_0, ORDERS_1}, {TABLE, ORDERS_0, table_1}] == [
        set(starts) for _, starts in container.query.started
    ]


def test_while_a_bootstrap_input_is_read_heartbeats_say_up_to_where_and_what_waits() -> None:
    container = a_container_with_a_table()

    container.run(*[None] * 6, a_batch(a_report(0, offset_next=20), ztable_0=20), *[None] * 6)

    positions = container.heartbeats.contents[-2].figures["positions"]
    assert {"offsetNext": 20, "offsetEnd": 50, "bootstrapEnd": 50, "recordsIn": 10} == positions[str(TABLE)]
    assert {"offsetNext": 0, "offsetEnd": 100} == positions[str(ORDERS_0)]


def test_a_bounded_job_has_not_finished_while_inputs_wait_for_a_bootstrap_input() -> None:
    container = a_container_with_a_table(systems_kafka_samza_offset_end="head")
    ends = {ORDERS_0.ssp: 100, ORDERS_1.ssp: 0, TABLE.ssp: 50}
    container.stream.records[:0] = [
        ContainerPut(container=a_container("e1", phase=ContainerPhase.STARTED)),
        RunPut(run_id="r", ended=False),
        *(InputEndPut(ssp=ssp, run_id="r", offset_end=end) for ssp, end in ends.items()),
    ]
    container.topics.inputs[ORDERS_1.ssp] = TopicBounds(offset_first=0, offset_end=0)

    container.run(None, a_batch(a_report(0, offset_next=50), ztable_0=50), *[None] * 6)

    assert [False] == said_finished(container)


# --- what another factor left ---


def a_container_after_a_split() -> AContainer:
    """Task a was one of factor 1, under epoch 3, whose grant is gone; now this container has one half of it."""
    half = a_grant("a", epoch=5, ssp_kb="kafka.orders.0:0/2")
    container = AContainer(grants=(half,))
    container.commit(4, epoch=3)
    return container


def test_positions_of_another_factor_are_removed_once_the_query_runs() -> None:
    container = a_container_after_a_split()

    container.run(*[None] * 40)

    assert [
        (checkpoint_topic(container.config.job), 0, [b"checkpoint/kafka.orders.0:0/1"])
    ] == container.progress.removed
    assert container.trace.index("start query 1") < container.trace.index("own progress")


def test_positions_of_another_factor_that_could_not_be_removed_are_removed_later() -> None:
    container = a_container_after_a_split()
    container.progress.fails = [ProducerError("the connection broke")]

    container.run(*[None] * 60)

    assert 1 == len(container.progress.removed)
    assert 1 == len(container.query.started)


def test_positions_of_another_factor_whose_grant_stands_are_still_needed() -> None:
    """The sibling is not granted yet, and its start is computed from the parent's position."""
    container = a_container_after_a_split()
    container.stream.records.insert(0, GrantPut(grant=a_task("a", epoch=3, execution_id="e0")))

    container.run(*[None] * 40)

    assert [] == container.progress.removed


def test_after_a_split_on_one_host_only_the_last_record_of_the_changelog_is_read() -> None:
    container = AContainer(grants=(a_grant("Partition_0", ssp_kb="kafka.orders.0:0/1"),))
    keys = [changelog_key(bytes([letter]), b"") for letter in b"abcdefgh"]
    container.kafka.write(changelog_topic("flights-1", "sums"), 0, [(key, b"1") for key in keys])
    container.run()
    disks, container = (
        container.disks,
        AContainer(
            grants=tuple(
                a_grant(f"Partition_0-{bucket}-2", epoch=2 + bucket, ssp_kb=f"kafka.orders.0:{bucket}/2")
                for bucket in range(2)
            )
        ),
    )
    container.disks = disks
    container.kafka.write(changelog_topic("flights-1", "sums"), 0, [(key, b"1") for key in keys])

    container.run()

    assert [("sums", 0, 7)] * 2 == container.topics.changelog_reads
    found = [disks[f"Partition_0-{bucket}-2"].opened[-1].values("sums") for bucket in range(2)]
    assert sorted(keys) == sorted([*found[0], *found[1]]) and all(found)
    told = container.heartbeats.contents[-1].figures["tasks"]
    sizes = [sum(len(key) + len(value) for key, value in half.items()) for half in found]
    assert sizes == [told[f"Partition_0-{bucket}-2"]["diskBytes"] for bucket in range(2)]
    assert 0 == disks["Partition_0"].number


# --- inputs that are gone ---

REFUNDS_0 = an_ssp_kb("kafka.refunds.0:0/1")


def of_a_pattern(
    *, grants: tuple[Grant, ...] | None = None, inputs: str = "kafka.orders,kafka.~ref.*", **properties: str
) -> AContainer:
    """A container of task a, of orders.0, which is named, and task c, of refunds.0, which a pattern stands for."""
    refunds = a_grant("c", ssp_kb=str(REFUNDS_0), offset_next=3)
    container = AContainer(
        grants=(a_task("a"), refunds) if grants is None else grants, task_inputs=inputs, **properties
    )
    for name in ("orders", "refunds"):
        container.stream.records.append(
            InputPut(
                system_stream=SystemStream("kafka", name),
                partition_count=1,
                partition_count_first=1,
                topic_id=f"id-of-kafka.{name}",
            )
        )
    return container


def read_by(container: AContainer) -> list[set[str]]:
    """What each query reads."""
    for plan, starts in container.query.started:
        assert {route.ssp_kb for route in plan.routes} == set(starts)
    return [{str(ssp_kb.ssp) for ssp_kb in starts} for _, starts in container.query.started]


BOTH, ONE = {"kafka.orders.0", "kafka.refunds.0"}, {"kafka.orders.0"}


def test_an_input_of_a_pattern_that_goes_is_left_out_and_what_is_held_stays() -> None:
    container = of_a_pattern()

    container.run(None, lambda: container.topics.absent.add("kafka.refunds"), *[None] * 10, lambda: None)

    assert [BOTH, ONE] == read_by(container)
    assert "drain" in container.trace
    assert {"a", "c"} == {task for task, _ in container.heartbeats.contents[-2].held}
    assert not {str(found) for found in container.heartbeats.contents[-2].figures["positions"]} & {str(REFUNDS_0)}


def test_a_bootstrap_input_of_a_pattern_that_goes_is_waited_for_no_more() -> None:
    starts = tuple(BucketStart(ssp_kb=ssp_kb, offset_next=3) for ssp_kb in (ORDERS_0, REFUNDS_0))
    container = of_a_pattern(
        grants=(replace(a_task("a"), starts=starts),),
        **{"systems_kafka_streams_~ref.*_samza_bootstrap": "true"},
    )

    container.run(None, lambda: container.topics.absent.add("kafka.refunds"), *[None] * 10, lambda: None)

    assert [{"kafka.refunds.0"}, ONE] == read_by(container)


def test_an_input_of_a_pattern_that_is_gone_at_the_start_is_left_out() -> None:
    container = of_a_pattern()
    container.topics.absent.add("kafka.refunds")

    container.run(*[None] * 10)

    assert [ONE] == read_by(container)


def test_an_input_that_is_there_again_is_read_on_from_where_it_was() -> None:
    container = of_a_pattern()
    container.topics.absent.add("kafka.refunds")

    container.run(None, lambda: container.topics.absent.clear(), *[None] * 10)

    assert [ONE, BOTH] == read_by(container)
    assert 3 == container.query.started[-1][1][REFUNDS_0]


def test_another_topic_under_the_name_of_an_input_of_a_pattern_is_not_read() -> None:
    container = of_a_pattern()

    container.run(None, lambda: container.kafka.topic_ids.update({"kafka.refunds": "another"}), *[None] * 10)

    assert [BOTH, ONE] == read_by(container)


@pytest.mark.parametrize("runs", [False, True])
def test_an_input_of_a_pattern_that_goes_between_two_questions_is_left_out(runs: bool) -> None:
    container = of_a_pattern()
    bounds = container.topics.input_bounds
    goes_at = 3 if runs else 1
    asked = []

    def goes(ssps: Sequence[SystemStreamPartition], wait_ms: int) -> Mapping[SystemStreamPartition, TopicBounds]:
        asked.append(ssps)
        if len(asked) == goes_at:
            container.topics.absent.add("kafka.refunds")
        return bounds(ssps, wait_ms)

    container.topics.input_bounds = goes  # type: ignore[method-assign]

    container.run(*[None] * 40)

    assert ([BOTH, ONE] if runs else [ONE]) == read_by(container)


def test_an_input_that_is_named_ends_the_container_when_it_goes() -> None:
    container = of_a_pattern(inputs="kafka.orders,kafka.refunds,kafka.~ref.*")

    with pytest.raises(MissingTopicError, match=r"kafka\.refunds\.0"):
        container.run(None, lambda: container.topics.absent.add("kafka.refunds"), *[None] * 200)


@pytest.mark.parametrize("at_the_start", [True, False])
def test_an_input_that_brokers_do_not_know_for_a_moment_ends_nothing(at_the_start: bool) -> None:
    """As brokers that have just come up, and are asked before they have heard of all topics."""
    container = of_a_pattern(inputs="kafka.orders,kafka.refunds,kafka.~ref.*")
    bounds, asked = container.topics.input_bounds, []

    def knows_it_late(
        ssps: Sequence[SystemStreamPartition], wait_ms: int
    ) -> Mapping[SystemStreamPartition, TopicBounds]:
        asked.append(ssps)
        if (1 if at_the_start else 3) <= len(asked) < 6:
            raise MissingTopicError("no such topic")
        return bounds(ssps, wait_ms)

    container.topics.input_bounds = knows_it_late  # type: ignore[method-assign]

    container.run(*[None] * 60)

    assert len(asked) > 6
    assert [BOTH] == read_by(container)


def test_brokers_that_were_away_in_between_are_given_the_whole_time_again() -> None:
    container = of_a_pattern(inputs="kafka.orders,kafka.refunds,kafka.~ref.*")
    bounds, asked = container.topics.input_bounds, []

    def comes_up_slowly(
        ssps: Sequence[SystemStreamPartition], wait_ms: int
    ) -> Mapping[SystemStreamPartition, TopicBounds]:
        asked.append(ssps)
        match len(asked):
            case 1 | 3:
                raise MissingTopicError("no such topic")
            case 2:
                container.clock.advance(60_000)
                raise BrokerUnavailableError("nobody there")
        return bounds(ssps, wait_ms)

    container.topics.input_bounds = comes_up_slowly  # type: ignore[method-assign]

    container.run(*[None] * 20)

    assert [BOTH] == read_by(container)


def test_queries_that_failed_because_an_input_went_do_not_count_as_starts_that_led_to_nothing() -> None:
    container = of_a_pattern()
    failed = QueryFailed(reason="no such partition")

    def goes() -> QueryFailed:
        container.topics.absent.add("kafka.refunds")
        return failed

    container.run(failed, failed, goes, failed, failed, *[None] * 3)

    assert [BOTH] * 3 + [ONE] * 3 == read_by(container)


def test_queries_that_fail_all_the_same_without_it_end_the_container() -> None:
    container = of_a_pattern(task_query_retry_ms="0")
    container.topics.absent.add("kafka.refunds")

    with pytest.raises(SamzapyError, match="in 3 starts"):
        container.run(*[QueryFailed(reason="again")] * 4)


def test_who_has_nothing_left_to_read_waits_and_lets_go_when_the_plan_takes_it_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    container = of_a_pattern(grants=(a_grant("c", ssp_kb=str(REFUNDS_0)),))
    container.topics.absent.add("kafka.refunds")

    def later() -> None:
        if len(container.pauses_ms) == 200:
            container.topics.absent.clear()

    container.while_pausing = later
    container.run(*[None] * 3)

    assert [{"kafka.refunds.0"}] == read_by(container)
    assert ("c", 1) in container.heartbeats.contents[5].held
    said = [record.message for record in caplog.records if "nothing is there to be read" in record.message]
    assert 1 == len(said), "not every second"


# --- a standby ---


def a_standby(role: LaunchRole = LaunchRole.STANDBY) -> AContainer:
    """Execution e1 of processor 0, whose tasks r1 runs on another host; the changelog has one entry."""
    container = AContainer(grants=())
    container.stream.records += [
        LaunchPut(launch=a_launch("e1", role=role)),
        *plan_in_force(1, a="0", b="0"),
        ContainerPut(container=a_container("r1", host="host-b")),
        *(GrantPut(grant=a_task(name, execution_id="r1")) for name in "ab"),
        ContainerPut(container=a_container("e1", phase=ContainerPhase.STARTED)),
    ]
    container.kafka.write(changelog_topic(container.config.job, "sums"), 0, [(changelog_key(b"k", b""), b"1")])
    return container


def at_pauses(container: AContainer, **steps: Callable[[], None]) -> None:
    """Do something at a pause: `p20` at the twentieth."""

    def look() -> None:
        step = steps.get(f"p{len(container.pauses_ms)}")
        if step is not None:
            step()

    container.while_pausing = look


def test_a_standby_keeps_the_state_at_hand_and_touches_nothing_else() -> None:
    container = a_standby()
    at_pauses(container, p40=container.ask_to_stop)

    container.run()

    assert [] == container.query.started
    assert StandbyProgress(tasks=2, level=2, restored=2, total=2) == container.heartbeats.contents[-2].warm
    assert not [effect for effect in container.trace if effect.startswith(("fence", "own", "remove", "progress"))]
    position = container.disks["a"].contents.position
    assert position is not None
    assert ("", True, {"sums": 1}) == (
        position.execution_id,
        container.disks["a"].contents.is_synced,
        position.changelog_next,
    )


def test_a_standby_removes_what_nobody_has_used_for_long_once_it_is_ready() -> None:
    container = a_standby()
    container.query.rehearsal_looks = 3
    old_ms = container.clock.wall_ms() - UNUSED_MS - 1
    for name in ("c", "b"):
        container.disks[name] = MemoryStateDirectory(name)
        container.disks[name].fresh().close()
        container.disks[name].written_at_ms = old_ms
    found: list[tuple[bool, bool]] = []

    def look() -> None:
        warm = container.heartbeats.contents[-1].warm
        found.append((warm is not None and warm.level == 2 and warm.is_rehearsed, container.disks["c"].number == 0))
        container.stop.asked = len(found) == 40

    container.while_pausing = look
    container.run()

    assert (False, False) == found[0]
    assert (True, True) == found[-1]
    assert (False, True) not in found
    assert container.disks["b"].number > 0, "one of its own tasks"


def test_a_standby_tries_its_query_out_when_the_state_is_level_and_says_so_when_that_is_over() -> None:
    container = a_standby()
    container.query.rehearsal_looks = 3
    at_pauses(container, p40=container.ask_to_stop)

    container.run()

    # No route of it can be taken: what it reads is no input.
    ((plan, ssp, offset),) = container.query.rehearsed
    assert ({"a", "b"}, {""}) == (
        {route.task_name for route in plan.routes},
        {route.environment_dir for route in plan.routes},
    )
    assert (coordinator_topic(container.config.job), 0) == (ssp.stream, ssp.partition)
    assert 0 <= offset < container.stream.offset_next()
    told = [content.warm for content in container.heartbeats.contents if content.warm is not None]
    said = [(warm.level, warm.is_rehearsed) for warm in told]
    assert (2, False) in said
    assert (2, True) == said[-1]
    assert said == sorted(said)
    assert [] == container.query.started


def test_a_rehearsal_that_does_not_end_keeps_nobody_from_being_ready() -> None:
    container = a_standby()
    container.query.rehearsal_looks = 1_000_000
    begun_ms = container.clock.monotonic_ms()
    ready_ms: list[int] = []

    def look() -> None:
        warm = container.heartbeats.contents[-1].warm
        if warm is not None and warm.is_rehearsed:
            ready_ms.append(container.clock.monotonic_ms() - begun_ms)
            container.stop.asked = True

    container.while_pausing = look
    container.run()

    assert 60_000 <= ready_ms[0] < 70_000
    assert "stop query" in container.trace


def test_who_is_granted_tasks_during_its_rehearsal_starts_at_once() -> None:
    container = a_standby()
    container.query.rehearsal_looks = 1_000_000

    def promote() -> None:
        assert container.query.rehearsed
        container.stream.records += [
            PlacedPut(processor_id=ProcessorId("0"), execution_id=ExecutionId("e1"), uuid="u"),
            *(GrantPut(grant=a_task(name, epoch=2, offset_next=5)) for name in "ab"),
        ]

    at_pauses(container, p40=promote)
    container.run()

    assert 1 == len(container.query.started)
    # A container that runs has tried it out.
    assert container.heartbeats.contents[-1].warm is None


def one_that_joins(*, debounce_ms: str = "20000") -> AContainer:
    """Execution e1 of processor 1, new in a job whose tasks r1 of processor 0 runs, all of them."""
    container = AContainer(grants=(), job_debounce_time_ms=debounce_ms)
    container.stream.records += [
        *plan_in_force(1, a="0", b="0"),
        ContainerPut(container=a_container("r1", host="host-b")),
        *(GrantPut(grant=a_task(name, execution_id="r1")) for name in "ab"),
        ContainerPut(container=a_container("e1", processor_id="1", phase=ContainerPhase.STARTED)),
    ]
    container.query.rehearsal_looks = 3
    return container


def test_who_joins_a_job_that_runs_tries_its_query_out_while_it_waits_for_a_plan() -> None:
    container = one_that_joins()
    at_pauses(container, p40=container.ask_to_stop)

    container.run()

    ((plan, _, _),) = container.query.rehearsed
    assert ({"a", "b"}, {""}) == (
        {route.task_name for route in plan.routes},
        {route.environment_dir for route in plan.routes},
    )
    assert not [effect for effect in container.trace if effect.startswith(("fence", "own", "remove", "progress"))]


@pytest.mark.parametrize(
    "why",
    ["debounce", "lost", "released", "its own", "not registered", "launched"],
)
def test_nobody_tries_it_out_who_may_have_to_run_tasks_at_any_moment(why: str) -> None:
    container = one_that_joins(debounce_ms="9999" if why == "debounce" else "20000")
    if why == "lost":
        container.stream.records.append(ContainerPut(container=a_container("r1", phase=ContainerPhase.LOST)))
    if why == "released":
        container.stream.records.append(GrantPut(grant=replace(a_task("b", execution_id="r1"), released=True)))
    if why == "its own":
        container.stream.records += plan_in_force(2, a="0", b="1")
    if why == "launched":
        container.stream.records.append(LaunchPut(launch=a_launch("e1", role=LaunchRole.ACTIVE)))
    if why == "not registered":
        del container.stream.records[-1]
    at_pauses(container, p40=container.ask_to_stop)

    container.run()

    assert [] == container.query.rehearsed


def test_who_joins_and_is_granted_tasks_during_its_rehearsal_starts_at_once() -> None:
    container = one_that_joins()
    container.query.rehearsal_looks = 1_000_000

    def granted() -> None:
        assert container.query.rehearsed
        container.stream.records += [
            *plan_in_force(2, a="0", b="1"),
            GrantPut(grant=a_task("b", epoch=2, offset_next=5)),
        ]

    at_pauses(container, p40=granted)
    container.run()

    ((plan, _),) = container.query.started
    assert ["b"] == [route.task_name for route in plan.routes]


def test_a_standby_that_is_promoted_starts_with_what_it_has() -> None:
    container = a_standby()

    def promote() -> None:
        # What its runner wrote until it let go.
        container.kafka.write(changelog_topic(container.config.job, "sums"), 0, [(changelog_key(b"l", b""), b"2")])
        container.stream.records += [
            PlacedPut(processor_id=ProcessorId("0"), execution_id=ExecutionId("e1"), uuid="u"),
            *(GrantPut(grant=a_task(name, epoch=2, offset_next=5)) for name in "ab"),
        ]

    at_pauses(container, p40=promote)
    container.run()

    ((plan, starts),) = container.query.started
    assert {"a", "b"} == {route.task_name for route in plan.routes}
    assert {ORDERS_0: 5, ORDERS_1: 5} == starts
    # No rebuild: each task reads from the last entry of its own on.
    assert [("sums", 0, 0)] * 2 == container.topics.changelog_reads
    assert 2 == len(container.disks["a"].contents.entries)
    assert container.heartbeats.contents[-1].warm is None


def test_that_the_runner_lets_go_is_no_reason_to_look_again() -> None:
    """It comes at the moment at which the tasks stand still."""
    container = a_standby()

    def let_go() -> None:
        released = (replace(a_task(name, execution_id="r1"), released=True) for name in "ab")
        container.stream.records += [GrantPut(grant=grant) for grant in released]

    at_pauses(container, p40=let_go, p80=container.ask_to_stop)
    container.run()

    assert [{("sums", 0): 0}, {}] == container.tail.assigned
    warm = [content.warm for content in container.heartbeats.contents if content.warm is not None]
    assert 2 == warm[-1].level


def test_where_the_runner_is_on_the_same_host_a_reserve_touches_nothing() -> None:
    container = a_standby(LaunchRole.RESERVE)
    container.stream.records.append(ContainerPut(container=a_container("r1", host="host-a")))
    at_pauses(container, p40=container.ask_to_stop)

    container.run()

    assert StandbyProgress(tasks=2, level=2, at_hand=2) == container.heartbeats.contents[-2].warm
    assert [] == [name for name, disk in container.disks.items() if disk.number]


def test_an_active_container_that_waits_for_its_grants_keeps_nothing_warm() -> None:
    container = a_standby(LaunchRole.ACTIVE)
    at_pauses(container, p40=container.ask_to_stop)

    container.run()

    assert container.heartbeats.contents[-2].warm is None
    assert [] == container.tail.assigned


def test_a_standby_follows_a_plan_that_gives_its_processor_other_tasks() -> None:
    container = a_standby()

    def plan() -> None:
        container.stream.records += plan_in_force(2, a="0", b="1")

    at_pauses(container, p40=plan, p80=container.ask_to_stop)
    container.run()

    warm = [content.warm for content in container.heartbeats.contents if content.warm is not None]
    assert StandbyProgress(tasks=1, level=1, restored=1, total=1) == warm[-1]
