"""Entries with a ttl on a standby: an expired one stays away after a take-over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from samzapy.adapters.lmdb.store import LmdbEnvironment, LmdbStateDirectory
from samzapy.container.local_state.restore import RestoreJob, catch_up_or_rebuild
from samzapy.container.local_state.standby import StandbyState, WarmPorts
from samzapy.container.orders import WarmTasks
from samzapy.model.job import ExecutionId
from samzapy.model.timer_entry import STORE
from samzapy.testing.builders import a_grant
from samzapy.testing.memory.topics import MemoryChangelogFollower, MemoryTopics
from samzapy.testing.virtual_clock import VirtualClock
from unit_tests.container.task.test_many_timers import OneTask
from unit_tests.fixtures.container_worlds import SSP_KB, a_plan

TTL_MS = 1000
_JOB = f"""
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Bytes)
fired = sz.Stream("kafka.fired", key=sz.String, value=sz.Json())

@sz.task(inputs=[orders], outputs=[fired])
class Task(sz.Task[str, bytes]):
    last = sz.value(sz.Long, default=0, ttl={TTL_MS})

    def process(self, message, out):
        self.last.set(message.timestamp_ms)
"""


class AStandby:
    """A standby of the task on another host, with a real local store."""

    def __init__(self, task: OneTask, directory: Path) -> None:
        self._config = task.config
        self._directory = LmdbStateDirectory(directory, task.config.stores)
        self._clock = VirtualClock()
        self._topics = MemoryTopics(task.kafka, task.config)
        ports = WarmPorts(
            clock=self._clock,
            topics=self._topics,
            changelog_follower=MemoryChangelogFollower(task.kafka, task.config),
            state_of=lambda name: self._directory,
            tasks_here=lambda: [],
        )
        self._state = StandbyState(task.config, ExecutionId("s1"), ports)

    def read_on(self) -> None:
        wanted = WarmTasks(grants=(a_grant(),), task_count=1, with_runner=frozenset(), living=frozenset())
        self._state.look(wanted)
        self._clock.advance(300)
        while self._state.look(wanted):
            pass
        progress = self._state.progress(wanted)
        assert progress.level == 1

    def promoted(self, offset_next: int) -> LmdbEnvironment:
        """Its state, once it is granted the task."""
        self._state.close()
        stores = [store.name for store in self._config.stores]
        bounds = self._topics.changelog_bounds([(store, 0) for store in stores])
        environment = catch_up_or_rebuild(
            self._directory,
            RestoreJob(
                config=self._config,
                topics=self._topics,
                grant=a_grant(epoch=2, execution_id="s1"),
                bounds={store: bounds[store, 0] for store in stores},
                topic_ids=self._topics.changelog_topic_ids(stores),
                starts={SSP_KB: offset_next},
                committed={},
                now_ms=self._clock.wall_ms(),
                write=lambda store, writes: pytest.fail("nothing is to be written"),
            ),
        )
        assert isinstance(environment, LmdbEnvironment)
        return environment


def keys_in(environment: LmdbEnvironment) -> Mapping[str, list[str]]:
    """By store, the message keys that have an entry."""
    local = environment.begin()
    try:
        owners = {store: local.owners(store, b"", 100)[0] for store in ("last", STORE)}
    finally:
        local.abort()
    return {store: [owner.decode() for owner in keys] for store, keys in owners.items()}


def test_a_standby_that_takes_over_lacks_expired_entries_and_lets_the_rest_expire(tmp_path: Path) -> None:
    task = OneTask(tmp_path, _JOB)
    standby = AStandby(task, tmp_path / "standby")
    task.handle([("early", 0)])
    task.wall_ms = TTL_MS // 2
    task.handle([("late", 0)], 1)
    standby.read_on()
    task.wall_ms = TTL_MS + 100
    task.act()
    at_the_active = keys_in(task.environment)
    standby.read_on()

    task.take_over(standby.promoted(2), a_plan(task.config, epoch=2, execution_id="s1"))

    assert {"last": ["late"], STORE: ["late"]} == at_the_active == keys_in(task.environment)
    task.wall_ms = 2 * TTL_MS
    task.act()
    assert {"last": [], STORE: []} == keys_in(task.environment)
    task.environment.close()


def test_an_entry_that_expires_while_its_task_has_no_container_is_removed_after_the_take_over(tmp_path: Path) -> None:
    task = OneTask(tmp_path, _JOB)
    standby = AStandby(task, tmp_path / "standby")
    task.handle([("early", 0)])
    standby.read_on()
    task.wall_ms = 10 * TTL_MS

    task.take_over(standby.promoted(1), a_plan(task.config, epoch=2, execution_id="s1"))
    task.act()

    assert {"last": [], STORE: []} == keys_in(task.environment)
    task.environment.close()
