"""The coordinator stream as a Spark DataFrame, for a notebook or `spark-submit`.

```python
import samzapy.audit

history = samzapy.audit.history(spark, job="flights-1", bootstrap_servers="localhost:9092")
history.createOrReplaceTempView("history")
spark.sql("SELECT event, count(*) FROM history GROUP BY event ORDER BY 2 DESC").show()
```

The columns are in `docs/guides/audit.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from os import PathLike
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.reading import PartitionReader
from samzapy.adapters.spark.audit import history_frame
from samzapy.errors import ConfigError
from samzapy.runtime.job_address import JobAddress
from samzapy.runtime.stream_source import StreamSource, source_of_files, source_of_topic
from samzapy.stream.log import LogRecord

__all__ = ["history"]


def history(
    spark: SparkSession,
    *,
    job: str | None = None,
    bootstrap_servers: str | None = None,
    client_properties: Mapping[str, str] | None = None,
    files: Sequence[str | PathLike[str]] = (),
    partitions: int | None = None,
) -> DataFrame:
    """The history of a job's coordinator stream: one row for each record on it.

    Records that are written later are not in it. The same DataFrame gives the same rows each time, as long as
    compaction does not remove them.

    Args:
        job: `<job.name>-<job.id>`, with `bootstrap_servers`, or else
        files: of `samzapy stream export`, to be found under the same path by every worker.
        client_properties: of the Kafka client, for instance `security.protocol`.
        partitions: into how many tasks the reading is divided; by default one, or for a topic as many as there are
            cores.

    Raises:
        ConfigError: neither a job nor files are given, or both.
        RejectedError: there is no such job.
        CorruptRecordError: a file is not of `samzapy stream export`.
    """
    if bool(files) == bool(job and bootstrap_servers):
        raise ConfigError(
            "wanted files=[...], or job='NAME-ID' with bootstrap_servers='HOST:PORT'; found both or neither"
        )
    if files:
        paths = tuple(Path(file).resolve() for file in files)
        with ExitStack() as stack:
            source = source_of_files(paths, stack)
        return _frame(spark, source, _OfFiles(paths), partitions or 1)
    connection = KafkaConnection(bootstrap_servers=str(bootstrap_servers), properties=dict(client_properties or {}))
    source = source_of_topic(JobAddress(job=str(job), connection=connection))
    return _frame(spark, source, _OfTopic(connection, source), partitions or spark.sparkContext.defaultParallelism)


def _frame(spark: SparkSession, source: StreamSource, read: _OfFiles | _OfTopic, partitions: int) -> DataFrame:
    return history_frame(
        spark,
        read,
        topic=source.topic,
        offset_end=source.extent.offset_end,
        whole_from=source.extent.whole_from,
        partitions=partitions,
    )


class _OfTopic:
    """Reads a part of the topic, in a worker."""

    def __init__(self, connection: KafkaConnection, source: StreamSource) -> None:
        self._connection = connection
        self._topic = source.topic
        self._offset_first = source.offset_first

    def __call__(self, offset_from: int, offset_to: int) -> Iterator[LogRecord]:
        with PartitionReader(self._connection, self._topic) as reader:
            yield from reader.read_part(max(offset_from, self._offset_first), offset_to)


class _OfFiles:
    """Reads a part of the files, in a worker."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._paths = paths

    def __call__(self, offset_from: int, offset_to: int) -> Iterator[LogRecord]:
        with ExitStack() as stack:
            for record in source_of_files(self._paths, stack).records():
                if record.offset >= offset_to:
                    return
                if record.offset >= offset_from:
                    yield record
