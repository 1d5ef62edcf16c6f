"""Store calls that read and write in one have the effects and timing of the two."""

from __future__ import annotations

from pathlib import Path

from samzapy.container.task.stores import Store, TimerStore
from samzapy.model.timer_entry import STORE
from samzapy.model.topics import changelog_topic
from unit_tests.container.task.test_many_timers import OneTask

_JOB = """
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Bytes)
fired = sz.Stream("kafka.fired", key=sz.String, value=sz.Json())

@sz.task(inputs=[orders], outputs=[fired])
class Task(sz.Task[str, bytes]):
    count = sz.counter()
    over = sz.timer("processing")

    def process(self, message, out):
        self.over.set(message.timestamp_ms)
        out.send(fired, self.count.add(), key=message.key)

    @over.fires
    def is_over(self, timer, out):
        pass
"""


def test_the_first_read_and_write_of_a_counter_and_of_timers_are_timed_in_each_chunk(tmp_path: Path) -> None:
    task = OneTask(tmp_path, _JOB)

    for first in (0, 3):
        measured = task.handle([(key, 10 + first) for key in "aba"], first).measured

        assert measured is not None and (2, 2) == (measured.gets_timed, measured.puts_timed)
    assert [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("b", 2), ("a", 4)] == task.fired()


def test_a_timer_that_is_set_to_its_moment_again_writes_nothing_in_a_later_chunk_either(tmp_path: Path) -> None:
    task = OneTask(tmp_path, _JOB)
    topic = changelog_topic(task.config.job, STORE)

    task.handle([("a", 10), ("a", 10)])
    task.handle([("b", 10), ("a", 10), ("a", 10)], 2)

    assert 2 == len(task.kafka.committed(topic))


_OF_ALL = """
import samzapy as sz
from samzapy.errors import TaskError

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Bytes)
rates = sz.Stream("kafka.rates", key=sz.String, value=sz.Bytes)
fired = sz.Stream("kafka.fired", key=sz.String, value=sz.Json())

@sz.task(inputs=[orders], broadcast=[rates], outputs=[fired])
class Task(sz.Task[str, bytes]):
    count = sz.counter(scope="broadcast")

    def process(self, message, out):
        try:
            self.count.add()
        except TaskError:
            out.send(fired, "refused", key=message.key)
        else:
            out.send(fired, self.count.get(), key=message.key)
"""
_OF_OWN = _OF_ALL.replace('scope="broadcast"', "").replace("key=message.key", "key=message.key[:1]")


def test_each_add_to_a_counter_of_scope_broadcast_is_refused_in_a_message_of_the_task_s_own(tmp_path: Path) -> None:
    task = OneTask(tmp_path, _OF_ALL)

    task.handle([("a", 10), ("a", 11), ("b", 12)])

    assert [("a", "refused"), ("a", "refused"), ("b", "refused")] == task.fired()


def test_a_counter_whose_entry_would_exceed_a_record_is_refused(tmp_path: Path) -> None:
    task = OneTask(tmp_path, _OF_OWN)
    longest = task.config.record_bytes_max

    task.handle([("a", 10), ("k" * longest, 11), ("k" * longest, 12), ("a", 13)])

    assert [1, "refused", "refused", 2] == [value for _, value in task.fired()]


_FAILS = _JOB.replace("key=message.key)\n", "key=message.key)\n        assert message.timestamp_ms != 11\n")


def test_a_failed_message_leaves_a_counter_unchanged(tmp_path: Path) -> None:
    task = OneTask(tmp_path, _FAILS, "task.error.policy=dead-letter", "task.dead.letter.output=kafka.dead")

    task.handle([("a", 10), ("a", 11), ("a", 11), ("a", 12)])

    assert [("a", 1), ("a", 2)] == task.fired()


def test_a_counter_adds_in_one_call_once_a_read_and_a_write_are_timed(tmp_path: Path) -> None:
    task = OneTask(tmp_path, _JOB)
    stores = task.runner._state.stores

    task.handle([("a", 10)])

    assert Store.add is type(stores["count"]).add
    assert TimerStore.replace is type(stores[STORE]).replace  # type: ignore[attr-defined]
