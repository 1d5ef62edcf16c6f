"""A changelog that lost its end and grew again while its job was down.

The last record of local state tells the difference.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from samzapy.adapters.lmdb.store import LmdbStateDirectory
from samzapy.container.local_state import restore
from samzapy.container.local_state.continuity import ChangelogDivergedError, ContinuityCheck
from samzapy.container.ports import TopicBounds
from samzapy.container.task.changelog_mark import ChangelogMark, mark_of
from samzapy.model.topics import changelog_topic
from samzapy.stream.changelog import changelog_key
from samzapy.stream.log import LogRecord
from samzapy.testing.builders import a_grant
from unit_tests.container.local_state.test_restore import Restoring
from unit_tests.container.local_state.test_split_and_merge import CHANGELOG, World
from unit_tests.container.local_state.test_standby import AWarmHost, a_task
from unit_tests.fixtures.container_worlds import a_position

MARK = mark_of(5, b"a", b"1")


def record(offset: int, key: bytes, value: bytes | None = b"1") -> LogRecord:
    return LogRecord(offset=offset, timestamp_ms=0, key=key, value=value)


def a_check(expected: ChangelogMark | None = MARK) -> ContinuityCheck:
    return ContinuityCheck("sums/0", expected, lambda key: key != b"foreign")


@pytest.mark.parametrize(
    "other", [record(5, b"b"), record(5, b"a", b"2"), record(5, b"a", None), record(5, b"a", b"")]
)
def test_another_record_at_the_offset_of_the_mark_is_refused(other: LogRecord) -> None:
    with pytest.raises(ChangelogDivergedError, match="sums/0: wanted the record at offset 5 .* found another one"):
        a_check().read([record(4, b"a"), other])


def test_the_same_record_is_accepted_and_the_last_record_of_the_task_is_the_next_mark() -> None:
    check = a_check()

    check.read([record(5, b"a"), record(7, b"c"), record(8, b"foreign")])
    check.at_end()

    assert mark_of(7, b"c", b"1") == check.mark


def test_a_record_that_compaction_removed_is_accepted_once_a_later_one_has_its_key() -> None:
    check = a_check()

    check.read([record(6, b"c")])
    assert MARK == check.mark, "a position written now must not claim more than was compared"
    check.read([record(9, b"a", None)])
    check.at_end()

    assert mark_of(9, b"a", None) == check.mark


def test_a_record_that_is_missing_without_a_later_one_of_its_key_is_refused_at_the_end() -> None:
    check = a_check()
    check.read([record(3, b"a"), record(6, b"c")])

    with pytest.raises(ChangelogDivergedError, match="found neither"):
        check.at_end()


def test_a_tombstone_may_disappear_without_a_successor_but_not_become_another_record() -> None:
    tombstone = mark_of(5, b"a", None)
    check = a_check(tombstone)
    check.read([record(6, b"c")])
    check.at_end()
    assert mark_of(6, b"c", b"1") == check.mark

    with pytest.raises(ChangelogDivergedError):
        a_check(tombstone).read([record(5, b"a")])


def grown_again(world: Restoring) -> None:
    """The changelog loses its last two records; three others take their offsets."""
    world.kafka.cut(changelog_topic(world.config.job, "sums"), 0, 2)
    world.write(("x", b"7"), ("y", b"8"), ("z", b"9"))


def restored_reason(world: Restoring, caplog: pytest.LogCaptureFixture) -> str:
    caplog.clear()
    with caplog.at_level(logging.WARNING, restore.__name__):
        world.restore(epoch=8).close()
    return "\n".join(record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("near", [0, 1_000])
def test_local_state_is_rebuilt_where_its_changelog_was_cut_and_grew_beyond_its_end(
    near: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(restore, "_NEAR_OFFSETS", near)
    world = Restoring()
    world.restore().close()
    grown_again(world)

    reason = restored_reason(world, caplog)

    assert "local state is rebuilt" in reason and "wanted the record at offset 3" in reason
    assert {"a": b"1", "b": b"2", "x": b"7", "y": b"8", "z": b"9"} == world.entries
    assert "" == restored_reason(world, caplog), "the rebuilt state fits its changelog"


@pytest.mark.parametrize("near", [0, 1_000])
def test_local_state_is_rebuilt_where_the_lost_record_left_a_gap(
    near: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(restore, "_NEAR_OFFSETS", near)
    world = Restoring()
    world.write(("c", b"5"))
    world.restore().close()
    topic = changelog_topic(world.config.job, "sums")
    world.kafka.cut(topic, 0, 4)
    world.write(("x", b"7"), ("x", b"8"))
    world.kafka.compact(topic)

    assert "found neither" in restored_reason(world, caplog)
    assert {"a": b"3", "x": b"8"} == world.entries


@pytest.mark.parametrize("near", [0, 1_000])
@pytest.mark.parametrize("later", [b"6", None])
def test_local_state_is_kept_where_compaction_removed_its_last_record(
    near: int, later: bytes | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(restore, "_NEAR_OFFSETS", near)
    world = Restoring()
    world.write(("c", b"5"))
    world.restore().close()
    world.write(("d", b"1"), ("c", later))
    world.kafka.compact(changelog_topic(world.config.job, "sums"))

    assert "" == restored_reason(world, caplog)
    assert ({"a": b"3", "d": b"1"} | ({} if later is None else {"c": later})) == world.entries


def test_local_state_is_kept_where_the_tombstone_that_came_last_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    world = Restoring()
    world.restore().close()
    world.write(("d", b"1"))
    world.kafka.compact(changelog_topic(world.config.job, "sums"), keeps_tombstones=False)

    assert "" == restored_reason(world, caplog)
    assert {"a": b"3", "d": b"1"} == world.entries


def test_a_position_of_an_earlier_release_has_no_mark_and_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    world = Restoring()
    world.restore().close()
    position = world.directory.contents.position
    assert position is not None
    object.__setattr__(position, "changelog_last", {})
    world.write(("c", b"5"))

    assert "" == restored_reason(world, caplog)
    assert [0, 4] == [offset for _, _, offset in world.topics.changelog_reads]
    kept = world.directory.contents.position
    assert kept is not None and mark_of(4, changelog_key(b"c", b""), b"5") == kept.changelog_last["sums"]


def test_the_mark_of_an_idle_task_stays_where_only_its_siblings_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "_NEAR_OFFSETS", 2)
    world = Restoring()
    bucket = next(bucket for bucket in range(2) if restored_keys(world, bucket) == {"a"})
    before = world.directory.contents.position
    world.write(*((key, b"1") for key in foreign_keys(4)))

    world.restore(epoch=8, bucket=(bucket, 2)).close()
    world.topics.changelog_reads.clear()
    world.restore(epoch=9, bucket=(bucket, 2)).close()

    after = world.directory.contents.position
    assert before is not None and after is not None
    assert (before.changelog_last, {"sums": 8}) == (after.changelog_last, after.changelog_next)
    assert [before.changelog_last["sums"].offset] == [offset for _, _, offset in world.topics.changelog_reads]


def restored_keys(world: Restoring, bucket: int) -> set[str]:
    world.restore(bucket=(bucket, 2)).close()
    return set(world.entries)


def foreign_keys(count: int) -> list[str]:
    """Keys of the other bucket of two than that of `a`."""
    is_own = restore.key_bucket
    own = is_own(b"a", 0, 2)
    return [str(number) for number in range(100) if is_own(str(number).encode(), 0, 2) != own][:count]


def test_a_standby_discards_state_whose_changelog_was_cut_and_grew_again() -> None:
    host = AWarmHost()
    host.looks()
    host.warming.close()
    number = host.disk(a_task().task_name).number
    host.kafka.cut(changelog_topic(host.config.job, "sums"), 0, 1)
    host.write(("x", b"7"), ("y", b"8"), ("z", b"9"))

    host.looks()
    assert number != host.disk(a_task().task_name).number
    host.clock.advance(5_000)
    assert 1 == host.looks().level

    assert {"a": b"1", "x": b"7", "y": b"8", "z": b"9"} == host.entries()


def test_a_standby_leaves_no_file_open_of_state_that_it_discards(tmp_path: Path) -> None:
    host = AWarmHost()
    disk = LmdbStateDirectory(tmp_path / "task", host.config.stores)
    host.disk = lambda name: disk  # type: ignore[assignment, method-assign, return-value]
    host.warming = host.started()
    host.looks()
    host.warming.close()
    files = len(os.listdir("/proc/self/fd"))
    host.kafka.cut(changelog_topic(host.config.job, "sums"), 0, 1)
    host.write(("x", b"7"), ("y", b"8"), ("z", b"9"))

    assert 0 == host.looks().level
    assert files == len(os.listdir("/proc/self/fd"))
    host.clock.advance(5_000)
    assert 1 == host.looks().level
    host.warming.close()

    assert files == len(os.listdir("/proc/self/fd"))


def test_children_are_rebuilt_where_the_changelog_of_their_parent_was_cut_and_grew_again() -> None:
    world = World()
    for key in (b"a", b"b", b"c", b"d"):
        world.write(key, b"1")
    world.scale(1)
    world.kafka.cut(CHANGELOG, 0, 2)
    world.kafka.write(CHANGELOG, 0, [(changelog_key(key, b""), b"2") for key in (b"e", b"f", b"g")])

    world.scale(2)

    entries = [world.disks[0][grant.task_name].contents.entries for _, grant in world.granted]
    assert {changelog_key(key, b"") for key in (b"a", b"b", b"e", b"f", b"g")} == {
        key for own in entries for _, key in own
    }


def test_a_standby_discards_state_whose_last_record_is_missing_at_the_end_of_the_changelog() -> None:
    host = AWarmHost()
    host.looks()
    host.warming.close()
    number = host.disk(a_task().task_name).number
    topic = changelog_topic(host.config.job, "sums")
    host.kafka.cut(topic, 0, 2)
    host.write(("x", b"7"), ("x", b"8"))
    host.kafka.compact(topic)

    host.looks()
    assert number != host.disk(a_task().task_name).number
    host.clock.advance(5_000)
    assert 1 == host.looks().level

    assert {"a": b"1", "b": b"2", "x": b"8"} == host.entries()


def test_a_record_that_was_deleted_from_the_front_is_not_compared() -> None:
    position = a_position(changelog_next={"sums": 5}, changelog_last={"sums": mark_of(3, b"a", b"1")})

    plans = [
        restore.plan_restore(
            position,
            grant=a_grant(epoch=2),
            starts={},
            committed={},
            changelogs={"sums": TopicBounds(offset_first=first, offset_end=9)},
            topic_ids={"sums": "id-of-sums"},
            now_ms=0,
            retention_ms=1_000,
        )
        for first in (3, 4)
    ]

    assert [position.changelog_last, {}] == [plan.marks for plan in plans]
    assert [{"sums": 3}, {"sums": 5}] == [plan.changelog_from for plan in plans]
