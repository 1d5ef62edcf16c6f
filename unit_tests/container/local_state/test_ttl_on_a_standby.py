"""Entries with a ttl on a standby: an expired one stays away after a take-over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
_STEP_MS = 20
_JOB = f"""
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Bytes)
fired = sz.Stream("kafka.fired", key=sz.String, value=sz.Json())

@sz.task(inputs=[orders], outputs=[fired])
class Task(sz.Task[str, bytes]):
    last = sz.value(sz.Long, default=0, ttl={TTL_MS})

    def process(self, message, out):
        out.send(fired, self.last.get(), key=message.key)
        self.last.set(message.timestamp_ms)
"""


class AStandby:
    """A standby of the task on another host, with a real local store."""

    def __init__(self, task: OneTask, directory: Path, number: int = 1) -> None:
        self._number = number
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
        self._state = StandbyState(task.config, ExecutionId(self.execution_id), ports)

    @property
    def execution_id(self) -> str:
        return f"s{self._number}"

    @property
    def epoch(self) -> int:
        """Of the grant of the task once it is the standby's."""
        return 1 + self._number

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
                grant=a_grant(epoch=self.epoch, execution_id=self.execution_id),
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

    def take_over(self, task: OneTask, offset_next: int) -> None:
        """Run the task here from now on."""
        plan = a_plan(self._config, epoch=self.epoch, execution_id=self.execution_id)
        task.take_over(self.promoted(offset_next), plan)


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

    standby.take_over(task, 2)

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

    standby.take_over(task, 1)
    task.act()

    assert {"last": [], STORE: []} == keys_in(task.environment)
    task.environment.close()


class TtlHistory:
    """A task with standbys, and a model: the value of each key, and when it expires."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.task = OneTask(directory, _JOB)
        self._entries: dict[str, tuple[int, int]] = {}
        self._shown: list[tuple[str, int]] = []
        self._standbys_made = 0
        self._standby = self._another_standby()

    def _another_standby(self) -> AStandby:
        self._standbys_made += 1
        number = self._standbys_made
        return AStandby(self.task, self._directory / f"standby-{number}", number)

    def message(self, key: str) -> None:
        now_ms, number = self.task.wall_ms, 1 + len(self._shown)
        value, expiry_ms = self._entries.get(key, (0, 0))
        self._shown.append((key, value if now_ms < expiry_ms else 0))
        self._entries[key] = number, -(-(now_ms + TTL_MS) // _STEP_MS) * _STEP_MS
        self.task.handle([(key, number)], number - 1)

    def sweep(self) -> None:
        self.task.act()

    def follow(self) -> None:
        self._standby.read_on()

    def take_over(self) -> None:
        self._standby.take_over(self.task, len(self._shown))
        self._standby = self._another_standby()

    def check(self) -> None:
        """Nothing alive was removed, and nothing expired was seen."""
        assert self._shown == self.task.fired()
        alive = {key for key, (_, expiry_ms) in self._entries.items() if self.task.wall_ms < expiry_ms}
        assert alive <= set(keys_in(self.task.environment)["last"])

    def end(self) -> None:
        """Let everything expire."""
        self.task.wall_ms += 10 * TTL_MS
        self.sweep()
        assert {"last": [], STORE: []} == keys_in(self.task.environment)
        self.task.environment.close()


_passes_ms = st.sampled_from([0, 1, _STEP_MS, TTL_MS // 2, TTL_MS - 1, TTL_MS])
_acts = st.one_of(
    st.tuples(_passes_ms, st.just("message"), st.sampled_from("ab")),
    st.tuples(_passes_ms, st.sampled_from(["sweep", "follow", "take_over"])),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_acts, min_size=5, max_size=25))
def test_a_take_over_in_any_order_of_writes_and_sweeps_keeps_live_entries_and_shows_no_expired_one(
    acts: list[tuple[Any, ...]],
) -> None:
    with TemporaryDirectory() as directory:
        history = TtlHistory(Path(directory))
        for passes_ms, name, *arguments in acts:
            history.task.wall_ms += passes_ms
            getattr(history, name)(*arguments)
            history.check()
        history.end()
