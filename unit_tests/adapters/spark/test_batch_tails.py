from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from samzapy.adapters.spark import batch_tails
from samzapy.adapters.spark.batch_tails import BatchTails, has_failed
from samzapy.adapters.spark.slots import boottime_ns
from samzapy.adapters.spark.tail_board import CHEAP_NS, TailFile, WorkerTailBoard
from samzapy.container.ports import BatchDone, QueryEvent, TailProgress
from samzapy.container.task.tail import FELL_BEHIND
from samzapy.container.task.work_plan import Report, ReportKind, TailPlan, WorkPlan
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition
from samzapy.model.task_stats import TaskStats
from unit_tests.fixtures.container_worlds import a_job
from unit_tests.fixtures.tail_worlds import a_tail_plan

A, B = SspKeyBucket.parse("kafka.orders.0:0/1"), SspKeyBucket.parse("kafka.orders.1:0/1")
OF_SPARK = BatchDone(reports=(), offsets_end={}, duration_ns=99)


def a_report(route: int, offset_next: int, kind: ReportKind = ReportKind.COMMITTED) -> Report:
    return Report(
        kind=kind, route=route, offset_next=offset_next, records_in=1, records_out=0, dead_letters=0, commits=1
    )


@dataclass
class Container:
    """The driver's side, and workers that are asked for one by one."""

    plan: WorkPlan
    tails: BatchTails
    file: TailFile

    def begin(self, *ends: int, batch: int = 0) -> None:
        self.tails.begin(batch, {route.ssp_kb.ssp: end for route, end in zip(self.plan.routes, ends, strict=True)})

    def worker(self) -> WorkerTailBoard:
        return WorkerTailBoard(self.file, self.file.order())


def a_container(tmp_path: Path, *, slots: int = 2, lag_max: int = 100, offsets_max: int = 1000) -> Container:
    plan = a_tail_plan(a_job(), A, B, lag_max=lag_max)
    plan = replace(plan, slot_count=slots, batch_offsets_max=offsets_max)
    tail, file = plan.tail, TailFile(tmp_path)
    assert isinstance(tail, TailPlan)
    return Container(plan, BatchTails(plan, tail, file, {A.ssp: 0, B.ssp: 0}, has_task_each=True), file)


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return a_container(tmp_path)


def progress_of(events: Sequence[QueryEvent]) -> TailProgress:
    (event,) = (event for event in events if isinstance(event, TailProgress))
    return event


def test_there_is_a_spark_task_for_each_partition_with_records(container: Container) -> None:
    container.begin(5, 0)

    assert 1 == container.file.order().spark_tasks
    assert [5, 0] == container.file.read_from()


def test_with_a_shuffle_there_is_a_spark_task_for_each_slot(tmp_path: Path) -> None:
    container = a_container(tmp_path, slots=3)
    assert container.plan.tail is not None
    container.tails = BatchTails(
        container.plan, container.plan.tail, container.file, {A.ssp: 0, B.ssp: 0}, has_task_each=False
    )

    container.begin(5, 0)

    assert 3 == container.file.order().spark_tasks


def test_a_micro_batch_with_a_backlog_has_no_tails(container: Container) -> None:
    container.begin(60, 41)

    assert 0 == container.file.order().end_ns
    assert (OF_SPARK,) == tuple(container.tails.finish(OF_SPARK))


def test_no_route_tails_once_spark_has_ended_the_micro_batch(container: Container) -> None:
    container.begin(5, 0)
    container.worker().rows_done([], -1)
    assert [0, 1] == list(progress_of(container.tails.poll()).tailing)

    assert [] == list(progress_of(container.tails.finish(OF_SPARK)).tailing)


def test_records_that_tails_have_read_are_no_backlog(container: Container) -> None:
    container.begin(5, 0)
    worker = container.worker()
    worker.rows_done([], -1)
    worker.publish([a_report(0, 400)], {0: 400})
    container.tails.finish(OF_SPARK)

    container.begin(450, 0, batch=1)

    assert 0 < container.file.order().end_ns
    assert [450, 0] == container.file.read_from()


def test_a_full_micro_batch_has_no_tails(tmp_path: Path) -> None:
    container = a_container(tmp_path, lag_max=10_000, offsets_max=100)

    container.begin(60, 40)

    assert 0 == container.file.order().end_ns


def test_the_tails_read_from_where_earlier_tails_came_to(container: Container) -> None:
    container.begin(5, 0)
    worker = container.worker()
    worker.rows_done([], -1)
    worker.publish([], {0: 5, 1: 30})
    container.tails.finish(OF_SPARK)

    container.begin(9, 10, batch=1)

    assert [9, 30] == container.file.read_from()


