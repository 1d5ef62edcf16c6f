"""The other views: a task, containers by host, request history, the heat map."""

from dataclasses import replace

import pytest

from samzapy.errors import RejectedError
from samzapy.inspection.page.heat_map import CELLS_MAX, LEVELS, heat_map
from samzapy.inspection.page.hosts import hosts
from samzapy.inspection.page.requests import failed_lately, request_rows
from samzapy.inspection.page.task_view import task_view
from samzapy.inspection.request_list import LATELY_MS
from samzapy.model.container import ContainerPhase, TaskLocality
from samzapy.model.launch import LaunchPhase, LaunchRole
from samzapy.model.placement import StatusCode
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.standby_progress import StandbyProgress
from samzapy.stream.records import PlacedPut, SuspendedPut
from samzapy.testing.builders import a_launch
from unit_tests.fixtures.launched_job import a_memory, a_move
from unit_tests.inspection.page.test_look import Watched


@pytest.fixture
def watched():
    watched = Watched()
    watched.see(lag=3)
    watched.see(lag=3)
    return watched


# --- a task ---


def test_a_task_has_the_reason_for_its_place(watched):
    watched.job.change(
        placed={"0": PlacedPut(processor_id="0", execution_id="e0", uuid="u-1")},
        task_localities={"Partition_0": TaskLocality(task_name="Partition_0", processor_id="0", host="host-9")},
    )
    view = task_view(watched.see(), "Partition_0")

    assert [
        "Generation 1 plans it on processor 0.",
        "Request u-1 placed that processor in container e0.",
        "Its state was last on host-9, with processor 0.",
        "Now: execution e0 of processor 0 on host-0, under epoch 1.",
    ] == view.reasons


def test_a_task_without_an_owner_names_the_event_that_it_waits_for(watched):
    watched.job.change_container("e0", phase=ContainerPhase.LOST, reason="no heartbeat")

    assert "which was declared lost (no heartbeat), is fenced" in task_view(watched.see(), "Partition_0").reasons[-1]


def test_the_positions_of_a_task_are_the_reported_ones(watched):
    (row,) = task_view(watched.look, "Partition_0").positions

    assert ("kafka.orders.0:0/1", 200, 203, 3, 20.0) == (
        row.ssp,
        row.offset_next,
        row.offset_end,
        row.lag,
        row.records_per_s,
    )


def test_a_position_that_is_not_reported_is_the_start_of_the_grant():
    (row,) = task_view(Watched().see_again(), "Partition_0").positions

    assert (0, None, None) == (row.offset_next, row.offset_end, row.lag)


def test_a_task_that_the_plan_does_not_have_is_refused(watched):
    with pytest.raises(RejectedError, match="wanted a task of the plan in force, found 'nothing'"):
        task_view(watched.look, "nothing")


# --- containers ---


def test_containers_are_listed_by_fault_domain_and_host(watched):
    groups = hosts(watched.look).groups

    assert [("rack-0", "host-0", ["e0"]), ("rack-1", "host-1", ["e1"])] == [
        (group.fault_domain, group.host, [row.container.execution_id for row in group.containers]) for group in groups
    ]
    row = groups[0].containers[0]
    assert ("ACTIVE", 2, 40.0, 0) == (row.role, row.task_count, row.records_per_s, row.heartbeat_age_ms)
    assert pytest.approx(0.2) == row.cores_busy


def test_many_containers_are_cut_into_pages():
    watched = Watched(120, 120)
    watched.see()

    pages = [hosts(watched.look, number) for number in (1, 2, 3, 9)]

    assert [50, 50, 20, 20] == [sum(len(group.containers) for group in view.groups) for view in pages]
    assert [1, 2, 3, 3] == [view.page.number for view in pages]
    shown = [row.container.execution_id for view in pages[:3] for group in view.groups for row in group.containers]
    assert 120 == len(set(shown))
    assert ["rack-0", "rack-1"] == sorted({group.fault_domain for view in pages for group in view.groups})


def test_a_standby_is_shown_by_its_name_with_its_progress(watched):
    launch = a_launch("e1", processor_id="0", role=LaunchRole.STANDBY)
    watched.job.change(launches={"e1": launch})
    warm = StandbyProgress(tasks=2, level=1, lag=3000, restored=1, total=2)
    (row,) = hosts(watched.see(heartbeats={"e1": {"warm": warm}})).groups[1].containers

    assert "standby 0-0" == row.role
    assert ["has the state of 1 of 2 tasks (50 %), 3,000 records behind"] == list(row.notes)


def test_unusual_facts_about_a_container_are_noted(watched):
    watched.job.change_container("e1", phase=ContainerPhase.LOST, reason="no heartbeat for 20 s")
    heartbeats = {"e0": {"step": "restores", "unanswered_ms": 4000, "kafka_silent_ms": 9000}}
    figures = {"e0": {"restored": 5, "restore_total": 1000, "restore_left_ms": 3000}}
    first, second = (
        group.containers[0] for group in hosts(watched.see(heartbeats=heartbeats, figures=figures)).groups
    )

    assert [
        "start: restores",
        "restores 5 of 1,000 records, about 3 s left",
        "its heartbeats have had no answer for 4 s",
        "no broker has answered it for 9 s",
    ] == list(first.notes)
    assert "no heartbeat for 20 s" == second.notes[0]


