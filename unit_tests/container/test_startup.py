"""The start of a query: its steps in order, and the parts that it leaves out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from samzapy.container.local_state import restore
from samzapy.container.ports import BatchDone, QueryFailed, TopicBounds
from samzapy.container.query_retries import STARTS_MIN
from samzapy.errors import (
    BrokerUnavailableError,
    ConfigError,
    ExitCode,
    FencedError,
    LostContainerError,
    LostRangeError,
    ProducerError,
    TopicIdentityError,
)
from samzapy.model.checkpoint import Checkpoint
from samzapy.model.container import ContainerPhase
from samzapy.model.grant import BucketStart, ChangelogStart
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.launch import LaunchPhase
from samzapy.model.ssp import SystemStream
from samzapy.model.start_step import waits_for_transaction
from samzapy.model.topics import changelog_topic, checkpoint_topic
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
    Removed,
    RunPut,
)
from samzapy.testing.builders import a_container, a_grant, a_launch, an_ssp, an_ssp_kb
from samzapy.testing.memory.driver import MemoryStream
from samzapy.testing.memory.local_state import MemoryEnvironment, MemoryStateDirectory
from samzapy.testing.memory.process import Crash, CrashAt
from unit_tests.fixtures.container_worlds import a_job
from unit_tests.fixtures.running_container import (
    ORDERS_0,
    ORDERS_1,
    AContainer,
    a_batch,
    a_recorded,
    a_report,
    a_task,
    at_pauses,
    reports_of_the_end,
)

# --- start ---


def test_a_container_whose_configuration_is_not_the_recorded_one_ends_before_it_does_anything() -> None:
    """Two processes start a new job at the same moment; the first leader's counts."""
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


def test_a_container_works_beside_others_with_other_settings_of_their_own() -> None:
    container = AContainer(processor_id="9", systems_kafka_client_sasl_password="mine")
    recorded = a_job(systems_kafka_client_sasl_password="theirs")
    # A setting of before that is gone does not count.
    container.stream.records[:0] = [
        ConfigPut(config_key="job.id", value="1"),
        *a_recorded(recorded),
        Removed(key="config/job.id"),
    ]

    container.run()

    assert 1 == len(container.query.started)


def test_a_start_blocks_slots_fences_reads_positions_restores_and_admits_workers_in_this_order() -> None:
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


def test_a_task_reads_broadcast_inputs_first_and_old_partitions_before_new_ones() -> None:
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
        (str(progress.ssp_kb), progress.offset_next, progress.epoch) for progress in container.progress.written
    ]


def test_each_local_state_is_restored_and_closed_before_workers_are_admitted() -> None:
    container = AContainer()
    container.commit(40)

    still_open: list[Any] = []

    def look() -> None:
        still_open.extend(
            environment for disk in container.disks.values() for environment in disk.opened if environment.is_open
        )

    container.run(look)

    assert [] == still_open
    position = container.disks["a"].contents.position
    assert position is not None
    assert ({str(ORDERS_0): 40}, "e1", 1) == (dict(position.offsets_next), position.execution_id, position.epoch)


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


def test_a_start_outside_the_topic_ends_the_container_before_the_restore() -> None:
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
def test_a_driver_that_dies_in_a_start_has_admitted_no_worker(point: str) -> None:
    container = AContainer()
    container.crash_points = CrashAt(point)

    with pytest.raises(Crash):
        container.run()

    assert [] == [effect for effect in container.trace if effect.startswith(("admit", "start query"))]


# --- an end during the restore ---


def a_long_restore(monkeypatch: pytest.MonkeyPatch, act: Callable[[AContainer], None], *, at: int = 0) -> AContainer:
    """A container with six records to restore for each task, two at a time.

    Something happens as a record is read, the first one or another.
    """
    monkeypatch.setattr(restore, "_RECORDS_PER_COMMIT", 2)
    container = AContainer()
    entries = [(changelog_key(b"%d" % number, b""), b"1") for number in range(6)]
    container.kafka.write(changelog_topic("flights-1", "sums"), 0, entries)
    read = container.topics.changelog_records

    def noted(store: str, partition: int, offset_from: int) -> Iterator[LogRecord]:
        for record in read(store, partition, offset_from):
            if container.trace.count("record") == at:
                act(container)
            container.trace.append("record")
            yield record

    container.topics.changelog_records = noted  # type: ignore[method-assign]
    return container


def be_told_to_stop(container: AContainer) -> None:
    container.stream.records.append(LaunchPut(launch=a_launch("e1", phase=LaunchPhase.STOPPING)))


