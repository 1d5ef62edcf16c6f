from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from samzapy.container import restore
from samzapy.container.ports import TopicBounds
from samzapy.container.restore import CLEAN, RestorePlan, bring_level, close_cleanly, plan_restore
from samzapy.errors import CorruptRecordError
from samzapy.model.topics import CHANGELOG_DELETE_RETENTION_MS, changelog_topic
from samzapy.stream.changelog import changelog_key
from samzapy.testing.builders import a_grant
from unit_tests.container.fakes import (
    Crash,
    CrashAt,
    MemoryEnvironment,
    MemoryKafka,
    MemoryStateDirectory,
    MemoryTopics,
)
from unit_tests.container.worlds import SSP_KB, a_job, a_position

RETENTION_MS = 1000


def planned(position: Any, **changes: Any) -> RestorePlan:
    """Local state at offset 10, changelog read up to 20 of 5 to 30; all is well."""
    given: dict[str, Any] = {
        "starts": {SSP_KB: 10},
        "changelogs": {"sums": TopicBounds(offset_first=5, offset_end=30)},
        "topic_ids": {"sums": "id-of-sums"},
        "boot_id": "boot-a",
        "now_ms": 500,
        "retention_ms": RETENTION_MS,
    }
    return plan_restore(position, **(given | changes))


LEVEL = a_position(offsets_next={str(SSP_KB): 10}, changelog_next={"sums": 20})


# --- the decision ---


def test_local_state_without_a_doubt_is_caught_up_from_where_it_stands() -> None:
    assert RestorePlan(rebuild_reason=None, changelog_from={"sums": 20}) == planned(LEVEL)


@pytest.mark.parametrize(
    ("position", "changes", "reason"),
    [
        (None, {}, "no local state"),
        (replace(LEVEL, boot_id="boot-b"), {}, "the host was rebooted without a clean close"),
        (LEVEL, {"now_ms": 501}, "last caught up longer ago than half of the changelog's tombstone retention"),
        (LEVEL, {"starts": {SSP_KB: 9}}, "local state is ahead of the start: kafka.orders.0:0/1 at 10, start 9"),
        (replace(LEVEL, changelog_next={}), {}, "store sums is new"),
        (LEVEL, {"topic_ids": {"sums": "another"}}, "the changelog of store sums was deleted and made again"),
        (
            LEVEL,
            {"changelogs": {"sums": TopicBounds(offset_first=5, offset_end=19)}},
            "the changelog of store sums ends before what was read of it",
        ),
        (
            LEVEL,
            {"changelogs": {"sums": TopicBounds(offset_first=21, offset_end=30)}},
            "the changelog of store sums begins after what was read of it",
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
        (replace(LEVEL, boot_id=CLEAN), {}),
        (LEVEL, {"now_ms": 500}),
        (LEVEL, {"starts": {SSP_KB: 11}}),
        (replace(LEVEL, offsets_next={}), {}),
        (LEVEL, {"changelogs": {"sums": TopicBounds(offset_first=20, offset_end=20)}}),
        (replace(LEVEL, changelog_next={"sums": 20, "gone": 5}), {}),
        (replace(LEVEL, execution_id="e0", epoch=0), {}),
    ],
)
def test_what_is_no_doubt_is_kept(position: Any, changes: dict[str, Any]) -> None:
    assert RestorePlan(rebuild_reason=None, changelog_from={"sums": 20}) == planned(position, **changes)


# --- what is done ---


class Restoring:
    """A task's directory and its changelog of four records: a=1, b=2, a=3, b removed."""

    def __init__(self) -> None:
        self.config = a_job()
        self.kafka = MemoryKafka()
        self.topics = MemoryTopics(self.kafka, self.config)
        self.directory = MemoryStateDirectory()
        self.write(("a", b"1"), ("b", b"2"), ("a", b"3"), ("b", None))

    def write(self, *entries: tuple[str, bytes | None]) -> None:
        topic = changelog_topic(self.config.job, "sums")
        self.kafka.write(topic, 0, [(changelog_key(key.encode(), b""), value) for key, value in entries])

    def restore(self, *, epoch: int = 7, start: int = 10, now_ms: int = 500) -> MemoryEnvironment:
        environment = bring_level(
            self.directory,
            topics=self.topics,
            grant=a_grant(epoch=epoch, execution_id="e7"),
            starts={SSP_KB: start},
            config=self.config,
            boot_id="boot-a",
            now_ms=now_ms,
        )
        assert isinstance(environment, MemoryEnvironment)
        return environment

    @property
    def entries(self) -> dict[str, bytes]:
        return {key[1:].decode(): value for key, value in self.directory.opened[-1].values("sums").items()}


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
        )
        == environment.position
    )
    assert environment.is_open


def test_catching_up_reads_only_what_is_new() -> None:
    world = Restoring()
    world.restore().close()
    world.write(("c", b"9"), ("a", None))

    environment = world.restore(epoch=8, start=20)

    assert {"c": b"9"} == world.entries
    assert [("sums", 0, 0), ("sums", 0, 4)] == world.topics.changelog_reads
    assert environment.position is not None and 8 == environment.position.epoch


def test_a_rebuild_keeps_nothing_of_what_was_there() -> None:
    world = Restoring()
    world.restore().close()
    world.directory.contents.entries["sums", changelog_key(b"x", b"")] = b"of another life"
    world.directory.damage_position(boot_id="boot-b")

    world.restore()

    assert {"a": b"3"} == world.entries


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
        world.restore()
    world.directory.crash_points = CrashAt()

    world.restore()

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
def test_a_changelog_record_that_is_none_of_ours_is_named_by_its_place(key: bytes | None) -> None:
    world = Restoring()
    world.kafka.write(changelog_topic("flights-1", "sums"), 0, [(key, b"?")])

    with pytest.raises(
        CorruptRecordError, match=r"__samzapy-changelog-flights-1-sums/0 offset 4, key .* somebody else wrote"
    ):
        world.restore()

    assert not world.directory.opened[-1].is_open
    world.directory.opened[-1].is_open = True
    world.directory.opened[-1].begin().abort()


def test_the_tombstone_retention_that_is_trusted_is_the_one_changelogs_are_made_with() -> None:
    world = Restoring()
    world.restore(now_ms=0).close()

    world.restore(now_ms=CHANGELOG_DELETE_RETENTION_MS // 2).close()
    world.restore(now_ms=CHANGELOG_DELETE_RETENTION_MS + 1).close()

    # Caught up again at half of it, then longer ago than that: rebuilt once after the first time.
    assert [0, 4, 0] == [offset for _, _, offset in world.topics.changelog_reads]


# --- a clean close ---


def test_state_that_was_closed_cleanly_is_on_the_disk_and_may_be_used_after_a_reboot() -> None:
    world = Restoring()
    world.restore().close()

    close_cleanly(world.directory)

    closed = world.directory.opened[-1]
    assert closed.position is not None
    assert (CLEAN, True, False) == (closed.position.boot_id, closed.is_synced, closed.is_open)
    world.restore()
    assert [0, 4] == [offset for _, _, offset in world.topics.changelog_reads]


def test_using_state_again_takes_the_clean_mark_away() -> None:
    world = Restoring()
    world.restore().close()
    close_cleanly(world.directory)

    environment = world.restore()

    assert environment.position is not None and "boot-a" == environment.position.boot_id


def test_an_environment_that_was_never_used_is_closed_without_a_mark() -> None:
    directory = MemoryStateDirectory()

    close_cleanly(directory)

    assert (None, False) == (directory.opened[-1].position, directory.opened[-1].is_open)
