from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from samzapy.adapters.lmdb import store as lmdb_store
from samzapy.adapters.lmdb.checksums import sealed
from samzapy.adapters.lmdb.store import (
    LmdbEnvironment,
    LmdbStateDirectory,
    current_environment,
    task_directory,
    tasks_with_state,
)
from samzapy.config import StoreConfig
from samzapy.container.local_state.restore import close_cleanly, local_position, position_in
from samzapy.container.task.changelog_mark import mark_of
from samzapy.container.task.ports import LocalPosition
from samzapy.errors import DeadlineError, EnvironmentMissingError, LocalStateError, SamzapyError
from samzapy.model.store_size import StoreSize
from samzapy.plan.elasticity import key_bucket
from samzapy.stream.changelog import changelog_key

LONG = b"k" * 600
LONG_KEYS = st.integers(0, 9).map(lambda number: bytes(127 + 100 * number) + b"k")


def a_store(name: str = "sums", size_max_bytes: int = 1 << 24) -> StoreConfig:
    return StoreConfig(
        name=name, msg_serde="bytes", key_serde="bytes", replication_factor=None, size_max_bytes=size_max_bytes
    )


STORES = (a_store("sums"), a_store("seen"))
POSITION = LocalPosition(
    execution_id="e1",
    epoch=7,
    offsets_next={"kafka.page.views.3:1/4": 2**40},
    changelog_next={"sums": 5, "seen": 0},
    caught_up_at_ms=1_700_000_000_000,
    changelog_topic_ids={"sums": "AAA", "seen": "BBB"},
    changelog_last={"sums": mark_of(4, b"a", b"1"), "seen": mark_of(2, b"b", None)},
)


@contextmanager
def opened(path: Path, *stores: StoreConfig, lock_wait_s: float = 5.0) -> Iterator[LmdbEnvironment]:
    environment = LmdbEnvironment(path, stores or STORES, lock_wait_s)
    try:
        yield environment
    finally:
        environment.close()