@pytest.mark.parametrize("ask", [AContainer.ask_to_stop, be_told_to_stop], ids=["signal", "order"])
def test_a_container_that_is_stopped_during_a_restore_ends_cleanly_without_the_rest(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[AContainer], None]
) -> None:
    container = a_long_restore(monkeypatch, ask)

    container.run()

    assert 3 >= container.trace.count("record"), "those at hand"
    assert [] == container.query.started
    assert ["drain", "take slots", "block 2", "close tasks within 3000 ms", "send heartbeat"] == (
        container.trace.since("drain")
    )
    assert [("STOPPED", "drained", ())] == [
        (content.state, content.reason, content.held) for content in container.heartbeats.sent
    ]
    assert "" == container.heartbeats.sent[0].step and 1000 not in container.pauses_ms
    assert not any(environment.is_open for disk in container.disks.values() for environment in disk.opened)


def test_a_container_that_is_lost_during_a_restore_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = ContainerPut(container=a_container("e1", phase=ContainerPhase.LOST, reason="no heartbeat for 15 s"))
    container = a_long_restore(monkeypatch, lambda container: container.stream.records.append(lost))

    with pytest.raises(LostContainerError, match="no heartbeat for 15 s"):
        container.run()

    assert 3 >= container.trace.count("record")
    assert "start query 1" not in container.trace
    assert not any(environment.is_open for disk in container.disks.values() for environment in disk.opened)


def test_a_grant_that_is_revoked_during_a_restore_does_not_begin_it_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = GrantPut(grant=a_task("b", epoch=2, execution_id="e2"))
    container = a_long_restore(monkeypatch, lambda container: container.stream.records.append(moved))

    container.run(None)

    assert 12 == container.trace.count("record"), "the other task is level"
    assert [["a"]] == [[route.task_name for route in plan.routes] for plan, _ in container.query.started]
    assert [(("a", 1),)] == [
        held for held in dict.fromkeys(content.held for content in container.heartbeats.contents) if len(held) == 1
    ]


@pytest.mark.parametrize("is_kept", [False, True])
def test_state_that_a_stop_left_half_restored_is_level_after_the_next_start(
    monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    container = a_long_restore(monkeypatch, AContainer.ask_to_stop, at=12 if is_kept else 0)

    def start_again(epoch: int) -> None:
        container.stop.asked = False
        container.stream = MemoryStream(container.trace)
        container.stream.records += [GrantPut(grant=a_task(name, epoch=epoch)) for name in ("a", "b")]
        container.run(None)

    if is_kept:
        container.run(None)
        more = [(changelog_key(b"%d" % number, b""), b"2") for number in range(3, 9)]
        container.kafka.write(changelog_topic("flights-1", "sums"), 0, more)
    starts = len(container.query.started)
    start_again(2)
    assert starts == len(container.query.started)
    start_again(3)

    assert starts + 1 == len(container.query.started)
    values = [b"1"] * 3 + [b"2"] * 6 if is_kept else [b"1"] * 6
    for disk in container.disks.values():
        assert {("sums", changelog_key(b"%d" % n, b"")): value for n, value in enumerate(values)} == (
            disk.contents.entries
        )
        assert disk.contents.position is not None
        assert {"sums": 12 if is_kept else 6} == disk.contents.position.changelog_next


# --- reports of the start ---


def test_a_start_logs_its_grants_the_progress_of_the_restore_and_the_first_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "samzapy.container")
    container = AContainer()
    read = container.topics.changelog_records
    container.kafka.write(changelog_topic("flights-1", "sums"), 0, [(changelog_key(b"k", b""), b"1")])

    def slowly(store: str, partition: int, offset_from: int) -> Iterator[LogRecord]:
        container.clock.advance(3000)
        return read(store, partition, offset_from)

    container.topics.changelog_records = slowly  # type: ignore[method-assign]
    container.run(None, a_batch(a_report()), a_batch(a_report()))

    assert [
        "granted: a, b; starting",
        "query 1 starts after 6.0 s",
        "the first micro-batch of query 1 ended after 0.2 s: 10 records in, 20 out",
    ] == [record.getMessage() for record in caplog.records]


def test_a_long_restore_logs_its_progress_every_few_seconds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "samzapy.container.local_state.restore")
    caplog.set_level("INFO", "samzapy.container")
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

    message = "restoring local state: 0 of 2 tasks are level, 1 of 2 records were read, about 5 s left"
    assert [message] == [record.getMessage() for record in caplog.records if "restoring" in record.getMessage()]
    figures = [content.figures for content in container.heartbeats.contents]
    progress = [(figure["restored"], figure["restoreTotal"]) for figure in figures if "restored" in figure]
    assert {(1, 2)} == set(progress)
    assert "restored" not in figures[-1]


def test_while_a_task_is_restored_the_next_ones_are_fetched() -> None:
    container = AContainer()
    container.kafka.write(changelog_topic("flights-1", "sums"), 0, [(changelog_key(b"k", b""), b"1")])

    container.run(None)

    # Records are fetched when they are asked for; both tasks are of one partition.
    assert [("sums", 0, 0)] * 2 == container.topics.changelog_reads
    assert [[("sums", 0, 0)], [("sums", 0, 0)], []] == container.topics.read_aheads


