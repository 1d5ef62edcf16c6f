"""Local state of tasks that are no more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from samzapy.container.local_state.cleanup import REMOVED_AT_ONCE_MAX, UNUSED_MS
from samzapy.container.ports import BatchDone
from samzapy.model.job import TaskName
from samzapy.stream.records import (
    ContainerPut,
)
from samzapy.testing.builders import a_container
from samzapy.testing.memory.local_state import MemoryStateDirectory
from unit_tests.fixtures.container_worlds import plan_in_force
from unit_tests.fixtures.running_container import (
    AContainer,
    a_batch,
    a_report,
)


def a_host_with_leftovers() -> AContainer:
    """A container of a and b, where c was run long ago."""
    container = AContainer()
    container.stream.records.extend(
        (ContainerPut(container=a_container("e1", processor_id="0")), *plan_in_force(1, a="0", b="0"))
    )
    for name in ("a", "c"):
        container.disks[name] = MemoryStateDirectory(name)
        container.disks[name].fresh().close()
    return container


def test_state_of_a_task_long_gone_is_removed_when_the_query_runs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "samzapy.container")
    container = a_host_with_leftovers()
    left: list[int] = []

    container.run(lambda: left.append(container.disks["c"].number), None, None)

    assert ([1], 0) == (left, container.disks["c"].number)
    assert container.disks["a"].number and container.disks["b"].number
    assert 1 == caplog.text.count("removed local state of tasks that are no more: c")


def test_state_that_was_released_recently_is_removed_by_a_later_look() -> None:
    container = a_host_with_leftovers()
    container.disks["c"].written_at_ms = container.clock.wall_ms()
    removed: list[int] = []

    def after(ms: int) -> Callable[[], BatchDone]:
        def step() -> BatchDone:
            removed.append(container.disks["c"].number)
            container.clock.advance(ms)
            return a_batch(a_report())

        return step

    container.run(None, after(UNUSED_MS - 1000), after(1000), after(3_600_000), after(0))

    # It becomes too old a moment after a look, and the next one comes an hour later.
    assert [1, 1, 1, 0] == removed


def test_of_many_directories_the_next_ones_are_removed_a_minute_later() -> None:
    container = a_host_with_leftovers()
    old_ms = container.disks["c"].written_at_ms
    others = [TaskName(f"d{number:02}") for number in range(REMOVED_AT_ONCE_MAX)]
    for name in others:
        container.disks[name] = MemoryStateDirectory(name)
        container.disks[name].fresh().close()
        container.disks[name].written_at_ms = old_ms
    left: list[int] = []

    def after(ms: int) -> Callable[[], BatchDone]:
        def step() -> BatchDone:
            left.append(sum(container.disks[name].number > 0 for name in ("c", *others)))
            container.clock.advance(ms)
            return a_batch(a_report())

        return step

    container.run(None, after(59_000), after(1000), after(0))

    assert [1, 1, 0] == left


def test_without_a_plan_no_local_state_is_removed() -> None:
    container = AContainer()
    container.disks["c"] = MemoryStateDirectory("c")
    container.disks["c"].fresh().close()

    container.run(None, None)

    assert 1 == container.disks["c"].number
