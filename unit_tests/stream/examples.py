"""One plain instance of each record class: what the golden files hold, and what hostile bytes start from."""

from __future__ import annotations

from typing import get_args

from samzapy.model.checkpoint import Checkpoint, Progress
from samzapy.model.container import Container, ContainerPhase, ProcessorLocality, TaskLocality
from samzapy.model.grant import BucketStart, ChangelogStart, Floor, Grant
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.launch import Launch, LaunchPhase, LaunchRole
from samzapy.model.placement import StatusCode
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.model.startpoint import Startpoint
from samzapy.stream.records import (
    ChangelogPartitionPut,
    CheckpointPut,
    ConfigPut,
    ContainerCountPut,
    ContainerPut,
    EpochPut,
    Expansion,
    FactorPut,
    FormatLevelPut,
    GenerationPut,
    GrantPut,
    InboxPut,
    InputEndPut,
    InputPut,
    JobIdentityPut,
    LaunchPut,
    LocalityPut,
    LossAcceptedPut,
    MemoryPhase,
    OwnTopicPut,
    PlacedPut,
    PlannedTaskPut,
    ProgressPut,
    Record,
    Removed,
    RequestMemoryPut,
    RequestPut,
    RestartPut,
    RunPut,
    SchemaPut,
    StandbyPut,
    StartpointPut,
    SuspendedPut,
    TaskLocalityPut,
    TermPut,
)

RECORD_TYPES = tuple(kind for kind in get_args(Record) if kind is not Removed)

_SSP_KB = SspKeyBucket.parse("kafka.page.views.3:1/4")
_TASK = TaskName("SystemStreamPartition_kafka.page.views.3-1-4")
_EXECUTION = ExecutionId("0-20260101-7f3a")

