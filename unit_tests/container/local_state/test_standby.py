from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from samzapy.container.local_state.restore import RestoreJob, catch_up_or_rebuild
from samzapy.container.local_state.standby import StandbyState, WarmPorts
from samzapy.container.orders import WarmTasks
from samzapy.container.task.ports import LocalPosition
from samzapy.errors import BrokerUnavailableError, LostRangeError
from samzapy.model.grant import Grant
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.standby_progress import StandbyProgress
from samzapy.model.topics import CHANGELOG_DELETE_RETENTION_MS, changelog_topic
from samzapy.plan.elasticity import key_bucket
from samzapy.stream.changelog import changelog_key, split_changelog_key, task_entry_key
from samzapy.testing.builders import a_grant
from samzapy.testing.memory.kafka import MemoryKafka
from samzapy.testing.memory.local_state import MemoryEnvironment, MemoryStateDirectory
from samzapy.testing.memory.topics import MemoryChangelogFollower, MemoryTopics
from samzapy.testing.virtual_clock import VirtualClock
from unit_tests.fixtures.container_worlds import a_job, a_position

BASE = "SystemStreamPartition_kafka.orders.0"


def a_task(name: str = BASE, *, epoch: int = 1, ssp_kb: str = "kafka.orders.0:0/1", **changes: Any) -> Grant:
    """The grant of the runner `r1`, on another host."""
    return a_grant(name, epoch=epoch, execution_id="r1", ssp_kb=ssp_kb, **changes)


class AWarmHost:
    """The host of standby `s1`, and the changelog of the runner: a=1, b=2, a=3."""

    def __init__(self, **properties: str) -> None:
        self.config = a_job(**properties)
        self.clock = VirtualClock()
        self.kafka = MemoryKafka()
        self.topics = MemoryTopics(self.kafka, self.config)
        self.changelog_follower = MemoryChangelogFollower(self.kafka, self.config)
        self.disks: dict[str, MemoryStateDirectory] = {}
        self.warming = self.started()
        self.write(("a", b"1"), ("b", b"2"), ("a", b"3"))

    def started(self, execution_id: str = "s1") -> StandbyState:
        ports = WarmPorts(
            clock=self.clock,
            topics=self.topics,
            changelog_follower=self.changelog_follower,
            state_of=self.disk,
            tasks_here=lambda: [TaskName(name) for name, disk in sorted(self.disks.items()) if disk.number],
        )
        return StandbyState(self.config, ExecutionId(execution_id), ports)

    def disk(self, name: str) -> MemoryStateDirectory:
        return self.disks.setdefault(name, MemoryStateDirectory(name))

    def write(self, *entries: tuple[str, bytes | None], store: str = "sums") -> None:
        self.write_raw([(changelog_key(key.encode(), b""), value) for key, value in entries], store)

    def write_raw(self, entries: Sequence[tuple[bytes, bytes | None]], store: str = "sums") -> None:
        self.kafka.write(changelog_topic(self.config.job, store), 0, entries)

    def looks(self, *grants: Grant, **changes: Any) -> StandbyProgress:
        """As long as there is something to do."""
        tasks = warm_tasks(*(grants or (a_task(),)), **changes)
        self.warming.look(tasks)
        self.clock.advance(300)
        while self.warming.look(tasks):
            pass
        return self.warming.progress(tasks)

    def promoted(self, grant: Grant, *, start: int = 0, directory: str | None = None) -> MemoryEnvironment:
        """The acts of its start once it is granted the task."""
        self.warming.close()
        self.topics.changelog_reads.clear()
        stores = [store.name for store in self.config.stores]
        bounds = self.topics.changelog_bounds([(store, 0) for store in stores])
        environment = catch_up_or_rebuild(
            self.disk(directory or grant.task_name),
            RestoreJob(
                topics=self.topics,
                bounds={store: bounds[store, 0] for store in stores},
                topic_ids=self.topics.changelog_topic_ids(stores),
                grant=replace(grant, execution_id=ExecutionId("s1")),
                starts={bucket.ssp_kb: start for bucket in grant.starts},
                committed={},
                config=self.config,
                now_ms=self.clock.wall_ms(),
                write=lambda store, writes: self.write_raw(writes, store),
            ),
        )
        assert isinstance(environment, MemoryEnvironment)
        return environment

    def position(self, **changes: Any) -> LocalPosition:
        return a_position(**({"caught_up_at_ms": self.clock.wall_ms()} | changes))

    def entries(self, name: str = BASE, store: str = "sums") -> dict[str, bytes]:
        contents = self.disk(name).contents.entries
        return {key[1:].decode(): value for (name, key), value in contents.items() if name == store}


