"""The line about progress: when it comes, and its numbers."""

import logging

import pytest

from samzapy.container.ports import TopicBounds
from samzapy.container.progress_log import ProgressLine
from samzapy.container.stats import ContainerFigures
from samzapy.testing.builders import a_grant, an_ssp_kb
from samzapy.testing.virtual_clock import VirtualClock


@pytest.fixture
def world(caplog):
    caplog.set_level(logging.INFO)
    clock, figures = VirtualClock(), ContainerFigures()
    return clock, figures, ProgressLine(60_000, clock, figures)


GRANTS = [a_grant(task_name=f"SystemStreamPartition_kafka.orders.{number}") for number in range(2)]


def test_nothing_is_written_before_the_interval_is_over(world, caplog):
    clock, _, line = world
    line.write_if_due(GRANTS)
    clock.advance(59_999)
    line.write_if_due(GRANTS)

    assert [] == caplog.messages


def test_the_line_has_the_records_of_the_interval_and_their_rate(world, caplog):
    clock, figures, line = world
    figures._sums["recordsIn"] = 5
    line.write_if_due(GRANTS)
    for count in (1205, 1205):
        clock.advance(60_000)
        figures._sums["recordsIn"] = count
        line.write_if_due(GRANTS)

    assert [
        "1200 records in 60 s (20/s), 2 tasks, none behind",
        "0 records in 60 s (0/s), 2 tasks, none behind",
    ] == caplog.messages


def test_the_line_names_the_task_that_is_furthest_behind(world, caplog):
    clock, figures, line = world
    (start,) = GRANTS[0].starts
    figures.positions = {start.ssp_kb: 90, an_ssp_kb("kafka.unknown.0:0/1"): 3}
    figures.ends = {start.ssp_kb.ssp: TopicBounds(offset_first=0, offset_end=100)}
    line.write_if_due(GRANTS[:1])
    clock.advance(60_000)
    line.write_if_due(GRANTS[:1])

    assert [
        f"0 records in 60 s (0/s), 1 of 1 tasks behind, most {GRANTS[0].task_name} by 10 offsets"
    ] == caplog.messages


def test_an_interval_of_0_writes_nothing(world, caplog):
    clock, figures, _ = world
    line = ProgressLine(0, clock, figures)
    for _ in range(3):
        line.write_if_due(GRANTS)
        clock.advance(600_000)

    assert [] == caplog.messages
