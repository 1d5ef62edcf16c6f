"""The table of tasks: filters, orders and pages of the query of a URL."""

from dataclasses import replace
from urllib.parse import parse_qsl

import pytest

from samzapy.errors import RejectedError
from samzapy.inspection.page.task_rows import TaskState
from samzapy.inspection.page.task_table import ROWS_PER_PAGE, SORTS, TaskQuery, paged, selected
from unit_tests.inspection.page.test_look import Watched


@pytest.fixture
def rows():
    watched = Watched(12, 3)
    watched.see(lag=5)
    watched.see(lag=5)
    return watched.see(lag=1_000, stalled=["Partition_7"]).tasks


def names(rows, **parameters):
    return [row.task for row in selected(rows, TaskQuery.of(parameters)).rows]


def test_without_a_query_the_first_tasks_of_the_plan_are_shown(rows):
    assert [f"Partition_{number}" for number in range(12)] == names(rows)


def test_tasks_are_selected_by_a_part_of_their_name_owner_processor_or_host(rows):
    assert ["Partition_1", "Partition_10", "Partition_11"] == names(rows, q="partition_1")
    assert [f"Partition_{number}" for number in (2, 5, 8, 11)] == names(rows, q="HOST-2")
    assert names(rows, q="host-2") == names(rows, q="e2")
    assert [] == names(rows, q="nothing")


def test_tasks_are_selected_by_state(rows):
    assert 12 == len(names(rows, state="LAGGING"))
    assert [] == names(rows, state="STALLED")


@pytest.mark.parametrize("sort", [name for name in SORTS if name != "plan"])
def test_each_column_sorts_in_both_directions(rows, sort):
    value = SORTS[sort]
    ascending, descending = (
        [value(row) for row in selected(rows, TaskQuery.of({"sort": text})).rows] for text in (sort, f"-{sort}")
    )

    assert ascending == sorted(ascending)
    assert descending == sorted(descending, reverse=True)


def test_the_slowest_task_comes_first_by_rate(rows):
    assert "Partition_7" == names(rows, sort="rate")[0]
    assert "Partition_11" == names(rows, sort="-plan")[0]


def test_names_are_sorted_by_the_numbers_in_them(rows):
    in_order = [f"Partition_{number}" for number in range(12)]
    assert in_order == names(rows, sort="task")
    assert in_order[::-1] == names(rows, sort="-task")

    odd = ["", "1a", "a", "a2", "a02b9", "a10", "b" + "9" * 5_000]
    owned = [replace(row, load=replace(row.load, owner=owner)) for row, owner in zip(rows, odd[::-1], strict=False)]
    assert [*odd[1:], ""] == [row.load.owner for row in selected(owned, TaskQuery.of({"sort": "owner"})).rows]


def test_values_that_are_not_known_come_last_in_both_directions():
    watched = Watched(4, 2)
    watched.see()
    watched.job.liveness = type(watched.job.liveness)(last={"e0": watched.job.liveness.last["e0"]})
    watched.see_again()

    for sort in ("lag", "-lag"):
        assert ["Partition_1", "Partition_3"] == names(watched.look.tasks, sort=sort)[2:]


def test_pages_have_fifty_rows_and_a_later_page_shows_the_last_one():
    numbers = list(range(ROWS_PER_PAGE + 3))

    assert ([50, 51, 52], 53, 2, 2) == (
        (page := paged(numbers, 9)).rows,
        page.count,
        page.number,
        page.page_count,
    )
    assert ([], 0, 1, 1) == ((page := paged([], 1)).rows, page.count, page.number, page.page_count)


@pytest.mark.parametrize(
    "parameters",
    [
        {"sort": "colour"},
        {"state": "running"},
        {"page": "0"},
        {"page": "-1"},
        {"page": "x"},
        {"page": "²"},
        {"page": "1" * 9},
        {"q": "x" * 301},
    ],
)
def test_a_value_that_there_is_not_is_refused_by_its_name(parameters):
    (name,) = parameters

    with pytest.raises(RejectedError, match=f"^{name}: wanted"):
        TaskQuery.of(parameters)


def test_the_links_keep_the_rest_of_the_query():
    query = TaskQuery.of({"q": "a&b", "state": "STALLED", "sort": "-lag", "page": "3"})

    assert {"q": "a&b", "state": "STALLED", "sort": "-lag", "page": "4"} == dict(parse_qsl(query.link(page=4)[1:]))
    assert {"q": "a&b", "state": "STALLED", "sort": "lag"} == dict(parse_qsl(query.sorted_by("lag")[1:]))
    assert "-rate" == dict(parse_qsl(query.sorted_by("rate")[1:]))["sort"]
    assert "task" == dict(parse_qsl(query.sorted_by("task")[1:]))["sort"]
    assert "?" == TaskQuery(state=TaskState.STALLED).link(state=None)
