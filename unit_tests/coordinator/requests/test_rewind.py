"""Rewinds from the request to grants that begin elsewhere, on memory logs.

Containers read these grants.
"""

from dataclasses import replace

import pytest

from samzapy.container.orders import Orders, follow
from samzapy.coordinator.actions import ReadOffsetBounds, actions
from samzapy.coordinator.assignment.liveness import Liveness
from samzapy.coordinator.assignment.starts import Bounds
from samzapy.coordinator.commands import OffsetBounds, OffsetBoundsRead, StartsResolved, TaskStarts
from samzapy.coordinator.decide import decide
from samzapy.coordinator.requests.rewind import moves, offset_bounds_wanted, offset_of, refused_rewind
from samzapy.coordinator.state import evolve, uncommitted
from samzapy.inspection.explanation import explain
from samzapy.model.checkpoint import Checkpoint
from samzapy.model.container import ContainerPhase
from samzapy.model.placement import Action, StatusCode, rewind_of
from samzapy.model.startpoint import Startpoint
from samzapy.stream.codec import decode
from samzapy.stream.records import EpochPut, GrantPut, Removed, RequestPut, StartpointPut
from samzapy.testing.builders import a_heartbeat, an_ssp, an_ssp_kb
from samzapy.testing.memory_log import MemoryLog
from unit_tests.fixtures.operated_job import ScaledJob, an_id

S = StatusCode
TASK = "SystemStreamPartition_kafka.orders.{}"


class RewoundJob(ScaledJob):
    """Containers that read the stream with their own code, and release lost tasks."""

    def __init__(self, **settings):
        self.deaf = False
        super().__init__(**settings)
        self.settles()

    def settles(self, rounds=6):
        for _ in range(rounds):
            self.receives_grants({name: [] if self.deaf else self.held(name) for name in ("e0", "e1")})

    def held(self, name):
        records = [decode(record, topic="t") for record in self.world.log().read()]
        orders = follow(Orders(execution_id=name), records, self.world.topic.end_offset)
        return [(grant.task_name, grant.epoch) for grant in orders.own_grants()]

    def rewind(self, number=1, **arguments):
        given = {"stream": "kafka.orders", "to": "oldest"} | arguments
        self.ask(number, Action.REWIND, processor_id="", arguments={name: str(given[name]) for name in given})
        self.reads()

    def commits(self, text, offset_next):
        """The owner of the bucket works up to there."""
        ssp_kb = an_ssp_kb(text)
        grant = next(
            grant for grant in reversed(self.state.grants_sorted) for start in grant.starts if start.ssp_kb == ssp_kb
        )
        self.world.checkpoints[ssp_kb] = Checkpoint(
            ssp_kb=ssp_kb,
            offset_next=offset_next,
            epoch=grant.epoch,
            task_name=grant.task_name,
            execution_id=grant.execution_id,
        )

    def starts(self):
        """By SSPKb in text form, where it begins under the newest grant, and floors."""
        newest = {}
        for grant in self.state.grants_sorted:
            newest |= {start.ssp_kb: start for start in grant.starts}
        plan = {ssp_kb for planned in self.state.plan for ssp_kb in planned.positions}
        return {
            str(kb): newest[kb].offset_next
            if not newest[kb].floors
            else (newest[kb].offset_next, *[(str(floor.ssp_kb), floor.offset_next) for floor in newest[kb].floors])
            for kb in sorted(plan)
        }

    def decided(self):
        """The records of interest, each as far as it matters."""
        return [record for record in map(shown, self.log_records()) if record]

    def log_records(self):
        return [decode(record, topic="t") for record in MemoryLog(self.world.topic).read()]


def shown(record):
    match record:
        case EpochPut():
            return ("epoch", record.epoch)
        case StartpointPut(startpoint=startpoint):
            return (str(startpoint.ssp_kb), startpoint.offset_next, startpoint.epoch, startpoint.uuid)
        case GrantPut(grant=grant):
            return (
                "released" if grant.released else "granted",
                grant.epoch,
                [(str(start.ssp_kb), start.offset_next) for start in grant.starts],
                grant.epoch_rewound,
            )
        case RequestPut():
            return (record.status_code.value, record.answered)
        case Removed():
            return ("removed", record.key)
        case _:
            return None


