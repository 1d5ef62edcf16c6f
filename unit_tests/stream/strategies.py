"""Hypothesis strategies for every record class, as wide as the classes allow."""

from __future__ import annotations

from hypothesis import strategies as st

from samzapy.model.checkpoint import Checkpoint, Progress
from samzapy.model.container import Container, ContainerPhase, ProcessorLocality, TaskLocality
from samzapy.model.grant import BucketStart, ChangelogStart, Floor, Grant
from samzapy.model.job import ExecutionId, ProcessorId, TaskMode, TaskName
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

texts = st.text(st.characters(codec="utf-8"), max_size=40)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
topic_names = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", min_size=1, max_size=60)
longs = st.integers(-(2**63), 2**63 - 1)
counts = st.integers(0, 2**63 - 1)
system_streams = st.builds(SystemStream, st.sampled_from(["kafka", "k-1", "k_2"]), topic_names)
ssps = st.builds(SystemStreamPartition, st.sampled_from(["kafka", "k-1"]), topic_names, st.integers(0, 100_000))


@st.composite
def _ssp_kbs(draw: st.DrawFn) -> SspKeyBucket:
    factor = 2 ** draw(st.integers(0, 8))
    return SspKeyBucket(draw(ssps), draw(st.integers(0, factor - 1)), factor)


# Task names hold topic names, partition numbers, and whatever a grouper of the user's makes of them.
task_names = st.one_of(
    st.builds(lambda ssp: f"SystemStreamPartition_{ssp}", ssps),
    st.builds("Partition_{}-{}-{}".format, counts, counts, counts),
    st.text("abcXYZ019._-:", min_size=1, max_size=40),
).map(TaskName)
ssp_kbs = _ssp_kbs() | st.builds(SspKeyBucket, ssps, st.just(0), st.just(1), task_names)
execution_ids = names.map(ExecutionId)
processor_ids = names.map(ProcessorId)
floors = st.builds(Floor, ssp_kb=ssp_kbs, offset_next=longs)
starts = st.builds(BucketStart, ssp_kb=ssp_kbs, offset_next=longs, floors=st.lists(floors, max_size=3).map(tuple))