@contextmanager
def another_process(code: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run `code` with an environment at `path`, until it prints that it is ready."""
    setup = (
        "import sys\n"
        "from pathlib import Path\n"
        "from samzapy.adapters.lmdb.store import LmdbEnvironment\n"
        "from samzapy.config import StoreConfig\n"
        "stores = [StoreConfig(name=name, msg_serde='bytes', key_serde='bytes', replication_factor=None,\n"
        "    size_max_bytes=1 << 24) for name in ('sums', 'seen')]\n"
        "environment = LmdbEnvironment(Path(sys.argv[1]), stores)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", f"{setup}{code}\nprint('ready', flush=True)\nsys.stdin.read()", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert "ready\n" == process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


# --- entries ---


def test_an_environment_that_is_closed_again_closes_no_file_of_another(tmp_path: Path) -> None:
    environment = LmdbEnvironment(tmp_path / "1", STORES)
    before = set(os.listdir("/proc/self/fd"))
    environment.close()
    # They get the numbers that have become free.
    others = [os.open(tmp_path, os.O_RDONLY | os.O_CLOEXEC) for _ in before]
    try:
        environment.close()

        assert [stat.S_IFDIR] * len(others) == [stat.S_IFMT(os.fstat(other).st_mode) for other in others]
    finally:
        for other in others:
            os.close(other)


def test_committed_entries_are_there_after_opening_again(tmp_path: Path) -> None:
    with opened(tmp_path / "1") as environment:
        transaction = environment.begin()
        transaction.write("sums", {b"a": b"1"})
        transaction.write("seen", {b"a": b"2"})
        transaction.set_position(POSITION)
        transaction.commit()

    with opened(tmp_path / "1") as environment:
        transaction = environment.begin()
        assert (b"1", b"2", None) == (
            transaction.get("sums", b"a"),
            transaction.get("seen", b"a"),
            transaction.get("sums", b"b"),
        )
        assert POSITION == transaction.position()
        transaction.abort()


def test_aborted_entries_are_absent_and_aborting_again_is_harmless(tmp_path: Path) -> None:
    with opened(tmp_path / "1") as environment:
        transaction = environment.begin()
        transaction.write("sums", {b"a": b"1"})
        transaction.set_position(POSITION)
        transaction.abort()
        transaction.abort()

        transaction = environment.begin()

        assert (None, None) == (transaction.get("sums", b"a"), transaction.position())
        transaction.abort()


def test_aborting_after_the_commit_undoes_nothing_and_releases_no_other_lock(tmp_path: Path) -> None:
    with opened(tmp_path / "1") as environment:
        first = environment.begin()
        first.write("sums", {b"a": b"1"})
        first.commit()
        second = environment.begin()

        first.abort()

        with another_process_that_waits_for(tmp_path / "1") as refused:
            assert "DeadlineError" in refused
        second.abort()


@pytest.mark.parametrize("length", [0, 1, 509, 510, 511, 512, 5000])
def test_a_key_of_any_length_is_kept_whole_replaced_and_removed(tmp_path: Path, length: int) -> None:
    key = b"k" * length
    with opened(tmp_path / "1") as environment:
        transaction = environment.begin()
        transaction.write("sums", {key: b"1"})
        transaction.write("sums", {key: b"22"})

        assert b"22" == transaction.get("sums", key)
        transaction.write("sums", {key: None})
        assert transaction.get("sums", key) is None
        transaction.write("sums", {key: None})
        transaction.abort()


def test_long_keys_with_the_same_beginning_are_different_keys_and_values_may_be_empty(tmp_path: Path) -> None:
    with opened(tmp_path / "1") as environment:
        transaction = environment.begin()
        transaction.write("sums", {LONG + b"a": b""})
        transaction.write("sums", {LONG + b"b": b"b"})

        assert (b"", b"b") == (transaction.get("sums", LONG + b"a"), transaction.get("sums", LONG + b"b"))
        transaction.abort()


# --- sizes ---


def size_in(environment: LmdbEnvironment, store: str = "sums") -> StoreSize:
    transaction = environment.begin()
    try:
        return transaction.size(store)
    finally:
        transaction.abort()


def test_the_size_of_a_store_counts_its_entries_with_those_of_the_transaction(tmp_path: Path) -> None:
    with opened(tmp_path / "1") as environment:
        assert StoreSize(bytes_used=0, entries=0) == size_in(environment)
        transaction = environment.begin()
        transaction.write("sums", {b"a": b"1", b"b": b"1", LONG: b"1"})
        transaction.write("sums", {b"b": None})
        assert (2, 0) == (transaction.size("sums").entries, transaction.size("seen").entries)
        transaction.commit()

        assert (2, 0) == (size_in(environment).entries, size_in(environment, "seen").entries)


def test_the_size_of_a_store_is_that_of_its_own_pages(tmp_path: Path) -> None:
    filled(tmp_path / "1", [("sums", b"a", b"1")]).close()
    with opened(tmp_path / "1") as environment:
        page_bytes = environment._environment.stat()["psize"]
        assert page_bytes == size_in(environment).bytes_used
        transaction = environment.begin()
        transaction.write("sums", {b"large": b"v" * (10 * page_bytes)})
        transaction.commit()
        # A value of more than a page has pages of its own.
        assert 12 * page_bytes == size_in(environment).bytes_used
        transaction = environment.begin()
        transaction.write("sums", {b"%06d" % number: b"v" * 100 for number in range(10_000)})
        transaction.commit()

        many = size_in(environment)
        assert 10_000 * 100 < many.bytes_used < 3 * 10_000 * 100
        assert 0 == size_in(environment, "seen").bytes_used
        assert many.bytes_used < environment.bytes_on_disk()

        transaction = environment.begin()
        transaction.write("sums", {b"%06d" % number: None for number in range(10_000)} | {b"large": None})
        transaction.commit()

        # The file keeps the pages that were freed.
        assert StoreSize(bytes_used=page_bytes, entries=1) == size_in(environment)
        assert many.bytes_used < environment.bytes_on_disk()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["sums", "seen"]),
            st.sampled_from([b"", b"a", b"position", b"k" * 510, b"k" * 511, LONG]),
            st.none() | st.binary(max_size=4),
            st.booleans(),
        ),
        max_size=20,
    )
)
def test_a_store_behaves_as_a_dictionary_of_the_committed_entries(
    tmp_path: Path, writes: list[tuple[str, bytes, bytes | None, bool]]
) -> None:
    directory = LmdbStateDirectory(tmp_path / "task", STORES)
    environment, expected = directory.fresh(), dict[tuple[str, bytes], bytes]()
    for name, key, value, is_committed in writes:
        transaction = environment.begin()
        if value is None:
            transaction.write(name, {key: None})
        else:
            transaction.write(name, {key: value})
        if not is_committed:
            transaction.abort()
            continue
        transaction.commit()
        expected.pop((name, key), None)
        if value is not None:
            expected[name, key] = value
    transaction = environment.begin()

    contents = {(name, key): transaction.get(name, key) for name, key, _, _ in writes}

    transaction.abort()
    environment.close()
    assert expected == {place: value for place, value in contents.items() if value is not None}


FULL = r"the environment is full; raise stores.<name>.size.max.bytes"
KEYS = [number.to_bytes(4, "big") for number in range(10_000)]


def put_until_full(environment: LmdbEnvironment) -> None:
    """One entry per transaction, so that as much as possible is committed."""
    for key in KEYS:
        transaction = environment.begin()
        try:
            transaction.write("sums", {key: b"x" * 1000})
            transaction.commit()
        finally:
            transaction.abort()


def test_a_full_environment_is_named_with_the_setting_that_makes_it_larger(tmp_path: Path) -> None:
    with opened(tmp_path / "1", a_store(size_max_bytes=1 << 20)) as environment:
        with pytest.raises(SamzapyError, match=FULL):
            put_until_full(environment)

        environment.begin().abort()


def delete_one_entry_of_each_page(environment: LmdbEnvironment) -> None:
    transaction = environment.begin()
    try:
        for key in KEYS[::4]:
            transaction.write("sums", {key: None})
        transaction.commit()
    finally:
        transaction.abort()


def test_an_environment_too_full_to_remove_from_is_named_too(tmp_path: Path) -> None:
    with opened(tmp_path / "1", a_store(size_max_bytes=1 << 20)) as environment:
        with pytest.raises(SamzapyError, match=FULL):
            put_until_full(environment)

        # Each page that changes is copied first.
        with pytest.raises(SamzapyError, match=FULL):
            delete_one_entry_of_each_page(environment)


# --- entries for others ---


def filled(path: Path, entries: Iterable[tuple[str, bytes, bytes]], *stores: StoreConfig) -> LmdbEnvironment:
    environment = LmdbEnvironment(path, stores or STORES)
    transaction = environment.begin()
    for store, key, value in entries:
        transaction.write(store, {key: value})
    transaction.commit()
    return environment


def entries_in(
    environment: LmdbEnvironment, entries: Iterable[tuple[str, bytes, bytes]]
) -> list[tuple[str, bytes, bytes]]:
    """Those of `entries` that are in the environment; and there is nothing else."""
    transaction = environment.begin()
    contents = [(store, key, value) for store, key, value in entries if transaction.get(store, key) == value]
    transaction.abort()
    with environment._environment.begin() as read:
        counts = [read.stat(db=environment.stores[store.name])["entries"] for store in STORES]
    assert sum(counts) == len(contents)
    return contents


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["sums", "seen"]), st.binary(max_size=3), st.sampled_from([b"", b"n", LONG])),
        st.binary(max_size=3),
        max_size=40,
    ),
    st.dictionaries(st.tuples(st.just("sums"), LONG_KEYS, st.just(b"")), st.binary(max_size=3), max_size=5),
)
def test_entries_move_to_the_heir_of_their_key_bucket_whatever_their_length_and_the_number_of_parents(
    short: dict[tuple[str, bytes, bytes], bytes], long: dict[tuple[str, bytes, bytes], bytes]
) -> None:
    """A split into 4, of which the heir of one is missing, then a merge of two parts."""
    entries = [(store, changelog_key(key, name), value) for (store, key, name), value in {**short, **long}.items()]
    bucket_of = {(store, changelog_key(key, name)): key_bucket(key, 0, 4) for store, key, name in {**short, **long}}
    with TemporaryDirectory() as directory:
        source = filled(Path(directory) / "source", entries)
        targets = [LmdbEnvironment(Path(directory) / str(number), STORES) for number in range(3)]
        source.hand_over(["seen", "sums"], targets, [2, 0, -1, 1])

        for bucket, number in ((0, 2), (1, 0), (3, 1)):
            own = [entry for entry in entries if bucket_of[entry[0], entry[1]] == bucket]
            assert sorted(own) == sorted(entries_in(targets[number], entries))
        merged = LmdbEnvironment(Path(directory) / "merged", STORES)
        for target in targets[:2]:
            target.hand_over(["seen", "sums"], [merged], [-1, 0])
        odd = [entry for entry in entries if bucket_of[entry[0], entry[1]] % 2]
        assert sorted(odd) == sorted(entries_in(merged, entries))
        assert sorted(entries) == sorted(entries_in(source, entries))
        for environment in (source, merged, *targets):
            environment.close()


def test_entries_are_handed_over_many_at_a_time_and_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmdb_store, "_COPY_BYTES", 100)
    entries = [("sums", changelog_key(b"%03d" % number, b""), b"x" * 10) for number in range(100)]
    source, target = filled(tmp_path / "source", entries), LmdbEnvironment(tmp_path / "heir", STORES)

    source.hand_over(["sums"], [target], [0])

    assert entries == entries_in(target, entries)
    source.close()
    target.close()


def test_an_heir_that_is_too_small_is_named_with_the_setting_that_makes_it_larger(tmp_path: Path) -> None:
    entries = [("sums", changelog_key(b"%06d" % number, b""), b"x" * 1000) for number in range(3000)]
    source = filled(tmp_path / "source", entries)
    target = LmdbEnvironment(tmp_path / "heir", [a_store(size_max_bytes=1 << 20)])

    with pytest.raises(LocalStateError, match=FULL):
        source.hand_over(["sums"], [target], [0])

    target.begin().abort()
    source.close()
    target.close()


# --- processes ---


def test_a_process_killed_in_a_transaction_leaves_the_committed_entries_and_no_lock(tmp_path: Path) -> None:
    code = (
        "transaction = environment.begin()\n"
        "transaction.write('sums', {b'a': b'committed'})\n"
        "transaction.commit()\n"
        "transaction = environment.begin()\n"
        "transaction.write('sums', {b'a': b'lost'})\n"
        "transaction.write('sums', {b'b': b'lost'})\n"
    )
    with another_process(code, tmp_path / "1") as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

        with opened(tmp_path / "1", lock_wait_s=0) as environment:
            transaction = environment.begin()

            assert (b"committed", None) == (transaction.get("sums", b"a"), transaction.get("sums", b"b"))
            transaction.write("sums", {b"b": b"2"})
            transaction.commit()


@contextmanager
def another_process_that_waits_for(path: Path) -> Iterator[str]:
    """The output of another process that wants a transaction at once."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from samzapy.adapters.lmdb.store import LmdbEnvironment\n"
        "LmdbEnvironment(Path(sys.argv[1]), [], lock_wait_s=0)\n"
    )
    yield subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True).stderr