def test_starts_under_way_suspensions_and_missing_standbys_are_listed(watched):
    watched.job.change(
        launches={
            "l1": a_launch("l1", processor_id="2", phase=LaunchPhase.WANTED),
            "l0": a_launch("l0", processor_id="3", role=LaunchRole.STANDBY, standby=1),
            "gone": a_launch("gone", phase=LaunchPhase.ENDED),
            "e0": a_launch("e0"),
        },
        suspended={"3": SuspendedPut(processor_id="3", execution_id="x", exit_code=8, reason="bad data")},
    )
    watched.job.liveness = replace(
        watched.job.liveness, troubles={"l1": "no room"}, standbys_missing={"0-0": "no host is free"}
    )
    view = hosts(watched.see())

    assert [("l0", "standby 3-1", ""), ("l1", "ACTIVE", "no room")] == [
        (row.launch.execution_id, row.name, row.obstacle) for row in view.launches
    ]
    assert [("3", "exit code 8 of container x: bad data")] == view.suspended
    assert [("0-0", "no host is free")] == view.standbys_missing


def test_a_host_of_which_no_fault_domain_is_known_has_none(watched):
    watched.job.domain_of = dict.fromkeys(watched.job.domain_of, "")

    assert ["", ""] == [group.fault_domain for group in hosts(watched.see()).groups]


# --- requests ---


def test_open_requests_come_first_and_finished_ones_latest_first(watched):
    watched.job.change(
        requests={"u": a_move(StatusCode.ACCEPTED)},
        request_memory={name: a_memory(name, at_ms) for name, at_ms in (("old", 5), ("new", 9))},
    )

    rows = request_rows(watched.see())
    assert [("u", "ACCEPTED", "host-b"), ("new", "SUCCEEDED", ""), ("old", "SUCCEEDED", "")] == [
        (row.uuid, row.status, row.destination) for row in rows
    ]


def test_a_finished_request_is_listed_once_while_the_log_has_both_its_records(watched):
    move = replace(a_move(StatusCode.BAD_REQUEST), decided_at_ms=9)
    watched.job.change(requests={"u": move}, request_memory={"u": a_memory("u", 9, StatusCode.BAD_REQUEST)})

    assert ["u"] == [row.uuid for row in request_rows(watched.see())]


def test_a_finished_request_has_the_reason_that_this_leader_gave(watched):
    watched.job.change(request_memory={name: a_memory(name, at_ms) for name, at_ms in (("of-before", 5), ("own", 9))})
    watched.job.reasons = {"own": "expectedGeneration: wanted the plan that is in force"}

    assert ["expectedGeneration: wanted the plan that is in force", ""] == [
        row.message for row in request_rows(watched.see())
    ]


def test_requests_that_failed_or_were_refused_are_listed_for_an_hour_the_latest_first(watched):
    now_ms = watched.look.wall_ms
    memories = (
        a_memory("done", now_ms),
        a_memory("failed", now_ms - 2, StatusCode.FAILED),
        a_memory("refused", now_ms - 1, StatusCode.BAD_REQUEST),
    )
    watched.job.change(
        requests={"u": replace(a_move(StatusCode.FAILED), decided_at_ms=now_ms)},
        request_memory={memory.uuid: memory for memory in memories},
    )

    assert ["u", "refused", "failed"] == [row.uuid for row in failed_lately(watched.see(after_ms=0))]
    assert ["u"] == [row.uuid for row in failed_lately(watched.see(after_ms=LATELY_MS))]
    assert [] == failed_lately(watched.see(after_ms=1))


def test_a_request_keeps_the_history_that_the_leader_saw(watched):
    move = a_move(StatusCode.ACCEPTED)
    for put in (
        move,
        replace(move, status_code=StatusCode.IN_PROGRESS, phase="starting"),
        replace(move, status_code=StatusCode.IN_PROGRESS, phase="moving", response_message="e7 starts"),
    ):
        watched.job.change(requests={"u": put})
        watched.see()
        watched.see()

    (row,) = request_rows(watched.look)
    assert [
        "place-container of processor 0: ACCEPTED",
        "place-container of processor 0: IN_PROGRESS (starting)",
        "place-container of processor 0: IN_PROGRESS (moving): e7 starts",
    ] == [event.text for event in row.history]


# --- the heat map ---


def test_the_busiest_bucket_has_the_largest_level_and_quiet_ones_the_least():
    watched = Watched(8, 2, factor=4)
    watched.see()
    watched.see(stalled=[f"Partition_{number}" for number in range(8) if number != 6])
    view = heat_map(watched.look)

    assert [("kafka.orders.1", [0, 0, LEVELS - 1, 0]), ("kafka.orders.0", [0, 0, 0, 0])] == [
        (str(row.ssp), [cell.level for cell in row.cells]) for row in view.rows
    ]
    assert (4, 0, 8.0) == (view.factor, view.left_out, view.spread)


def test_a_heat_map_is_bounded_and_counts_the_omitted_tasks():
    watched = Watched(150, 2)
    watched.see()
    view = heat_map(watched.see())
    assert (100, 50) == (len(view.rows), view.left_out)

    watched = Watched(4096, 2, factor=256)
    watched.see()
    view = heat_map(watched.see())
    assert (CELLS_MAX // 256, 8) == (len(view.rows), view.left_out)


def test_buckets_of_another_factor_and_broadcast_inputs_have_no_place_in_a_heat_map():
    watched = Watched(2, 2)
    others = {"Partition_0": "kafka.orders.0:1/2", "Partition_1": "kafka.rules.0@Partition_1"}
    watched.job.ssp_kb = {name: SspKeyBucket.parse(text) for name, text in others.items()}
    watched.see()

    assert [] == list(heat_map(watched.see()).rows)


def test_without_rates_there_is_no_heat():
    view = heat_map(Watched().see_again())

    assert ([], None) == (list(view.rows), view.spread)
