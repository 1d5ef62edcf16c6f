"""State that passes between virtual tasks on one host, and doubtful state.

The walk at the end checks the law. Factors and hosts change; state is handed over, caught up or rebuilt. Each task
always holds exactly the entries of its own keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samzapy.container.local_state import restore, split_and_merge
from samzapy.container.local_state.restore import RestoreJob, catch_up_or_rebuild, close_cleanly
from samzapy.container.local_state.split_and_merge import Host, Relative, choose, clear_out, inherit, relatives
from samzapy.container.task.changelog_mark import mark_of
from samzapy.model.grant import BucketStart, ChangelogStart, Floor, Grant
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.topics import CHANGELOG_DELETE_RETENTION_MS, changelog_topic
from samzapy.plan.elasticity import key_bucket
from samzapy.plan.task_names import TaskNameParts
from samzapy.stream.changelog import changelog_key, split_changelog_key
from samzapy.testing.builders import a_grant
from samzapy.testing.memory.kafka import MemoryKafka
from samzapy.testing.memory.local_state import MemoryEnvironment, MemoryStateDirectory
from samzapy.testing.memory.process import Crash, CrashAt
from samzapy.testing.memory.topics import MemoryTopics
from unit_tests.fixtures.container_worlds import SSP_KB, a_job, a_position

SSP = SSP_KB.ssp
CONFIG = a_job()
CHANGELOG = changelog_topic(CONFIG.job, "sums")


def task_of(bucket: int, factor: int) -> TaskName:
    return TaskNameParts(base=0, bucket=bucket, factor=factor).name


def of(bucket: int, factor: int, changelog_next: int = 10) -> Relative:
    return Relative(
        task_name=task_of(bucket, factor),
        bucket=bucket,
        factor=factor,
        position=a_position(changelog_next={"sums": changelog_next}),
    )


# --- whose state is taken ---


def test_relatives_are_tasks_of_the_same_base_whose_keys_overlap() -> None:
    here = [
        TaskName(name)
        for name in (
            *("Partition_0", "Partition_0-0-2", "Partition_0-1-2", "Partition_0-1-4", "Partition_0-3-4"),
            *("Partition_1", "Partition_1-1-4", "SystemStreamPartition_kafka.orders.0"),
        )
    ]

    related = relatives([a_grant("Partition_0-1-2"), a_grant("Partition_2")], here)

    assert {"Partition_0-1-2": ["Partition_0", "Partition_0-1-4", "Partition_0-3-4"], "Partition_2": []} == related


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        ([], None),
        # After a split: the parent; after a merge: the children, and not without one of them.
        ([of(0, 1)], {1: "Partition_0"}),
        ([of(1, 4), of(3, 4)], {1: "Partition_0-1-4", 3: "Partition_0-3-4"}),
        ([of(1, 4)], None),
        # The remains of an older factor are behind.
        ([of(0, 1, 5), of(1, 4, 9), of(3, 4, 9)], {1: "Partition_0-1-4", 3: "Partition_0-3-4"}),
        ([of(0, 1, 9), of(1, 4, 5), of(3, 4, 5)], {1: "Partition_0", 3: "Partition_0"}),
        ([of(0, 1, 7), of(1, 4, 9), of(3, 4, 5)], {1: "Partition_0-1-4", 3: "Partition_0"}),
        (
            [of(1, 8), of(5, 8), of(3, 4)],
            {1: "Partition_0-1-8", 5: "Partition_0-5-8", 3: "Partition_0-3-4", 7: "Partition_0-3-4"},
        ),
    ],
)
def test_each_piece_comes_from_the_relative_that_has_read_furthest(
    candidates: list[Relative], expected: dict[int, str] | None
) -> None:
    chosen = choose(1, 2, candidates)

    assert expected == (None if chosen is None else {piece: one.task_name for piece, one in chosen[1].items()})


# --- acts ---


@dataclass(slots=True)
class Grants:
    """Grants of one partition's tasks, as a coordinator gives them.

    `done` is by bucket of factor 16.
    """

    done: list[int]
    epoch: int = 0
    epoch_rewound: int = 0
    FINEST = 16

    def at(self, factor: int, *, counts_after: int = 0) -> list[Grant]:
        grants = []
        for bucket in range(factor):
            self.epoch += 1
            first = min(self.done[bucket::factor])
            floors = [
                Floor(ssp_kb=SspKeyBucket(SSP, piece, self.FINEST), offset_next=self.done[piece])
                for piece in range(bucket, self.FINEST, factor)
                if self.done[piece] > first
            ]
            grants.append(
                Grant(
                    task_name=task_of(bucket, factor),
                    epoch=self.epoch,
                    execution_id=ExecutionId(f"e{self.epoch}"),
                    generation=1,
                    partition_id=0,
                    changelog_partition=0,
                    starts=(
                        BucketStart(
                            ssp_kb=SspKeyBucket(SSP, bucket, factor), offset_next=first, floors=tuple(floors)
                        ),
                    ),
                    counts_after=counts_after,
                    epoch_rewound=self.epoch_rewound,
                )
            )
        return grants

    def rewind(self) -> None:
        """All of them to the first offset."""
        self.epoch += 1
        self.epoch_rewound = self.epoch
        self.done = [0] * self.FINEST


class World:
    """One partition's tasks on hosts whose disks last.

    The state of each key is its last written value.
    """

    def __init__(self) -> None:
        self.kafka = MemoryKafka()
        self.topics = MemoryTopics(self.kafka, CONFIG)
        self.disks: list[dict[str, MemoryStateDirectory]] = [{}, {}]
        self.grants = Grants([0] * Grants.FINEST)
        self.expected: dict[bytes, bytes] = {}
        self.offset = 0
        self.now_ms = 0
        self.factor = 1
        self.granted: list[tuple[int, Grant]] = []
        self.torn: set[int] = set()
        self.crash_points = CrashAt()
        self.scale(1)

    def host(self, number: int) -> Host:
        disks = self.disks[number]

        def state_of(name: str) -> MemoryStateDirectory:
            disk = disks.setdefault(name, MemoryStateDirectory(name))
            disk.crash_points = self.crash_points
            return disk

        return Host(
            config=CONFIG,
            tasks_here=[TaskName(name) for name, disk in sorted(disks.items()) if disk.number],
            state_of=state_of,
            bounds=self.topics.changelog_bounds([("sums", 0)]),
            topic_ids=self.topics.changelog_topic_ids(["sums"]),
            now_ms=self.now_ms,
        )

    def scale(self, factor: int, hosts: Sequence[int] = (0,), *, cleanly: bool = True) -> None:
        """All tasks are released or their processes are gone; then they are granted again."""
        for number, grant in self.granted:
            if cleanly and number not in self.torn:
                close_cleanly(self.disks[number][grant.task_name])
        grants = self.grants.at(factor)
        self.granted = [(hosts[bucket % len(hosts)], grant) for bucket, grant in enumerate(grants)]
        self.factor = factor
        for number in sorted(set(hosts)):
            self.start(number)

    def start(self, number: int) -> None:
        """The acts of a container (`container.state_restore`)."""
        self.torn.discard(number)
        host = self.host(number)
        grants = [grant for on, grant in self.granted if on == number]
        starts = {
            start.ssp_kb: max(start.offset_next, self.reached(grant)) for grant in grants for start in grant.starts
        }
        inherit(grants, starts, host)
        for grant in grants:
            catch_up_or_rebuild(
                host.state_of(grant.task_name),
                RestoreJob(
                    topics=self.topics,
                    bounds=host.own_bounds(grant),
                    topic_ids=host.topic_ids,
                    grant=grant,
                    starts={start.ssp_kb: starts[start.ssp_kb] for start in grant.starts},
                    committed={start.ssp_kb: self.reached(grant) for start in grant.starts},
                    config=CONFIG,
                    now_ms=self.now_ms,
                    write=lambda store, writes: None,
                ),
            ).close()
        clear_out(grants, host)

    def reached(self, grant: Grant) -> int:
        """The checkpoint under this grant: everything below is done in all its buckets."""
        bucket, factor = grant.key_bucket
        return min(self.grants.done[bucket::factor])

    def write(self, key: bytes, value: bytes | None, *, torn: bool = False) -> None:
        """A task's transaction; torn, the process dies between the two commits.

        Kafka's commit comes first, the local one second.
        """
        bucket = key_bucket(key, 0, self.factor)
        number, grant = self.granted[bucket]
        if number in self.torn:
            self.start(number)
        name = changelog_key(key, b"")
        self.kafka.write(CHANGELOG, 0, [(name, value)])
        self.offset += 1
        for piece in range(bucket, Grants.FINEST, self.factor):
            self.grants.done[piece] = self.offset
        self.expected.pop(name, None)
        if value is not None:
            self.expected[name] = value
        if torn:
            self.torn.add(number)
            return
        environment = self.disks[number][grant.task_name].open()
        transaction = environment.begin()
        position = transaction.position()
        assert position is not None and (grant.execution_id, grant.epoch) == (position.execution_id, position.epoch)
        transaction.write("sums", {name: value})
        transaction.set_position(
            replace(
                position,
                offsets_next={str(grant.starts[0].ssp_kb): self.offset},
                changelog_next={"sums": self.kafka.offset_end(CHANGELOG)},
                changelog_last={"sums": mark_of(self.kafka.offset_end(CHANGELOG) - 1, name, value)},
                caught_up_at_ms=self.now_ms,
            )
        )
        transaction.commit()
        environment.close()

    def check(self) -> None:
        for number in sorted(self.torn):
            self.start(number)
        for bucket, (number, grant) in enumerate(self.granted):
            own = {
                key: value
                for key, value in self.expected.items()
                if key_bucket(split_changelog_key(key)[0], 0, self.factor) == bucket
            }
            assert own == self.disks[number][grant.task_name].opened[-1].values("sums")

    @property
    def reads(self) -> list[int]:
        """The offsets from which the changelog was read, each time that it was read.

        A reading of its last record alone does not count.
        """
        offset_last = self.kafka.offset_end(CHANGELOG) - 1
        return [offset for _, _, offset in self.topics.changelog_reads if offset < offset_last]

    def tasks_on(self, number: int) -> list[str]:
        return sorted(name for name, disk in self.disks[number].items() if disk.number)


KEYS = [bytes([letter]) for letter in b"abcdefghijklmnop"]


def a_world() -> World:
    """One task of factor 1, with an entry for each key."""
    world = World()
    for key in KEYS:
        world.write(key, b"1")
    world.topics.changelog_reads.clear()
    return world


@pytest.mark.parametrize("factors", [(2,), (4,), (2, 4), (2, 1), (4, 2, 8, 1)], ids=str)
def test_on_one_host_state_passes_from_file_to_file_and_the_changelog_is_not_read(factors: Sequence[int]) -> None:
    world = a_world()

    for factor in factors:
        world.scale(factor)
        world.check()

    assert [] == world.reads
    # And its parent is gone: the disk holds each entry once.
    assert sorted(task_of(bucket, factors[-1]) for bucket in range(factors[-1])) == world.tasks_on(0)
    assert len(KEYS) == sum(len(disk.contents.entries) for disk in world.disks[0].values())


@pytest.mark.parametrize("factor", [1, 2])
def test_state_that_is_ahead_because_of_a_rewind_is_kept_unchanged(factor: int) -> None:
    world = a_world()

    world.grants.rewind()
    world.scale(factor)

    world.check()
    assert [] == world.reads
    # Behind it a position that is ahead is a doubt again.
    world.write(KEYS[0], b"2")
    world.grants.done = [0] * Grants.FINEST
    world.scale(factor)
    assert [] != world.reads


def test_after_a_merge_only_the_later_writes_of_one_parent_are_caught_up() -> None:
    world = a_world()
    world.scale(2)
    for key in KEYS:
        world.write(key, b"2")
    last = [key for key in KEYS if key_bucket(key, 0, 2) == 0][-1]
    world.write(last, b"3", torn=True)
    world.topics.changelog_reads.clear()

    world.scale(1, cleanly=False)

    world.check()
    # From the position of the first of the two children.
    assert 1 == len(world.reads) and world.reads[0] > len(KEYS)


def test_a_relative_on_another_host_is_of_no_use() -> None:
    world = a_world()
    world.scale(2, hosts=(0, 1))

    world.check()
    assert [0] == world.reads
    # The other half may still be asked for by a container on this host; there is none here.
    assert ["Partition_0", "Partition_0-0-2"] == world.tasks_on(0)
    world.scale(1, hosts=(1,))
    world.check()
    assert [0, 0] == world.reads


def test_two_containers_on_one_host_take_their_parts_of_a_parent_and_the_second_one_removes_it() -> None:
    world = a_world()
    world.disks[1] = world.disks[0]

    world.scale(2, hosts=(0, 1))

    world.check()
    assert [] == world.reads
    assert ["Partition_0-0-2", "Partition_0-1-2"] == world.tasks_on(0)
    world.scale(1, hosts=(1,))
    world.check()
    assert ([], ["Partition_0"]) == (world.reads, world.tasks_on(0))


@pytest.mark.parametrize("at_look", range(2, 8))
def test_all_tasks_keep_their_state_when_another_container_seals_the_relative_meanwhile(at_look: int) -> None:
    world = a_world()
    world.disks[1] = world.disks[0]
    existing, looked = MemoryStateDirectory.existing, list[str]()

    def seal_in_between(directory: MemoryStateDirectory) -> MemoryEnvironment | None:
        looked.append(directory.name)
        if directory.name == "Partition_0" and looked.count("Partition_0") == at_look:
            directory.damage_position(execution_id="")
        return existing(directory)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryStateDirectory, "existing", seal_in_between)
        world.scale(4, hosts=(0, 1))

    world.check()
    assert [] == world.reads


def test_a_late_task_takes_nothing_from_newer_tasks_and_removes_none_of_them() -> None:
    world = a_world()
    late = world.granted[0]
    world.scale(2)
    newer, world.granted = world.granted, [late]
    world.disks[0].pop("Partition_0", None)

    world.start(0)

    assert {"Partition_0", "Partition_0-0-2", "Partition_0-1-2"} == set(world.tasks_on(0))
    for _, grant in newer:
        position = world.disks[0][grant.task_name].contents.position
        assert position is not None and grant.execution_id == position.execution_id


def test_the_remains_of_a_relative_are_removed_when_they_are_too_old_to_be_used() -> None:
    world = a_world()
    world.scale(2, hosts=(0, 1))
    world.now_ms = CHANGELOG_DELETE_RETENTION_MS // 2 + 1

    world.start(0)

    assert ["Partition_0-0-2"] == world.tasks_on(0)


@pytest.mark.parametrize(("minutes", "remains"), [(1, ["Partition_0"]), (11, [])])
def test_the_remains_of_a_relative_are_removed_when_their_time_is_in_the_future(
    minutes: int, remains: list[str]
) -> None:
    world = a_world()
    world.scale(2, hosts=(0, 1))
    world.now_ms -= minutes * 60_000

    world.start(0)

    assert [*remains, "Partition_0-0-2"] == world.tasks_on(0)


def spoil_boot(world: World) -> None:
    # Killed, not closed, and the host was rebooted.
    world.disks[0]["Partition_0"].reboot()


def spoil_age(world: World) -> None:
    world.now_ms = CHANGELOG_DELETE_RETENTION_MS // 2 + 1


def spoil_clock(world: World) -> None:
    world.disks[0]["Partition_0"].damage_position(caught_up_at_ms=world.now_ms + 11 * 60_000)


def spoil_identity(world: World) -> None:
    world.disks[0]["Partition_0"].damage_position(changelog_topic_ids={"sums": "another"})


def spoil_end(world: World) -> None:
    world.disks[0]["Partition_0"].damage_position(changelog_next={"sums": 1000})


def spoil_offset(world: World) -> None:
    world.disks[0]["Partition_0"].damage_position(offsets_next={str(SSP_KB): world.offset + 1})


def spoil_store(world: World) -> None:
    world.disks[0]["Partition_0"].damage_position(changelog_next={})


def spoil_lock(world: World) -> None:
    world.disks[0]["Partition_0"].is_locked = True


@pytest.mark.parametrize(
    "spoil",
    [spoil_boot, spoil_age, spoil_clock, spoil_identity, spoil_end, spoil_offset, spoil_store, spoil_lock],
)
def test_state_in_doubt_is_left_and_the_changelog_is_read(spoil: object) -> None:
    world = a_world()
    world.disks[0]["Partition_0"].contents.entries["sums", changelog_key(b"zz", b"")] = b"nobody wrote this"
    assert callable(spoil)
    spoil(world)

    world.scale(2, cleanly=False)

    assert [0, 0] == world.reads
    for bucket in range(2):
        assert all(
            key != changelog_key(b"zz", b"") for key in world.disks[0][task_of(bucket, 2)].opened[-1].values("sums")
        )


def test_an_heir_reads_the_entries_of_tasks_from_where_the_run_s_changelog_counts() -> None:
    world = a_world()
    config = a_job(stores_rules_msg_serde="json", stores_rules_scope="task")
    topics = MemoryTopics(world.kafka, config)
    rules = changelog_topic(config.job, "rules")
    world.kafka.write(rules, 0, [(changelog_key(b"x", b""), b"1")] * 5)
    (grant,) = [grant for grant in world.grants.at(2) if grant.key_bucket == (0, 2)]
    grant = replace(grant, changelog_starts=(ChangelogStart(store="rules", offset=3),))
    host = replace(
        world.host(0),
        config=config,
        bounds=topics.changelog_bounds([("sums", 0), ("rules", 0)]),
        topic_ids=topics.changelog_topic_ids(["sums", "rules"]),
    )
    world.disks[0][task_of(0, 1)].damage_position(
        changelog_next={"sums": world.kafka.offset_end(CHANGELOG), "rules": 5}, changelog_topic_ids=host.topic_ids
    )

    inherit([grant], {start.ssp_kb: start.offset_next for start in grant.starts}, host)

    position = world.disks[0][grant.task_name].contents.position
    assert position is not None
    assert {"sums": world.kafka.offset_end(CHANGELOG), "rules": 3} == position.changelog_next


def test_state_in_use_is_never_removed() -> None:
    world = a_world()
    world.scale(2)
    parent = MemoryStateDirectory(task_of(0, 1))
    parent.fresh()
    world.disks[0][parent.name] = parent
    parent.is_locked = True

    clear_out([grant for _, grant in world.granted], world.host(0))
    assert 1 == parent.number
    parent.is_locked = False
    clear_out([grant for _, grant in world.granted], world.host(0))
    assert 0 == parent.number


def test_state_of_an_earlier_run_is_not_inherited() -> None:
    world = a_world()
    grants = world.grants.at(2, counts_after=world.grants.epoch)
    world.granted = [(0, grant) for grant in grants]
    world.factor = 2

    world.start(0)

    assert [0, 0] == world.reads


@pytest.mark.parametrize("at_hit", range(1, 9))
@pytest.mark.parametrize("name", ["hand-over", "local-commit"])
@pytest.mark.parametrize("factors", [(2,), (4, 1)], ids=str)
def test_a_start_that_dies_at_any_place_of_it_is_done_again(name: str, at_hit: int, factors: Sequence[int]) -> None:
    world = a_world()
    *before, last = factors
    for factor in before:
        world.scale(factor)
    world.crash_points = CrashAt(name, at_hit)
    try:
        world.scale(last)
    except Crash:
        pass
    else:
        assert at_hit > world.crash_points.hits[name], "it was not reached"
    world.crash_points = CrashAt()
    world.start(0)

    world.check()
    for key in KEYS:
        world.write(key, b"3")
    world.check()


def test_a_worker_that_was_held_up_finds_that_the_state_is_no_longer_its() -> None:
    world = a_world()
    parent = world.disks[0]["Partition_0"]
    kept = parent.open()

    world.scale(2, hosts=(0, 1), cleanly=False)

    position = kept.position
    assert position is not None and "" == position.execution_id


steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(KEYS), st.none() | st.binary(max_size=1), st.booleans()),
        st.tuples(
            st.just("scale"),
            st.sampled_from([1, 2, 4, 8]),
            st.lists(st.integers(0, 1), min_size=1, max_size=4),
            st.booleans(),
        ),
        st.tuples(st.just("lose"), st.integers(0, 1)),
        st.tuples(st.just("reboot"), st.integers(0, 1)),
        st.tuples(st.just("restart"), st.integers(0, 1)),
        st.tuples(st.just("wait"), st.just(CHANGELOG_DELETE_RETENTION_MS // 2 + 1)),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(steps, st.booleans())
def test_after_any_walk_over_factors_and_hosts_each_task_holds_the_entries_of_its_keys(
    walk: list[tuple[object, ...]], is_one_host: bool
) -> None:
    """Two containers, on two hosts or on one."""
    world = World()
    if is_one_host:
        world.disks[1] = world.disks[0]
    for step in walk:
        match step:
            case ("write", bytes() as key, value, bool() as torn):
                assert value is None or isinstance(value, bytes)
                world.write(key, value, torn=torn)
            case ("scale", int() as factor, list() as hosts, bool() as cleanly):
                world.scale(factor, hosts, cleanly=cleanly)
                world.check()
            case ("lose", int() as number):
                world.disks[number].clear()
                world.torn |= {0, 1} if is_one_host else {number}
            case ("reboot", int() as number):
                for other in (0, 1) if is_one_host else (number,):
                    for disk in world.disks[other].values():
                        disk.reboot()
                    world.torn.add(other)
            case ("restart", int() as number):
                world.torn.add(number)
            case ("wait", int() as ms):
                world.now_ms += ms
                world.torn |= {0, 1}
                forget_tombstones(world)
    world.check()


def forget_tombstones(world: World) -> None:
    """The topic after compaction: the latest of each key, without old tombstones."""
    entries = world.kafka._partitions.get((CHANGELOG, 0), [])
    latest = {entry.record.key: entry for entry in entries if entry.record is not None}
    entries[:] = [entry for entry in latest.values() if entry.record is not None and entry.record.value is not None]


def test_the_walk_would_show_state_that_is_older_than_tombstones_last(monkeypatch: pytest.MonkeyPatch) -> None:
    for trusted_ms, is_right in ((CHANGELOG_DELETE_RETENTION_MS, True), (10**15, False)):
        monkeypatch.setattr(split_and_merge, "CHANGELOG_DELETE_RETENTION_MS", trusted_ms)
        monkeypatch.setattr(restore, "CHANGELOG_DELETE_RETENTION_MS", trusted_ms)
        world = a_world()
        # The parent's state stays on the one host; the removals of the other child are not known on it.
        world.scale(2, hosts=(0, 1))
        # But for the key of the record by which the parent's state knows its changelog (`continuity`).
        for key in KEYS[:-1]:
            world.write(key, None)
        world.now_ms += CHANGELOG_DELETE_RETENTION_MS // 2 + 1
        forget_tombstones(world)

        world.scale(4, hosts=(0,))

        if is_right:
            world.check()
        else:
            with pytest.raises(AssertionError):
                world.check()