def test_a_lock_kept_by_another_process_is_a_deadline_and_not_a_wait_for_ever(tmp_path: Path) -> None:
    with opened(tmp_path / "1", lock_wait_s=0.05) as environment:
        with another_process("transaction = environment.begin()", tmp_path / "1") as process:
            os.kill(process.pid, signal.SIGSTOP)

            with pytest.raises(DeadlineError, match=r"wanted its lock, another process kept it"):
                environment.begin()

        environment.begin().abort()


def test_a_directory_whose_environment_is_locked_gives_a_fresh_one(tmp_path: Path) -> None:
    directory = LmdbStateDirectory(tmp_path, STORES, lock_wait_s=0.05)
    directory.open().close()
    with another_process("transaction = environment.begin()", tmp_path / "1"):
        environment = directory.open()

        assert "2" == environment.path.name
        transaction = environment.begin()
        assert transaction.position() is None
        transaction.abort()
        environment.close()


def test_two_processes_take_turns(tmp_path: Path) -> None:
    code = "transaction = environment.begin()\ntransaction.write('sums', {b'theirs': b'1'})\ntransaction.commit()\n"
    with opened(tmp_path / "1") as environment, another_process(code, tmp_path / "1"):
        transaction = environment.begin()

        assert b"1" == transaction.get("sums", b"theirs")
        transaction.abort()


