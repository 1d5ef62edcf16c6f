from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.config.keys import FACTORS
from samzapy.container.local_state import restore
from samzapy.container.local_state.restore import (
    RestoreJob,
    RestorePlan,
    catch_up_or_rebuild,
    close_cleanly,
    local_position,
    plan_restore,
    sizes_in,
)
from samzapy.container.ports import TopicBounds
from samzapy.container.task.changelog_mark import mark_of
from samzapy.container.task.ports import LocalPosition
from samzapy.errors import DamagedStateError, LostRangeError, TemporaryError
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.store_size import StoreSize
from samzapy.model.topics import CHANGELOG_DELETE_RETENTION_MS, changelog_topic
from samzapy.plan.elasticity import key_bucket
from samzapy.stream.changelog import changelog_key, copy_mark_key, split_changelog_key, task_entry_key
from samzapy.testing.builders import a_grant
from samzapy.testing.memory.kafka import MemoryKafka
from samzapy.testing.memory.local_state import MemoryEnvironment, MemoryLocalTransaction, MemoryStateDirectory
from samzapy.testing.memory.process import Crash, CrashAt
from samzapy.testing.memory.topics import MemoryTopics
from unit_tests.fixtures.container_worlds import SSP_KB, a_job, a_position

RETENTION_MS = 1000
MINUTE_MS = 60_000


def planned(position: Any, **changes: Any) -> RestorePlan:
    """Local state at offset 10, changelog read up to 20 of 5 to 30; all is well."""
    grant = a_grant(epoch=7, execution_id="e7", **{name: changes.pop(name) for name in OF_GRANT & changes.keys()})
    given: dict[str, Any] = {
        "grant": grant,
        "starts": {SSP_KB: 10},
        "committed": {SSP_KB: 10},
        "changelogs": {"sums": TopicBounds(offset_first=5, offset_end=30)},
        "topic_ids": {"sums": "id-of-sums"},
        "now_ms": 500,
        "retention_ms": RETENTION_MS,
    }
    return plan_restore(position, **(given | changes))


OF_GRANT = {"counts_after", "changelog_starts", "epoch_rewound"}
LEVEL = a_position(offsets_next={str(SSP_KB): 10}, changelog_next={"sums": 20})


# --- the decision ---


def test_local_state_without_a_doubt_is_caught_up_from_its_position() -> None:
    assert RestorePlan(rebuild_reason=None, changelog_from={"sums": 20}) == planned(LEVEL)


@pytest.mark.parametrize(
    ("position", "changes", "reason"),
    [
        (None, {}, "no local state"),
        (LEVEL, {"now_ms": 501}, "last caught up longer ago than half of the changelog's tombstone retention"),
        (
            replace(LEVEL, caught_up_at_ms=500 + 11 * MINUTE_MS),
            {},
            "last caught up 11 minutes in the future: the clock of this host was or is wrong",
        ),
        (LEVEL, {"starts": {SSP_KB: 9}}, "local state is ahead of the start: kafka.orders.0:0/1 at 10, start 9"),
        (
            LEVEL,
            {"starts": {SSP_KB: 9}, "epoch_rewound": 1},
            "local state is ahead of the start: kafka.orders.0:0/1 at 10, start 9",
        ),
        (replace(LEVEL, changelog_next={}), {}, "store sums is new"),
        (LEVEL, {"topic_ids": {"sums": "another"}}, "the changelog of store sums was deleted and made again"),
        (
            LEVEL,
            {"changelogs": {"sums": TopicBounds(offset_first=5, offset_end=19)}},
            "the changelog of store sums ends before the position of local state",
        ),
        (
            LEVEL,
            {"changelogs": {"sums": TopicBounds(offset_first=21, offset_end=30)}},
            "the changelog of store sums begins after the position of local state",
        ),
    ],
)
def test_each_doubt_is_a_reason_to_rebuild(position: Any, changes: dict[str, Any], reason: str) -> None:
    plan = planned(position, **changes)

    first = changes.get("changelogs", {"sums": TopicBounds(offset_first=5, offset_end=0)})["sums"].offset_first
    assert RestorePlan(rebuild_reason=reason, changelog_from={"sums": first}) == plan


