"""A container's figures: bounded, however many tasks it has."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from samzapy.container.ports import BatchDone, TailProgress, TopicBounds
from samzapy.container.stats import TASKS_LISTED_MAX, ContainerFigures
from samzapy.container.task.so_far import SoFar
from samzapy.container.task.work_plan import Report, ReportKind, Route
from samzapy.model.job import TaskName
from samzapy.model.store_size import StoreSize, sizes_json
from samzapy.model.task_stats import KEYS_KEPT, KeySketch, TaskStats
from samzapy.model.time_figures import SeenClock, TimeFigures
from samzapy.testing.builders import an_ssp, an_ssp_kb


def a_route(ssp_kb: str, task: str = "a") -> Route:
    return Route(
        ssp_kb=an_ssp_kb(ssp_kb),
        task_name=TaskName(task),
        partition_id=0,
        epoch=1,
        changelog_partition=0,
        environment_dir="",
    )


def a_report(route: int, records_in: int = 1, **measured: Any) -> Report:
    return Report(
        kind=ReportKind.COMMITTED,
        route=route,
        offset_next=1,
        records_in=records_in,
        records_out=2 * records_in,
        dead_letters=0,
        commits=1,
        measured=TaskStats(**measured) if measured else None,
    )


def begun(*routes: Route, figures: ContainerFigures | None = None, at: int = 0) -> ContainerFigures:
    counted = figures or ContainerFigures()
    restored = TaskStats(store_identify_ns=5, disk_bytes=30)
    counted.begin({route.ssp_kb: at for route in routes}, {route.task_name: restored for route in routes})
    return counted


def test_costs_and_counts_of_a_task_add_up_over_batches() -> None:
    route = a_route("kafka.orders.0:0/1")
    figures = begun(route)
    done = BatchDone(
        reports=[a_report(0, 10, busy_ns=100, input_ns=7, disk_bytes=50)],
        offsets_end={route.ssp_kb.ssp: 10},
        duration_ns=200,
    )

    figures.add(done, (route,))
    figures.add(replace(done, offsets_end={route.ssp_kb.ssp: 20}), (route,))
    reported = figures.as_json(now_ms=77, wall_ms=0)

    assert {
        "recordsIn": 20,
        "recordsOut": 40,
        "busyNs": 200,
        "inputNs": 14,
        "diskBytes": 50,
        "storeIdentifyNs": 5,
    } == reported["tasks"]["a"]
    assert (77, 400, 14, 20, 0) == tuple(
        reported[name] for name in ("atMs", "batchNs", "inputNs", "offsetsRead", "skipped")
    )


def test_the_disk_use_of_a_task_is_reported_before_its_first_row() -> None:
    assert {"storeIdentifyNs": 5, "diskBytes": 30} == begun(a_route("kafka.orders.0:0/1")).as_json(0, 0)["tasks"]["a"]


def sizes(**entries: int) -> dict[str, StoreSize]:
    return {store: StoreSize(bytes_used=4096 * count, entries=count) for store, count in entries.items()}


def test_the_sizes_of_stores_are_added_up_over_tasks_and_are_in_no_task() -> None:
    a, b = a_route("kafka.orders.0:0/1", "a"), a_route("kafka.orders.1:0/1", "b")
    figures = ContainerFigures()
    assert "stores" not in figures.as_json(0, 0)
    restored = {a.task_name: TaskStats(stores=sizes(seen=1, sums=2)), b.task_name: TaskStats(stores=sizes(sums=3))}
    figures.begin({route.ssp_kb: 0 for route in (a, b)}, restored)

    assert sizes_json(sizes(seen=1, sums=5)) == figures.as_json(0, 0)["stores"]
    for reports in ([a_report(0, stores=sizes(seen=4, sums=2))], [a_report(0, busy_ns=1)], [a_report(0)]):
        figures.add(BatchDone(reports=reports, offsets_end={}), (a, b))
        reported = figures.as_json(0, 0)
        assert sizes_json(sizes(seen=4, sums=5)) == reported["stores"]
        assert all("stores" not in task for task in reported["tasks"].values())


def test_stores_of_a_task_that_has_left_are_not_counted() -> None:
    a, b = a_route("kafka.orders.0:0/1", "a"), a_route("kafka.orders.1:0/1", "b")
    figures = begun(a, b)
    figures.add(BatchDone(reports=[a_report(0, stores=sizes(sums=2))], offsets_end={}), (a, b))

    begun(b, figures=figures)

    assert "stores" not in figures.as_json(0, 0)


def test_the_records_of_other_containers_key_buckets_are_skipped() -> None:
    route = a_route("kafka.orders.0:1/4")
    figures = begun(route, at=100)

    figures.add(BatchDone(reports=[a_report(0, 30)], offsets_end={route.ssp_kb.ssp: 200}, keyhash_ns=2.5), (route,))

    reported = figures.as_json(0, 0)
    assert (100, 70, 250) == (reported["offsetsRead"], reported["skipped"], reported["keyhashNs"])


def test_a_broadcast_input_that_every_task_handles_hides_nothing_that_was_skipped() -> None:
    routes = (a_route("kafka.orders.0:0/2"), a_route("kafka.rules.0@a"))
    figures = begun(*routes)

    passed = figures.add(
        BatchDone(
            reports=[a_report(0, 5), a_report(1, 50)],
            offsets_end={routes[0].ssp_kb.ssp: 10, routes[1].ssp_kb.ssp: 50},
        ),
        routes,
    )

    assert 60 == passed
    assert (10, 5) == (figures.as_json(0, 0)["offsetsRead"], figures.as_json(0, 0)["skipped"])


def test_a_new_query_continues_and_keeps_the_sums_of_the_tasks_that_stay() -> None:
    a, b = a_route("kafka.orders.0:0/1", "a"), a_route("kafka.orders.1:0/1", "b")
    figures = begun(a, b)
    figures.add(
        BatchDone(reports=[a_report(0, 3), a_report(1, 4)], offsets_end={an_ssp("kafka.orders.0"): 3}), (a, b)
    )

    begun(a, figures=figures, at=2)
    figures.add(BatchDone(reports=[a_report(0, 1)], offsets_end={an_ssp("kafka.orders.0"): 3}), (a,))

    reported = figures.as_json(0, 0)
    assert (8, 4) == (reported["recordsIn"], reported["offsetsRead"])
    assert {"a": 4} == {task: stats["recordsIn"] for task, stats in reported["tasks"].items()}


def test_positions_have_the_number_of_handled_records() -> None:
    route = a_route("kafka.orders.0:0/1")
    figures = begun(route)
    figures.ends = {route.ssp_kb.ssp: TopicBounds(offset_first=0, offset_end=9)}
    figures.add(BatchDone(reports=[a_report(0, 4)], offsets_end={}), (route,))

    assert {"kafka.orders.0:0/1": {"offsetNext": 0, "offsetEnd": 9, "recordsIn": 4}} == figures.as_json(0, 0)[
        "positions"
    ]


def a_tail(*reports: Report, tailing: tuple[int, ...] = (0,)) -> TailProgress:
    return TailProgress(reports=reports, read_to={}, duration_ns=200, tailing=tailing)


def tailing(figures: ContainerFigures) -> list[str]:
    figures.ends = {ssp_kb.ssp: TopicBounds(offset_first=0, offset_end=9) for ssp_kb in figures.positions}
    positions = figures.as_json(0, 0)["positions"]
    assert all(position.get("tailing", True) is True for position in positions.values())
    return [ssp_kb for ssp_kb, position in positions.items() if "tailing" in position]


def test_the_work_of_tails_counts_as_that_of_micro_batches_but_is_none() -> None:
    route = a_route("kafka.orders.0:0/1")
    figures = begun(route)

    figures.add_tails(a_tail(a_report(0, 10, busy_ns=100, input_ns=7)), (route,))
    figures.add_tails(a_tail(a_report(0, 3, busy_ns=11)), (route,))
    reported = figures.as_json(0, 0)

    assert (13, 26, 2, 400, 7, 0) == tuple(
        reported[name] for name in ("recordsIn", "recordsOut", "commits", "batchNs", "inputNs", "batches")
    )
    assert (13, 111) == (reported["tasks"]["a"]["recordsIn"], reported["tasks"]["a"]["busyNs"])


def test_offsets_that_a_tail_has_read_count_once_with_the_micro_batch_that_reads_them_again() -> None:
    route = a_route("kafka.orders.0:0/1")
    figures = begun(route)

    figures.add_tails(a_tail(a_report(0, 10)), (route,))
    assert 0 == figures.as_json(0, 0)["offsetsRead"]
    figures.add(BatchDone(reports=[a_report(0, 2)], offsets_end={route.ssp_kb.ssp: 12}), (route,))

    assert 12 == figures.as_json(0, 0)["offsetsRead"]


def test_positions_mark_the_key_buckets_that_a_tail_reads() -> None:
    routes = (a_route("kafka.orders.0:0/1", "a"), a_route("kafka.orders.1:0/1", "b"))
    figures = begun(*routes)
    assert [] == tailing(figures)

    figures.add_tails(a_tail(tailing=(1,)), routes)
    assert ["kafka.orders.1:0/1"] == tailing(figures)
    figures.add_tails(a_tail(tailing=()), routes)
    assert [] == tailing(figures)


def test_no_key_bucket_tails_after_a_micro_batch_or_the_start_of_a_query() -> None:
    route = a_route("kafka.orders.0:0/1")
    figures = begun(route)

    figures.add_tails(a_tail(), (route,))
    figures.add(BatchDone(reports=[], offsets_end={}), (route,))
    assert [] == tailing(figures)
    figures.add_tails(a_tail(), (route,))
    begun(route, figures=figures)
    assert [] == tailing(figures)


def test_of_very_many_tasks_the_busiest_are_listed_and_the_others_are_one_sum() -> None:
    count = TASKS_LISTED_MAX + 3
    routes = tuple(a_route(f"kafka.orders.{number}:0/1", f"task-{number}") for number in range(count))
    figures = begun(*routes)

    figures.add(
        BatchDone(reports=[a_report(number, 1, busy_ns=number) for number in range(count)], offsets_end={}), routes
    )

    reported = figures.as_json(0, 0)
    assert TASKS_LISTED_MAX == len(reported["tasks"])
    assert {"task-0", "task-1", "task-2"}.isdisjoint(reported["tasks"])
    assert (3, 3, 0 + 1 + 2) == tuple(reported["otherTasks"][name] for name in ("count", "recordsIn", "busyNs"))


def test_the_stats_of_tasks_in_a_heartbeat_stay_small() -> None:
    """A heartbeat may have 8 MB; the figures of 10,000 tasks take 6.5 MB of them."""
    keys = KeySketch(2000, {f"{number}" * 60: 200 for number in range(KEYS_KEPT)})
    costs = {name: 2**50 for name in TaskStats.__dataclass_fields__ if name not in ("keys", "time", "stores")}
    names = [f"SystemStreamPartition_kafka.{'t' * 249}.{number}-0-1" for number in range(10_000)]
    routes = tuple(a_route(f"kafka.orders.{number}:0/1", name) for number, name in enumerate(names))
    figures = begun(*routes)
    time = TimeFigures(at_ms=2**50, watermark_ms=2**50, inputs={f"kafka.{'t' * 249}.9": SeenClock(2**50, 1, True)})
    stores = {f"{'s' * 100}{number}": StoreSize(bytes_used=2**40, entries=2**40) for number in range(100)}
    reports = [a_report(number, **costs, keys=keys, time=time, stores=stores) for number in range(len(routes))]

    figures.add(BatchDone(reports=reports, offsets_end={}), routes)

    assert len(json.dumps(figures.as_json(0, 0))) < 1_000_000


def test_the_watermark_in_a_heartbeat_is_that_of_its_moment() -> None:
    route = a_route("kafka.orders.0:0/1")
    figures = begun(route)
    time = TimeFigures(
        at_ms=1, watermark_ms=5000, timers_pending=2, inputs={str(route.ssp_kb): SeenClock(5000, 100, is_known=True)}
    )
    figures.add(BatchDone(reports=[a_report(0, time=time)], offsets_end={}), (route,))

    lags = []
    for covered_ms in ({}, {str(route.ssp_kb): 100 + 1000 + 30}):
        figures.covered_ms, figures.event_time_idle_ms = covered_ms, 1000
        time_figures = figures.as_json(now_ms=0, wall_ms=7000)["tasks"]["a"]["time"]
        assert ("kafka.orders.0:0/1", 2) == (time_figures["heldBy"], time_figures["timersPending"])
        assert "inputs" not in time_figures
        lags.append((time_figures["watermarkMs"], time_figures["lagMs"]))

    assert [(5000, 2000), (5030, 1970)] == lags


def test_a_transaction_is_open_since_its_last_stable_offset_was_first_below_the_end() -> None:
    figures = begun(a_route("kafka.orders.0"), at=7)
    ssp = an_ssp("kafka.orders.0")

    def look(stable: int, high: int, at_ms: int) -> object:
        figures.ends = {ssp: TopicBounds(offset_first=0, offset_end=stable)}
        figures.open_transactions.note(figures.ends, {ssp: high}, at_ms)
        return figures.as_json(at_ms, 0)["positions"]["kafka.orders.0:0/1"].get("openForMs")

    assert look(7, 7, 1000) is None
    assert look(7, 9, 2000) is None
    assert look(7, 12, 5000) == 3000
    # Another transaction is open now.
    assert look(9, 12, 6000) is None
    assert look(9, 12, 8000) == 2000
    assert look(12, 12, 9000) is None


def test_high_watermarks_are_asked_only_of_inputs_that_are_read_to_their_ends() -> None:
    figures = begun(a_route("kafka.orders.0"), a_route("kafka.orders.1"), at=7)
    bounds = {
        an_ssp("kafka.orders.0"): TopicBounds(offset_first=0, offset_end=7),
        an_ssp("kafka.orders.1"): TopicBounds(offset_first=0, offset_end=8),
    }

    assert figures.caught_up(bounds) == [an_ssp("kafka.orders.0")]


def test_costs_that_are_not_reported_yet_count_until_their_report_comes() -> None:
    route, other = a_route("kafka.orders.0:0/1", "a"), a_route("kafka.orders.1:0/1", "b")
    figures, routes = begun(route, other), (route, other)
    cost = TaskStats(busy_ns=900, keys=KeySketch(10, {"k": 9}))

    figures.unreported.note([SoFar(route=0, elapsed_ns=1000, stats=cost)], routes)
    so_far = figures.as_json(1, 1)
    figures.add(
        BatchDone(reports=[a_report(0, 10, busy_ns=950)], offsets_end={route.ssp_kb.ssp: 10}, duration_ns=1100),
        routes,
    )
    reported = figures.as_json(2, 2)

    assert (900, 1000, {"k": 9}) == (so_far["tasks"]["a"]["busyNs"], so_far["batchNs"], so_far["tasks"]["a"]["keys"])
    assert (950, 1100) == (reported["tasks"]["a"]["busyNs"], reported["batchNs"])


def test_a_report_of_a_tail_replaces_the_costs_of_its_task_alone() -> None:
    route, other = a_route("kafka.orders.0:0/1", "a"), a_route("kafka.orders.1:0/1", "b")
    figures, routes = begun(route, other), (route, other)
    figures.unreported.note([SoFar(route=n, elapsed_ns=0, stats=TaskStats(busy_ns=900)) for n in (0, 1)], routes)

    figures.add_tails(TailProgress(reports=[a_report(0, 10, busy_ns=950)], read_to={}, duration_ns=5), routes)

    tasks = figures.as_json(1, 1)["tasks"]
    assert (950, 900) == (tasks["a"]["busyNs"], tasks["b"]["busyNs"])


def test_costs_whose_report_never_comes_stay_in_the_sums_of_the_next_query() -> None:
    route = a_route("kafka.orders.0:0/1")
    figures = begun(route)
    figures.unreported.note([SoFar(route=0, elapsed_ns=1000, stats=TaskStats(busy_ns=900))], (route,))

    begun(route, figures=figures).add(
        BatchDone(reports=[a_report(0, 10, busy_ns=50)], offsets_end={route.ssp_kb.ssp: 10}, duration_ns=100),
        (route,),
    )

    after = figures.as_json(1, 1)
    assert (950, 1100) == (after["tasks"]["a"]["busyNs"], after["batchNs"])
