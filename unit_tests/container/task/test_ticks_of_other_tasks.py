"""A task begins behind the ticks that are done, those of the future too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from samzapy.model.job import TaskName
from samzapy.model.serde import serde_of
from samzapy.model.window_entry import STORE
from samzapy.stream.changelog import task_entry_key
from unit_tests.container.task.test_many_timers import OneTask
from unit_tests.fixtures.container_worlds import TASK

_JOB = """
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Bytes)
fired = sz.Stream("kafka.fired", key=sz.String, value=sz.Json())

@sz.task(inputs=[orders], outputs=[fired], window_ms=10)
class Task(sz.Task[str, bytes]):
    def process(self, message, out):
        pass

    def window(self, tick, out):
        out.send(fired, tick.number, key="tick")
"""
FIRST, SECOND = (TaskName(f"{TASK}-{bucket}-2") for bucket in (0, 1))


@pytest.mark.parametrize(
    ("last_ms", "next_ms"),
    [
        ({}, 60),
        ({TASK: 30}, 40),
        ({TASK: 10, FIRST: 30, SECOND: 30}, 40),
        # A part was stopped before its tick of 30: that of the other part is not done twice.
        ({TASK: 10, FIRST: 20, SECOND: 30}, 40),
        ({FIRST: 30, SECOND: 20}, 40),
        # The clock of another host is ahead.
        ({FIRST: 90, SECOND: 80}, 100),
    ],
)
def test_a_task_does_no_tick_that_a_task_before_it_has_done(
    tmp_path: Path, last_ms: Mapping[TaskName, int], next_ms: int
) -> None:
    task = OneTask(tmp_path, _JOB)
    encode = serde_of("long").encode
    local = task.environment.begin()
    local.write(STORE, {task_entry_key(name, b""): encode(moment_ms) for name, moment_ms in last_ms.items()})
    local.commit()

    ticks = []
    for task.wall_ms in range(55, 110, 5):
        before = len(task.fired())
        task.act()
        ticks += [(task.wall_ms, number * 10) for _, number in task.fired()[before:]]

    # Ticks that were missed are done as one, the newest.
    first_ms = 55 if next_ms < 55 else next_ms
    behind = [moment_ms for moment_ms in range(60, 110, 10) if moment_ms > first_ms]
    assert [(first_ms, first_ms // 10 * 10), *((moment_ms, moment_ms) for moment_ms in behind)] == ticks


def test_a_clock_that_was_ahead_and_is_corrected_is_named_once_for_each_jump(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = OneTask(tmp_path, _JOB)
    moments = [55, 3_600_055, 60, 65, 3_600_059, 3_600_060, 7_200_060, 70, 75]

    named = []
    for task.wall_ms in moments:
        caplog.clear()
        task.runner.begin_batch()
        task.act()
        named.append([record.getMessage() for record in caplog.records])

    assert [60, 70] == [moment_ms for moment_ms, texts in zip(moments, named, strict=True) if texts]
    assert [3_600_050 // 10, 3_600_060 // 10, 7_200_060 // 10] == [number for _, number in task.fired()]
    first, second = (text for texts in named for text in texts)
    assert first.startswith(f"task {TASK}: its last window is of a moment 3599 s ahead of this host's clock")
    assert "check the clocks of the hosts" in first and "7199 s ahead" in second


def test_hosts_whose_clocks_differ_by_less_than_an_interval_are_not_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = OneTask(tmp_path, _JOB)

    for task.wall_ms in (45, 50, 40, 49, 55):
        task.runner.begin_batch()
        task.act()

    assert [] == caplog.records
    assert [5] == [number for _, number in task.fired()]