EXAMPLES: tuple[Record, ...] = (
    SchemaPut(fingerprint="8f5c393f1ad57572", schema_json='"int"'),
    FormatLevelPut(level=1),
    JobIdentityPut(job_name="page-views", job_id="1"),
    TermPut(
        term=7,
        coordinator_id="host-a-4711",
        host="host-a",
        boot_id="b00t",
        pid=4711,
        process_started_ms=123_456,
        version="0.2.0",
        url="http://127.0.0.1:8080",
        started_at_ms=1_767_225_600_000,
    ),
    ConfigPut(config_key="task.inputs", value="kafka.page.views"),
    InputPut(
        system_stream=SystemStream.parse("kafka.page.views"),
        partition_count=2,
        partition_count_first=1,
        topic_id="kqmV1mVwQp6nR2zH3pB8Tw",
        expansions=(
            Expansion(partition_count=4, seen_at_ms=1_767_225_600_000, settled=True, ends=(4711, 12)),
            Expansion(partition_count=5, seen_at_ms=1_767_225_601_000, refused="no multiple"),
        ),
        gone_at_ms=1_767_225_602_000,
        gone_refused="needed",
        period=2,
        epoch_before=41,
    ),
    OwnTopicPut(name="__samzapy-coordinator-page-views-1", topic_id="AAAAAAAAAAAAAAAAAAAAAQ", partition_count=1),
    ChangelogPartitionPut(task_name=TaskName("Partition_3"), partition=3),
    PlannedTaskPut(
        generation=5,
        task_name=_TASK,
        partition_id=13,
        mode="active",
        processor_id=ProcessorId("0"),
        changelog_partition=3,
        ssp_kbs=(_SSP_KB, SspKeyBucket.parse("kafka.clicks.3:1/4")),
        broadcast_ssps=(SystemStreamPartition.parse("kafka.rules.0"),),
    ),
    GenerationPut(
        generation=5,
        factor=4,
        task_count=32,
        scheme="max",
        processor_ids=(ProcessorId("0"), ProcessorId("1")),
    ),
    RunPut(run_id="1767225600000-8f3a1b2c", ended=False, epoch_before=98, finished=True, counts_after=98),
    InputEndPut(ssp=_SSP_KB.ssp, run_id="1767225600000-8f3a1b2c", offset_end=4321),
    ContainerPut(
        container=Container(
            execution_id=_EXECUTION,
            processor_id=ProcessorId("0"),
            host="host-b",
            boot_id="b00t",
            pid=4712,
            process_started_ms=123_789,
            slot_count=2,
            phase=ContainerPhase.LOST,
            format_level=1,
            reason="no heartbeat for 30 s",
        )
    ),
    LocalityPut(locality=ProcessorLocality(processor_id=ProcessorId("0"), host="host-b", fault_domain="rack-1")),
    TaskLocalityPut(locality=TaskLocality(task_name=_TASK, processor_id=ProcessorId("0"), host="host-b")),
    EpochPut(epoch=99),
    GrantPut(
        grant=Grant(
            task_name=_TASK,
            epoch=99,
            execution_id=_EXECUTION,
            generation=5,
            partition_id=7,
            changelog_partition=3,
            starts=(
                BucketStart(
                    ssp_kb=_SSP_KB,
                    offset_next=1000,
                    floors=(Floor(ssp_kb=SspKeyBucket.parse("kafka.page.views.3:5/8"), offset_next=1500),),
                ),
            ),
            tick_last=12,
            counts_after=98,
            broadcast_parent="SystemStreamPartition_kafka.page.views.3-1-2",
            epoch_rewound=97,
            changelog_starts=(ChangelogStart(store="sums", offset=77),),
        )
    ),
    StartpointPut(
        startpoint=Startpoint(ssp_kb=_SSP_KB, offset_next=10, epoch=97, uuid="77b0d30c-d518-4307-9e8e-c8529eb30f04")
    ),
    LossAcceptedPut(ssp_kb=_SSP_KB, offset_from=10, offset_to=20),
    RequestPut(
        uuid="88b0d30c-d518-4307-9e8e-c8529eb30f04",
        offset=17,
        place="samzapy-control-v1.text.json",
        action="restart-query",
        deployment_id="1767225600000-8f3a1b2c",
        processor_id="0",
        destination_host="",
        request_expiry_ms=30_000,
        timestamp_ms=1_767_225_700_000,
        run_id="1767225600000-8f3a1b2c",
        status_code=StatusCode.IN_PROGRESS,
        response_message="processor 0 is to restart its query",
        accepted_at_ms=1_767_225_700_100,
        decided_at_ms=1_767_225_700_200,
        restart=3,
        answered=True,
        arguments='{"factor":"4"}',
    ),
    RequestMemoryPut(
        uuid="88b0d30c-d518-4307-9e8e-c8529eb30f04",
        timestamp_ms=1_767_225_700_000,
        place="samza-place-container-v1.samza.avro",
        run_id="1767225600000-8f3a1b2c",
        status_code=StatusCode.SUCCEEDED,
        decided_at_ms=1_767_225_700_900,
        phase=MemoryPhase.COLLECTED,
        offset=23,
        action="restart-query",
        processor_id="0",
    ),
    InboxPut(
        offset_next=24,
        forgotten_timestamp_ms=1_767_225_600_000,
        forgotten_uuid="11b0d30c-d518-4307-9e8e-c8529eb30f04",
    ),
    RestartPut(processor_id=ProcessorId("0"), number=3, uuid="88b0d30c-d518-4307-9e8e-c8529eb30f04"),
    PlacedPut(
        processor_id=ProcessorId("0"),
        execution_id=_EXECUTION,
        uuid="77b0d30c-d518-4307-9e8e-c8529eb30f04",
        left_host="host-a",
    ),
    LaunchPut(
        launch=Launch(
            execution_id=_EXECUTION,
            processor_id=ProcessorId("0"),
            role=LaunchRole.RESERVE,
            phase=LaunchPhase.STOPPING,
            standby=1,
            host="h1",
            host_found="h2",
            handle="driver-20260101000000-0001",
            wanted_at_ms=1_767_225_600_000,
            expires_at_ms=1_767_225_720_000,
            failures=2,
            window_began_ms=1_767_225_500_000,
            uuid="66b0d30c-d518-4307-9e8e-c8529eb30f04",
            reason="the move is over",
        )
    ),
    ContainerCountPut(count=4, uuid="55b0d30c-d518-4307-9e8e-c8529eb30f04"),
    StandbyPut(processor_id=ProcessorId("0"), count=1, uuid="44b0d30c-d518-4307-9e8e-c8529eb30f04"),
    SuspendedPut(
        processor_id=ProcessorId("0"),
        execution_id=_EXECUTION,
        exit_code=8,
        reason="kafka.page.views.3: offsets 100 to 250 are gone",
    ),
    FactorPut(factor=4, uuid="99b0d30c-d518-4307-9e8e-c8529eb30f04"),
    CheckpointPut(
        checkpoint=Checkpoint(ssp_kb=_SSP_KB, offset_next=1234, epoch=99, task_name=_TASK, execution_id=_EXECUTION)
    ),
    ProgressPut(progress=Progress(ssp_kb=_SSP_KB, offset_next=1300, epoch=99, execution_id=_EXECUTION)),
)