def test_only_a_rewound_task_is_revoked_and_granted_again():
    job = RewoundJob()
    for partition in range(4):
        job.commits(f"kafka.orders.{partition}:0/1", 40 + partition)
    grants, before = job.state.grants, len(job.decided())
    old = next(grant for grant in job.state.grants_sorted if grant.task_name == TASK.format(2))

    job.rewind(task=TASK.format(2))
    job.settles()
    job.passes(1000)

    epoch = max(grant.epoch for grant in grants.values()) + 1
    place = "kafka.orders.2:0/1"
    assert [
        ("ACCEPTED", False),
        ("epoch", epoch),
        (place, 0, epoch, an_id(1)),
        ("IN_PROGRESS", False),
        ("IN_PROGRESS", True),
        ("released", old.epoch, [(place, 0)], 0),
        ("epoch", epoch + 1),
        ("granted", epoch + 1, [(place, 0)], epoch),
        ("removed", f"grant/{TASK.format(2)}/{old.epoch}"),
        ("SUCCEEDED", False),
        ("removed", f"request/{an_id(1)}"),
        ("removed", f"startpoint/{place}"),
    ] == job.decided()[before:]
    assert "1 positions in kafka.orders go to oldest: done" in job.answer(1).response_message
    assert {**grants} | dict(job.state.grants) == {**grants} | {
        (TASK.format(2), epoch + 1): job.state.grants[TASK.format(2), epoch + 1]
    }
    assert {} == job.state.startpoints


def test_a_rewind_reports_how_many_tasks_are_at_work_again():
    job = RewoundJob()
    job.rewind()
    job.deaf = True
    job.settles(2)
    began_ms = job.now_ms()
    job.passes(3000)

    job.receives_grants({"e0": job.held("e0"), "e1": []})

    answer = job.answer(1)
    assert ("STARTING", "4 positions in kafka.orders go to oldest; 2 of 4 tasks are at work from there") == (
        answer.phase,
        answer.response_message,
    )
    job.deaf = False
    job.settles()
    ended_ms = job.now_ms() - began_ms
    assert f"4 positions in kafka.orders go to oldest: done {ended_ms} ms" in job.answer(1).response_message


def test_work_since_the_rewind_is_not_repeated_when_the_task_moves():
    job = RewoundJob()
    job.commits("kafka.orders.2:0/1", 40)
    job.rewind(task=TASK.format(2))
    job.settles()
    rewound = job.state.grants_sorted[-1]

    job.commits("kafka.orders.2:0/1", 7)
    job.scale(2, 2)
    job.settles(12)

    assert (7, 7) == (job.starts()["kafka.orders.2:0/2"], job.starts()["kafka.orders.2:1/2"])
    # Local state of before the rewind may still lie about.
    assert {rewound.epoch_rewound} == {
        grant.epoch_rewound
        for grant in job.state.grants.values()
        if grant.starts[0].ssp_kb.ssp == an_ssp("kafka.orders.2")
    }


@pytest.mark.parametrize(
    ("arguments", "rewound"),
    [
        ({}, ["0", "1", "2", "3"]),
        ({"partition": 3}, ["3"]),
        ({"task": TASK.format(1)}, ["1"]),
        ({"processor": "1"}, ["1", "3"]),
        ({"processor": "1", "partition": 3}, ["3"]),
    ],
)
def test_a_rewind_is_of_the_partitions_tasks_or_processors_that_are_meant(arguments, rewound):
    job = RewoundJob()
    for partition in range(4):
        job.commits(f"kafka.orders.{partition}:0/1", 40)
    owner_of = {start.ssp_kb: grant.execution_id for grant in job.state.grants.values() for start in grant.starts}
    if "processor" in arguments:
        rewound = [
            str(kb.ssp.partition)
            for kb in sorted(owner_of)
            if owner_of[kb] == "e1" and kb.ssp.partition == arguments.get("partition", kb.ssp.partition)
        ]
    before = set(job.state.grants)

    job.rewind(**arguments)
    job.settles()

    assert S.SUCCEEDED is job.status(1)
    anew = [grant for key, grant in job.state.grants.items() if key not in before]
    assert [f"kafka.orders.{number}:0/1" for number in rewound] == sorted(
        str(start.ssp_kb) for grant in anew for start in grant.starts
    )


@pytest.mark.parametrize(
    ("to", "offset_bounds", "offset"),
    [
        ("oldest", OffsetBounds(5, 90), 5),
        ("newest", OffsetBounds(5, 90), 90),
        ("2026-01-01T00:00:00Z", OffsetBounds(5, 90, 30), 30),
        ("1ms", OffsetBounds(5, 90, 3), 5),
        ("1ms", OffsetBounds(5, 90, 95), 90),
        ("5", OffsetBounds(5, 90), 5),
        ("90", OffsetBounds(5, 90), 90),
    ],
)
def test_a_place_is_an_offset_that_the_partition_holds(to, offset_bounds, offset):
    assert offset == offset_of(rewind_of({"stream": "kafka.orders", "to": to}).to, offset_bounds)