@pytest.mark.parametrize(
    ("position", "changes"),
    [
        (LEVEL, {"now_ms": 500}),
        (replace(LEVEL, caught_up_at_ms=500 + MINUTE_MS), {}),
        (LEVEL, {"starts": {SSP_KB: 11}}),
        # Before a rewind it was that far.
        (LEVEL, {"starts": {SSP_KB: 9}, "epoch_rewound": 2}),
        (replace(LEVEL, offsets_next={}), {}),
        (LEVEL, {"changelogs": {"sums": TopicBounds(offset_first=20, offset_end=20)}}),
        (replace(LEVEL, changelog_next={"sums": 20, "gone": 5}), {}),
        (replace(LEVEL, execution_id="e0", epoch=0), {}),
    ],
)
def test_state_without_a_doubt_is_kept(position: Any, changes: dict[str, Any]) -> None:
    assert RestorePlan(rebuild_reason=None, changelog_from={"sums": 20}) == planned(position, **changes)


def test_where_nothing_of_this_grant_is_missing_the_changelog_is_not_read() -> None:
    """Siblings may have written to it for hours.

    A change of one task restarts the query of all.
    """
    own = replace(LEVEL, execution_id="e7", epoch=7)

    level = RestorePlan(rebuild_reason=None, changelog_from={"sums": 30})
    assert level == planned(own) == planned(own, committed={})
    # Its last message was not the last of the batch: how far that was read is progress, and no transaction.
    assert level == planned(own, starts={SSP_KB: 50})


@pytest.mark.parametrize(
    ("position", "changes"),
    [
        ({"epoch": 6}, {}),
        ({"execution_id": "e6"}, {}),
        ({"offsets_next": {str(SSP_KB): 9}}, {}),
        ({"offsets_next": {}}, {}),
        ({}, {"committed": {SSP_KB: 11}}),
        ({}, {"committed": {SSP_KB: 10, SspKeyBucket.parse("kafka.refunds.0:0/1"): 3}}),
    ],
)
def test_state_without_the_last_transaction_is_caught_up(position: dict[str, Any], changes: dict[str, Any]) -> None:
    own = replace(LEVEL, **({"execution_id": "e7", "epoch": 7} | position))

    assert {"sums": 20} == planned(own, **changes).changelog_from


# --- acts ---


class Restoring:
    """A task's directory and its changelog of four records: a=1, b=2, a=3, b removed."""

    def __init__(self) -> None:
        self.config = a_job()
        self.kafka = MemoryKafka()
        self.topics = MemoryTopics(self.kafka, self.config)
        self.directory = MemoryStateDirectory()
        self.removed: list[list[str]] = []
        # The number of records read, and of all records.
        self.progress_reports: list[tuple[int, int]] = []
        self.write(("a", b"1"), ("b", b"2"), ("a", b"3"), ("b", None))

    def write(self, *entries: tuple[str, bytes | None]) -> None:
        topic = changelog_topic(self.config.job, "sums")
        self.kafka.write(topic, 0, [(changelog_key(key.encode(), b""), value) for key, value in entries])

    def restore(
        self,
        *,
        epoch: int = 7,
        start: int = 10,
        now_ms: int = 500,
        counts_after: int = 0,
        begin: int | None = None,
        bucket: tuple[int, int] = (0, 1),
        directory: MemoryStateDirectory | None = None,
    ) -> MemoryEnvironment:
        stores = [store.name for store in self.config.stores]
        bounds = self.topics.changelog_bounds([(store, 0) for store in stores])
        ssp_kb = SspKeyBucket(SSP_KB.ssp, *bucket)
        environment = catch_up_or_rebuild(
            self.directory if directory is None else directory,
            RestoreJob(
                topics=self.topics,
                bounds={store: bounds[store, 0] for store in stores},
                topic_ids=self.topics.changelog_topic_ids(stores),
                grant=a_grant(
                    epoch=epoch,
                    execution_id="e7",
                    ssp_kb=str(ssp_kb),
                    counts_after=counts_after,
                    changelog_starts={} if begin is None else {"sums": begin},
                ),
                starts={ssp_kb: start},
                committed={ssp_kb: start},
                config=self.config,
                now_ms=now_ms,
                write=lambda store, writes: self.remove(store, [key for key, _ in writes]),
                on_read=lambda read, to_read: self.progress_reports.append((read, to_read)),
            ),
        )
        assert isinstance(environment, MemoryEnvironment)
        return environment

    def remove(self, store: str, keys: Sequence[bytes]) -> None:
        assert "sums" == store
        self.removed.append([key[1:].decode() for key in keys])
        self.write(*((key[1:].decode(), None) for key in keys))

    @property
    def entries(self) -> dict[str, bytes]:
        return {key[1:].decode(): value for key, value in self.directory.opened[-1].values("sums").items()}


