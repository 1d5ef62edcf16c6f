from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from samzapy.adapters.spark import tail_board
from samzapy.adapters.spark.slots import boottime_ns
from samzapy.adapters.spark.tail_board import ReportsFile, TailFile, TailOrder, WorkerTailBoard
from samzapy.container.task.work_plan import Report, ReportKind
from samzapy.errors import SamzapyError
from samzapy.model.task_stats import TaskStats

REPORT = Report(
    kind=ReportKind.COMMITTED,
    route=2,
    offset_next=7,
    records_in=3,
    records_out=3,
    dead_letters=0,
    commits=1,
    measured=TaskStats(busy_ns=5),
)


def an_order(*, spark_tasks: int = 4, slots: int = 2, batch: int = 0, end_in_ns: int = 10**12) -> TailOrder:
    return TailOrder(query=1, batch=batch, spark_tasks=spark_tasks, slots=slots, end_ns=boottime_ns() + end_in_ns)


@pytest.fixture
def file(tmp_path: Path) -> TailFile:
    return TailFile(tmp_path)


def boards(file: TailFile, order: TailOrder, count: int) -> list[WorkerTailBoard]:
    file.begin(order, [0])
    return [WorkerTailBoard(file, order) for _ in range(count)]


def test_without_an_order_there_is_none(file: TailFile) -> None:
    assert 0 == file.order().query


def test_another_process_sees_the_order_and_the_offsets(file: TailFile, tmp_path: Path) -> None:
    order = an_order()
    file.begin(order, [3, 9])

    other = TailFile(tmp_path)
    assert order == other.order() and [3, 9] == other.read_from()


def test_the_last_workers_tail_and_as_many_as_there_are_slots(file: TailFile) -> None:
    workers = boards(file, an_order(spark_tasks=4, slots=2), 4)

    assert [False, False, True, True] == [worker.rows_done([], -1) for worker in workers]
    assert {0, 1} == {workers[2].group, workers[3].group}


@pytest.mark.parametrize(("spark_tasks", "slots"), [(1, 1), (1, 4), (3, 4), (5, 4), (9, 2), (70, 70)])
def test_no_tail_keeps_a_slot_that_a_spark_task_waits_for(file: TailFile, spark_tasks: int, slots: int) -> None:
    workers = boards(file, an_order(spark_tasks=spark_tasks, slots=slots), spark_tasks)

    tailing = 0
    for number, worker in enumerate(workers, start=1):
        tailing += worker.rows_done([], -1)
        waiting = spark_tasks - number
        assert waiting == 0 or tailing < slots

    groups = min(spark_tasks, slots, tail_board.GROUPS_MAX)
    assert groups == tailing == len({worker.group for worker in workers if worker.group is not None})


def test_a_worker_gets_the_tasks_whose_inputs_it_read_before(file: TailFile) -> None:
    first, second = boards(file, an_order(spark_tasks=2, slots=2), 2)

    first.rows_done([], 1)
    second.rows_done([], 1)

    assert (1, 0) == (first.group, second.group)


