"""A job of an earlier release continues from its topics.

The golden file holds both topics of a job as release 0.1.0 wrote them: two partitions at factor 1, one processor that
was granted both tasks, committed, and stopped in good order. Its bytes came out of that release's own coordinator
and codec. Never change a line.
"""

import json

from samzapy.coordinator.replay import replay
from samzapy.model.checkpoint import Checkpoint, Progress
from samzapy.model.container import Container, ContainerPhase
from samzapy.model.grant import BucketStart, Grant
from samzapy.stream.codec import decode, schema_records
from samzapy.stream.log import Write
from samzapy.stream.records import (
    CheckpointPut,
    GenerationPut,
    InputPut,
    PlannedTaskPut,
    ProgressPut,
)
from samzapy.testing.builders import a_config, a_heartbeat, a_submission
from unit_tests.fixtures.coordinator_world import World
from unit_tests.fixtures.golden_rows import PARTITIONS, TASKS, golden_rows, log_of


def records_of(topic):
    return log_of(golden_rows("release_0_1_0"), topic)


def test_the_coordinator_stream_of_release_0_1_0_is_read():
    state = replay(records_of("coordinator"), topic="t").state

    def a_grant(number):
        start = BucketStart(ssp_kb=PARTITIONS[number], offset_next=0)
        return Grant(
            task_name=TASKS[number],
            epoch=number + 1,
            execution_id="e1",
            generation=1,
            partition_id=number,
            changelog_partition=number,
            starts=(start,),
            tick_last=0,
        )

    assert ("flights", "1", 1, 1) == (state.job.job_name, state.job.job_id, state.format_level, state.term.term)
    assert state.generation == GenerationPut(generation=1, factor=1, task_count=2, scheme="max")
    assert state.plan == tuple(
        PlannedTaskPut(
            generation=1,
            task_name=TASKS[number],
            partition_id=number,
            mode="active",
            processor_id="0",
            changelog_partition=number,
            ssp_kbs=(PARTITIONS[number],),
        )
        for number in range(2)
    )
    assert state.grants_sorted == (a_grant(0), a_grant(1))
    assert state.inputs[PARTITIONS[0].ssp.system_stream] == InputPut(
        system_stream=PARTITIONS[0].ssp.system_stream,
        partition_count=2,
        partition_count_first=2,
        topic_id="id-of-kafka.orders",
    )
    assert state.containers_sorted == (
        Container(
            execution_id="e1",
            processor_id="0",
            host="host-a",
            boot_id="boot-a",
            pid=100,
            process_started_ms=5000,
            slot_count=2,
            phase=ContainerPhase.STOPPED,
            format_level=1,
            reason="",
        ),
    )
    assert (state.run, state.factor, state.requests) == (None, None, {})


def test_the_checkpoint_topic_of_release_0_1_0_is_read():
    assert [decode(record, topic="t") for record in records_of("checkpoint")] == [
        CheckpointPut(
            checkpoint=Checkpoint(
                ssp_kb=PARTITIONS[0], offset_next=42, epoch=1, task_name=TASKS[0], execution_id="e1"
            )
        ),
        ProgressPut(progress=Progress(ssp_kb=PARTITIONS[0], offset_next=45, epoch=1, execution_id="e1")),
        CheckpointPut(
            checkpoint=Checkpoint(ssp_kb=PARTITIONS[1], offset_next=7, epoch=2, task_name=TASKS[1], execution_id="e1")
        ),
    ]


def test_a_job_of_release_0_1_0_continues_at_its_positions():
    world = World(
        config=a_config(stores_seen_key_serde="string", stores_seen_msg_serde="json", local_store_dir="/data")
    )
    log = world.log()
    log.take_over()
    log.append_atomically(
        [
            Write(key=record.key, value=record.value, headers=dict(record.headers))
            for record in records_of("coordinator")
        ]
    )
    for record in records_of("checkpoint"):
        decoded = decode(record, topic="t")
        if isinstance(decoded, CheckpointPut):
            world.checkpoints[decoded.checkpoint.ssp_kb] = decoded.checkpoint
        else:
            world.progress[decoded.progress.ssp_kb] = decoded.progress

    service = world.coordinator()
    service.become_leader()
    service.submit(a_submission(config=world.config, partition_counts={"kafka.orders": 2}))
    world.queue.append(a_heartbeat("e2", pid=200))
    service.run_once(0)

    state = service.status().state
    assert [("e2", 3, 2, 45), ("e2", 4, 2, 7)] == [
        (grant.execution_id, grant.epoch, grant.generation, grant.starts[0].offset_next)
        for grant in state.grants_sorted
    ]
    assert (2, ("0",)) == (state.generation.generation, state.generation.processor_ids)
    assert state == replay(world.log().read(), topic="t").state


def test_release_0_1_0_has_not_all_schemas_in_which_this_release_writes():
    """An earlier release refuses this one's records by name, but for a downgraded job.

    See `test_downgrading`; its own stream has the list.
    """
    theirs = {
        decode(record, topic="t").fingerprint
        for record in records_of("coordinator")
        if record.key.startswith(b"schema/")
    }
    missing = {
        json.loads(schema.schema_json)["name"] for schema in schema_records() if schema.fingerprint not in theirs
    }

    assert {"Container", "Generation", "Grant", "Input", "PlannedTask", "Term"} <= missing
    assert missing.isdisjoint({"Checkpoint", "Progress", "Config", "Epoch", "FormatLevel", "JobIdentity"})
