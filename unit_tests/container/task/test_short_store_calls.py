"""Store calls that read and write in one have the effects and timing of the two."""

from __future__ import annotations

from pathlib import Path

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