def test_a_restore_reports_the_progress_of_all_its_changelogs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "_RECORDS_PER_COMMIT", 3)
    world = Restoring()
    world.config = a_job(stores_seen_msg_serde="json")
    world.topics = MemoryTopics(world.kafka, world.config)
    world.kafka.write(changelog_topic(world.config.job, "seen"), 0, [(changelog_key(b"a", b""), b"1")] * 5)

    world.restore().close()
    world.write(("c", b"4"))
    world.restore(epoch=8).close()

    assert [(0, 9), (3, 9), (5, 9), (8, 9), (9, 9)] == world.progress_reports[:5]
    # With the last record of the store that local state contains.
    assert [(0, 3), (1, 3), (3, 3)] == world.progress_reports[5:]


def test_large_entries_are_taken_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "_CHUNK_BYTES", 100)
    world = Restoring()
    world.write(*((name, bytes(40)) for name in "defgh"))

    world.restore().close()

    # Behind four small ones of before, three of these are enough.
    assert [(0, 9), (7, 9), (9, 9)] == world.progress_reports
    assert set("adefgh") == set(world.entries)


def test_an_empty_directory_is_built_from_the_whole_changelog_and_is_this_grant_s() -> None:
    world = Restoring()

    environment = world.restore()

    assert {"a": b"3"} == world.entries
    assert (
        a_position(
            execution_id="e7",
            epoch=7,
            offsets_next={str(SSP_KB): 10},
            changelog_next={"sums": 4},
            caught_up_at_ms=500,
            changelog_last={"sums": mark_of(3, changelog_key(b"b", b""), None)},
        )
        == environment.position
    )
    assert environment.is_open


def test_catching_up_reads_the_new_records_and_the_one_before_them() -> None:
    world = Restoring()
    world.restore().close()
    world.write(("c", b"9"), ("a", None))

    environment = world.restore(epoch=8, start=20)

    assert {"c": b"9"} == world.entries
    assert [("sums", 0, 0), ("sums", 0, 3)] == world.topics.changelog_reads
    assert environment.position is not None and 8 == environment.position.epoch