# --- directories ---


def test_an_empty_directory_gives_environment_1_and_then_the_same_again(tmp_path: Path) -> None:
    directory = LmdbStateDirectory(tmp_path / "task", STORES)
    assert current_environment(tmp_path / "task") is None

    first = directory.open()
    first.close()
    second = directory.open()
    second.close()

    assert str(tmp_path / "task" / "1") == first.directory == second.directory


def test_a_fresh_environment_takes_the_next_number_and_removes_the_older_ones(tmp_path: Path) -> None:
    directory = LmdbStateDirectory(tmp_path, STORES)
    for _ in range(11):
        directory.fresh().close()

    # By number and not by text: 10 and 11 come after 9.
    assert {"11", "11.lock"} == {path.name for path in tmp_path.iterdir()}
    assert tmp_path / "11" == current_environment(tmp_path)


def test_of_two_that_rebuild_at_once_each_has_an_environment_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = LmdbStateDirectory(tmp_path, STORES), LmdbStateDirectory(tmp_path, STORES)
    one.fresh().close()
    before = current_environment(tmp_path)
    # Both saw the same one before either of them had made the next.
    monkeypatch.setattr(lmdb_store, "current_environment", lambda directory: before)

    first, second = one.fresh(), other.fresh()

    assert ["2", "3"] == [first.path.name, second.path.name]
    # A later process removes earlier state, and no process removes later state.
    late = LmdbStateDirectory(tmp_path, STORES)
    monkeypatch.setattr(late, "_number_taken", lambda number: 2)
    late.fresh().close()
    assert second.path.exists()
    first.close()
    second.close()


def test_looking_for_an_environment_makes_none_and_takes_none_that_is_damaged_or_locked(tmp_path: Path) -> None:
    directory = LmdbStateDirectory(tmp_path / "task", STORES, lock_wait_s=0.05)
    assert directory.existing() is None
    assert not (tmp_path / "task").exists()
    directory.fresh().close()
    existing = directory.existing()
    assert existing is not None and "1" == existing.path.name
    existing.close()
    with (
        another_process("transaction = environment.begin()", tmp_path / "task" / "1"),
        pytest.raises(DeadlineError, match="kept it"),
    ):
        directory.existing()

    (tmp_path / "task" / "1" / "data.mdb").write_bytes(b"not what it was" * 1000)

    assert directory.existing() is None
    assert tmp_path / "task" / "1" == current_environment(tmp_path / "task")