def test_a_start_with_caught_up_state_fetches_nothing_ahead() -> None:
    container = AContainer()

    container.run(None)

    assert [] == container.topics.read_aheads


# --- heartbeats ---


def test_the_restore_time_of_each_task_is_in_its_stats() -> None:
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

    tasks = container.heartbeats.contents[-1].figures["tasks"]
    assert {"a": 3_000_000_000, "b": 500_000_000} == {
        name: figures["storeIdentifyNs"] for name, figures in tasks.items()
    }


# --- the remains of an earlier run ---


def in_a_new_run() -> AContainer:
    """Task a is in a run after epoch 5; its store and orders.0 were left at 30."""
    container = AContainer(grants=(replace(a_task("a", epoch=7), counts_after=5, changelog_starts=(BEGIN,)),))
    container.commit(30, epoch=5)
    changelog = changelog_topic(container.config.job, "sums")
    container.kafka.write(changelog, 0, [(changelog_key(b"k", b""), b"1")])
    return container


BEGIN = ChangelogStart(store="sums", offset=1)


def test_stale_positions_are_removed_before_the_query_starts_if_the_execution_is_not_lost() -> None:
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


def test_a_container_that_is_lost_when_it_acquires_its_id_removes_nothing() -> None:
    container = in_a_new_run()
    own = container.progress.acquire

    def acquire_and_be_lost() -> None:
        own()
        container.stream.records.append(ContainerPut(container=a_container("e1", phase=ContainerPhase.LOST)))

    container.progress.acquire = acquire_and_be_lost  # type: ignore[method-assign]

    with pytest.raises(LostContainerError):
        container.run(None)

    assert [] == container.progress.removed


def test_a_job_that_continues_removes_nothing_and_initialises_no_id_for_it() -> None:
    container = AContainer(grants=(a_task("a", epoch=7),))
    container.commit(30, epoch=5)

    container.run(None)

    assert ([], False) == (container.progress.removed, container.progress.is_acquired())


# --- bootstrap inputs ---


TABLE = an_ssp_kb("kafka.ztable.0:0/1")


def a_container_with_a_table(**properties: str) -> AContainer:
    """Task a joins orders.0 (end 100) with a bootstrap input (end 50).

    Task b has orders.1 alone.
    """
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


def test_a_query_that_failed_during_bootstrap_restarts_with_the_bootstrap_input_alone() -> None:
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

    # Task a's read of its table is no longer in question.
    assert [{TABLE, ORDERS_1}, {TABLE, ORDERS_0, ORDERS_1}, {TABLE, ORDERS_0, table_1}] == [
        set(starts) for _, starts in container.query.started
    ]


def test_while_a_bootstrap_input_is_read_heartbeats_have_its_end_and_the_waiting_inputs() -> None:
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

    assert [False] == reports_of_the_end(container)


# --- the remains of another factor ---


def a_container_after_a_split() -> AContainer:
    """Task a was one of factor 1, under epoch 3; now this container has half of it.

    The grant of that epoch is gone.
    """
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


def test_positions_of_another_factor_are_kept_while_their_grant_is_recorded() -> None:
    """The sibling has no grant yet; its start comes from the parent's position."""
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
    sums = [disks[f"Partition_0-{bucket}-2"].opened[-1].values("sums") for bucket in range(2)]
    assert sorted(keys) == sorted([*sums[0], *sums[1]]) and all(sums)
    tasks = container.heartbeats.contents[-1].figures["tasks"]
    sizes = [sum(len(key) + len(value) for key, value in half.items()) for half in sums]
    assert sizes == [tasks[f"Partition_0-{bucket}-2"]["diskBytes"] for bucket in range(2)]
    stores = container.heartbeats.contents[-1].figures["stores"]
    assert {"sums": {"bytes": sum(sizes), "entries": len(keys)}} == stores
    assert 0 == disks["Partition_0"].number


def test_a_restore_that_waits_for_another_producer_names_the_changelog_the_offset_and_the_way_out() -> None:
    container = AContainer()
    changelog = changelog_topic(container.config.job, "sums")
    container.kafka.begin("of-another-program")
    container.kafka.append("of-another-program", changelog, 0, b"x", b"x", (), None)
    at_pauses(container, p9=lambda: container.kafka.end("of-another-program", committed=False))

    container.run(*[None] * 2)

    steps = [content.step for content in container.heartbeats.contents]
    waiting = [step for step in steps if waits_for_transaction(step)]
    assert waiting
    assert f"open on {changelog}-0 from offset 0 on; `samzapy doctor --patience 5` has the commands" in waiting[0]


def test_a_restore_of_a_changelog_without_an_open_transaction_waits_for_none() -> None:
    container = AContainer()

    container.run(*[None] * 2)

    assert not [content.step for content in container.heartbeats.contents if waits_for_transaction(content.step)]