@pytest.mark.parametrize("offset", [4, 91])
def test_an_offset_that_the_partition_does_not_hold_is_refused_and_nothing_is_done(offset):
    job = RewoundJob()
    job.world.bounds[an_ssp("kafka.orders.1")] = Bounds(5, 90)
    epoch = job.state.epoch

    job.rewind(to=offset, partition=1)

    assert S.FAILED is job.status(1)
    assert (
        f"to: wanted an offset from 5, where the partition begins, to 90, where it ends, found {offset}; "
        "nothing was done" == job.answer(1).response_message
    )
    assert (epoch, {}) == (job.state.epoch, job.state.startpoints)


def test_the_cluster_is_asked_for_the_rewound_partitions_and_time():
    job = RewoundJob()

    job.rewind(to="1767225600000ms", partition=1)
    job.settles()

    assert [((an_ssp("kafka.orders.1"),), 1_767_225_600_000)] == job.world.offset_bounds_read
    assert 50 == job.starts()["kafka.orders.1:0/1"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"stream": "kafka.payments"}, "stream: wanted an input of the job (kafka.orders, kafka.rules), found"),
        ({"stream": "hdfs.orders"}, "found hdfs.orders"),
        ({"partition": 4}, "partition: wanted one of kafka.orders that is read (0, 1, 2, 3), found 4"),
        ({"task": "Partition_9"}, "task: wanted one of the plan in force (SystemStreamPartition_kafka.orders.0, "),
        ({"processor": "7"}, "processor: wanted one that has tasks (0, 1), found 7"),
        ({"to": 5}, "to: wanted oldest, newest or a time for 4 partitions of kafka.orders, found one offset"),
        (
            {"task": TASK.format(1), "partition": 2},
            f"stream: wanted one that task {TASK.format(1)} reads, found kafka.orders, of which it reads nothing",
        ),
    ],
)
def test_an_input_that_cannot_be_rewound_is_refused_by_name(arguments, reason):
    job = RewoundJob(task_broadcast_inputs="kafka.rules#0")
    epoch = job.state.epoch

    job.rewind(**arguments)

    assert S.FAILED is job.status(1)
    assert reason in job.answer(1).response_message
    assert "nothing was done" in job.answer(1).response_message
    assert (epoch, []) == (job.state.epoch, job.world.offset_bounds_read)


def test_a_bounded_input_is_not_rewound():
    job = RewoundJob(systems_kafka_samza_offset_end="head")

    job.rewind()

    assert "stream: wanted an input that is read for ever, found kafka.orders" in job.answer(1).response_message


def test_an_offset_of_a_broadcast_partition_is_one_place_for_all_tasks():
    job = RewoundJob(task_broadcast_inputs="kafka.rules#0")

    job.rewind(stream="kafka.rules", to=9)
    job.settles()

    assert S.SUCCEEDED is job.status(1)
    assert [9] * 4 == [job.starts()[f"kafka.rules.0@{TASK.format(number)}"] for number in range(4)]
    assert {} == (job.passes(1000) or job.state.startpoints)


def test_a_broadcast_position_of_one_task_is_rewound_for_it_alone():
    job = RewoundJob(task_broadcast_inputs="kafka.rules#0")

    job.rewind(stream="kafka.rules", to="newest", task=TASK.format(1))
    job.settles()

    assert [0, 100, 0, 0] == [job.starts()[f"kafka.rules.0@{TASK.format(number)}"] for number in range(4)]
    assert 0 == job.starts()["kafka.orders.1:0/1"]


# --- in the middle of something else ---


def test_the_next_leader_finishes_a_rewind_that_ended_at_any_record():
    def begun():
        job = RewoundJob()
        for partition in range(4):
            job.commits(f"kafka.orders.{partition}:0/1", 40)
        job.ask(1, Action.REWIND, processor_id="", arguments={"stream": "kafka.orders", "to": "oldest"})
        return job

    # The number, four startpoints, and last that the request has begun.
    for torn in range(1, 6):
        job = begun()
        job.world.reading_fails = 1
        job.reads()
        job.world.clock.advance(1000)
        job.log.tear_next_append(torn)
        job.service.run_once(0)
        assert (torn, 2) == (torn, job.state.term.term)
        # A rewound bucket of before keeps its number, and the rest has the next one.
        first = min(startpoint.epoch for startpoint in job.state.startpoints.values())
        assert (torn - 1 or 4) == sum(startpoint.epoch == first for startpoint in job.state.startpoints.values())
        job.service = job.leader("b")
        job.reads()
        job.settles()
        assert (torn, S.SUCCEEDED) == (torn, job.status(1))
        assert {0} == set(job.starts().values())
        # Each of them was reported once, however often it was begun.
        assert 4 == len(job.records(StartpointPut)), torn