def test_an_environment_that_another_container_removes_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half-removed" / "1").mkdir(parents=True)
    assert current_environment(tmp_path / "half-removed") is None
    directory = LmdbStateDirectory(tmp_path / "task", STORES)
    for leftover in (tmp_path / "task" / "1", tmp_path / "another" / "1"):
        monkeypatch.setattr("samzapy.adapters.lmdb.store.current_environment", lambda _, path=leftover: path)
        (tmp_path / "task" / "1").mkdir(parents=True, exist_ok=True)

        assert directory.existing() is None
        assert not (leftover / "data.mdb").exists()
        with pytest.raises(LocalStateError, match="wanted .*/1, found that it was removed"):
            LmdbEnvironment(leftover, STORES, makes_it=False)


@pytest.mark.parametrize("step", ["_lock", "_check_mark", "_opened"])
def test_an_environment_that_another_container_removes_during_the_opening_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    directory = LmdbStateDirectory(tmp_path / "task", STORES)
    directory.open().close()
    really = getattr(LmdbEnvironment, step)

    def after_the_removal(environment: LmdbEnvironment, *arguments: object) -> object:
        shutil.rmtree(environment.path.parent)
        return really(environment, *arguments)

    monkeypatch.setattr(LmdbEnvironment, step, after_the_removal)

    assert directory.existing() is None


def test_a_directory_that_another_container_is_removing_is_made_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, removals = os.mkdir, iter([FileNotFoundError, FileExistsError, FileNotFoundError])

    def mkdir(*arguments: object) -> None:
        error = next(removals, None)
        if error is not None:
            raise error
        make(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "mkdir", mkdir)

    LmdbStateDirectory(tmp_path / "task", STORES).open().close()

    assert next(removals, None) is None
    assert (tmp_path / "task" / "1" / "data.mdb").exists()


def test_a_removed_directory_is_gone_although_it_is_open(tmp_path: Path) -> None:
    directory = LmdbStateDirectory(tmp_path / "task", STORES)
    open_still = directory.fresh()

    directory.remove()
    directory.remove()

    assert not (tmp_path / "task").exists()
    open_still.begin().abort()
    open_still.close()


def test_a_commit_after_another_process_removed_the_environment_is_made(tmp_path: Path) -> None:
    """The next execution rebuilt the state of a stopped worker under another number."""
    with opened(tmp_path / "task" / "1") as environment:
        transaction = environment.begin()
        transaction.write("sums", {bytes(10) + bytes([number]): bytes(4000) for number in range(100)})
        shutil.rmtree(tmp_path / "task")

        transaction.commit()

        assert bytes(4000) == environment.begin().get("sums", bytes(11))
    assert not (tmp_path / "task").exists()


def test_a_commit_leaves_a_file_of_the_same_name_alone_that_another_process_made(tmp_path: Path) -> None:
    data = tmp_path / "1" / "data.mdb"
    with opened(tmp_path / "1") as environment:
        transaction = environment.begin()
        transaction.write("sums", {b"a": b"1"})
        shutil.rmtree(tmp_path / "1")
        data.parent.mkdir()
        data.write_bytes(b"of another process")

        transaction.commit()
        # The length of the other file is no damage to this one.
        environment.begin().abort()

    assert b"of another process" == data.read_bytes()


def test_a_file_that_cannot_be_extended_after_a_commit_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with opened(tmp_path / "1") as environment:
        transaction = environment.begin()
        with monkeypatch.context() as patch:
            patch.setattr(lmdb_store, "extend", refused)
            with pytest.raises(LocalStateError, match=r"wanted to use .*/1, found: .*Input/output error"):
                transaction.commit()

        environment.begin().abort()


class RemovedMeanwhile(type(Path())):  # type: ignore[misc]
    """A directory that is there at the first look, and is removed before it is read."""

    def is_dir(self) -> bool:
        return True


def test_a_task_directory_that_is_removed_while_it_is_read_has_no_environment(tmp_path: Path) -> None:
    assert current_environment(RemovedMeanwhile(tmp_path / "task")) is None


def test_a_directory_that_is_removed_while_old_environments_are_removed_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_to_list(_: Path) -> Iterator[Path]:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "iterdir", refuse_to_list)

    LmdbStateDirectory(tmp_path / "task", STORES).fresh().close()


def test_state_is_in_use_while_another_process_has_it_open(tmp_path: Path) -> None:
    """A stopped process may keep the environment open when no process holds our lock.

    The rule also holds between its transactions.
    """
    directory = LmdbStateDirectory(tmp_path, STORES)
    with opened(tmp_path / "1") as environment:
        transaction = environment.begin()
        transaction.set_position(POSITION)
        transaction.commit()
    written_ms = (tmp_path / "1" / "data.mdb").stat().st_mtime_ns // 1_000_000

    with another_process("environment.begin().abort()", tmp_path / "1") as process:
        os.kill(process.pid, signal.SIGSTOP)

        assert directory.unused_since_ms() is None

    assert written_ms == directory.unused_since_ms()