records = st.one_of(
    st.builds(SchemaPut, fingerprint=names, schema_json=texts),
    st.builds(FormatLevelPut, level=longs),
    st.builds(JobIdentityPut, job_name=texts, job_id=texts),
    st.builds(
        TermPut,
        term=longs,
        coordinator_id=texts,
        host=texts,
        boot_id=texts,
        pid=longs,
        process_started_ms=longs,
        url=texts,
        started_at_ms=longs,
    ),
    st.builds(ConfigPut, config_key=names, value=texts),
    st.builds(
        InputPut,
        system_stream=system_streams,
        partition_count=longs,
        partition_count_first=longs,
        topic_id=texts,
        expansions=st.lists(
            st.builds(
                Expansion,
                partition_count=longs,
                seen_at_ms=longs,
                settled=st.booleans(),
                ends=st.lists(longs, max_size=3).map(tuple),
                refused=texts,
            ),
            max_size=3,
        ).map(tuple),
    ),
    st.builds(OwnTopicPut, name=topic_names, topic_id=texts, partition_count=longs),
    st.builds(ChangelogPartitionPut, task_name=task_names, partition=longs),
    st.builds(
        PlannedTaskPut,
        generation=counts,
        task_name=task_names,
        partition_id=longs,
        mode=st.sampled_from([mode.value for mode in TaskMode]),
        processor_id=texts.map(ProcessorId),
        changelog_partition=longs,
        ssp_kbs=st.lists(ssp_kbs, max_size=5).map(tuple),
        broadcast_ssps=st.lists(ssps, max_size=3).map(tuple),
    ),
    st.builds(
        GenerationPut,
        generation=longs,
        factor=longs,
        task_count=longs,
        scheme=texts,
        processor_ids=st.lists(processor_ids, max_size=3).map(tuple),
    ),
    st.builds(
        RunPut, run_id=texts, ended=st.booleans(), epoch_before=longs, finished=st.booleans(), counts_after=longs
    ),
    st.builds(InputEndPut, ssp=ssps, run_id=texts, offset_end=longs),
    st.builds(
        ContainerPut,
        container=st.builds(
            Container,
            execution_id=execution_ids,
            processor_id=texts.map(ProcessorId),
            host=texts,
            boot_id=texts,
            pid=longs,
            process_started_ms=longs,
            slot_count=longs,
            phase=st.sampled_from(ContainerPhase),
            format_level=longs,
            reason=texts,
            comes_back=st.booleans(),
        ),
    ),
    st.builds(
        LocalityPut,
        locality=st.builds(ProcessorLocality, processor_id=processor_ids, host=texts, fault_domain=texts),
    ),
    st.builds(
        TaskLocalityPut,
        locality=st.builds(TaskLocality, task_name=task_names, processor_id=processor_ids, host=texts),
    ),
    st.builds(EpochPut, epoch=longs),
    st.builds(
        GrantPut,
        grant=st.builds(
            Grant,
            task_name=task_names,
            epoch=counts,
            execution_id=texts.map(ExecutionId),
            generation=longs,
            partition_id=longs,
            changelog_partition=longs,
            starts=st.lists(starts, max_size=4).map(tuple),
            tick_last=longs,
            counts_after=longs,
            broadcast_parent=texts,
            epoch_rewound=longs,
            changelog_starts=st.lists(st.builds(ChangelogStart, store=texts, offset=longs), max_size=3).map(tuple),
        ),
    ),
    st.builds(
        StartpointPut,
        startpoint=st.builds(Startpoint, ssp_kb=ssp_kbs, offset_next=longs, epoch=longs, uuid=texts),
    ),
    st.builds(LossAcceptedPut, ssp_kb=ssp_kbs, offset_from=longs, offset_to=longs),
    st.builds(
        RequestPut,
        uuid=names,
        offset=longs,
        place=texts,
        action=texts,
        deployment_id=texts,
        processor_id=texts,
        destination_host=texts,
        request_expiry_ms=longs,
        timestamp_ms=longs,
        run_id=texts,
        status_code=st.sampled_from(StatusCode),
        response_message=texts,
        accepted_at_ms=longs,
        decided_at_ms=longs,
        restart=longs,
        arguments=texts,
        answered=st.booleans(),
    ),
    st.builds(
        RequestMemoryPut,
        uuid=names,
        timestamp_ms=longs,
        place=texts,
        run_id=texts,
        status_code=st.sampled_from(StatusCode),
        decided_at_ms=longs,
        phase=st.sampled_from(MemoryPhase),
        offset=longs,
    ),
    st.builds(InboxPut, offset_next=longs, forgotten_timestamp_ms=longs, forgotten_uuid=texts),
    st.builds(RestartPut, processor_id=processor_ids, number=longs, uuid=texts),
    st.builds(PlacedPut, processor_id=processor_ids, execution_id=execution_ids, uuid=texts, left_host=texts),
    st.builds(
        LaunchPut,
        launch=st.builds(
            Launch,
            execution_id=execution_ids,
            processor_id=processor_ids,
            role=st.sampled_from(LaunchRole),
            phase=st.sampled_from(LaunchPhase),
            standby=longs,
            host=texts,
            host_found=texts,
            handle=texts,
            wanted_at_ms=longs,
            expires_at_ms=longs,
            failures=longs,
            window_began_ms=longs,
            uuid=texts,
            reason=texts,
        ),
    ),
    st.builds(ContainerCountPut, count=longs, uuid=texts),
    st.builds(StandbyPut, processor_id=processor_ids, count=longs, uuid=texts),
    st.builds(SuspendedPut, processor_id=processor_ids, execution_id=execution_ids, exit_code=longs, reason=texts),
    st.builds(FactorPut, factor=longs, uuid=texts),
    st.builds(
        CheckpointPut,
        checkpoint=st.builds(
            Checkpoint,
            ssp_kb=ssp_kbs,
            offset_next=longs,
            epoch=longs,
            task_name=texts.map(TaskName),
            execution_id=texts.map(ExecutionId),
        ),
    ),
    st.builds(
        ProgressPut,
        progress=st.builds(
            Progress, ssp_kb=ssp_kbs, offset_next=longs, epoch=longs, execution_id=texts.map(ExecutionId)
        ),
    ),
)