def test_the_rows_are_reported_before_the_tails_end(container: Container) -> None:
    container.begin(5, 7)
    first, second = container.worker(), container.worker()
    first.rows_done([a_report(0, 5)], -1)
    assert () == tuple(container.tails.poll()), "one worker is still at its rows"
    assert not container.tails.rows_are_done()

    second.rows_done([a_report(1, 7)], -1)

    assert container.tails.rows_are_done()
    done = container.tails.poll()[0]
    assert isinstance(done, BatchDone)
    assert {a_report(0, 5), a_report(1, 7)} == set(done.reports)
    assert {A.ssp: 5, B.ssp: 7} == done.offsets_end and done.duration_ns > 0


def test_the_rows_are_reported_once(container: Container) -> None:
    container.begin(5, 0)
    container.worker().rows_done([a_report(0, 5)], -1)

    kinds = [type(event) for event in [*container.tails.poll(), *container.tails.poll()]]
    kinds += [type(event) for event in container.tails.finish(OF_SPARK)]

    assert 1 == kinds.count(BatchDone) and 3 == kinds.count(TailProgress)


def test_tails_that_never_began_leave_the_report_of_spark(container: Container) -> None:
    container.begin(5, 7)
    container.worker().rows_done([a_report(0, 5)], -1)
    container.tails.end()

    assert (OF_SPARK,) == tuple(container.tails.finish(OF_SPARK))


def test_progress_has_the_reports_and_offsets_since_the_last(container: Container) -> None:
    container.begin(5, 0)
    worker = container.worker()
    worker.rows_done([a_report(0, 5)], -1)
    container.tails.poll()

    worker.publish([a_report(0, 8)], {0: 8, 1: 4})
    progress = progress_of(container.tails.poll())

    assert (a_report(0, 8),) == progress.reports and {0: 8, 1: 4} == progress.read_to
    assert () == progress_of(container.tails.poll()).reports
    assert [0, 1] == list(progress.tailing), "one worker tails for all tasks"