def test_looking_at_state_is_no_use_of_it(tmp_path: Path) -> None:
    directory = LmdbStateDirectory(tmp_path, STORES)
    directory.open().close()
    os.utime(tmp_path / "1" / "data.mdb", ns=(0, 0))

    environment = directory.existing()
    assert environment is not None
    environment.begin().abort()
    environment.close()

    assert 0 == directory.unused_since_ms()
    transaction = (environment := directory.open()).begin()
    transaction.set_position(POSITION)
    transaction.commit()
    environment.close()
    assert 0 != directory.unused_since_ms()


def test_missing_state_has_no_known_position(tmp_path: Path) -> None:
    assert LmdbStateDirectory(tmp_path / "task", STORES).unused_since_ms() is None


def test_the_tasks_of_a_host_are_those_that_have_a_directory_there(tmp_path: Path) -> None:
    names = ["Partition_0", "Partition_0-1-2", "SystemStreamPartition_kafka.page.views.3-1-4"]
    long = "SystemStreamPartition_kafka." + "x" * 249 + ".3"
    own_grouping = "x" * 199 + "-198-200"
    for name in (*names, long, own_grouping):
        LmdbStateDirectory(task_directory(tmp_path, "flights-1", name), STORES).fresh().close()
    (tmp_path / "flights-1" / ".processors").mkdir()
    (tmp_path / "flights-1" / "Partition_0-1-1").mkdir()

    assert names == tasks_with_state(tmp_path, "flights-1")
    assert [] == tasks_with_state(tmp_path, "another-1")


def test_a_damaged_environment_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "data.mdb").write_bytes(b"not what it was" * 1000)
    (tmp_path / "3.lock").write_text(lmdb_store.boot_id())

    environment = LmdbStateDirectory(tmp_path, STORES).open()

    assert "4" == environment.path.name
    environment.close()


def test_a_new_store_is_made_in_an_environment_that_is_there(tmp_path: Path) -> None:
    with opened(tmp_path / "1", a_store("sums")) as environment:
        transaction = environment.begin()
        transaction.write("sums", {b"a": b"1"})
        transaction.commit()

    with opened(tmp_path / "1", a_store("sums"), a_store("seen")) as environment:
        transaction = environment.begin()

        assert (b"1", None) == (transaction.get("sums", b"a"), transaction.get("seen", b"a"))
        transaction.abort()


def test_a_directory_that_cannot_be_made_is_named_with_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(
        EnvironmentMissingError, match=r"local.store.dir: wanted to write .*file/1, found Not a directory"
    ):
        LmdbEnvironment(tmp_path / "file" / "1", STORES)


def test_syncing_leaves_the_environment_open(tmp_path: Path) -> None:
    with opened(tmp_path / "1") as environment:
        environment.sync()

        environment.begin().abort()


def test_a_task_s_directory_carries_its_name_and_a_long_one_its_digest(tmp_path: Path) -> None:
    short = "SystemStreamPartition_kafka.page.views.3-1-4"
    long = "SystemStreamPartition_kafka." + "x" * 249
    names = [task_directory(tmp_path, "flights-1", name).name for name in (short, f"{long}.3", f"{long}.4")]

    assert short == names[0]
    assert 3 == len(set(names)) and all(len(name) < 255 for name in names)
    assert tmp_path / "flights-1" / short == task_directory(tmp_path, "flights-1", short)
    (tmp_path / names[1]).mkdir()


# --- after a crash, and after a reboot ---


def written(directory: Path, *, cleanly: bool) -> LmdbStateDirectory:
    """State that a process left at `POSITION`; it takes many pages."""
    directory_of_state = LmdbStateDirectory(directory, STORES)
    environment = directory_of_state.fresh()
    transaction = environment.begin()
    transaction.write("sums", {key: b"x" * 100 for key in KEYS[:1000]})
    transaction.set_position(POSITION)
    transaction.commit()
    environment.close()
    if cleanly:
        close_cleanly(directory_of_state)
    return directory_of_state


def reboot(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lmdb_store, "boot_id", lambda: "another boot")


def opened_as(directory: LmdbStateDirectory) -> tuple[str, LocalPosition | None]:
    """Which environment a start gets, and its position."""
    environment = directory.open()
    try:
        return environment.path.name, position_in(environment)
    finally:
        environment.close()