class Overtaken:
    """`reads` of a container that was given up while it read.

    At its first report another container on the host is granted the task.
    """

    def __init__(self, world: Restoring, **other: Any) -> None:
        self.world, self.other = world, other
        self.entries: dict[str, bytes] = {}
        self.is_done = False

    def append(self, entry: tuple[int, int]) -> None:
        if self.is_done or entry == (0, entry[1]):
            return
        self.is_done = True
        self.world.write(("c", b"new"), ("d", None))
        self.world.restore(**self.other).close()
        self.entries = self.world.entries


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_restore_that_was_overtaken_writes_nothing_more_into_the_state_of_another_grant(
    monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    monkeypatch.setattr(restore, "_RECORDS_PER_COMMIT", 1)
    world = Restoring()
    if is_kept:
        world.restore(epoch=3).close()
    world.write(("a", b"8"), ("c", b"old"), ("d", b"old"))
    overtaken = Overtaken(world, epoch=8)
    world.progress_reports = overtaken  # type: ignore[assignment]

    if is_kept:
        with pytest.raises(TemporaryError, match="found it taken by e7"):
            world.restore(epoch=7)
    else:
        # In an environment of its own, which counts for nothing any more.
        world.restore(epoch=7).close()

    assert {"a": b"8", "c": b"new"} == overtaken.entries == _entries_of(world.directory)
    position = world.directory.contents.position
    assert position is not None and 8 == position.epoch


def _entries_of(directory: MemoryStateDirectory) -> dict[str, bytes]:
    return {key[1:].decode(): value for (_, key), value in directory.contents.entries.items()}


def test_an_environment_in_preparation_belongs_to_its_execution_and_is_not_ready() -> None:
    world = Restoring()
    world.restore(epoch=3).close()
    world.write(("c", b"9"))
    marks: list[LocalPosition | None] = []
    world.progress_reports = _At(lambda: marks.append(world.directory.contents.position))  # type: ignore[assignment]

    world.restore(epoch=7).close()

    assert marks[0] is not None
    assert ("e7", 3, {"sums": 4}) == (marks[0].execution_id, marks[0].epoch, marks[0].changelog_next)


def test_state_kept_warm_under_the_same_grant_is_not_level_while_it_is_prepared() -> None:
    """A start that dies in between would find it level, and read nothing.

    Nothing is committed by then.
    """
    world = Restoring()
    world.restore(epoch=7).close()
    world.directory.damage_position(execution_id="")
    marks: list[LocalPosition | None] = []
    world.progress_reports = _At(lambda: marks.append(world.directory.contents.position))  # type: ignore[assignment]

    world.restore(epoch=7).close()

    assert marks[0] is not None and ("e7", 6) == (marks[0].execution_id, marks[0].epoch)


class _At:
    def __init__(self, act: Callable[[], None]) -> None:
        self.what = act

    def append(self, entry: tuple[int, int]) -> None:
        self.what()


def test_state_of_a_newer_grant_is_left_behind() -> None:
    world = Restoring()
    world.restore(epoch=9).close()

    world.restore(epoch=8).close()

    assert [("sums", 0, 0)] * 2 == world.topics.changelog_reads


def test_a_rebuild_keeps_nothing_of_the_earlier_state() -> None:
    world = Restoring()
    world.restore().close()
    world.directory.contents.entries["sums", changelog_key(b"x", b"")] = b"of another life"
    world.directory.reboot()

    world.restore()

    assert {"a": b"3"} == world.entries


def test_sizes_of_stores_are_those_of_the_restored_entries() -> None:
    environment = Restoring().restore()

    assert {"sums": StoreSize(bytes_used=len(changelog_key(b"a", b"")) + 1, entries=1)} == sizes_in(
        environment, ["sums"]
    )


@pytest.mark.parametrize("trouble", ["damaged", "locked"])
def test_sizes_of_stores_that_cannot_be_read_are_not_known_and_no_error(trouble: str) -> None:
    environment = Restoring().restore()
    if trouble == "damaged":
        environment.contents.is_damaged = True
    else:
        environment.begin()

    assert {} == sizes_in(environment, ["sums"])


def test_state_that_cannot_be_read_is_none_and_is_rebuilt_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    world = Restoring()
    world.restore().close()
    world.directory.contents.is_damaged = True
    assert local_position(world.directory) is None
    caplog.clear()

    world.restore()

    assert {"a": b"3"} == world.entries
    assert [
        "local state task/2 is left behind and rebuilt from the changelog: task/2: a page cannot be read"
    ] == caplog.messages


@pytest.mark.parametrize("is_fresh_damaged", [False, True])
def test_state_that_turns_out_damaged_while_it_is_caught_up_is_rebuilt_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_fresh_damaged: bool
) -> None:
    world = Restoring()
    world.restore().close()
    world.write(("c", b"9"))
    write, kept = MemoryLocalTransaction.write, world.directory.number

    def damaged(transaction: Any, store: str, entries: Any) -> None:
        if world.directory.number == kept or is_fresh_damaged:
            raise DamagedStateError("a page is not what was written")
        write(transaction, store, entries)

    monkeypatch.setattr(MemoryLocalTransaction, "write", damaged)
    if is_fresh_damaged:
        with pytest.raises(DamagedStateError):
            world.restore(epoch=8)
    else:
        world.restore(epoch=8).close()
        assert {"a": b"3", "c": b"9"} == world.entries

    assert "local state is rebuilt: a page is not what was written" in caplog.text
    assert not any(environment.is_open for environment in world.directory.opened)


def test_a_changelog_without_news_keeps_the_offset_read_up_to() -> None:
    world = Restoring()
    world.restore().close()

    environment = world.restore()

    assert environment.position is not None and {"sums": 4} == environment.position.changelog_next


