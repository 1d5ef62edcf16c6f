"""A container's reports besides its work.

Its end, those before it, slow messages, the plan in force.
"""

from dataclasses import replace

import pytest

from samzapy.container.ports import QueryFailed
from samzapy.container.task.so_far import SoFar
from samzapy.errors import FencedError, TaskError, TemporaryError
from samzapy.model.container_end import ContainerEnd
from samzapy.model.task_stats import TaskStats
from samzapy.model.topics import checkpoint_topic
from samzapy.stream.codec import decode
from samzapy.stream.records import ContainerEndPut, ContainerPut, RunPut
from samzapy.stream.unheard_end import encode_unheard_end, unheard_end_of
from samzapy.testing.builders import a_container
from unit_tests.fixtures.running_container import ORDERS_0, AContainer

FORMER = ContainerEnd(processor_id="0", execution_id="e0", host="host-a", exit_code=5, error="E", ended_at_ms=5)


def test_the_last_heartbeat_names_the_message_that_ended_the_container_without_its_key():
    container = AContainer()
    text = f"samzapy.errors.TaskError: task a failed at {ORDERS_0.ssp} offset 3, key b'alice': ValueError: no alice"
    failed = QueryFailed(reason=text, kind=TaskError)

    with pytest.raises(TaskError, match="alice"):
        container.run(failed, failed, failed)

    last = container.heartbeats.sent[-1]
    assert (last.exit_code, last.end.error, last.end.offset) == (7, "ValueError", 3)
    assert (last.end.task_name, last.end.ssp) == ("a", str(ORDERS_0.ssp))
    assert last.end.ended_at_ms == container.clock.wall_ms()
    for content in container.heartbeats.contents:
        assert "alice" not in f"{content.reason} {content.end} {content.failing}"


def test_ends_of_earlier_containers_are_reported_until_the_stream_has_them():
    container = AContainer()
    container.former_ends = [FORMER]
    container.run()
    assert container.heartbeats.sent[-1].former_ends == (FORMER,)

    container = AContainer()
    container.former_ends = [FORMER]
    container.stream.records.append(ContainerEndPut(end=FORMER))
    container.run()
    assert container.heartbeats.sent[-1].former_ends == ()


FAILED = QueryFailed(reason="samzapy.errors.TaskError: the message asked for it", kind=TaskError)


def ends_by_an_error(*, is_answered: bool = False, silence_ms: int = 0, is_registered: bool = True) -> AContainer:
    container = AContainer()
    container.heartbeats.is_answered = is_answered
    container.stream.silence_ms = silence_ms
    if is_registered:
        container.stream.records.append(ContainerPut(container=a_container("e1", processor_id="p", host="host-p")))
    with pytest.raises(TaskError):
        container.run(FAILED, FAILED, FAILED)
    return container


def test_a_container_whose_last_heartbeat_has_no_answer_leaves_its_report_on_the_checkpoint_topic():
    container = ends_by_an_error()

    (left,) = container.progress.unheard_ends
    end = unheard_end_of(decode(left, topic="checkpoints"))
    expected = replace(container.heartbeats.sent[-1].end, processor_id="p", host="host-p")
    assert (end, end.exit_code) == (expected, 7)


@pytest.mark.parametrize("world", [{"is_answered": True}, {"silence_ms": 2000}, {"is_registered": False}])
def test_no_report_is_left_after_an_answer_without_a_broker_or_before_the_registration(world):
    assert ends_by_an_error(**world).progress.unheard_ends == []


def test_a_report_that_cannot_be_left_changes_nothing_about_the_end(caplog):
    container = AContainer()
    container.heartbeats.is_answered = False
    container.stream.records.append(ContainerPut(container=a_container("e1")))
    container.progress.fails = [FencedError("there is a newer owner")]

    with pytest.raises(TaskError):
        container.run(FAILED, FAILED, FAILED)

    assert "the report cannot be kept: there is a newer owner" in caplog.text


def left_by_another(container: AContainer, end: ContainerEnd = FORMER) -> bytes:
    """Puts a report on the checkpoint topic, and returns its key."""
    other = a_container(end.execution_id, processor_id=end.processor_id, host=end.host)
    key, value = encode_unheard_end(other, end)
    container.kafka.write(checkpoint_topic(container.config.job), 0, [(key, value)])
    return key


def test_a_report_on_the_checkpoint_topic_is_reported_until_the_stream_has_it_and_is_then_removed():
    container = AContainer()
    key = left_by_another(container)
    reported = []

    def is_recorded() -> None:
        reported.append(container.heartbeats.contents[-1].former_ends)
        assert container.progress.removed == []
        container.stream.records.append(ContainerEndPut(end=FORMER))

    container.run(None, is_recorded, None, None)

    assert reported == [(FORMER,)]
    assert container.heartbeats.contents[-1].former_ends == ()
    assert container.progress.removed == [(checkpoint_topic(container.config.job), 0, [key])]


def test_a_report_is_removed_later_if_it_cannot_be_removed_now(caplog):
    container = AContainer()
    key = left_by_another(container)
    container.stream.records.append(ContainerEndPut(end=FORMER))
    container.progress.fails = [TemporaryError("no broker")]

    container.run(None, None, None)

    assert "cannot remove reports on ends yet" in caplog.text
    assert [keys for *_, keys in container.progress.removed] == [[key]]


def test_a_heartbeat_has_only_the_newest_of_many_reports():
    container = AContainer()
    many = [replace(FORMER, execution_id=f"e-{number}", processor_id=f"p{number}") for number in range(30)]
    for end in many:
        left_by_another(container, end)

    container.run(None)

    assert container.heartbeats.contents[-1].former_ends == tuple(many[10:])


def test_a_report_that_was_removed_or_cannot_be_read_is_not_reported():
    container = AContainer()
    topic = checkpoint_topic(container.config.job)
    removed = left_by_another(container)
    replaced = left_by_another(container, replace(FORMER, execution_id="e00", processor_id="5"))
    container.kafka.write(topic, 0, [(removed, None), (replaced, b"x"), (b"container/e5", b"not ours")])

    container.run(None)

    assert all(content.former_ends == () for content in container.heartbeats.contents)


def test_a_message_that_a_worker_noted_as_slow_is_reported_with_its_task():
    container = AContainer()
    now_ms = container.clock.boot_ms()
    container.slots.slow = {1: [(0, 42, now_ms - 9000)]}

    container.run()

    reported = [item for content in container.heartbeats.contents for item in content.slow_messages]
    assert {(item.task_name, item.ssp, item.offset) for item in reported} == {("a", ORDERS_0.ssp, 42)}
    assert all(item.for_ms >= 9000 for item in reported)


def test_the_run_and_the_generation_in_force_are_logged_once():
    container = AContainer()
    container.stream.records.append(RunPut(run_id="run", ended=False))
    container.run()
    assert container.in_force == [("run", 0)]


def test_a_cost_that_a_worker_noted_is_in_the_figures_before_its_report():
    container = AContainer()
    container.slots.costs = {1: [SoFar(route=0, elapsed_ns=3_000, stats=TaskStats(busy_ns=2_000))]}

    container.run(*[None] * 3)

    newest = container.heartbeats.contents[-1].figures
    assert (3_000, 2_000) == (newest["batchNs"], newest["tasks"]["a"]["busyNs"])
