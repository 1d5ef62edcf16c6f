"""Values with plain defaults: a test names only the fields that it is about.

Each builder takes the fields it is worth varying by name; everything else is one ordinary job: `flights-1`
with the input `kafka.orders` of four partitions and one processor, `0`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from samzapy.config import AcceptedLoss, JobConfig, parse_config
from samzapy.container.task.work_plan import Route, WorkPlan
from samzapy.coordinator.commands import Figures, Heartbeat, InputFound, OwnTopicFound, SubmitJob
from samzapy.coordinator.grant_values import HeldGrant
from samzapy.model.container import Container, ContainerPhase
from samzapy.model.failing import Failing
from samzapy.model.grant import BucketStart, ChangelogStart, Grant
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.launch import Launch, LaunchPhase, LaunchRole
from samzapy.model.slow_message import SlowMessage
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.model.standby_progress import StandbyProgress
from samzapy.model.topic_checks import TopicFound
from samzapy.model.topics import TopicSpec, checkpoint_topic, coordinator_topic, placement_topic
from samzapy.stream.records import FORMAT_LEVEL


def a_config(**properties: str) -> JobConfig:
    """A configuration.

    A property is named with underscores for dots: `a_config(task_inputs="kafka.a")`.

    Two underscores stand for one: `a_config(stores_seen_msg_serde="json", local_store_dir="/data")`.
    """
    defaults = {
        "job.name": "flights",
        "task.inputs": "kafka.orders",
        "systems.kafka.bootstrap.servers": "localhost:9092",
        "systems.kafka.samza.offset.default": "oldest",
    }
    given = {_dotted(name): value for name, value in properties.items()}
    return parse_config(defaults | given)


def _dotted(name: str) -> str:
    return name.replace("__", "\0").replace("_", ".").replace("\0", "_")


def an_ssp(text: str = "kafka.orders.0") -> SystemStreamPartition:
    return SystemStreamPartition.parse(text)


def an_ssp_kb(text: str = "kafka.orders.0:0/1") -> SspKeyBucket:
    return SspKeyBucket.parse(text)


def a_container(
    execution_id: str = "e1",
    *,
    processor_id: str = "0",
    host: str = "host-a",
    boot_id: str = "boot-a",
    pid: int = 100,
    slot_count: int = 2,
    phase: ContainerPhase = ContainerPhase.RUNNING,
    reason: str = "",
) -> Container:
    return Container(
        execution_id=ExecutionId(execution_id),
        processor_id=ProcessorId(processor_id),
        host=host,
        boot_id=boot_id,
        pid=pid,
        process_started_ms=5_000,
        slot_count=slot_count,
        phase=phase,
        format_level=FORMAT_LEVEL,
        reason=reason,
    )


def a_launch(
    execution_id: str = "e1",
    *,
    processor_id: str = "0",
    role: LaunchRole = LaunchRole.ACTIVE,
    phase: LaunchPhase = LaunchPhase.LAUNCHED,
    standby: int = 0,
    host: str = "host-a",
    host_found: str = "",
    wanted_at_ms: int = 0,
    expires_at_ms: int = 120_000,
    failures: int = 0,
    window_began_ms: int = 0,
    uuid: str = "",
) -> Launch:
    return Launch(
        execution_id=ExecutionId(execution_id),
        processor_id=ProcessorId(processor_id),
        role=role,
        phase=phase,
        standby=standby,
        host=host,
        host_found=host_found,
        wanted_at_ms=wanted_at_ms,
        expires_at_ms=expires_at_ms,
        failures=failures,
        window_began_ms=window_began_ms,
        uuid=uuid,
    )


def a_heartbeat(
    execution_id: str = "e1",
    *,
    job: str = "flights-1",
    processor_id: str = "0",
    host: str = "host-a",
    fault_domain: str = "",
    boot_id: str = "boot-a",
    pid: int = 100,
    slot_count: int = 2,
    format_level: int = FORMAT_LEVEL,
    state: ContainerPhase = ContainerPhase.RUNNING,
    stream_offset: int = 0,
    held: Iterable[tuple[str, int]] = (),
    reason: str = "",
    figures: Figures | None = None,
    finished: bool = False,
    accepted_losses: Iterable[AcceptedLoss] = (),
    comes_back: bool = True,
    restart: int = 0,
    warm: StandbyProgress | None = None,
    failing: Failing | None = None,
    exit_code: int = 0,
    step: str = "",
    slow_messages: Iterable[SlowMessage] = (),
    unanswered_ms: int = 0,
    kafka_silent_ms: int = 0,
    received_ms: int = 0,
) -> Heartbeat:
    """A heartbeat of `a_container`; `held` are pairs of task and epoch."""
    return Heartbeat(
        job=job,
        execution_id=ExecutionId(execution_id),
        processor_id=ProcessorId(processor_id),
        host=host,
        fault_domain=fault_domain,
        boot_id=boot_id,
        pid=pid,
        process_started_ms=5_000,
        slot_count=slot_count,
        format_level=format_level,
        state=state,
        stream_offset=stream_offset,
        held=frozenset(HeldGrant(TaskName(task), epoch) for task, epoch in held),
        reason=reason,
        figures=figures if figures is not None else Figures(),
        finished=finished,
        accepted_losses=tuple(accepted_losses),
        comes_back=comes_back,
        restart=restart,
        warm=warm,
        failing=failing,
        exit_code=exit_code,
        step=step,
        slow_messages=tuple(slow_messages),
        unanswered_ms=unanswered_ms,
        kafka_silent_ms=kafka_silent_ms,
        received_ms=received_ms,
    )


def a_grant(
    task_name: str = "SystemStreamPartition_kafka.orders.0",
    *,
    epoch: int = 1,
    execution_id: str = "e1",
    generation: int = 1,
    ssp_kb: str = "kafka.orders.0:0/1",
    offset_next: int = 0,
    counts_after: int = 0,
    changelog_starts: Mapping[str, int] | None = None,
    epoch_rewound: int = 0,
) -> Grant:
    """A grant of one SSPKb. `changelog_starts` by store."""
    return Grant(
        task_name=TaskName(task_name),
        epoch=epoch,
        execution_id=ExecutionId(execution_id),
        generation=generation,
        partition_id=0,
        changelog_partition=0,
        starts=(BucketStart(ssp_kb=SspKeyBucket.parse(ssp_kb), offset_next=offset_next),),
        counts_after=counts_after,
        changelog_starts=tuple(
            ChangelogStart(store=store, offset=offset) for store, offset in sorted((changelog_starts or {}).items())
        ),
        epoch_rewound=epoch_rewound,
    )


def a_submission(
    *,
    config: JobConfig | None = None,
    partition_counts: dict[str, int] | None = None,
    topic_ids: dict[str, str] | None = None,
    cause: str = "submit-1",
) -> SubmitJob:
    """A job as it is handed in. `topic_ids` overrides `id-of-<topic or stream>`."""
    config = config if config is not None else a_config()
    ids = topic_ids or {}
    counts = partition_counts or {}
    return SubmitJob(
        config=config,
        inputs=tuple(
            InputFound(
                system_stream=SystemStream.parse(text),
                partition_count=counts.get(
                    text, 4 if (own := config.intermediate_of(text)) is None else own.partition_count
                ),
                topic_id=ids.get(text, f"id-of-{text}"),
            )
            for text in config.streams_read
        ),
        own_topics=tuple(
            OwnTopicFound(name=name, topic_id=ids.get(name, f"id-of-{name}"), partition_count=1)
            for name in (coordinator_topic(config.job), checkpoint_topic(config.job), placement_topic(config.job))
        )
        + tuple(
            OwnTopicFound(
                name=stream.topic,
                topic_id=ids.get(stream.system_stream, f"id-of-{stream.system_stream}"),
                partition_count=counts.get(stream.system_stream, stream.partition_count),
            )
            for stream in config.intermediates
        ),
        cause=cause,
        actor="operator",
    )


def a_topic_found(
    spec: TopicSpec,
    *,
    topic_id: str | None = None,
    partition_count: int | None = None,
    replication_factor: int = 1,
    settings: Mapping[str, str] | None = None,
) -> TopicFound:
    """A topic as samzapy would have created it on a cluster of so many brokers.

    `settings` override.
    """
    made = {
        "unclean.leader.election.enable": "false",
        "min.insync.replicas": "2" if replication_factor > 2 else "1",
        "max.message.bytes": "1048588",
        **spec.settings,
    }
    return TopicFound(
        name=spec.name,
        topic_id=topic_id or f"id-of-{spec.name}",
        partition_count=spec.partition_count if partition_count is None else partition_count,
        replication_factor=replication_factor,
        settings={**made, **(settings or {})},
    )


def an_input_topic_found(stream: str, partition_count: int, *, topic_id: str | None = None) -> TopicFound:
    """The topic of an input, as the coordinator sees it in the cluster.

    The id is that of `a_submission`.
    """
    return TopicFound(
        name=stream,
        topic_id=topic_id or f"id-of-kafka.{stream}",
        partition_count=partition_count,
        replication_factor=1,
        settings={},
    )


def a_work_plan(*routes: tuple[str, str], slot_count: int = 2) -> WorkPlan:
    """The plan of routes given as (task, SSPKb)."""
    return WorkPlan(
        config=a_config(),
        execution_id=ExecutionId("e1"),
        query_number=1,
        routes=tuple(
            Route(
                ssp_kb=SspKeyBucket.parse(ssp_kb),
                task_name=TaskName(task),
                partition_id=0,
                epoch=1,
                changelog_partition=0,
                environment_dir=task,
            )
            for task, ssp_kb in routes
        ),
        job_file="job.py",
        scratch_dir="/scratch",
        slot_count=slot_count,
        stream_offset=0,
        batch_offsets_max=200_000,
    )
