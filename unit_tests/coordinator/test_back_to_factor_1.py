"""The records of a job scaled from 1 to 4 and back, and of one never divided.

The golden file is made by `unit_tests.fixtures.scaled_back_job`. It has the contents that
`docs/guides/elasticity.md` describes for the way back to factor 1, so a change of the file needs a look there, too.
"""

from dataclasses import replace

from samzapy.container.start_rules import positions_of, superseded_keys
from samzapy.coordinator.assignment.starts import Bounds, PositionsRead
from samzapy.coordinator.replay import replay
from samzapy.inspection.status import status_of_log
from samzapy.model.grant import Floor
from samzapy.stream.codec import decode, encode
from samzapy.stream.log import Write
from samzapy.stream.records import (
    CheckpointPut,
    EpochPut,
    FactorPut,
    GenerationPut,
    GrantPut,
    InboxPut,
    PlannedTaskPut,
    RequestMemoryPut,
)
from samzapy.testing.builders import a_config, a_heartbeat, a_submission, an_ssp_kb
from unit_tests.fixtures.coordinator_world import World
from unit_tests.fixtures.golden_rows import PARTITIONS, TASKS, golden_rows, log_of
from unit_tests.fixtures.operated_job import an_id
from unit_tests.fixtures.scaled_back_job import SETTINGS, left_by, stopped_job

ROWS = golden_rows("scaled_1_4_1")


def records_of(rows, topic):
    return [decode(record, topic="t") for record in log_of(rows, topic)]


def state_of(rows):
    return replay(log_of(rows, "coordinator"), topic="t").state


def by_key(records):
    return dict(encode(record) for record in records)


def renumbered_by_key(rows, topic):
    """The records by key, with the plan and grant numbers of a job that had no others."""
    epochs = {grant.epoch: number for number, grant in enumerate(state_of(rows).grants_sorted, start=1)}

    def renumbered(record):
        match record:
            case GrantPut(grant=grant):
                return replace(record, grant=replace(grant, epoch=epochs[grant.epoch], generation=1))
            case CheckpointPut(checkpoint=checkpoint):
                return replace(record, checkpoint=replace(checkpoint, epoch=epochs[checkpoint.epoch]))
            case EpochPut():
                return replace(record, epoch=len(epochs))
            case GenerationPut() | PlannedTaskPut():
                return replace(record, generation=1)
        return record

    return by_key(map(renumbered, records_of(rows, topic)))


def test_the_golden_file_is_the_result_of_this_release():
    assert ROWS == list(left_by(stopped_job(is_scaled=True)))


def test_a_job_scaled_back_is_read_as_a_job_with_factor_1():
    state = state_of(ROWS)

    assert (1, 1) == (state.generation.factor, state.factor.factor)
    assert [(TASKS[number], (PARTITIONS[number],)) for number in (0, 1)] == [
        (planned.task_name, planned.ssp_kbs) for planned in state.plan
    ]
    assert [(TASKS[number], [PARTITIONS[number]]) for number in (0, 1)] == [
        (grant.task_name, [start.ssp_kb for start in grant.starts]) for grant in state.grants_sorted
    ]
    assert set(TASKS) == set(state.changelog_partitions) == set(state.task_localities)


def test_positions_of_a_job_scaled_back_are_byte_for_byte_those_of_one_never_divided():
    """The epoch differs: a number is given out once, so each change uses some up."""
    plain = list(left_by(stopped_job(is_scaled=False)))

    assert ["checkpoint/kafka.orders.0:0/1", "checkpoint/kafka.orders.1:0/1"] == [
        row["key"] for row in ROWS if row["topic"] == "checkpoint"
    ]
    assert by_key(records_of(plain, "checkpoint")) == renumbered_by_key(ROWS, "checkpoint")
    assert [11, 12] == [record.checkpoint.epoch for record in records_of(ROWS, "checkpoint")]


def test_the_remains_of_a_scale_on_the_coordinator_stream_are_all_known():
    plain = by_key(records_of(list(left_by(stopped_job(is_scaled=False))), "coordinator"))
    counts = renumbered_by_key(ROWS, "coordinator")

    # A wish, and that people asked for it twice.
    own = {f"request-memory/{an_id(1)}", f"request-memory/{an_id(2)}", "inbox", "factor"}
    assert own == {key.decode() for key in counts.keys() - plain.keys()}
    assert set() == plain.keys() - counts.keys()
    assert {"grant/SystemStreamPartition_kafka.orders.0/1", "grant/SystemStreamPartition_kafka.orders.1/2"} == {
        key.decode() for key in plain if plain[key] != counts[key]
    }
    by_type = {type(record): record for record in records_of(ROWS, "coordinator")}
    assert FactorPut(factor=1, uuid=an_id(2)) == by_type[FactorPut]
    assert "scale" == by_type[RequestMemoryPut].action
    assert by_type[InboxPut].offset_next > 0
    assert (3, 12) == (by_type[GenerationPut].generation, by_type[EpochPut].epoch)


def test_grants_of_a_job_scaled_back_keep_floors_of_the_parts_although_positions_passed_them():
    state = state_of(ROWS)
    positions = positions_of(records_of(ROWS, "checkpoint"))
    read = PositionsRead(
        checkpoints=positions.checkpoints,
        progress=positions.progress,
        bounds={partition.ssp: Bounds(0, 100) for partition in PARTITIONS},
    )

    # The part 2 of 4 was the furthest behind, so the whole begins there.
    for number, grant in enumerate(state.grants_sorted):
        floors = tuple(
            Floor(ssp_kb=an_ssp_kb(f"kafka.orders.{number}:{bucket}/4"), offset_next=offset)
            for bucket, offset in ((0, 17), (1, 20), (3, 15))
        )
        assert [(12, floors)] == [(start.offset_next, start.floors) for start in grant.starts]
    assert 1 == status_of_log("flights-1", state, read)["factorFinest"]


def test_the_next_run_begins_at_the_same_positions_without_floors():
    world = World(config=a_config(**SETTINGS))
    log = world.log()
    log.take_over()
    log.append_atomically(
        [
            Write(key=record.key, value=record.value, headers=dict(record.headers))
            for record in log_of(ROWS, "coordinator")
        ]
    )
    positions = positions_of(records_of(ROWS, "checkpoint"))
    world.checkpoints = dict(positions.checkpoints)

    service = world.coordinator()
    service.become_leader()
    service.submit(a_submission(config=world.config, partition_counts={"kafka.orders": 2}))
    for number in (0, 1):
        world.queue.append(a_heartbeat(f"n{number}", processor_id=str(number), pid=200 + number))
    service.run_once(0)

    state = service.status().state
    assert (1, 1) == (state.generation.factor, state.factor.factor)
    assert [("n0", 13, 30, ()), ("n1", 14, 30, ())] == [
        (grant.execution_id, grant.epoch, start.offset_next, start.floors)
        for grant in state.grants_sorted
        for start in grant.starts
    ]
    assert [] == superseded_keys(state.grants_sorted, positions, {grant.epoch for grant in state.grants.values()})
