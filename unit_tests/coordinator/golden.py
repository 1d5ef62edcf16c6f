"""Golden files: both topics of a job with two partitions at factor 1, a JSON row for each record."""

import json
from pathlib import Path

from samzapy.coordinator.replay import replay
from samzapy.stream.codec import decode, headers
from samzapy.stream.log import LogRecord
from samzapy.stream.records import TermPut
from samzapy.testing.builders import an_ssp_kb

TASKS = ("SystemStreamPartition_kafka.orders.0", "SystemStreamPartition_kafka.orders.1")
PARTITIONS = (an_ssp_kb("kafka.orders.0:0/1"), an_ssp_kb("kafka.orders.1:0/1"))


def golden_rows(name):
    path = Path(__file__).parent.parent / "stream" / "golden" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def log_of(rows, topic):
    """With the headers that each release writes on the coordinator stream, and that the files leave out."""
    found, term = [], 1
    for offset, row in enumerate(row for row in rows if row["topic"] == topic):
        record = LogRecord(offset=offset, timestamp_ms=0, key=row["key"].encode(), value=bytes.fromhex(row["value"]))
        if topic == "coordinator":
            fact = decode(record, topic=topic)
            term = fact.term if isinstance(fact, TermPut) else term
            record = record._replace(headers=leaders_headers(offset, term))
        found.append(record)
    return found


def next_headers(records):
    """The headers of the record that the leader of a stream would write next."""
    numbering = replay(records, topic="t").numbering
    return dict(leaders_headers(numbering.seq_next, numbering.term))


def leaders_headers(seq, term=1):
    return tuple(headers(term=term, seq=seq, event="e", cause="c", actor="a").items())