@pytest.mark.parametrize(
    ("cleanly", "is_rebooted", "number"),
    [(False, False, "1"), (True, False, "1"), (True, True, "1"), (False, True, "2")],
)
def test_state_is_trusted_unless_the_host_was_rebooted_before_it_was_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cleanly: bool, is_rebooted: bool, number: str
) -> None:
    directory = written(tmp_path, cleanly=cleanly)
    if is_rebooted:
        reboot(monkeypatch)

    assert (POSITION if number == "1" else None) == local_position(directory)
    assert (number, POSITION if number == "1" else None) == opened_as(directory)
    assert {number, f"{number}.lock"} == {path.name for path in tmp_path.iterdir()}


def test_an_environment_of_another_boot_is_not_even_opened(tmp_path: Path) -> None:
    """LMDB may believe the file to be longer than it is.

    A reading behind its end is a SIGBUS, so it happens in another process.
    """
    written(tmp_path, cleanly=False)
    data = tmp_path / "1" / "data.mdb"
    os.truncate(data, data.stat().st_size // 2)
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "import lmdb\n"
        "from samzapy.adapters.lmdb import store\n"
        "store.boot_id = lambda: 'another boot'\n"
        "opened, real = [], lmdb.open\n"
        "def noted(path, **options):\n"
        "    opened.append(Path(path).name)\n"
        "    return real(path, **options)\n"
        "lmdb.open = noted\n"
        "directory = store.LmdbStateDirectory(Path(sys.argv[1]), ())\n"
        "print(directory.existing(), directory.open().begin().position(), opened)\n"
    )

    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)

    assert (0, "None None ['2']\n") == (ended.returncode, ended.stdout), ended.stderr
    assert "never synced" in ended.stderr


def test_an_environment_of_an_earlier_release_does_not_name_its_boot_and_is_rebuilt(tmp_path: Path) -> None:
    directory = written(tmp_path, cleanly=True)
    os.truncate(tmp_path / "1.lock", 0)

    assert directory.existing() is None
    assert ("2", None) == opened_as(directory)


def test_any_commit_after_a_clean_close_is_in_doubt_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule also holds for a process that was held up while another one closed it.

    That process had committed before.
    """
    directory = written(tmp_path, cleanly=False)
    with opened(tmp_path / "1") as environment:
        environment.begin().commit()
        subprocess.run([sys.executable, "-c", CLOSE_CLEANLY, str(tmp_path)], check=True)
        assert "clean" == (tmp_path / "1.lock").read_text().strip()
        environment.begin().commit()

    reboot(monkeypatch)

    assert directory.existing() is None


CLOSE_CLEANLY = (
    "import sys\n"
    "from pathlib import Path\n"
    "from samzapy.adapters.lmdb.store import LmdbStateDirectory\n"
    "from samzapy.container.local_state.restore import close_cleanly\n"
    "close_cleanly(LmdbStateDirectory(Path(sys.argv[1]), ()))\n"
)


def test_the_mark_is_on_the_disk_before_the_first_commit_and_clean_only_after_the_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, cleanly=True)
    with opened(tmp_path / "1") as environment:
        steps: list[str] = []
        fsync, lmdb_environment = os.fsync, environment._environment

        def noted_fsync(descriptor: int) -> None:
            fsync(descriptor)
            steps.append("file" if stat.S_ISREG(os.fstat(descriptor).st_mode) else "directory")

        class Noted:
            def begin(self, **options: object) -> object:
                return Transaction(lmdb_environment.begin(**options))

            def sync(self, force: bool) -> None:
                steps.append("sync")
                lmdb_environment.sync(force)

            def __getattr__(self, name: str) -> Any:
                return getattr(lmdb_environment, name)

        class Transaction:
            def __init__(self, transaction: Any) -> None:
                self._transaction = transaction

            def commit(self) -> None:
                steps.append("commit")
                self._transaction.commit()

        monkeypatch.setattr(os, "fsync", noted_fsync)
        monkeypatch.setattr(environment, "_environment", Noted())
        environment.begin().commit()
        environment.begin().commit()
        environment.sync()

    assert ["file", "commit", "commit", "sync", "file"] == steps


@pytest.mark.parametrize(("left", "waits"), [("", 0), ("clean", 1)])
def test_a_new_mark_waits_for_the_disk_only_if_the_old_one_may_be_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str, waits: int
) -> None:
    (tmp_path / "1.lock").write_text(left)
    fsync, synced = os.fsync, []

    def noted_fsync(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(descriptor)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    with opened(tmp_path / "1") as environment:
        environment.begin().commit()

    assert waits == len(synced)


def test_a_mark_that_the_disk_did_not_take_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second reading would take the mark for one on disk.

    The next commit would then not wait for it.
    """
    directory = written(tmp_path, cleanly=True)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with opened(tmp_path / "1") as environment, monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(LocalStateError, match="No space left on device"):
            environment.begin().commit()

    assert directory.existing() is None


