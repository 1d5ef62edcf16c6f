"""Local state of tasks long gone: each condition alone keeps it from removal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from samzapy.adapters.lmdb.store import LmdbStateDirectory, task_directory, tasks_with_state
from samzapy.container.local_state.cleanup import REMOVED_AT_ONCE_MAX, UNUSED_MS, remove_unused
from samzapy.model.job import TaskName
from samzapy.model.topics import CHANGELOG_DELETE_RETENTION_MS
from samzapy.testing.memory.local_state import MemoryStateDirectory

NOW_MS = 1_700_000_000_000
LONG_AGO_MS = NOW_MS - UNUSED_MS - 1
GONE, OTHER = TaskName("Partition_7"), TaskName("Partition_8")


class AHost:
    """A host with old state of `Partition_7` and `Partition_8`."""

    def __init__(self, *names: TaskName) -> None:
        self.disks = {name: MemoryStateDirectory(name) for name in names or (GONE, OTHER)}
        for disk in self.disks.values():
            disk.fresh().close()
            disk.written_at_ms = LONG_AGO_MS

    def remove_unused(self, *in_use: TaskName) -> list[TaskName]:
        here = [name for name, disk in self.disks.items() if disk.number]
        removed = list(remove_unused(frozenset(in_use), here, self.disks.__getitem__, NOW_MS))
        assert set(here) - {name for name, disk in self.disks.items() if disk.number} == set(removed)
        return removed


def test_the_state_of_removed_tasks_is_removed() -> None:
    assert [GONE, OTHER] == AHost().remove_unused()


def test_the_state_of_a_task_that_is_in_use_stays_however_old_it_is() -> None:
    assert [OTHER] == AHost().remove_unused(GONE)


def test_state_that_another_process_has_open_stays() -> None:
    host = AHost()
    host.disks[GONE].is_open_elsewhere = True

    assert [OTHER] == host.remove_unused()


def test_state_that_could_still_be_used_after_a_change_back_or_by_an_heir_stays() -> None:
    host = AHost()
    host.disks[GONE].written_at_ms = NOW_MS - UNUSED_MS

    assert [OTHER] == host.remove_unused()


def test_state_is_kept_for_as_long_as_a_restore_may_use_it() -> None:
    assert CHANGELOG_DELETE_RETENTION_MS // 2 == UNUSED_MS


def test_a_parent_whose_keys_other_tasks_have_is_removed_when_no_task_would_copy_from_it() -> None:
    assert [GONE] == AHost(GONE).remove_unused(TaskName("Partition_7-0-2"), TaskName("Partition_7-1-2"))


def test_of_many_a_few_are_removed_at_once() -> None:
    host = AHost(*(TaskName(f"Partition_{number}") for number in range(REMOVED_AT_ONCE_MAX + 3)))

    assert [REMOVED_AT_ONCE_MAX, 3, 0] == [len(host.remove_unused()) for _ in range(3)]


# --- on a real disk ---


def on_disk(store_dir: Path, job: str, name: TaskName, *, written_at_ms: int = LONG_AGO_MS) -> None:
    directory = task_directory(store_dir, job, name)
    LmdbStateDirectory(directory, ()).fresh().close()
    os.utime(directory / "1" / "data.mdb", ns=(written_at_ms * 1_000_000,) * 2)


def test_only_old_directories_are_removed_from_the_disk(tmp_path: Path) -> None:
    planned, young, too_long = TaskName("Partition_0"), TaskName("Partition_1"), TaskName("x" * 199 + "-198-200")
    for name in (GONE, planned, too_long):
        on_disk(tmp_path, "flights-1", name)
    on_disk(tmp_path, "flights-1", young, written_at_ms=NOW_MS - UNUSED_MS)
    on_disk(tmp_path, "another-1", GONE)
    (tmp_path / "flights-1" / ".processors").mkdir()

    def state_of(name: str) -> LmdbStateDirectory:
        return LmdbStateDirectory(task_directory(tmp_path, "flights-1", name), ())

    before = set((tmp_path / "flights-1").iterdir())
    removed = remove_unused(frozenset({planned}), tasks_with_state(tmp_path, "flights-1"), state_of, NOW_MS)

    assert [GONE] == removed
    assert {task_directory(tmp_path, "flights-1", GONE)} == before - set((tmp_path / "flights-1").iterdir())
    assert [GONE] == tasks_with_state(tmp_path, "another-1")


@pytest.mark.parametrize("left", ["nothing", "a directory without data", "a file that is no environment"])
def test_the_remains_of_a_removal_or_a_crash_are_removed_too(left: str, tmp_path: Path) -> None:
    directory = task_directory(tmp_path, "flights-1", GONE)
    (directory / "1").mkdir(parents=True)
    written = directory
    if left == "a directory without data":
        (directory / "1.lock").touch()
    elif left == "a file that is no environment":
        written = directory / "1" / "data.mdb"
        written.write_bytes(b"torn")
    os.utime(written, ns=(LONG_AGO_MS * 1_000_000,) * 2)

    removed = remove_unused(frozenset(), [GONE], lambda name: LmdbStateDirectory(directory, ()), NOW_MS)

    assert ([GONE], False) == (removed, directory.exists())