def warm_tasks(
    *grants: Grant, count: int | None = None, with_runner: Sequence[str] = (), living: Sequence[str] = ()
) -> WarmTasks:
    return WarmTasks(
        grants=grants,
        task_count=len(grants) if count is None else count,
        with_runner=frozenset(map(TaskName, with_runner)),
        living=frozenset(map(ExecutionId, living)),
    )


def test_the_changelog_is_restored_and_later_records_are_read_on() -> None:
    host = AWarmHost()

    assert StandbyProgress(tasks=1, level=1, lag=0, restored=3, total=3) == host.looks()
    assert {"a": b"3", "b": b"2"} == host.entries()
    host.write(("b", None), ("c", b"9"))
    host.looks()

    assert {"a": b"3", "c": b"9"} == host.entries()
    position = host.disk(BASE).contents.position
    assert position is not None
    assert ("", 1, {}, {"sums": 5}) == (
        position.execution_id,
        position.epoch,
        position.offsets_next,
        position.changelog_next,
    )


def test_a_start_keeps_warm_state_and_reads_from_its_last_record_on() -> None:
    host = AWarmHost()
    host.looks()
    number = host.disk(BASE).number
    host.write(("a", b"4"))

    environment = host.promoted(a_task(epoch=2), start=70)

    assert number == host.disk(BASE).number
    assert [("sums", 0, 2)] == host.topics.changelog_reads
    assert {"a": b"4", "b": b"2"} == host.entries()
    assert environment.position is not None
    assert ("s1", 2, {"kafka.orders.0:0/1": 70}) == (
        environment.position.execution_id,
        environment.position.epoch,
        environment.position.offsets_next,
    )


def test_after_a_rewind_state_is_kept_unchanged() -> None:
    host = AWarmHost()
    host.looks()

    host.promoted(a_task(epoch=3, epoch_rewound=3), start=0)

    assert [("sums", 0, 2)] == host.topics.changelog_reads
    assert {"a": b"3", "b": b"2"} == host.entries()


def test_a_standby_reads_the_changelog_in_parts_with_a_position_each() -> None:
    """A container that restores also reads orders.

    A restore that dies continues where it was.
    """
    host = AWarmHost()
    host.changelog_follower.records_max = 1
    tasks = warm_tasks(a_task())
    host.warming.look(tasks)
    host.clock.advance(300)
    host.warming.look(tasks)
    assert StandbyProgress(tasks=1, level=0, lag=3, restored=0, total=3) == host.warming.progress(tasks)

    host.warming.look(tasks)
    assert StandbyProgress(tasks=1, level=0, lag=2, restored=1, total=3) == host.warming.progress(tasks)
    host.warming = host.started("s2")
    host.changelog_follower.records_max = 100

    assert StandbyProgress(tasks=1, level=1, restored=3, total=3) == host.looks()
    assert {("sums", 0): 0} == host.changelog_follower.assigned[-1]
    assert {"a": b"3", "b": b"2"} == host.entries()


def test_uncommitted_records_are_not_waited_for() -> None:
    host = AWarmHost()
    topic = changelog_topic(host.config.job, "sums")
    host.kafka.init("t")
    host.kafka.begin("t")
    host.kafka.append("t", topic, 0, changelog_key(b"a", b""), b"7", (), None)
    host.write(("b", b"8"))

    assert StandbyProgress(tasks=1, level=0, lag=2, restored=3, total=5) == host.looks()
    assert {"a": b"3", "b": b"2"} == host.entries()
    host.kafka.end("t", committed=True)

    assert 1 == host.looks().level
    assert {"a": b"7", "b": b"8"} == host.entries()


