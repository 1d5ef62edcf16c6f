"""A container's reports besides its work.

Its end, those before it, slow messages, the plan in force.
"""

import pytest

from samzapy.container.ports import QueryFailed
from samzapy.errors import TaskError
from samzapy.model.container_end import ContainerEnd
from samzapy.stream.records import ContainerEndPut, RunPut
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