def test_a_job_without_stores_has_a_position_all_the_same() -> None:
    world = Restoring()
    world.config = a_job(stores_sums_msg_serde="json")
    world.config = replace(world.config, stores=())

    environment = world.restore()

    assert environment.position is not None
    assert {str(SSP_KB): 10} == environment.position.offsets_next
    assert [] == world.topics.changelog_reads


@pytest.mark.parametrize("at_hit", [1, 2, 3])
def test_a_restore_that_dies_at_any_of_its_commits_is_done_again(
    monkeypatch: pytest.MonkeyPatch, at_hit: int
) -> None:
    monkeypatch.setattr(restore, "_RECORDS_PER_COMMIT", 2)
    world = Restoring()
    world.directory.crash_points = CrashAt("local-commit", at_hit)
    with pytest.raises(Crash):
        world.restore()
    world.directory.crash_points = CrashAt()

    environment = world.restore()

    assert {"a": b"3"} == world.entries
    assert environment.position is not None and {"sums": 4} == environment.position.changelog_next


def test_a_catching_up_that_dies_leaves_a_position_that_reads_it_all_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "_RECORDS_PER_COMMIT", 1)
    world = Restoring()
    world.restore().close()
    world.write(("c", b"9"), ("c", None), ("a", b"4"))
    world.directory.crash_points = CrashAt("local-commit", 2)
    with pytest.raises(Crash):
        world.restore(start=13)
    world.directory.crash_points = CrashAt()

    world.restore(start=13)

    assert {"a": b"4"} == world.entries


def test_entries_of_a_first_restore_that_died_do_not_outlive_their_tombstones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restore, "_RECORDS_PER_COMMIT", 2)
    world = Restoring()
    world.directory.crash_points = CrashAt("local-commit", 2)
    with pytest.raises(Crash):
        world.restore()
    # Meanwhile the changelog was compacted, and the tombstone of b is older than delete.retention.ms.
    world.kafka = MemoryKafka()
    world.topics = MemoryTopics(world.kafka, world.config)
    world.write(("a", b"3"))
    world.directory.crash_points = CrashAt()

    world.restore()

    assert {"a": b"3"} == world.entries