def test_a_standby_stays_level_while_the_active_container_writes() -> None:
    host = AWarmHost()
    host.looks()
    host.kafka.init("t")
    host.kafka.begin("t")
    host.kafka.append("t", changelog_topic(host.config.job, "sums"), 0, changelog_key(b"a", b""), b"7", (), None)

    assert (1, 1) == ((look := host.looks()).level, look.lag)


def test_each_task_takes_its_key_buckets_of_a_shared_partition() -> None:
    host = AWarmHost()
    host.write(*((f"k{number}", b"1") for number in range(20)))
    tasks = [
        a_task(f"{BASE}-{bucket}-2", epoch=bucket + 1, ssp_kb=f"kafka.orders.0:{bucket}/2") for bucket in range(2)
    ]

    assert StandbyProgress(tasks=2, level=2, restored=46, total=46) == host.looks(*tasks)

    for bucket in range(2):
        keys = {key.encode() for key in host.entries(f"{BASE}-{bucket}-2")}
        assert keys
        assert all(key_bucket(key, 0, 2) == bucket for key in keys)
    # Read once for both.
    assert {("sums", 0): 0} == host.changelog_follower.assigned[-1]


def test_one_task_that_is_behind_repeats_nothing_for_its_sibling() -> None:
    host = AWarmHost()
    first = a_task(f"{BASE}-0-2", epoch=1, ssp_kb="kafka.orders.0:0/2")
    second = a_task(f"{BASE}-1-2", epoch=2, ssp_kb="kafka.orders.0:1/2")
    keys = {key_bucket(f"k{number}".encode(), 0, 2): f"k{number}" for number in range(20)}
    host.write((keys[0], b"old"), (keys[1], b"1"))
    host.looks(first)
    host.write((keys[0], b"new"))
    host.looks(first)
    host.changelog_follower.records_max = 4

    tasks = warm_tasks(first, second)
    host.warming.look(tasks)
    host.clock.advance(300)
    host.warming.look(tasks)
    host.warming.look(tasks)

    assert {("sums", 0): 0} == host.changelog_follower.assigned[-1]
    assert b"new" == host.entries(first.task_name)[keys[0]]


@pytest.mark.parametrize("scope", ["task", "broadcast"])
def test_entries_that_belong_to_a_task_are_taken_by_its_name(scope: str) -> None:
    inputs = {"task_broadcast_inputs": "kafka.rules#0"} if scope == "broadcast" else {}
    host = AWarmHost(stores_sums_scope=scope, **inputs)
    host.write_raw([(task_entry_key(BASE, b"x"), b"1"), (task_entry_key("another", b"x"), b"2")])

    host.looks()

    owners = {split_changelog_key(key) for _, key in host.disk(BASE).contents.entries}
    assert {(BASE.encode(), b"\x00x")} == owners


def test_a_plan_with_another_factor_takes_the_state_of_the_parent() -> None:
    host = AWarmHost()
    host.looks()
    host.write(("c", b"5"))
    children = [
        a_task(f"{BASE}-{bucket}-2", epoch=bucket + 2, ssp_kb=f"kafka.orders.0:{bucket}/2") for bucket in range(2)
    ]

    assert 2 == host.looks(*children).level

    # From the parent's last record, not from the beginning of the changelog.
    assert {("sums", 0): 2} == host.changelog_follower.assigned[-1]
    both = {**host.entries(children[0].task_name), **host.entries(children[1].task_name)}
    assert {"a": b"3", "b": b"2", "c": b"5"} == both
    assert 0 == host.disk(BASE).number, "no task needs the parent's any more"
    for child in children:
        host.promoted(replace(child, epoch=child.epoch + 10))
        assert all(offset >= 2 for _, _, offset in host.topics.changelog_reads)


def test_a_new_owner_elsewhere_changes_nothing_of_the_kept_state() -> None:
    host = AWarmHost()
    host.looks()
    host.write(("a", b"4"))

    host.looks(a_task(epoch=9))

    position = host.disk(BASE).contents.position
    assert position is not None
    assert ({"a": b"4", "b": b"2"}, 9, {"sums": 4}) == (host.entries(), position.epoch, position.changelog_next)
    assert {("sums", 0): 2} == host.changelog_follower.assigned[-1]


