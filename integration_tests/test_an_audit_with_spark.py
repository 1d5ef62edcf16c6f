"""`samzapy.audit`: the coordinator stream of a topic or a file as a DataFrame.

It runs the example of docs/guides/audit.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import samzapy.audit
from integration_tests.small_job import SmallJob
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.errors import ConfigError
from samzapy.stream.codec import decode, plain_fields, schema_name_of, schemas_by_name
from samzapy.stream.log import LogRecord
from samzapy.stream.records import Removed
from samzapy.testing.broker import DevBroker
from samzapy.testing.waiting import wait_until
from unit_tests.fixtures.audited_stream import TOPIC, a_file, a_life

PAGE = Path(__file__).resolve().parent.parent / "docs" / "guides" / "audit.md"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        # It wins over every setting, and else it is the first python3 there is.
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = _session(tmp_path_factory)
    yield session
    session.stop()


def _session(tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.local.dir", str(tmp_path_factory.mktemp("spark")))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


def check_rows(history: DataFrame, records: list[LogRecord]) -> None:
    """Every record is one row, with its fields only in the struct of its schema."""
    rows = [row.asDict(recursive=True) for row in history.orderBy("offset").collect()]

    assert [record.offset for record in records] == [row["offset"] for row in rows]
    for record, row in zip(records, rows, strict=True):
        fact = decode(record, topic="t")
        kinds = {name: row["value"][name] for name in schemas_by_name() if row["value"] and row["value"][name]}
        assert kinds == ({} if isinstance(fact, Removed) else {schema_name_of(fact): plain_fields(fact)})
        assert (record.key or b"").decode() == row["key"]
        assert dict(record.headers)["event"] == row["event"].encode()
        assert record.timestamp_ms == round(row["timestamp"].timestamp() * 1000)
        assert (row["removed"], row["error"]) == (record.value is None, None)


def test_a_file_is_a_frame_however_it_is_divided(spark: SparkSession, tmp_path: Path) -> None:
    junk = LogRecord(offset=500, timestamp_ms=7, key=b"\xff", value=b"junk")
    life = a_life()
    file = a_file(tmp_path / "life.avro", [*life, junk], whole_from=30)

    history = samzapy.audit.history(spark, files=[file], partitions=3)

    check_rows(history.where("offset < 500"), life)
    (unreadable,) = history.where("error IS NOT NULL").collect()
    assert (500, "\\xff", None) == (unreadable.offset, unreadable.key, unreadable.event)
    assert f"{TOPIC}-0 at offset 500" in unreadable.error
    assert {True, False} == {
        row.latest_value_only for row in history.select("latest_value_only").distinct().collect()
    }
    assert history.where("latest_value_only").agg({"offset": "max"}).first()[0] < 30  # type: ignore[index]  # a row


def test_a_topic_is_a_frame_and_the_example_of_the_page_runs(
    spark: SparkSession, broker: DevBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    with SmallJob(KafkaConnection(bootstrap_servers=broker.bootstrap_servers)) as job:
        job.heartbeat("e1")
        wait_until(lambda: len(job.service.status().state.grants) == 2, 60.0, "two grants")
        records = list(job.service._stream.log.read())
    (example,) = re.findall(
        r"^```python\n(import samzapy\.audit\n.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    example = example.replace("flights-1", job.job).replace("localhost:9092", broker.bootstrap_servers)

    names = {"spark": spark}
    exec(example, names)  # our own page

    check_rows(names["history"], records)  # type: ignore[arg-type]  # made by the example
    assert f"kafka.{job.input}.0"[:15] in capsys.readouterr().out


def test_neither_or_both_is_refused(spark: SparkSession) -> None:
    for arguments in ({}, {"job": "flights-1"}, {"job": "a-1", "bootstrap_servers": "x:1", "files": ["a"]}):
        with pytest.raises(ConfigError):
            samzapy.audit.history(spark, **arguments)  # type: ignore[arg-type]  # on purpose