def test_state_that_is_only_looked_at_stays_clean_and_a_store_made_in_it_is_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = written(tmp_path, cleanly=True)
    assert POSITION == local_position(directory)
    assert "clean" == (tmp_path / "1.lock").read_text().strip()

    LmdbStateDirectory(tmp_path, (*STORES, a_store("new"))).open().close()

    reboot(monkeypatch)
    assert directory.existing() is None


def test_entries_handed_over_are_in_doubt_until_they_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = filled(tmp_path / "source", [("sums", changelog_key(b"a", b""), b"1")])
    target = LmdbEnvironment(tmp_path / "heir", STORES)
    target.sync()

    source.hand_over(["sums"], [target], [0])

    source.close()
    target.close()
    assert lmdb_store.boot_id() == (tmp_path / "heir.lock").read_text().strip()


def test_pages_that_are_lost_within_a_boot_are_left_behind_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = written(tmp_path, cleanly=False)
    zero_pages(tmp_path / "1" / "data.mdb")

    assert local_position(directory) is None
    caplog.clear()
    environment = directory.open()
    position = position_in(environment)
    environment.close()

    assert position is None
    assert 1 == len(caplog.records)
    assert "free space if the disk is full, else remove" in caplog.text


def zero_pages(data: Path) -> None:
    """All pages but the first two, which have the places of the others."""
    content = data.read_bytes()
    data.write_bytes(content[: 2 * PAGE_BYTES].ljust(len(content), b"\0"))


PAGE_BYTES = 4096


@pytest.mark.parametrize("raw", [b"\0\0", b"{}", b"[1]", b'{"execution_id": 1, "more": 2}'])
def test_a_position_that_is_none_is_named(tmp_path: Path, raw: bytes) -> None:
    with opened(tmp_path / "1") as environment:
        transaction = environment.begin()
        transaction._transaction.put(b"position", sealed(b"position", raw), db=environment.meta)

        with pytest.raises(LocalStateError, match=r"wanted to use .*/1, found: .*a start rebuilds it"):
            transaction.position()

        transaction.commit()
        assert position_in(environment) is None


@pytest.mark.parametrize("limit", [0, PAGE_BYTES])
def test_a_disk_that_takes_no_more_is_named_when_state_is_made(tmp_path: Path, limit: int) -> None:
    """A limit on the size of files takes the place of a full disk.

    It hits the mark first, then the writes of LMDB.
    """
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from samzapy.adapters.lmdb.store import LmdbStateDirectory\n"
        "from samzapy.errors import LocalStateError\n"
        "directory = LmdbStateDirectory(Path(sys.argv[1]) / 'task', ())\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))\n"
        "try:\n"
        "    directory.open()\n"
        "except LocalStateError as error:\n"
        "    print(error)\n"
    )

    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)

    assert "wanted to use" in ended.stdout and "File too large" in ended.stdout, ended.stderr
    assert re.search(r", and [\d,]+\.\d MB free on its disk; free space if the disk is full", ended.stdout)


def test_a_full_disk_is_not_taken_for_a_directory_that_must_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)

    with pytest.raises(
        LocalStateError, match=r"found: .*No space left on device, and .* free on its disk; free space"
    ):
        LmdbStateDirectory(tmp_path / "task", STORES).fresh()


def test_pages_that_are_lost_while_it_is_open_are_named(tmp_path: Path) -> None:
    written(tmp_path, cleanly=False)
    with opened(tmp_path / "1") as environment:
        content = (tmp_path / "1" / "data.mdb").read_bytes()
        with (tmp_path / "1" / "data.mdb").open("r+b") as data:
            data.seek(2 * PAGE_BYTES)
            data.write(bytes(len(content) - 2 * PAGE_BYTES))

        assert position_in(environment) is None


def test_a_transaction_that_lmdb_refuses_is_named_and_releases_the_lock(tmp_path: Path) -> None:
    with opened(tmp_path / "1") as environment:
        environment._environment.close()

        with pytest.raises(LocalStateError, match=r"wanted to use .*/1, found: "):
            environment.begin()

        with another_process("transaction = environment.begin()", tmp_path / "1"):
            pass


def test_a_data_file_has_nothing_of_the_memory_of_its_process(tmp_path: Path) -> None:
    """A page that is written is zeroed first: the heap may hold passwords of the job."""
    password = b"hunter2-of-the-heap"
    held = [(password * 250)[: 4000 + number % 200] for number in range(4000)]
    # Every second block becomes free, so the heap stays as large as it is, with the old bytes in its holes.
    del held[::2]
    with opened(tmp_path / "1", *STORES) as environment:
        local = environment.begin()
        local.write("sums", {changelog_key(b"%d" % number, b""): b"v" * 1500 for number in range(4000)})
        local.commit()
    assert held
    assert password not in (tmp_path / "1" / "data.mdb").read_bytes()