def test_a_new_run_rebuilds_the_state_from_where_the_changelog_counts() -> None:
    host = AWarmHost()
    host.looks()
    host.write(("z", b"1"))

    host.looks(a_task(epoch=9, counts_after=8, changelog_starts={"sums": 3}))

    assert {"z": b"1"} == host.entries()
    host.promoted(a_task(epoch=10, counts_after=8, changelog_starts={"sums": 3}))
    assert {"z": b"1"} == host.entries()


def test_a_changelog_that_was_made_again_is_noticed() -> None:
    host = AWarmHost()
    host.looks()
    host.kafka.topic_ids["sums"] = "another"
    host.clock.advance(10_000)

    host.looks()
    assert 0 == host.warming.progress(warm_tasks(a_task())).level, "it is looked at again a little later"
    host.clock.advance(5_000)

    assert 1 == host.looks().level
    position = host.disk(BASE).contents.position
    assert position is not None
    assert {"sums": "another"} == position.changelog_topic_ids


def test_local_state_of_an_earlier_life_is_kept() -> None:
    host = AWarmHost()
    before = host.position(execution_id="s0", changelog_next={"sums": 2})
    host.disk(BASE).open().contents.position = before

    host.looks(a_task(epoch=4))

    assert {("sums", 0): 2} == host.changelog_follower.assigned[-1]


@pytest.mark.parametrize(
    "changes",
    [
        {"caught_up_at_ms": 0},
        {"caught_up_at_ms": 2**50},
        {"offsets_next": {"kafka.orders.0:0/1": 99}},
    ],
)
def test_any_doubt_about_warm_state_ends_in_a_rebuild(changes: dict[str, Any]) -> None:
    host = AWarmHost()
    host.disk(BASE).open().contents.position = host.position(**({"changelog_next": {"sums": 2}} | changes))

    host.looks(a_task(epoch=4))

    assert {("sums", 0): 0} == host.changelog_follower.assigned[-1]
    assert {"a": b"3", "b": b"2"} == host.entries()


def test_the_crash_of_the_runner_in_this_directory_leaves_out_nothing() -> None:
    """Its mark and epoch are those of the newest grant.

    Its last local commit may be missing.
    """
    host = AWarmHost()
    host.disk(BASE).open().contents.position = host.position(execution_id="r1", changelog_next={"sums": 1})

    host.looks()

    assert {("sums", 0): 1} == host.changelog_follower.assigned[-1]
    assert {"a": b"3", "b": b"2"} == host.entries()


def test_a_standby_beside_its_active_container_touches_nothing_and_reports_it() -> None:
    host = AWarmHost()

    assert StandbyProgress(tasks=1, level=1, at_hand=1) == host.looks(with_runner=[BASE])

    assert {} == host.disks
    assert [] == host.changelog_follower.assigned or {} == host.changelog_follower.assigned[-1]


def test_a_directory_that_a_living_execution_works_in_is_left_to_it() -> None:
    host = AWarmHost()
    host.disk(BASE).open().contents.position = a_position(execution_id="r1")

    assert StandbyProgress(tasks=1, level=1, at_hand=1) == host.looks(living=["r1"])

    position = host.disk(BASE).contents.position
    assert position is not None
    assert "r1" == position.execution_id


def test_a_living_execution_of_an_older_grant_has_released_the_directory() -> None:
    host = AWarmHost()
    host.disk(BASE).open().contents.position = a_position(execution_id="q1", epoch=1)

    assert StandbyProgress(tasks=1, level=1, restored=3, total=3) == host.looks(a_task(epoch=2), living=["q1"])

    assert {"a": b"3", "b": b"2"} == host.entries()


def test_a_locked_directory_is_in_use() -> None:
    host = AWarmHost()
    host.looks()
    host.warming.close()
    number = host.disk(BASE).number
    host.disk(BASE).is_locked = True

    assert StandbyProgress(tasks=1, level=1, at_hand=1) == host.looks(a_task(epoch=2))

    assert number == host.disk(BASE).number


def test_a_directory_of_a_newer_grant_is_not_rebuilt() -> None:
    host = AWarmHost()
    host.disk(BASE).open().contents.position = a_position(execution_id="r1", epoch=3)
    number = host.disk(BASE).number

    assert 0 == host.looks(a_task(epoch=2)).level

    assert number == host.disk(BASE).number


