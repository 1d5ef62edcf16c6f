"""The examples of task classes send the same messages on Spark and in the kit."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from integration_tests.bad_input.kit import (
    STARTS_WITHIN_S,
    Cluster,
    Message,
    WarmSpark,
    driver,
    entry_counts,
    unique,
    write_job,
)
from samzapy.stream.log import LogRecord
from samzapy.testing.broker import DevBroker
from samzapy.testing.container_broker import ContainerBroker
from samzapy.testing.task_kit import InputMessage, run_task
from samzapy.testing.waiting import wait_until

_EXAMPLES = Path(__file__).parents[1] / "examples"
_DAY, _BEGIN_MS = 86_400_000, 1_700_000_040_000


class Example(NamedTuple):
    """An example, its input, its outputs, and the entries that it has at the end.

    Attributes:
        sends_numbers: whether an output is a `Double`; otherwise it is JSON.
    """

    name: str
    stream: str
    outputs: Sequence[str]
    messages: Sequence[tuple[str, Any, int]]
    entries: Mapping[str, int]
    sends_numbers: bool = False


EXAMPLES = (
    Example(
        "fraud_timer",
        "payments",
        ["alerts"],
        [("a", {"amount": 6000.0}, 0), ("a", {"amount": 5000.0}, 29), ("b", {"amount": 9000.0}, 29)],
        {"spent": 2, "_timers": 2},
        sends_numbers=True,
    ),
    Example(
        "totals_with_ttl",
        "orders",
        ["totals"],
        [("a", {"amount": 1.5}, days * _DAY) for days in (0, 29, 58, 89)],
        {"total": 1, "_timers": 1},
    ),
    Example(
        "per_minute",
        "views",
        ["counts", "late-views"],
        [("a", 1, at_ms) for at_ms in (0, 40_000, 63_000, 58_000, 240_000, 60_000, 400_000)],
        {"minutes": 1, "_timers": 1},
    ),
)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_examples_send_the_same_messages_on_spark_and_in_the_kit(
    broker: DevBroker | ContainerBroker, spark: WarmSpark, tmp_path: Path, example: Example
) -> None:
    cluster, job, job_file = Cluster(broker.bootstrap_servers), unique(example.name), tmp_path / "job.py"
    topics = {name: cluster.topic(name) for name in (example.stream, *example.outputs)}
    text = (_EXAMPLES / f"{example.name}.py").read_text(encoding="utf-8")
    for name, topic in topics.items():
        text = text.replace(f'"kafka.{name}"', f'"kafka.{topic}"')
    write_job(job_file, text, job, cluster)
    cluster.publish(topics[example.stream], *(_record(*message) for message in example.messages))
    wanted = _in_the_kit(example)

    def sent() -> Mapping[str, Sequence[tuple[str, Any]]]:
        return {name: [_read(record, example) for record in cluster.read(topics[name])] for name in example.outputs}

    def has_its_entries() -> bool:
        counted = entry_counts(broker.bootstrap_servers, job)
        return {name: count for name, count in counted.items() if count and name != "_clocks"} == example.entries

    def lacks() -> bool:
        now = sent()
        return any(len(now[name]) < len(messages) for name, messages in wanted.items())

    with driver(job_file, spark) as process:
        wait_until(lambda: not lacks() or process.poll() is not None, STARTS_WITHIN_S, f"{wanted}")
        assert process.poll() is None
        wait_until(has_its_entries, STARTS_WITHIN_S, f"{example.entries}", poll_interval_s=0.5)

    assert wanted == sent()


def _record(key: str, value: Any, at_ms: int) -> Message:
    return Message(key=key.encode(), value=json.dumps(value).encode(), timestamp_ms=_BEGIN_MS + at_ms)


def _read(record: LogRecord, example: Example) -> tuple[str, Any]:
    assert record.key is not None and record.value is not None
    (number,) = struct.unpack(">d", record.value) if example.sends_numbers else (None,)
    return record.key.decode(), json.loads(record.value) if number is None else number


def _in_the_kit(example: Example) -> Mapping[str, Sequence[tuple[str, Any]]]:
    messages = [
        InputMessage(key=key, value=value, timestamp_ms=_BEGIN_MS + at_ms) for key, value, at_ms in example.messages
    ]
    run = run_task(_EXAMPLES / f"{example.name}.py", messages)
    return {
        name: [(sent.key, msgspec.to_builtins(sent.value)) for sent in run.sent_to(name)] for name in example.outputs
    }
