from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from samzapy.adapters.lmdb.store import (
    LmdbEnvironment,
    LmdbStateDirectory,
    current_environment,
    task_directory,
)
from samzapy.config import StoreConfig
from samzapy.container.ports import LocalPosition
from samzapy.errors import DeadlineError, EnvironmentMissingError, SamzapyError

LONG = b"k" * 600


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
    boot_id="boot-ä",
    changelog_topic_ids={"sums": "AAA", "seen": "BBB"},
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
    """Runs `code` with an environment at `path`, until it says that it is ready."""
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


def test_what_was_committed_is_there_after_opening_again(tmp_path: Path) -> None:
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


def test_what_was_aborted_is_not_there_and_aborting_again_is_harmless(tmp_path: Path) -> None:
    with opened(tmp_path / "1") as environment:
        transaction = environment.begin()
        transaction.write("sums", {b"a": b"1"})
        transaction.set_position(POSITION)
        transaction.abort()
        transaction.abort()

        transaction = environment.begin()

        assert (None, None) == (transaction.get("sums", b"a"), transaction.position())
        transaction.abort()


def test_aborting_after_the_commit_undoes_nothing_and_lets_no_other_lock_go(tmp_path: Path) -> None:
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


def test_long_keys_that_begin_alike_are_different_keys_and_values_may_be_empty(tmp_path: Path) -> None:
    with opened(tmp_path / "1") as environment:
        transaction = environment.begin()
        transaction.write("sums", {LONG + b"a": b""})
        transaction.write("sums", {LONG + b"b": b"b"})

        assert (b"", b"b") == (transaction.get("sums", LONG + b"a"), transaction.get("sums", LONG + b"b"))
        transaction.abort()


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
def test_a_store_behaves_as_a_dictionary_of_what_was_committed(
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

    found = {(name, key): transaction.get(name, key) for name, key, _, _ in writes}

    transaction.abort()
    environment.close()
    assert expected == {place: value for place, value in found.items() if value is not None}


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


# --- processes ---


def test_a_process_killed_in_a_transaction_leaves_what_was_committed_and_no_lock(tmp_path: Path) -> None:
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
    """What another process is told that wants a transaction at once."""
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


def test_a_damaged_environment_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "data.mdb").write_bytes(b"not what it was" * 1000)

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


def test_syncing_leaves_it_open(tmp_path: Path) -> None:
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