def test_a_standby_waits_for_another_writer_of_its_directory() -> None:
    host = AWarmHost()
    host.looks()
    host.disk(BASE).damage_position(execution_id="r9", epoch=7)
    host.write(("a", b"4"))

    assert 0 == host.looks().level
    position = host.disk(BASE).contents.position
    assert position is not None
    assert "r9" == position.execution_id
    assert b"3" == host.entries()["a"]


def test_a_task_without_a_grant_is_not_level() -> None:
    host = AWarmHost()

    assert (2, 1) == ((look := host.looks(count=2)).tasks, look.level)


@pytest.mark.parametrize(
    "error", [BrokerUnavailableError("no broker answered"), LostRangeError("records were deleted")]
)
def test_a_failed_step_is_tried_again_a_little_later(error: Exception) -> None:
    host = AWarmHost()
    host.looks()
    host.changelog_follower.fails.append(error)
    host.write(("a", b"4"))

    assert 0 == host.looks().level
    assert 0 == host.looks().level
    host.clock.advance(5_000)

    assert 1 == host.looks().level
    assert b"4" == host.entries()["a"]


def test_records_whose_write_failed_are_read_again() -> None:
    host = AWarmHost()
    host.looks()
    host.write(("a", b"4"))
    (environment,) = [environment for environment in host.disk(BASE).opened if environment.is_open]
    blocking = environment.begin()

    assert 0 == host.looks().level
    blocking.abort()
    host.clock.advance(5_000)
    host.looks()

    assert b"4" == host.entries()["a"]


def test_state_that_was_not_updated_for_too_long_is_rebuilt() -> None:
    host = AWarmHost()
    host.looks()
    number = host.disk(BASE).number
    host.clock.advance(CHANGELOG_DELETE_RETENTION_MS // 2 + 1)

    host.looks()
    host.clock.advance(5_000)
    host.looks()

    assert number + 1 == host.disk(BASE).number


@pytest.mark.parametrize(("minutes", "rebuilds"), [(1, 0), (11, 1)])
def test_state_kept_under_a_clock_that_was_far_ahead_is_rebuilt(minutes: int, rebuilds: int) -> None:
    host = AWarmHost()
    host.looks()
    number = host.disk(BASE).number
    host.clock.jump_wall(-minutes * 60_000)

    host.looks()
    host.clock.advance(5_000)
    host.looks()

    assert number + rebuilds == host.disk(BASE).number


def test_an_idle_changelog_keeps_warm_state_fresh_for_ever() -> None:
    host = AWarmHost()
    host.looks()
    number = host.disk(BASE).number
    for _ in range(4):
        host.clock.advance(CHANGELOG_DELETE_RETENTION_MS // 4)
        assert 1 == host.looks().level

    assert number == host.disk(BASE).number
    host.warming.close()
    assert host.promoted(a_task(epoch=2)).position is not None
    assert [("sums", 0, 2)] == host.topics.changelog_reads


def test_a_clean_end_lets_warm_state_be_used_after_a_reboot() -> None:
    host = AWarmHost()
    host.looks()

    host.warming.end()

    assert host.disk(BASE).contents.is_synced
    assert not any(environment.is_open for environment in host.disk(BASE).opened)
    assert {} == host.changelog_follower.offsets


def test_a_standby_of_a_job_without_stores_is_ready_once_its_tasks_have_owners() -> None:
    host = AWarmHost()
    host.warming = StandbyState(
        replace(host.config, stores=()),
        ExecutionId("s1"),
        WarmPorts(
            clock=host.clock,
            topics=host.topics,
            changelog_follower=host.changelog_follower,
            state_of=host.disk,
            tasks_here=lambda: [],
        ),
    )

    assert StandbyProgress(tasks=2, level=1) == host.looks(count=2)
    assert {} == host.disks


def test_a_standby_is_at_100_percent_only_when_it_is_level() -> None:
    assert 63 == StandbyProgress(tasks=1, restored=63, total=100).percent
    assert 99 == StandbyProgress(tasks=2, level=1, restored=100, total=100).percent
    assert 100 == StandbyProgress(tasks=1, level=1).percent
