"""A user's own task, tested without Spark and Kafka."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from samzapy.errors import SamzapyError, TaskError, TaskModuleError
from samzapy.runtime.job_config import load_job
from samzapy.streams import HeadersToSend
from samzapy.testing.job import MemoryJob
from samzapy.testing.task_kit import InputMessage, run_task

TASK = """
import samzapy

@samzapy.task
def count(envelope, collector, context):
    store = context.store("counts")
    seen = (store.get() or 0) + 1
    store.put(seen)
    if envelope.value.get("name"):
        store.put(envelope.offset, "last")
    if envelope.value["delay"] < 0:
        raise ValueError("a negative delay")
    collector.send("totals", {"seen": seen, "of": str(envelope.ssp.system_stream)}, key=envelope.key)
"""
PROPERTIES = """
job.name=flights
task.inputs=kafka.flights,kafka.boats
systems.kafka.bootstrap.servers=localhost:19092
systems.kafka.samza.offset.default=oldest
systems.kafka.samza.key.serde=string
systems.kafka.samza.msg.serde=json
stores.counts.msg.serde=json
stores.counts.key.serde=string
local.store.dir=/var/tmp/samzapy
"""


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    (tmp_path / "flights.properties").write_text(PROPERTIES)
    path = tmp_path / "flights.py"
    path.write_text(TASK)
    return path


def test_outputs_and_state_are_those_of_the_task(job_file: Path) -> None:
    run = run_task(job_file, [("a", {"delay": 4}), ("b", {"delay": 1}), ("a", {"delay": 2, "name": "x"})])

    assert [("a", 1), ("b", 1), ("a", 2)] == [(output.key, output.value["seen"]) for output in run.outputs]
    assert run.outputs == run.sent_to("totals")
    assert {"a": 2, "b": 1, ("a", "last"): 2} == run.state("counts")


def test_messages_of_several_inputs_are_handled_in_the_order_given(job_file: Path) -> None:
    run = run_task(
        job_file,
        [
            ("a", {"delay": 1}),
            InputMessage(key="a", value={"delay": 1}, stream="boats"),
            InputMessage(key="a", value={"delay": 1}, stream="kafka.flights"),
        ],
    )

    assert ["kafka.flights", "kafka.boats", "kafka.flights"] == [output.value["of"] for output in run.outputs]
    assert {"a": 3} == run.state("counts")


def test_a_message_that_fails_is_an_error_that_names_it(job_file: Path) -> None:
    with pytest.raises(TaskError, match=r"offset 1, key b'b'(?s:.*)a negative delay"):
        run_task(job_file, [("a", {"delay": 1}), ("b", {"delay": -1})])


def test_under_the_policy_dead_letter_it_is_sent_there_and_leaves_no_state(job_file: Path) -> None:
    settings = {"task.error.policy": "dead-letter", "task.dead.letter.output": "kafka.failed"}

    run = run_task(job_file, [("b", {"delay": -1}), ("a", {"delay": 1})], settings=settings)

    (letter,) = run.sent_to("failed")
    assert (b"b", b'{"delay": -1}') == (letter.key, letter.value.replace(b'":-', b'": -'))
    assert {"a": 1} == run.state("counts")


def test_mistakes_in_a_test_of_a_task_are_named(job_file: Path) -> None:
    with pytest.raises(TaskError, match=r"wanted an input of the job \(kafka.flights, kafka.boats\), found 'trains'"):
        run_task(job_file, [InputMessage(key="a", value={}, stream="trains")])
    with pytest.raises(TaskError, match=r"wanted a store of the job \(counts\), found 'sums'"):
        run_task(job_file, []).state("sums")
    job_file.write_text("")
    with pytest.raises(TaskModuleError, match="marked with @samzapy.task"):
        run_task(job_file, [])


def test_a_dead_letter_topic_may_have_a_dot_in_its_name(job_file: Path) -> None:
    settings = {"task.error.policy": "dead-letter", "task.dead.letter.output": "kafka.failed.flights"}

    run = run_task(job_file, [("b", {"delay": -1})], settings=settings)

    assert [b"b"] == [letter.key for letter in run.sent_to("failed.flights")]


def test_a_message_without_a_time_has_the_present_and_can_be_passed_on(job_file: Path) -> None:
    job_file.write_text(TASK.replace("key=envelope.key)", "key=envelope.key, timestamp_ms=envelope.timestamp_ms)"))
    messages = [("a", {"delay": 1}), InputMessage(key="a", value={"delay": 1}, after_ms=1000)]

    first, second, third = run_task(
        job_file, [*messages, InputMessage(key="a", value={"delay": 1}, timestamp_ms=7)]
    ).outputs

    assert first.timestamp_ms is not None
    assert time.time() - 60 <= first.timestamp_ms / 1000 <= time.time()
    assert (first.timestamp_ms + 1000, 7) == (second.timestamp_ms, third.timestamp_ms)


@pytest.mark.parametrize("headers", [{"id": b"1", "no": None}, [("id", b"1"), ("no", None)]])
def test_headers_are_given_as_a_mapping_or_as_pairs(job_file: Path, headers: HeadersToSend) -> None:
    job_file.write_text(TASK.replace("key=envelope.key)", "key=envelope.key, headers=envelope.headers)"))

    (sent,) = run_task(job_file, [InputMessage(key="a", value={"delay": 1}, headers=headers)]).outputs

    with MemoryJob(job_file, partitions=1) as job:
        job.send("flights", {"delay": 1}, key="a", headers=headers)
        (sent_by_job,) = job.read("totals")
    assert (("id", b"1"), ("no", None)) == sent.headers == sent_by_job.headers


@pytest.mark.parametrize("headers", [{"id": "1"}, ["id"], {1: b"1"}, 7])
def test_headers_of_a_message_that_are_not_of_text_to_bytes_are_refused(job_file: Path, headers: Any) -> None:
    with pytest.raises(TaskError, match=r"message of kafka.flights: wanted headers"):
        run_task(job_file, [InputMessage(key="a", value={"delay": 1}, headers=headers)])


@pytest.mark.parametrize(
    ("messages", "options", "reason"),
    [
        ([InputMessage(key="a", value={"delay": 1}, after_ms=-1)], {}, "wanted an after_ms of 0 or more"),
        ([], {"advance_ms": -1}, "wanted an advance_ms of 0 or more"),
        ([("a", {"delay": 1}, {"id": b"1"})], {}, "wanted a message as a pair"),
        (["ab"], {}, "wanted a message as a pair"),
        (
            [],
            {"settings": {"task.inputs": "kafka.~[a-z]+"}},
            r"found the pattern kafka.~\[a-z\]\+, which is not in memory",
        ),
    ],
)
def test_a_run_that_would_not_be_as_given_is_refused(
    job_file: Path, messages: Any, options: Any, reason: str
) -> None:
    with pytest.raises(SamzapyError, match=reason):
        run_task(job_file, messages, **options)


_SCOPES = """
import samzapy as sz

