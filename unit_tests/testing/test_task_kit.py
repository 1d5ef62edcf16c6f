"""A user's own task, tested without Spark and Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from samzapy.errors import TaskError, TaskModuleError
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
