"""The status of a job: known values are shown, unknown ones are null."""

from dataclasses import replace

import pytest

from samzapy.cli.job.status import _print, bootstrap_lines, tail_lines, watermark_lines
from samzapy.coordinator.assignment.starts import Bounds, PositionsRead
from samzapy.coordinator.commands import Figures
from samzapy.coordinator.grant_values import Position
from samzapy.inspection.load import Advice, hint_of, load_of
from samzapy.inspection.status import status_json, status_of_log
from samzapy.model.checkpoint import Checkpoint
from samzapy.model.container import ContainerPhase
from samzapy.model.failing import Failing
from samzapy.model.launch import LaunchRole
from samzapy.model.standby_progress import StandbyProgress
from samzapy.model.store_size import StoreSize
from samzapy.model.task_stats import TaskStats
from samzapy.model.time_figures import TimeFigures
from samzapy.testing.builders import a_config, a_heartbeat, a_launch, a_submission, an_ssp_kb
from unit_tests.fixtures.coordinator_world import World


def shown(world, service):
    return status_json(service.status(), world.clock.monotonic_ms())


def a_running_job(*heartbeats, **properties):
    world = World()
    service = world.coordinator()
    service.become_leader()
    service.submit(a_submission(config=a_config(**properties), partition_counts={"kafka.orders": 2}))
    world.queue.extend(heartbeats)
    service.run_once(0)
    return world, service


def test_the_version_of_the_leader_is_in_its_term_record_and_in_the_status():
    world, service = a_running_job()

    assert "9.9.9" == service.status().state.term.version
    assert "9.9.9" == shown(world, service)["version"]


def test_a_task_without_an_owner_is_shown_as_such():
    world, service = a_running_job(a_heartbeat())
    world.queue.append(a_heartbeat(state=ContainerPhase.STOPPED))
    service.run_once(0)

    status = shown(world, service)

    assert [None, None] == [task["owner"] for task in status["tasks"]]
    assert status["totals"]["lag"] is None


def test_positions_lag_and_counters_are_those_of_the_last_heartbeat():
    positions = {
        an_ssp_kb("kafka.orders.0:0/1"): Position(90, 100),
        an_ssp_kb("kafka.orders.1:0/1"): Position(100, 100),
    }
    world, service = a_running_job()
    now_ms = world.clock.monotonic_ms()
    world.queue.append(a_heartbeat(received_ms=now_ms, figures=Figures(records_in=7, positions=positions)))
    service.run_once(0)
    world.clock.advance(300)

    status = shown(world, service)

    assert [10, 0] == [task["lag"] for task in status["tasks"]]
    assert {"recordsIn": 7, "recordsOut": 0, "deadLetters": 0, "commits": 0, "batches": 0, "lag": 10} == status[
        "totals"
    ]
    assert 300 == status["containers"][0]["heartbeatAgeMs"]
    assert ("e1", 1) == (status["tasks"][0]["owner"], status["tasks"][0]["epoch"])


STORES = {"stores_sums_msg_serde": "json", "stores_seen_msg_serde": "json", "local_store_dir": "/data"}


def test_stores_have_the_sizes_that_containers_report():
    sizes = {"sums": StoreSize(bytes_used=8192, entries=90)}
    heartbeat = a_heartbeat(figures=Figures(stores=sizes))

    world, service = a_running_job(heartbeat, **STORES)

    unknown = {"bytes": None, "entries": None}
    assert [{"store": "seen", **unknown}, {"store": "sums", "bytes": 8192, "entries": 90}] == shown(world, service)[
        "stores"
    ]
    without_leader = status_of_log("flights-1", service.status().state, None)
    assert [{"store": "seen", **unknown}, {"store": "sums", **unknown}] == without_leader["stores"]


def test_a_heartbeat_without_sizes_of_stores_leaves_them_unknown():
    status = shown(*a_running_job(a_heartbeat(), **STORES))

    assert [None, None] == [row["entries"] for row in status["stores"]]
    assert [] == shown(*a_running_job(a_heartbeat()))["stores"]