@pytest.mark.parametrize("key", [None, b"", b"\x05ab", b"\xff" * 9])
def test_a_changelog_record_that_is_no_entry_changes_no_state_and_is_named_by_its_place(
    key: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    world, healthy = Restoring(), Restoring()
    healthy.restore()
    world.kafka.write(changelog_topic("flights-1", "sums"), 0, [(key, b"?")])

    world.restore()

    assert healthy.entries == world.entries
    place = "__samzapy-changelog-flights-1-sums/0"
    assert f"{place}: 1 records are no entries of a store, the first at offset 4" in caplog.text


def test_the_tombstone_retention_that_is_trusted_is_the_one_changelogs_are_made_with() -> None:
    world = Restoring()
    world.restore(now_ms=0).close()

    world.restore(now_ms=CHANGELOG_DELETE_RETENTION_MS // 2).close()
    world.restore(now_ms=CHANGELOG_DELETE_RETENTION_MS + 1).close()

    # Caught up again at half of it, then longer ago than that: rebuilt once after the first time.
    assert [0, 0] == [offset for _, _, offset in world.topics.changelog_reads]


# --- the remains of an earlier run ---


def test_state_of_an_earlier_run_is_left_out_wherever_it_is() -> None:
    world = Restoring()
    world.restore(epoch=7).close()

    world.restore(epoch=9, counts_after=8, begin=4)

    assert {} == world.entries
    # Nothing is behind the end, so only the remains of the earlier run are read, to remove them.
    assert [("sums", 0, 0), ("sums", 0, 0)] == world.topics.changelog_reads


@pytest.mark.parametrize(("counts_after", "reason"), [(0, None), (6, None), (7, "an earlier run of the job left it")])
def test_local_state_of_an_epoch_that_does_not_count_is_a_doubt(counts_after: int, reason: str | None) -> None:
    plan = planned(replace(LEVEL, epoch=7), counts_after=counts_after, changelog_starts={"sums": 18})

    assert RestorePlan(rebuild_reason=reason, changelog_from={"sums": 20 if reason is None else 18}) == plan


def test_a_rebuild_begins_where_the_run_s_state_does_or_where_the_changelog_still_does() -> None:
    assert [{"sums": 18}, {"sums": 5}] == [
        planned(None, changelog_starts={"sums": begin}).changelog_from for begin in (18, 4)
    ]


def test_the_changelog_of_an_earlier_run_is_removed_but_for_keys_that_this_one_wrote() -> None:
    world = Restoring()
    world.write(("c", b"1"), ("d", b"2"), ("e", b"3"), ("d", b"9"), ("e", None))

    world.restore(counts_after=5, begin=7)

    # b is removed already; d and e were written by this run, and e was removed by it: once more does no harm.
    assert [["a", "c", "e"]] == world.removed
    assert {"d": b"9"} == world.entries
    # So a reader of the changelog, whole or compacted, finds this run's state.
    world.directory = MemoryStateDirectory()
    world.restore(epoch=8)
    assert {"d": b"9"} == world.entries


def test_local_state_of_this_run_is_caught_up_and_nothing_is_removed_again() -> None:
    world = Restoring()
    world.restore(epoch=7, counts_after=6, begin=4).close()
    world.removed.clear()
    world.write(("c", b"1"))

    world.restore(epoch=8, counts_after=6, begin=4)

    assert ([], {"c": b"1"}) == (world.removed, world.entries)


def test_a_removal_is_done_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "_WRITES_PER_TRANSACTION", 2)
    world = Restoring()
    world.write(("c", b"1"), ("d", b"1"))

    world.restore(counts_after=6, begin=6)

    assert [["a", "b"], ["a"], ["c", "d"]] == world.removed
    assert {} == world.entries


@pytest.mark.parametrize("removals", [0, 1, 2])
def test_a_removal_that_fails_midway_is_done_again_before_the_state_is_used(
    monkeypatch: pytest.MonkeyPatch, removals: int
) -> None:
    monkeypatch.setattr(restore, "_WRITES_PER_TRANSACTION", 2)
    world = Restoring()
    world.write(("c", b"1"), ("d", b"1"))
    remove = world.remove

    def fails(store: str, keys: Sequence[bytes]) -> None:
        if len(world.removed) == removals:
            raise Crash
        remove(store, keys)

    world.remove = fails  # type: ignore[method-assign]
    with pytest.raises(Crash):
        world.restore(counts_after=6, begin=6)
    assert not world.directory.opened[-1].is_open
    world.remove = remove  # type: ignore[method-assign]
    world.removed.clear()

    world.restore(counts_after=6, begin=6)

    assert [["a", "b"], ["a"], ["c", "d"]] == world.removed
    world.directory = MemoryStateDirectory()
    world.restore(epoch=8)
    assert {} == world.entries


def test_a_changelog_that_ends_before_the_run_s_state_begins_was_cut() -> None:
    world = Restoring()
    world.restore(counts_after=6, begin=4).close()

    with pytest.raises(
        LostRangeError, match=r"changelog-flights-1-sums-0: wanted the state of this run from offset 6"
    ):
        world.restore(counts_after=6, begin=6)


# --- virtual tasks, which share a changelog partition ---


def entries_of(*directories: MemoryStateDirectory) -> list[tuple[bytes, bytes]]:
    return sorted(entry for directory in directories for entry in directory.opened[-1].values("sums").items())


keys = st.binary(max_size=3) | st.integers(0, 5).map(lambda number: bytes(200) + bytes([number]))
written = st.lists(st.tuples(keys, st.sampled_from([b"", b"n"]), st.none() | st.binary(max_size=2)), max_size=40)
factors = st.sampled_from([int(text) for text in FACTORS])


@given(written, factors, written, factors)
def test_restore_over_all_tasks_is_a_partition_of_the_union_at_any_pair_of_factors(
    before: list[tuple[bytes, bytes, bytes | None]],
    factor_before: int,
    after: list[tuple[bytes, bytes, bytes | None]],
    factor_after: int,
) -> None:
    """Whether a task's state is built at once, or was there before the others wrote.

    The latter is the case after another factor.
    """
    world = Restoring()
    world.kafka = MemoryKafka()
    world.topics = MemoryTopics(world.kafka, world.config)
    latest: dict[bytes, bytes | None] = {}
    disks = [MemoryStateDirectory(str(bucket)) for bucket in range(factor_before)]
    for start, entries in enumerate((before, after)):
        records = [(changelog_key(key, name), value) for key, name, value in entries]
        world.kafka.write(changelog_topic(world.config.job, "sums"), 0, records)
        latest |= dict(records)
        for bucket, disk in enumerate(disks):
            world.restore(bucket=(bucket, factor_before), directory=disk, start=start).close()
    others = [MemoryStateDirectory(str(bucket)) for bucket in range(factor_after)]
    for bucket, disk in enumerate(others):
        world.restore(bucket=(bucket, factor_after), directory=disk).close()

    union = sorted((key, value) for key, value in latest.items() if value is not None)
    assert union == entries_of(*disks) == entries_of(*others)
    for bucket, disk in enumerate(others):
        owners = {key_bucket(split_changelog_key(key)[0], 0, factor_after) for key, _ in entries_of(disk)}
        assert owners <= {bucket}


def test_records_of_siblings_are_skipped_and_not_read_again() -> None:
    world = Restoring()
    mine = key_bucket(b"a", 0, 256)
    world.write(*((str(number), b"9") for number in range(20)))

    environment = world.restore(bucket=(mine, 256))

    assert {"a": b"3"} == world.entries
    assert environment.position is not None and {"sums": 24} == environment.position.changelog_next


def test_removing_the_keys_of_an_earlier_run_leaves_siblings_their_keys() -> None:
    """A sibling was granted earlier in this run.

    It has written to keys that the earlier run left too.
    """
    world = Restoring()
    keys = [str(number) for number in range(20)]
    world.write(*((key, b"1") for key in keys))
    begin = world.kafka.offset_end(changelog_topic("flights-1", "sums"))
    world.write(*((key, b"2") for key in keys))
    bucket = key_bucket(b"a", 0, 2)

    world.restore(bucket=(bucket, 2), counts_after=5, begin=begin)

    assert {key for key in keys if key_bucket(key.encode(), 0, 2) == bucket} == world.entries.keys()
    # Of the earlier keys, `a` alone is this task's and was not written since.
    assert [["a"]] == world.removed


# --- stores that belong to tasks ---


class RestoringRules(Restoring):
    """The changelog of a `broadcast` store: the parent has two entries of three.

    The third entry was removed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.config = a_job(stores_rules_scope="broadcast", task_broadcast_inputs="kafka.rules")
        self.config = replace(self.config, stores=tuple(s for s in self.config.stores if s.name == "rules"))
        self.kafka = MemoryKafka()
        self.topics = MemoryTopics(self.kafka, self.config)
        self.writes: list[Sequence[tuple[bytes, bytes | None]]] = []
        # Each time it has done more.
        self.starts = count(10)
        self.write_rules("Partition_0", ("x", b"1"), ("y", b"2"), ("z", b"3"), ("z", None))

    def write_rules(self, task: str, *entries: tuple[str, bytes | None]) -> None:
        records = [(task_entry_key(task, name.encode()), value) for name, value in entries]
        self.kafka.write(changelog_topic("flights-1", "rules"), 0, records)

    def take(
        self,
        task: str = "Partition_0-0-2",
        parent: str = "Partition_0",
        *,
        epoch: int = 7,
        directory: MemoryStateDirectory | None = None,
        fails_at: int = 100,
    ) -> dict[str, bytes]:
        directory = directory or MemoryStateDirectory(task)

        def write(store: str, writes: Sequence[tuple[bytes, bytes | None]]) -> None:
            if len(self.writes) == fails_at:
                raise Crash
            self.writes.append(writes)
            self.kafka.write(changelog_topic("flights-1", store), 0, list(writes))

        environment = catch_up_or_rebuild(
            directory,
            RestoreJob(
                topics=self.topics,
                bounds={"rules": self.topics.changelog_bounds([("rules", 0)])["rules", 0]},
                topic_ids=self.topics.changelog_topic_ids(["rules"]),
                grant=replace(a_grant(task, epoch=epoch, execution_id="e7"), broadcast_parent=parent),
                starts={SSP_KB: 10},
                committed={SSP_KB: next(self.starts)},
                config=self.config,
                now_ms=500,
                write=write,
            ),
        )
        assert isinstance(environment, MemoryEnvironment)
        own = task_entry_key(task, b"")
        rules = environment.values("rules")
        environment.close()
        return {key.removeprefix(own).decode(): value for key, value in rules.items() if key.startswith(own)}


def test_after_a_split_each_task_has_a_copy_of_its_own_followed_by_a_mark() -> None:
    world = RestoringRules()

    assert {"x": b"1", "y": b"2"} == world.take() == world.take("Partition_0-1-2", epoch=8)

    assert [
        (task_entry_key("Partition_0-0-2", b"x"), b"1"),
        (task_entry_key("Partition_0-0-2", b"y"), b"2"),
        (task_entry_key("Partition_0-0-2", b"z"), None),
        (copy_mark_key("Partition_0-0-2"), b"7"),
    ] == world.writes[0]


def test_a_marked_copy_is_not_taken_again_whatever_the_parent_or_the_task_wrote_since() -> None:
    world = RestoringRules()
    directory = MemoryStateDirectory()
    world.take(directory=directory)
    world.write_rules("Partition_0-0-2", ("x", b"mine"), ("y", None))
    world.write_rules("Partition_0", ("x", b"of the parent's next life"))

    # On the same host, and on another.
    assert {"x": b"mine"} == world.take(directory=directory) == world.take()
    assert 1 == len(world.writes)


@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_a_copy_without_its_mark_is_started_again(monkeypatch: pytest.MonkeyPatch, fails_at: int) -> None:
    monkeypatch.setattr(restore, "_WRITES_PER_TRANSACTION", 1)
    world = RestoringRules()
    directory = MemoryStateDirectory()
    with pytest.raises(Crash):
        world.take(directory=directory, fails_at=fails_at)
    world.writes.clear()

    assert {"x": b"1", "y": b"2"} == world.take(directory=directory)
    assert copy_mark_key("Partition_0-0-2") == world.writes[-1][0][0]


def test_a_task_that_was_there_before_keeps_nothing_of_its_earlier_life() -> None:
    world = RestoringRules()
    directory = MemoryStateDirectory()
    world.take(epoch=7, directory=directory)
    world.write_rules("Partition_0-0-2", ("old", b"1"), ("x", b"old"))
    world.take("Partition_0-0-2", "", epoch=8, directory=directory)
    # It was merged, the merged task worked, and it is split again.
    world.write_rules("Partition_0", ("x", b"4"), ("y", None))

    assert {"x": b"4"} == world.take(epoch=11, directory=directory) == world.take(epoch=11)


def test_a_task_without_a_parent_keeps_its_own_copy() -> None:
    world = RestoringRules()
    world.write_rules("Partition_0-1-2", ("x", b"of a sibling"))

    assert {"x": b"1", "y": b"2"} == world.take("Partition_0", "")
    assert [] == world.writes


def test_a_foreign_record_among_those_that_are_copied_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    world, healthy = RestoringRules(), RestoringRules()
    world.kafka.write(changelog_topic("flights-1", "rules"), 0, [(b"\x05ab", b"?")])

    assert healthy.take() == world.take()
    assert "changelog-flights-1-rules/0: 1 records are no entries" in caplog.text


# --- a clean close ---


def test_state_that_was_closed_cleanly_is_on_the_disk_and_may_be_used_after_a_reboot() -> None:
    world = Restoring()
    world.restore().close()

    close_cleanly(world.directory)

    closed = world.directory.opened[-1]
    assert (True, False) == (closed.contents.is_synced, closed.is_open)
    world.directory.reboot()
    world.write(("c", b"9"))
    world.restore(epoch=8)
    assert [0, 3] == [offset for _, _, offset in world.topics.changelog_reads]


def test_using_state_again_takes_the_clean_mark_away() -> None:
    world = Restoring()
    world.restore().close()
    close_cleanly(world.directory)

    environment = world.restore()

    assert not environment.contents.is_synced


def test_an_environment_that_was_never_used_is_closed_without_a_mark() -> None:
    directory = MemoryStateDirectory()

    close_cleanly(directory)

    assert (None, False) == (directory.opened[-1].position, directory.opened[-1].is_open)