@pytest.mark.parametrize("rounds", range(6))
def test_the_next_leader_finishes_a_rewind_at_any_time(rounds):
    job = RewoundJob()
    for partition in range(4):
        job.commits(f"kafka.orders.{partition}:0/1", 40)
    job.rewind(partition=1)
    for _ in range(rounds):
        job.settles(1)

    job.service = job.leader("b")
    job.reads()
    job.settles()
    job.passes(1000)

    assert S.SUCCEEDED is job.status(1)
    assert 0 == job.starts()["kafka.orders.1:0/1"]
    assert (1, {}) == (len(job.records(StartpointPut)), job.state.startpoints)


def test_a_rewind_of_one_part_in_an_unfinished_merge_drops_the_floor_of_that_part_alone():
    job = RewoundJob(job_placement_expiry_ms="5000", job_container_heartbeat_ms="1000")
    job.scale(1, 4)
    job.settles(12)
    for bucket, offset in enumerate((10, 20, 30, 40)):
        job.commits(f"kafka.orders.0:{bucket}/4", offset)

    job.rewind(2, to=5, task=f"{TASK.format(0)}-1-4")
    # No owner has released anything when the factor is to be 1 again.
    job.passes(5000)
    job.scale(3, 1)
    job.settles(12)
    job.passes(1000)

    assert (S.FAILED, S.SUCCEEDED) == (job.status(2), job.status(3))
    assert (
        5,
        ("kafka.orders.0:0/4", 10),
        ("kafka.orders.0:2/4", 30),
        ("kafka.orders.0:3/4", 40),
    ) == job.starts()["kafka.orders.0:0/1"]
    assert {} == job.state.startpoints


def test_a_rewind_in_an_unfinished_split_is_of_the_part_that_is_meant():
    job = RewoundJob(job_placement_expiry_ms="5000", job_container_heartbeat_ms="1000")
    job.commits("kafka.orders.0:0/1", 40)
    job.scale(1, 2)
    job.passes(5000)

    job.rewind(2, task=f"{TASK.format(0)}-1-2")
    # Its parent is at work still.
    job.commits("kafka.orders.0:0/1", 45)
    job.settles(12)
    job.passes(1000)

    assert (S.FAILED, S.SUCCEEDED) == (job.status(1), job.status(2))
    assert (45, 0) == (job.starts()["kafka.orders.0:0/2"], job.starts()["kafka.orders.0:1/2"])
    assert {} == job.state.startpoints


def test_rewinds_of_one_job_are_done_in_order_and_the_last_one_counts():
    job = RewoundJob()
    for number, to in ((1, 60), (2, 30)):
        given = {"stream": "kafka.orders", "to": str(to), "partition": "0"}
        job.ask(number, Action.REWIND, processor_id="", arguments=given)

    job.reads()
    assert [S.IN_PROGRESS, S.ACCEPTED] == [job.status(number) for number in (1, 2)]
    job.settles(12)

    assert [S.SUCCEEDED, S.SUCCEEDED] == [job.status(number) for number in (1, 2)]
    assert 30 == job.starts()["kafka.orders.0:0/1"]


def test_a_container_that_has_not_read_the_startpoint_has_released_nothing():
    job = RewoundJob()
    stream_offset = job.world.topic.end_offset
    job.rewind(partition=1)

    job.receives_grants({"e0": [], "e1": []}, stream_offset)
    assert not any(put.grant.released for put in job.records(GrantPut))

    job.settles()
    assert S.SUCCEEDED is job.status(1)
    assert 1 == sum(put.grant.released for put in job.records(GrantPut))


def test_a_startpoint_stays_until_its_request_is_over():
    job = RewoundJob()
    job.rewind(partition=1)
    # They have released, and do not report that they have read the next grant.
    job.receives_grants({"e0": [], "e1": []})
    assert 1 == job.state.grants_sorted[-1].starts[0].ssp_kb.ssp.partition

    job.passes(1000)
    assert (S.IN_PROGRESS, 1) == (job.status(1), len(job.state.startpoints))

    job.settles()
    job.passes(1000)
    assert (S.SUCCEEDED, {}) == (job.status(1), job.state.startpoints)


