"""A coordinator stream to read: a topic, or exported files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from samzapy.adapters.kafka.admin import KafkaAdmin, heard
from samzapy.adapters.kafka.clients import Admin, KafkaConnection
from samzapy.adapters.kafka.reading import beginning_offsets, end_offsets, offsets_at, read_to_end
from samzapy.errors import ConfigError, RejectedError
from samzapy.model.finding import losing_data
from samzapy.model.topic_checks import Cluster, TopicFound, check_topic
from samzapy.model.topics import coordinator_spec, coordinator_topic
from samzapy.runtime.job_address import READ_WAIT_S, JobAddress, no_such_job
from samzapy.stream.audit import time_text
from samzapy.stream.export import ExportHeader, merged, read_export, write_export
from samzapy.stream.horizon import (
    Extent,
    compaction_lag_ms,
    extent_of_topic,
    horizon_ms,
    offset_after_downgrade,
)
from samzapy.stream.log import LogRecord
from samzapy.stream.position import Position, Reading

Bounded = Callable[[Iterator[LogRecord]], Iterator[LogRecord]]
"""Gives the same records, and raises where a reading passes its limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSource:
    """A coordinator stream to read; `records` is called once.

    Attributes:
        offset_first: its first offset.
        looked, cluster: the topic and its cluster, now or at the export.
        connection: None for files.
    """

    topic: str
    extent: Extent
    offset_first: int
    looked: TopicFound
    cluster: Cluster
    records: Callable[[], Iterator[LogRecord]]
    connection: KafkaConnection | None = None

    def is_whole(self, reading: Reading) -> bool:
        """Whether all is known that was true at the moment up to which `reading` has read."""
        return self.extent.is_whole_before(None if reading.next is None else reading.next.offset)


def source_of_topic(address: JobAddress, bounded: Bounded = lambda records: records) -> StreamSource:
    """The stream of a job.

    `bounded` limits each of the two readings, the one here and the one of the caller.

    Raises:
        RejectedError: there is no such job.
        BrokerUnavailableError: no broker answered.
    """
    topic = coordinator_topic(address.job)
    admin = KafkaAdmin(address.connection, deadline_s=READ_WAIT_S)
    admin.check_reachable()
    cluster = admin.cluster()
    looked = heard(lambda: admin.look([topic]).get(topic), lambda seen: not _is_wrong(seen, address.job, cluster))
    if looked is None:
        raise no_such_job(address.job)
    where, asked = (topic, 0), Admin(address.connection)
    now_ms = time.time_ns() // 1_000_000
    first = beginning_offsets(asked, [where], READ_WAIT_S)[where]
    horizon = horizon_ms(now_ms, compaction_lag_ms(looked))
    of_horizon = offsets_at(address.connection, [where], horizon, READ_WAIT_S)[where]
    end = end_offsets(asked, [where], deadline_s=READ_WAIT_S)[where]
    # The horizon of the settings does not hold for records before a downgrade. (They are read twice: reading headers is
    # quick, and most streams have only few records that are younger than the horizon.)
    young = bounded(read_to_end(address.connection, topic, 0, max(first, of_horizon), deadline_s=READ_WAIT_S))
    of_horizon = max(of_horizon, offset_after_downgrade(young))
    return StreamSource(
        topic=topic,
        extent=extent_of_topic(offset_first=first, offset_of_horizon=of_horizon, offset_end=end, now_ms=now_ms),
        offset_first=first,
        looked=looked,
        cluster=cluster,
        records=lambda: bounded(read_to_end(address.connection, topic, 0, first, deadline_s=READ_WAIT_S)),
        connection=address.connection,
    )


def _is_wrong(topic: TopicFound | None, job: str, cluster: Cluster) -> bool:
    return topic is not None and bool(losing_data(check_topic(coordinator_spec(job), topic, cluster)))


def source_of_files(files: Sequence[Path], stack: ExitStack) -> StreamSource:
    """The stream that `files` hold together; they stay open until `stack` is closed.

    Raises:
        ConfigError: one of them cannot be opened.
        CorruptRecordError: one of them is not of `stream export`, or they are of different topics.
    """
    opened = []
    for path in files:
        try:
            opened.append(read_export(stack.enter_context(path.open("rb")), str(path)))
        except OSError as error:
            raise ConfigError(f"--from: wanted a file {path}, found {error.strerror}") from error
    header, records = merged(opened)
    return StreamSource(
        topic=header.topic,
        extent=header.extent,
        offset_first=0,
        looked=header.looked,
        cluster=header.cluster,
        records=lambda: records,
    )


def check_reached(position: Position | None, source: StreamSource, what: str) -> None:
    """Raise RejectedError for a moment that the source has not reached."""
    if position is None:
        return
    end, until_ms = source.extent.offset_end, source.extent.known_until_ms
    if position.offset is not None and position.offset >= end:
        raise RejectedError(f"{what}: wanted offset {position.offset} of {source.topic}, found that it ends at {end}")
    if position.timestamp_ms is not None and position.timestamp_ms > until_ms:
        raise RejectedError(
            f"{what}: wanted {source.topic} at {time_text(position.timestamp_ms)}, found that it is known up to "
            f"{time_text(until_ms)}"
        )


def export_to(file: Path, source: StreamSource) -> int:
    """Write the history to `file`, which is not there; return how many records it has.

    Raises:
        ConfigError: it cannot be written.
    """
    header = ExportHeader(topic=source.topic, extent=source.extent, looked=source.looked, cluster=source.cluster)
    end = source.extent.offset_end
    # The final name never shows half a file.
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as out:
            count = write_export(out, header, takewhile(lambda record: record.offset < end, source.records()))
            out.flush()
            os.fsync(out.fileno())
        part.rename(file)
    except OSError as error:
        raise ConfigError(f"wanted to write {file}, found {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)
    return count
