"""Golden files: both topics of a job with two partitions at factor 1, a JSON row for each record."""

import json
from pathlib import Path

from samzapy.stream.log import LogRecord
from samzapy.testing.builders import an_ssp_kb

TASKS = ("SystemStreamPartition_kafka.orders.0", "SystemStreamPartition_kafka.orders.1")
PARTITIONS = (an_ssp_kb("kafka.orders.0:0/1"), an_ssp_kb("kafka.orders.1:0/1"))


def golden_rows(name):
    path = Path(__file__).parent.parent / "stream" / "golden" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def log_of(rows, topic):
    return [
        LogRecord(offset=offset, timestamp_ms=0, key=row["key"].encode(), value=bytes.fromhex(row["value"]))
        for offset, row in enumerate(row for row in rows if row["topic"] == topic)
    ]
