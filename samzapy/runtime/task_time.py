"""Reads what explains the watermark of a task.

These are its clocks, its positions, and the ends of its inputs.
"""

from __future__ import annotations

from confluent_kafka import IsolationLevel

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.reading import beginning_offsets, end_offsets, read_to_end
from samzapy.config import JobConfig
from samzapy.container.start_rules import Positions, read_positions
from samzapy.errors import RejectedError
from samzapy.inspection.time_explanation import InputEnd, TimeExplanation, explain_time
from samzapy.model.clock_entry import STORE, ClockEntry, decoded
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.topics import changelog_topic, checkpoint_topic
from samzapy.runtime.job_address import READ_WAIT_S
from samzapy.stream.changelog import task_entry_key
from samzapy.stream.records import PlannedTaskPut


def time_of_task(connection: KafkaConnection, config: JobConfig, planned: PlannedTaskPut) -> TimeExplanation:
    """The watermark of a task, and what holds it back.

    Raises:
        RejectedError: the job keeps no event time.
        BrokerUnavailableError: no broker answered.
    """
    if not any(store.name == STORE for store in config.stores):
        raise RejectedError(
            f"--time: wanted a job that keeps event time, found that {config.job} declares no timer in event time, no "
            "event_time of a stream, and no end_of_stream"
        )
    topic = checkpoint_topic(config.job)
    first = beginning_offsets(connection, [(topic, 0)], READ_WAIT_S)[topic, 0]
    positions = read_positions(read_to_end(connection, topic, 0, first, deadline_s=READ_WAIT_S), topic=topic)
    places = {ssp_kb: (ssp_kb.ssp.stream, ssp_kb.ssp.partition) for ssp_kb in planned.ssp_kbs}
    stable = end_offsets(connection, places.values(), IsolationLevel.READ_COMMITTED, READ_WAIT_S)
    high = end_offsets(connection, places.values(), IsolationLevel.READ_UNCOMMITTED, READ_WAIT_S)
    ends = {
        str(ssp_kb.ssp): InputEnd(
            offset_next=_offset_next(positions, ssp_kb), offset_stable=stable[place], offset_high=high[place]
        )
        for ssp_kb, place in places.items()
    }
    return explain_time(_entry(connection, config, planned), ends, idle_ms=config.event_time_idle_ms)


def _offset_next(positions: Positions, ssp_kb: SspKeyBucket) -> int:
    """The position of the newest epoch; 0 without any."""
    read = [record for record in (positions.checkpoints.get(ssp_kb), positions.progress.get(ssp_kb)) if record]
    newest = max((record.epoch for record in read), default=0)
    return max((record.offset_next for record in read if record.epoch == newest), default=0)


def _entry(connection: KafkaConnection, config: JobConfig, planned: PlannedTaskPut) -> ClockEntry | None:
    """What the task has committed last; None where it has committed no clocks."""
    topic, partition = changelog_topic(config.job, STORE), planned.changelog_partition
    key = task_entry_key(planned.task_name, b"")
    first = beginning_offsets(connection, [(topic, partition)], READ_WAIT_S)[topic, partition]
    raw: bytes | None = None
    for record in read_to_end(connection, topic, partition, first, deadline_s=READ_WAIT_S):
        if record.key == key:
            raw = record.value
    return None if raw is None else decoded(raw)