def test_starts_that_were_computed_before_a_rewind_are_not_used():
    job = RewoundJob()
    job.deaf = True  # Every owner releases everything that is taken away.
    state = job.state
    planned = next(planned for planned in state.plan if planned.task_name == TASK.format(1))
    grant = next(grant for grant in state.grants_sorted if grant.task_name == planned.task_name)
    free = evolve(state, uncommitted([GrantPut(grant=replace(grant, released=True))]))
    startpoint = Startpoint(ssp_kb=planned.ssp_kbs[0], offset_next=9, epoch=state.epoch + 1, uuid=an_id(1))
    rewound = evolve(free, uncommitted([EpochPut(epoch=startpoint.epoch), StartpointPut(startpoint=startpoint)]))
    resolved = StartsResolved(
        generation=planned.generation,
        epoch_before=state.epoch,
        tasks=(
            TaskStarts(task_name=planned.task_name, execution_id=grant.execution_id, starts=grant.starts, losses=()),
        ),
    )

    assert () != decide(resolved, free, Liveness()).records
    assert () == decide(resolved, rewound, Liveness()).records
    assert () != decide(replace(resolved, epoch_before=startpoint.epoch), rewound, Liveness()).records


def test_the_answer_about_a_plan_that_is_no_more_is_not_used():
    job = RewoundJob()
    job.world.reading_fails = 1
    job.rewind()
    (action,) = [action for action in actions(job.state) if isinstance(action, ReadOffsetBounds)]
    assert an_id(1) == action.uuid

    part = {ssp: OffsetBounds(0, 9) for ssp in action.ssps[1:]}
    late = OffsetBoundsRead(uuid=action.uuid, offset_bounds=part, now_ms=1)
    assert () == decide(late, job.state, Liveness()).records
    other = OffsetBoundsRead(uuid=an_id(9), offset_bounds={ssp: OffsetBounds(0, 9) for ssp in action.ssps}, now_ms=1)
    assert () == decide(other, job.state, Liveness()).records


def test_offsets_that_were_read_for_an_earlier_plan_begin_no_rewind():
    job = RewoundJob()
    generation = job.state.generation
    job.world.reading_fails = 1
    job.rewind(expectedGeneration=generation.generation)
    (action,) = [action for action in actions(job.state) if isinstance(action, ReadOffsetBounds)]
    later = replace(job.state, generation=replace(generation, generation=generation.generation + 1))
    bounds = {ssp: OffsetBounds(0, 9) for ssp in action.ssps}
    command = OffsetBoundsRead(uuid=action.uuid, offset_bounds=bounds, now_ms=1)

    assert decide(command, job.state, Liveness()).records
    assert () == decide(command, later, Liveness()).records
    assert () == offset_bounds_wanted(later)


# --- time limits ---


def test_a_rewind_that_cannot_be_resolved_fails_and_changes_nothing():
    job = RewoundJob(job_placement_expiry_ms="5000", job_container_heartbeat_ms="1000")
    job.world.reading_fails = 1000

    job.rewind()
    job.passes(5000)

    assert S.FAILED is job.status(1)
    assert "the offsets of the inputs could not be read; nothing was done" in job.answer(1).response_message
    assert {} == job.state.startpoints


def test_a_rewind_that_takes_too_long_fails_and_continues():
    job = RewoundJob(job_placement_expiry_ms="5000", job_container_heartbeat_ms="1000")
    job.commits("kafka.orders.1:0/1", 40)
    job.rewind(partition=1)

    job.passes(5000)
    assert S.FAILED is job.status(1)
    assert f"1 tasks are not at work yet ({TASK.format(1)})" in job.answer(1).response_message
    assert 1 == len(job.state.startpoints)

    job.settles()
    job.passes(1000)
    assert (0, {}) == (job.starts()["kafka.orders.1:0/1"], job.state.startpoints)


# --- plans of rewinds ---