def test_a_tail_waits_for_the_rows_of_all_workers(file: TailFile, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = boards(file, an_order(spark_tasks=2, slots=2), 2)
    first.rows_done([], -1)
    looks: list[float] = []

    def pause(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            second.rows_done([], -1)

    monkeypatch.setattr(tail_board, "time", SimpleNamespace(sleep=pause))

    assert first.await_others() and 3 == len(looks)


def test_a_tail_does_not_wait_for_a_worker_that_failed(file: TailFile) -> None:
    first, second = boards(file, an_order(spark_tasks=2, slots=2), 2)
    first.rows_done([], -1)
    second.end_all("a worker failed")

    assert not first.await_others()


def test_the_driver_ends_all_tails_at_once(file: TailFile) -> None:
    (worker,) = boards(file, an_order(), 1)
    assert not worker.must_end()

    file.end()

    assert worker.must_end()


def test_tails_end_at_their_common_end_and_the_driver_may_move_it(file: TailFile) -> None:
    order = an_order(end_in_ns=-1)
    file.begin(order, [0])
    assert file.has_ended(order)

    file.move_end(replace(order, end_ns=boottime_ns() + 10**12))

    assert not file.has_ended(order)


def test_an_older_order_has_ended(file: TailFile) -> None:
    (worker,) = boards(file, an_order(batch=0), 1)

    file.begin(an_order(batch=1), [0])

    assert worker.must_end()


def test_a_new_order_begins_without_the_counts_of_the_last(file: TailFile) -> None:
    (worker,) = boards(file, an_order(spark_tasks=1), 1)
    worker.rows_done([], -1)
    worker.publish([], {0: 1})
    file.end()

    order = an_order(batch=1)
    file.begin(order, [0])

    counts = file.counts()
    assert (0,) * 6 == astuple(counts)
    assert not file.has_ended(order) and [0, 0] == list(file.seen_ns(2))


def test_reports_reach_the_driver_in_whole_lines(file: TailFile, tmp_path: Path) -> None:
    order = an_order(spark_tasks=1)
    (worker,) = boards(file, order, 1)
    reports = ReportsFile(tail_board.reports_path(tmp_path, order, 0))

    worker.rows_done([REPORT], -1)
    (document,) = reports.read_on()
    assert [REPORT] == [Report.from_json(report) for report in document["rows"]]

    with tail_board.reports_path(tmp_path, order, 0).open("a") as file_of_worker:
        file_of_worker.write('{"reports": [], ')
        file_of_worker.flush()
        assert [] == reports.read_on()
        file_of_worker.write('"readTo": [[2, 9]]}\n')
    assert [{"reports": [], "readTo": [[2, 9]]}] == reports.read_on()


def test_a_line_that_a_full_disk_cut_short_does_not_hide_the_next_one(file: TailFile, tmp_path: Path) -> None:
    order = an_order(spark_tasks=1)
    (worker,) = boards(file, order, 1)
    path = tail_board.reports_path(tmp_path, order, 0)
    path.write_text('{"reports": [{"ki')

    worker._append({"ended": "x"})

    assert [{"ended": "x"}] == ReportsFile(path).read_on()


def test_a_whole_line_with_other_bytes_is_an_error_whatever_follows(file: TailFile, tmp_path: Path) -> None:
    order = an_order(spark_tasks=1)
    (worker,) = boards(file, order, 1)
    path = tail_board.reports_path(tmp_path, order, 0)
    worker._append({"ended": "x"})
    path.write_bytes(path.read_bytes().replace(b'"', b"\0"))
    worker._append({"ended": "y"})

    with pytest.raises(SamzapyError, match="wanted what a process of this container writes there"):
        ReportsFile(path).read_on()


def test_a_tail_without_news_writes_nothing_but_is_seen(file: TailFile, tmp_path: Path) -> None:
    order = an_order(spark_tasks=1)
    (worker,) = boards(file, order, 1)
    worker.rows_done([], -1)
    path = tail_board.reports_path(tmp_path, order, 0)
    worker.publish([], {0: 4})
    size, seen = path.stat().st_size, file.seen_ns(1)[0]

    worker.publish([], {0: 4})

    assert size == path.stat().st_size and file.seen_ns(1)[0] >= seen > 0
    worker.publish([], {0: 5})
    assert size < path.stat().st_size


def test_a_tail_that_is_over_is_not_seen_any_more(file: TailFile) -> None:
    (worker,) = boards(file, an_order(spark_tasks=1), 1)
    worker.rows_done([], -1)
    worker.publish([], {})

    worker.close()

    assert [0] == list(file.seen_ns(1))


def a_row_report(records: int, process_ns: int) -> Report:
    return replace(REPORT, records_in=records, measured=TaskStats(process_ns=process_ns))


def test_one_worker_tails_for_all_tasks_whose_records_are_cheap(file: TailFile) -> None:
    first, second = boards(file, an_order(spark_tasks=2, slots=2), 2)

    first.rows_done([a_row_report(3, 3 * tail_board.CHEAP_NS)], -1)
    second.rows_done([], -1)

    assert 1 == first.await_others() == second.await_others()


def test_workers_share_tasks_whose_records_are_slow(file: TailFile) -> None:
    first, second = boards(file, an_order(spark_tasks=2, slots=2), 2)

    first.rows_done([a_row_report(3, 3 * tail_board.CHEAP_NS + 1)], -1)
    second.rows_done([], -1)

    assert 2 == first.await_others() == second.await_others()


def test_workers_share_tasks_that_were_slow_before(file: TailFile) -> None:
    order = replace(an_order(spark_tasks=2, slots=2), records=1, process_ns=2 * tail_board.CHEAP_NS)
    first, second = boards(file, order, 2)

    first.rows_done([], -1)
    second.rows_done([], -1)

    assert 2 == first.await_others()


def test_a_worker_of_an_older_order_does_not_count(file: TailFile, tmp_path: Path) -> None:
    (late,) = boards(file, an_order(batch=0), 1)
    order = an_order(batch=1)
    file.begin(order, [0])

    assert not late.rows_done([REPORT], -1)

    assert 0 == file.counts().done
    assert [] == ReportsFile(tail_board.reports_path(tmp_path, order, 0)).read_on()