words = sz.Stream("kafka.words", key=sz.String, value=sz.String)
rules = sz.Stream("kafka.rules", key=sz.String, value=sz.Long)

@sz.task(inputs=[words], outputs=[], broadcast=[rules])
class Words(sz.Task[str, str]):
    count = sz.counter(scope="task")
    last = sz.list(sz.String, scope="task")
    rule = sz.value(sz.Long, scope="broadcast")

    @rules.each
    def changed(self, message, out):
        self.rule.set(message.value)

    def process(self, message, out):
        self.count.add()
        self.last.append(message.value)
"""


@pytest.fixture
def class_file(tmp_path: Path) -> Path:
    path = tmp_path / "words.py"
    path.write_text(_SCOPES)
    path.with_suffix(".properties").write_text(
        "job.name=words\nsystems.kafka.bootstrap.servers=localhost:1\nlocal.store.dir=/data\n"
    )
    return path


def test_state_of_a_task_is_shown_under_the_name_of_the_task(class_file: Path) -> None:
    run = run_task(class_file, [InputMessage(key="r", value=7, stream="rules"), ("a", "x"), ("b", "y")])

    assert {"Partition 0": 2} == run.state("count")
    assert {"Partition 0": {0: "x", 1: "y"}} == run.state("last")
    assert {"Partition 0": 7} == run.state("rule")


def test_state_of_tasks_of_a_job_is_shown_by_their_names(class_file: Path) -> None:
    with MemoryJob(class_file, partitions=1) as job:
        job.send("words", "x", key="a")

        assert {"SystemStreamPartition_kafka.words.0": {0: "x"}} == job.state("last")


def test_broadcast_state_is_shown_after_a_change_of_the_factor(class_file: Path) -> None:
    # A store of the scope `task` refuses another factor.
    text = class_file.read_text().replace('sz.counter(scope="task")', "sz.counter()")
    class_file.write_text(text.replace('sz.list(sz.String, scope="task")', "sz.list(sz.String)"))
    with MemoryJob(class_file, partitions=1) as job:
        job.send("rules", 7, key="r")
        job.scale(2)
        job.send("rules", 8, key="r")

        shown = job.state("rule")

    assert {8} <= {*shown.values()} <= {7, 8}
    assert all(name.startswith("SystemStreamPartition_kafka.words.0") for name in shown)


_TYPED = """
import uuid
from typing import TypedDict
import samzapy as sz

class Order(sz.Struct):
    amount: int

class Bill(TypedDict):
    id: uuid.UUID

inputs = [
    sz.Stream("kafka.lists", key=sz.String, value=sz.{serde}(list[Order])),
    sz.Stream("kafka.dicts", key=sz.String, value=sz.{serde}(dict[str, Order])),
    sz.Stream("kafka.bills", key=sz.String, value=sz.{serde}(Bill)),
    sz.Stream("kafka.orders", key=sz.String, value=sz.{serde}(Order)),
]
shown = sz.Stream("kafka.shown", key=sz.String, value=sz.String)

@sz.task(inputs=inputs, outputs=[shown])
class Show(sz.Task):
    def process(self, message, out):
        out.send(shown, repr(message.value), key=message.key)
"""


@pytest.mark.parametrize("serde", ["Json", "Msgpack"])
def test_a_value_of_a_stream_is_given_as_its_type_or_as_builtins(class_file: Path, serde: str) -> None:
    class_file.write_text(_TYPED.format(serde=serde))
    order = load_job(class_file, None, [], {})[1].declared.inputs[3].value.type(1)
    bill = {"id": UUID(int=1)}
    given = [
        ("lists", [order]),
        ("lists", [{"amount": 1}]),
        ("dicts", {"x": order}),
        ("bills", bill),
        ("orders", {"amount": 1}),
    ]

    run = run_task(class_file, [InputMessage(key="a", value=value, stream=stream) for stream, value in given])

    shown = ["[Order(amount=1)]"] * 2 + ["{'x': Order(amount=1)}", repr(bill), "Order(amount=1)"]
    assert shown == [output.value for output in run.outputs]
    with MemoryJob(class_file, partitions=1) as job:
        for stream, value in given:
            job.send(stream, value, key="a")
        assert shown == [output.value for output in job.read("shown")]