def test_a_rewind_plan_shows_repeated_or_skipped_messages_and_writes_nothing():
    job = RewoundJob(task_broadcast_inputs="kafka.rules#0")
    job.commits("kafka.orders.1:0/1", 40)
    job.commits("kafka.orders.3:0/1", 60)
    offset = job.world.topic.end_offset

    def shown_moves(**arguments):
        rewind = rewind_of({"stream": "kafka.orders", "to": "1ms"} | arguments)
        assert refused_rewind(rewind, job.state) is None
        ssps = {ssp_kb.ssp for planned in job.state.plan for ssp_kb in planned.positions}
        shown = moves(rewind, job.state, job.world.read(ssps), job.world.offset_bounds(ssps, 1))
        return [(move.task_name, str(move.ssp_kb), move.offset_from, move.offset_to) for move in shown]

    assert [
        (TASK.format(number), f"kafka.orders.{number}:0/1", begins, 50)
        for number, begins in enumerate((0, 40, 0, 60))
    ] == shown_moves()
    assert [(TASK.format(1), f"kafka.rules.0@{TASK.format(1)}", 0, 100)] == shown_moves(
        stream="kafka.rules", to="newest", task=TASK.format(1)
    )
    assert offset == job.world.topic.end_offset


def test_a_later_partition_is_shown_at_its_beginning_whatever_the_default():
    job = RewoundJob(systems_kafka_samza_offset_default="upcoming")
    orders = an_ssp("kafka.orders.3").system_stream
    state = with_input(job.state, orders, partition_count_first=3)
    nothing_granted = replace(state, grants={})

    assert {2: 100, 3: 0} == {number: shown_from(job, nothing_granted, number) for number in (2, 3)}


@pytest.mark.parametrize("reset", [False, True])
def test_positions_of_an_earlier_topic_or_run_are_not_shown(reset):
    job = RewoundJob(systems_kafka_streams_orders_samza_reset_offset=str(reset).lower())
    job.commits("kafka.orders.1:0/1", 40)
    orders = an_ssp("kafka.orders.1").system_stream
    next_run = replace(job.state, run=replace(job.state.run, epoch_before=job.state.epoch))
    recreated_topic = with_input(job.state, orders, epoch_before=job.state.epoch)

    assert 40 == shown_from(job, job.state, 1)
    assert (0 if reset else 40) == shown_from(job, next_run, 1)
    assert 0 == shown_from(job, recreated_topic, 1)


def with_input(state, system_stream, **changes):
    return replace(state, inputs={**state.inputs, system_stream: replace(state.inputs[system_stream], **changes)})


def shown_from(job, state, partition):
    """Where a partition is, as `samzapy job rewind --plan` shows it."""
    rewind = rewind_of({"stream": "kafka.orders", "to": "oldest", "partition": str(partition)})
    ssps = {ssp_kb.ssp for planned in state.plan for ssp_kb in planned.positions}
    (move,) = moves(rewind, state, job.world.read(ssps), job.world.offset_bounds(ssps, 1))
    return move.offset_from


def test_a_task_s_history_has_its_rewinds_and_no_others():
    job = RewoundJob()
    task = TASK.format(1)

    def explained():
        records = MemoryLog(job.world.topic).read()
        return explain(records, task, topic=job.world.topic.name, whole_from=0)

    job.rewind(partition=1)
    epoch = next(iter(job.state.startpoints.values())).epoch
    assert "until it releases the task for a rewind" in explained().runs
    job.settles()
    job.rewind(2, partition=2)
    job.settles()
    job.passes(1000)

    explanation = explained()
    assert explanation.runs.endswith(f"under epoch {epoch + 1}")
    assert ["StartpointSet", "StartpointRemoved"] == [
        entry.event for entry in explanation.evidence if entry.key == "startpoint/kafka.orders.1:0/1"
    ]
    assert not [entry for entry in explanation.evidence if entry.key == "startpoint/kafka.orders.2:0/1"]


def test_a_rewind_that_the_end_of_the_run_overtakes_is_where_the_next_run_begins():
    job = RewoundJob()
    job.commits("kafka.orders.1:0/1", 40)
    job.rewind(partition=1, to=7)

    stopped = [a_heartbeat(f"e{n}", processor_id=str(n), pid=100 + n, state=ContainerPhase.STOPPED) for n in (0, 1)]
    job.world.queue.extend(stopped)
    job.service.run_once(0)
    assert (True, S.FAILED) == (job.state.run.ended, job.status(1))
    assert "the next one begins where it asked for" in job.answer(1).response_message

    job.world.clock.advance(1000)
    for number in (0, 1):
        job.world.queue.append(a_heartbeat(f"e{number + 5}", processor_id=str(number), pid=500 + number))
    job.service.run_once(0)
    job.passes(1000)

    assert (7, {}) == (job.starts()["kafka.orders.1:0/1"], job.state.startpoints)