def test_a_tail_that_has_not_looked_up_from_its_work_shows(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    container.begin(5, 0)
    worker = container.worker()
    worker.rows_done([], -1)
    worker.publish([], {0: 5})
    (seen_ns,) = container.file.seen_ns(1)
    monkeypatch.setattr(batch_tails, "boottime_ns", lambda: seen_ns + 7_000_000_000)

    assert 7000 == progress_of(container.tails.poll()).stalled_ms


def test_tails_without_messages_stay(container: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    container.begin(5, 0)
    worker = container.worker()
    worker.rows_done([a_report(0, 5)], -1)
    end_ns = container.file.order().end_ns
    monkeypatch.setattr(batch_tails, "boottime_ns", lambda: end_ns - 1)

    container.tails.poll()
    moved_ns = container.file.order().end_ns
    assert moved_ns > end_ns

    worker.publish([a_report(0, 6)], {0: 6})
    container.tails.poll()
    container.tails.poll()
    assert moved_ns == container.file.order().end_ns


def test_workers_at_their_rows_get_no_more_time(container: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    container.begin(5, 0)
    container.worker()
    end_ns = container.file.order().end_ns
    monkeypatch.setattr(batch_tails, "boottime_ns", lambda: end_ns - 1)

    container.tails.poll()

    assert end_ns == container.file.order().end_ns


def tailed(container: Container, *, read_to: int, batch: int = 0) -> None:
    """A micro-batch up to offset 5, whose tails read further."""
    container.begin(5, 0, batch=batch)
    worker = container.worker()
    worker.rows_done([], -1)
    worker.publish([], {0: read_to})
    container.tails.poll()
    assert not worker.must_end()
    container.tails.finish(OF_SPARK)


@pytest.mark.parametrize(("read_to", "is_far_ahead"), [(55, False), (56, True)])
def test_tails_are_far_ahead_when_the_next_micro_batch_would_read_too_much_again(
    tmp_path: Path, read_to: int, is_far_ahead: bool
) -> None:
    container = a_container(tmp_path, offsets_max=100)

    tailed(container, read_to=read_to)

    assert is_far_ahead == container.tails.is_far_ahead


@pytest.mark.parametrize(("read_to", "is_far_ahead"), [(5, False), (6, True)])
def test_tails_of_many_minutes_are_far_ahead_with_any_record(
    container: Container, monkeypatch: pytest.MonkeyPatch, read_to: int, is_far_ahead: bool
) -> None:
    """The topic may have lost records that Spark would read again."""
    begun_ns = boottime_ns()
    container.begin(5, 0)
    worker = container.worker()
    worker.rows_done([], -1)
    worker.publish([], {0: read_to})

    monkeypatch.setattr(batch_tails, "boottime_ns", lambda: begun_ns + 601_000_000_000)
    container.tails.finish(OF_SPARK)

    assert is_far_ahead == container.tails.is_far_ahead


def test_the_next_query_knows_that_one_worker_is_too_slow_alone(container: Container) -> None:
    container.begin(5, 0)
    worker = container.worker()
    worker.rows_done([], -1)
    worker.end_all(FELL_BEHIND)
    container.tails.finish(OF_SPARK)
    before, tail = container.tails, container.plan.tail
    assert tail is not None

    def begun_after(plan: WorkPlan) -> tuple[int, int]:
        ends = {route.ssp_kb.ssp: 0 for route in plan.routes}
        own = replace(tail, starts=tail.starts[: len(plan.routes)])
        container.tails = BatchTails(plan, own, container.file, ends, has_task_each=True, before=before)
        container.tails.begin(0, {A.ssp: 5})
        return container.file.order().records, container.file.order().process_ns

    assert (1, batch_tails._SLOW_NS) == begun_after(container.plan)
    # Other inputs may be cheaper.
    assert (0, 0) == begun_after(replace(container.plan, routes=container.plan.routes[:1]))


def test_the_files_of_a_micro_batch_are_removed(container: Container, tmp_path: Path) -> None:
    container.begin(5, 0)
    container.worker().rows_done([], -1)

    container.tails.finish(OF_SPARK)

    assert {"tail", "tail-positions"} == {path.name for path in tmp_path.iterdir()}


def test_the_files_of_tails_that_ended_before_all_rows_were_handled_are_removed(
    container: Container, tmp_path: Path
) -> None:
    container.begin(5, 5)
    worker = container.worker()
    container.tails.end()
    worker.rows_done([], -1)

    container.tails.finish(OF_SPARK)

    assert {"tail", "tail-positions"} == {path.name for path in tmp_path.iterdir()}


def test_a_failed_task_shows_in_any_event() -> None:
    failed = a_report(0, 3, ReportKind.TASK_FAILED)

    assert has_failed([TailProgress(reports=(failed,), read_to={})])
    assert has_failed([BatchDone(reports=(failed,), offsets_end={SystemStreamPartition("kafka", "a", 0): 3})])
    assert not has_failed([TailProgress(reports=(a_report(0, 3),), read_to={})])


def test_the_next_order_has_the_time_of_the_records_since_the_last(container: Container) -> None:
    container.begin(5, 0)
    worker = container.worker()
    worker.rows_done([replace(a_report(0, 5), measured=TaskStats(process_ns=30))], -1)
    worker.publish([replace(a_report(0, 6), measured=TaskStats(process_ns=4))], {0: 6})
    container.tails.finish(OF_SPARK)

    container.begin(6, 0, batch=1)
    assert (2, 34) == (container.file.order().records, container.file.order().process_ns)

    container.tails.finish(OF_SPARK)
    container.begin(7, 0, batch=2)
    assert (0, 0) == (container.file.order().records, container.file.order().process_ns)


def test_workers_share_the_tasks_after_one_fell_behind_alone(container: Container) -> None:
    container.begin(5, 0)
    worker = container.worker()
    worker.rows_done([], -1)
    worker.end_all(FELL_BEHIND)
    container.tails.finish(OF_SPARK)

    for batch in (1, 2):
        container.begin(5 + batch, 0, batch=batch)
        order = container.file.order()
        assert order.process_ns > CHEAP_NS * order.records
        container.tails.finish(OF_SPARK)


def test_tails_rest_after_workers_that_shared_the_tasks_fell_behind(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in (0, 1):
        container.begin(5 + batch, 0, batch=batch)
        worker = container.worker()
        worker.rows_done([], -1)
        worker.end_all(FELL_BEHIND)
        container.tails.finish(OF_SPARK)

    container.begin(7, 0, batch=2)
    assert 0 == container.file.order().end_ns
    container.tails.finish(OF_SPARK)

    now_ns = boottime_ns() + 60_000_000_000
    monkeypatch.setattr(batch_tails, "boottime_ns", lambda: now_ns)
    container.begin(8, 0, batch=3)
    assert 0 < container.file.order().end_ns


def test_the_files_of_a_micro_batch_that_failed_are_removed(container: Container, tmp_path: Path) -> None:
    container.begin(5, 7)
    worker = container.worker()
    worker.rows_done([], -1)
    container.worker()

    container.tails.fail()

    assert worker.must_end()
    assert {"tail", "tail-positions"} == {path.name for path in tmp_path.iterdir()}
    assert () == container.tails.poll()