def test_a_person_sees_the_sizes_of_stores_in_a_table(capsys):
    _print(
        {
            "stores": [
                {"store": "seen", "bytes": None, "entries": None},
                {"store": "a\x1b[31m", "bytes": 8192, "entries": 90},
            ]
        }
    )

    lines = capsys.readouterr().out.splitlines()
    assert [["store", "bytes", "entries"], ["seen", "-", "-"]] == [line.split() for line in lines[1:3]]
    assert ["8192", "90"] == lines[3].split()[1:] and "\x1b" not in lines[3]


@pytest.mark.parametrize("factor", [1, 2, 8])
def test_the_lag_of_a_job_is_the_same_at_any_factor_and_that_of_its_tasks_is_shared_out(factor):
    positions = {an_ssp_kb(f"kafka.orders.0:{bucket}/{factor}"): Position(200, 1000) for bucket in range(factor)}
    positions |= {an_ssp_kb(f"kafka.orders.1:{bucket}/{factor}"): Position(999, 1000) for bucket in range(factor)}
    heartbeat = a_heartbeat(figures=Figures(positions=positions))

    status = shown(*a_running_job(heartbeat, job_elasticity_factor=str(factor)))

    assert 800 + 1 == status["totals"]["lag"]
    of_parts = {position["lag"] for task in status["tasks"] for position in task["positions"]}
    assert ({800, 1}, {800 // factor, 1}) == (of_parts, {task["lag"] for task in status["tasks"]})


def test_the_lag_of_a_partition_is_that_of_its_last_bucket():
    positions = {
        an_ssp_kb("kafka.orders.0:0/2"): Position(1000, 1000),
        an_ssp_kb("kafka.orders.0:1/2"): Position(0, 9),
    }
    positions |= {an_ssp_kb(f"kafka.orders.1:{bucket}/2"): Position(5, 5) for bucket in range(2)}
    heartbeat = a_heartbeat(figures=Figures(positions=positions))

    status = shown(*a_running_job(heartbeat, job_elasticity_factor="2"))

    assert (9, [0, 5, 0, 0]) == (status["totals"]["lag"], [task["lag"] for task in status["tasks"]])


def test_status_shows_the_reason_why_the_factor_cannot_change():
    scoped = {"stores_totals_msg_serde": "json", "stores_totals_scope": "task", "local_store_dir": "/data"}
    everywhere = {"task_partition_scheme": "all-ssps-to-single-task", "processor_id": "0"}

    assert ["", "stores.totals.scope=task", "task.partition.scheme=all-ssps-to-single-task"] == [
        shown(*a_running_job(a_heartbeat(), **properties))["factorFixedBy"] for properties in ({}, scoped, everywhere)
    ]


@pytest.mark.parametrize("factor", [1, 64])
def test_a_job_that_keeps_up_keeps_up_at_any_factor(factor):
    def heartbeat_at(at_ms, offset):
        """The partitions get 6,400 records a second; one second of them is left to read.

        They are even over the keys.
        """
        positions = {
            an_ssp_kb(f"kafka.orders.{number}:{bucket}/{factor}"): Position(offset, offset + 6400, offset // factor)
            for number in range(2)
            for bucket in range(factor)
        }
        tasks = {task["task"]: TaskStats(busy_ns=at_ms * 950_000) for task in shown(world, service)["tasks"]}
        return a_heartbeat(figures=Figures(at_ms=at_ms, batch_ns=at_ms * 10**6, positions=positions, tasks=tasks))

    world, service = a_running_job(a_heartbeat(), job_elasticity_factor=str(factor))
    looks = []
    for at_ms, offset in ((1000, 0), (2000, 6400)):
        world.queue.append(heartbeat_at(at_ms, offset))
        service.run_once(0)
        looks.append(shown(world, service))

    assert Advice.KEEPS_UP is hint_of(load_of(*looks)).advice


def test_a_broadcast_partition_counts_once_however_many_tasks_read_it():
    tasks = [f"SystemStreamPartition_kafka.orders.{number}" for number in range(2)]
    positions = {an_ssp_kb(f"kafka.rules.0@{task}"): Position(0, 30) for task in tasks}
    positions |= {an_ssp_kb(f"kafka.orders.{number}:0/1"): Position(3, 10) for number in range(2)}
    heartbeat = a_heartbeat(figures=Figures(positions=positions))

    status = shown(*a_running_job(heartbeat, task_broadcast_inputs="kafka.rules#0"))

    assert (7 + 7 + 30, [37, 37]) == (status["totals"]["lag"], [task["lag"] for task in status["tasks"]])


def test_a_bootstrap_input_is_shown_with_the_offset_that_the_other_inputs_wait_for():
    positions = {
        an_ssp_kb("kafka.orders.0:0/1"): Position(20, 100, 5, bootstrap_end=50),
        an_ssp_kb("kafka.orders.1:0/1"): Position(3, 10),
    }

    status = shown(*a_running_job(a_heartbeat(figures=Figures(positions=positions))))

    assert [50, None] == [task["positions"][0]["bootstrapEnd"] for task in status["tasks"]]
    assert [
        "bootstrap: SystemStreamPartition_kafka.orders.0 reads kafka.orders.0:0/1 (20 of 50) before its other inputs"
    ] == bootstrap_lines(status)


def test_the_positions_and_the_number_of_tasks_that_tail_are_shown():
    positions = {
        an_ssp_kb("kafka.orders.0:0/1"): Position(20, 20, 5, tailing=True),
        an_ssp_kb("kafka.orders.1:0/1"): Position(3, 10),
    }

    status = shown(*a_running_job(a_heartbeat(figures=Figures(positions=positions))))

    assert [True, False] == [task["positions"][0]["tailing"] for task in status["tasks"]]
    assert ["tails: 1 of 2 tasks"] == tail_lines(status)


def test_status_has_no_tails_if_no_task_tails():
    positions = {an_ssp_kb("kafka.orders.0:0/1"): Position(20, 20, 5)}

    status = shown(*a_running_job(a_heartbeat(figures=Figures(positions=positions))))

    assert [] == tail_lines(status)
    # Of a coordinator that knows no tails.
    assert [] == tail_lines({"tasks": [{"positions": [{"ssp": "kafka.orders.0:0/1"}]}]})


def test_the_watermark_that_is_furthest_behind_is_named_with_the_input_that_holds_it_back():
    times = [
        TimeFigures(at_ms=1, watermark_ms=1, lag_ms=lag_ms, held_by=f"kafka.orders.{number}:0/1")
        for number, lag_ms in enumerate((2_500, 1_000_500))
    ]
    tasks = {
        f"SystemStreamPartition_kafka.orders.{number}": TaskStats(time=time) for number, time in enumerate(times)
    }

    status = shown(*a_running_job(a_heartbeat(figures=Figures(tasks=tasks))))

    assert [
        "watermark: SystemStreamPartition_kafka.orders.1 is furthest behind, by 1,000.5 s, held by kafka.orders.1:0/1"
    ] == watermark_lines(status)
    assert [] == watermark_lines(shown(*a_running_job(a_heartbeat())))


def test_an_unreported_position_is_the_start_of_the_grant_without_a_lag():
    status = shown(*a_running_job(a_heartbeat()))

    unknown = dict.fromkeys(("offsetEnd", "lag", "recordsIn", "bootstrapEnd", "tailing"))
    expected = {"ssp": "kafka.orders.0:0/1", "offsetNext": 0, **unknown}
    assert [expected] == status["tasks"][0]["positions"]
    assert status["tasks"][0]["lag"] is None


def test_without_a_leader_the_topics_show_the_progress_of_a_job():
    world, service = a_running_job(a_heartbeat())
    ssp_kb = an_ssp_kb("kafka.orders.0:0/1")
    read = PositionsRead(
        checkpoints={ssp_kb: Checkpoint(ssp_kb=ssp_kb, offset_next=42, epoch=1, task_name="t", execution_id="e1")},
        progress={},
        bounds={ssp_kb.ssp: Bounds(0, 50)},
    )

    status = status_of_log("flights-1", service.status().state, read)

    assert [8, None] == [task["lag"] for task in status["tasks"]]
    assert (42, 50) == tuple(status["tasks"][0]["positions"][0][name] for name in ("offsetNext", "offsetEnd"))
    assert {None} == set(status["totals"].values())
    assert shown(world, service).keys() == status.keys()
    assert shown(world, service)["containers"][0].keys() == status["containers"][0].keys()


def test_status_shows_the_figures_of_each_reported_task():
    task = "SystemStreamPartition_kafka.orders.1"
    figures = Figures(
        at_ms=9,
        batch_ns=8,
        input_ns=7,
        skipped=6,
        tasks={task: TaskStats(busy_ns=5)},
        positions={an_ssp_kb("kafka.orders.1:0/1"): Position(1, 2, 3)},
    )
    status = shown(*a_running_job(a_heartbeat(figures=figures)))

    assert [None, {"busyNs": 5}] == [row["figures"] for row in status["tasks"]]
    assert [None, 3] == [row["positions"][0]["recordsIn"] for row in status["tasks"]]
    assert {"atMs": 9, "batchNs": 8, "inputNs": 7, "skipped": 6}.items() <= status["containers"][0]["figures"].items()
    assert (1, 2, 2) == (status["factor"], status["taskCount"], status["containers"][0]["slotCount"])


def test_the_progress_of_a_long_start_is_shown():
    figures = Figures(restored=300, restore_total=1000, restore_left_ms=7000)
    status = shown(*a_running_job(a_heartbeat(figures=figures)))

    start_figures = {"restored": 300, "restoreTotal": 1000, "restoreLeftMs": 7000}
    assert start_figures.items() <= status["containers"][0]["figures"].items()


def test_a_container_that_no_broker_answers_is_shown_and_reported_after_ten_seconds():
    for silent_ms, codes in ((9_999, []), (40_000, ["container-cut-off"])):
        world, service = a_running_job(a_heartbeat(unanswered_ms=1500, kafka_silent_ms=silent_ms))

        (container,) = shown(world, service)["containers"]
        assert (1500, silent_ms) == (container["unansweredMs"], container["kafkaSilentMs"])
        assert codes == [finding.code for finding in service.status().findings]


def test_a_container_that_is_gone_is_listed_while_its_tasks_wait():
    world, service = a_running_job(a_heartbeat())
    world.queue.append(a_heartbeat(state=ContainerPhase.STOPPED, reason="drained"))
    service.run_once(0)
    assert ["STOPPED"] == [container["phase"] for container in shown(world, service)["containers"]]

    world.queue.append(a_heartbeat("e2", pid=200))
    service.run_once(0)

    assert ["e2"] == [container["executionId"] for container in shown(world, service)["containers"]]


def test_status_shows_a_standby_by_its_name_with_its_state():
    world, service = a_running_job(a_heartbeat())
    warm = StandbyProgress(tasks=2, level=2, lag=3, restored=9, total=9)
    world.queue.append(a_heartbeat("s1", host="host-b", pid=7, warm=warm, received_ms=world.clock.monotonic_ms()))
    service.run_once(0)
    snapshot, launch = service.status(), a_launch("s1", role=LaunchRole.STANDBY)
    state = replace(snapshot.state, launches={launch.execution_id: launch})

    rows = status_json(replace(snapshot, state=state), world.clock.monotonic_ms())["containers"]

    assert [("e1", "ACTIVE", None, None), ("s1", "STANDBY", "0-0", warm.as_json())] == [
        (row["executionId"], row["role"], row["standby"], row["warm"]) for row in rows
    ]


def test_status_shows_a_failing_query_with_its_container_only():
    failing = Failing(attempts=4, for_ms=30_000, left_ms=570_000, reason="no memory")
    world, service = a_running_job()
    now_ms = world.clock.monotonic_ms()
    world.queue.append(a_heartbeat(failing=failing, received_ms=now_ms))
    world.queue.append(a_heartbeat("e2", processor_id="1", pid=7, received_ms=now_ms))
    service.run_once(0)

    rows = {row["executionId"]: row["failing"] for row in shown(world, service)["containers"]}

    assert {"e1": failing.as_json(), "e2": None} == rows
