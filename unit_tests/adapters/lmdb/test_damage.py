"""Damaged state: found, left behind once, and never taken for good state."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from samzapy.adapters.faults import fault_of, note_faults, this_process
from samzapy.adapters.lmdb import store, use_mark
from samzapy.adapters.lmdb.checksums import sealed, unsealed
from samzapy.adapters.lmdb.file_size import check_whole
from samzapy.adapters.lmdb.store import LmdbEnvironment, LmdbStateDirectory, faults_directory
from samzapy.container.local_state.restore import local_position, position_in
from samzapy.errors import DamagedStateError
from unit_tests.adapters.lmdb.test_store import POSITION, STORES, a_store, opened

pytestmark = pytest.mark.slow

KEYS = [b"key-%03d" % number for number in range(400)]
VALUES = {key: key * 7 for key in KEYS}
PAGE_BYTES = 4096
# In the header of a page: behind its number, 8 bytes, and a field of 2.
PAGE_FLAGS_AT = 10
SETUP = """
import ctypes, os, signal, sys
from pathlib import Path
from samzapy.adapters.faults import note_faults
from samzapy.adapters.lmdb.store import LmdbEnvironment, LmdbStateDirectory, faults_directory
from samzapy.config import StoreConfig
from samzapy.container.local_state.restore import position_in
from samzapy.errors import DamagedStateError, LocalStateError
stores = [StoreConfig(name=name, msg_serde='bytes', key_serde='bytes', replication_factor=None,
    size_max_bytes=1 << 24) for name in ('sums', 'seen')]
task = Path(sys.argv[1])
note_faults(faults_directory(task.parent))
directory = LmdbStateDirectory(task, stores)
"""


def child(task: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a process of its own, like a container that uses `task`'s state."""
    return subprocess.run(
        [sys.executable, "-c", f"{SETUP}{code}", str(task)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def ended_by(ended: subprocess.CompletedProcess[str], number: signal.Signals) -> bool:
    return ended.returncode == -number


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """The directory of a task, with state in its environment 1."""
    path = tmp_path / "flights-1" / "SystemStreamPartition_kafka.orders.0"
    with opened(path / "1") as environment:
        transaction = environment.begin()
        transaction.write("sums", VALUES)
        transaction.set_position(POSITION)
        transaction.commit()
    return path


@pytest.fixture
def data(task: Path) -> Path:
    return task / "1" / "data.mdb"


def change(data: Path, offset: int, content: bytes) -> None:
    with data.open("r+b") as file:
        file.seek(offset)
        file.write(content)


# --- a file that was cut short ---


def test_a_file_that_was_cut_short_ends_a_process_that_maps_it_and_none_that_looks_first(
    task: Path, data: Path
) -> None:
    os.truncate(data, 2 * PAGE_BYTES)
    mapped = child(
        task,
        "import lmdb\nenvironment = lmdb.open(str(task / '1'), max_dbs=3)\nenvironment.open_db(b'sums')\n",
    )
    assert ended_by(mapped, signal.SIGBUS)

    looked = child(task, "print(directory.open().directory)")

    assert (0, f"{task}/2\n") == (looked.returncode, looked.stdout)


def test_a_file_that_was_cut_short_is_left_behind_with_one_line(
    task: Path, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    length = data.stat().st_size
    os.truncate(data, length - PAGE_BYTES)
    directory = LmdbStateDirectory(task, STORES)

    assert local_position(directory) is None
    caplog.clear()
    environment = directory.open()

    assert f"{task}/2" == environment.directory
    assert position_in(environment) is None
    environment.close()
    (line,) = [record.message for record in caplog.records]
    assert f"wanted {length} bytes, as its own pages say, found {length - PAGE_BYTES}: it was cut short" in line
    assert "is left behind and rebuilt from the changelog" in line


@pytest.mark.parametrize("length", [1, 100, PAGE_BYTES, PAGE_BYTES + 50])
def test_a_file_without_both_its_meta_pages_is_left_behind(task: Path, data: Path, length: int) -> None:
    os.truncate(data, length)

    with pytest.raises(DamagedStateError, match="a start rebuilds it"):
        LmdbEnvironment(task / "1", STORES)


def test_a_file_whose_meta_pages_cannot_be_read_is_left_behind(
    task: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_whole(path: Path) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(store, "check_whole", check_whole)

    with pytest.raises(DamagedStateError, match="Input/output error.*a start rebuilds it"):
        LmdbEnvironment(task / "1", STORES)


@pytest.mark.parametrize("mark", ["counted -", "counted - x", "using 1"])
def test_a_mark_that_was_changed_stops_no_start(task: Path, mark: str) -> None:
    with (task / "1.lock").open("r+b") as file:
        file.seek(use_mark._AT)
        file.write(mark.encode())

    assert "1" == number_of(task)


def test_a_file_with_other_bytes_in_place_of_its_meta_pages_is_left_behind(task: Path, data: Path) -> None:
    change(data, 16, b"no database")

    with pytest.raises(DamagedStateError, match="wanted meta page 0 of LMDB, found magic"):
        LmdbEnvironment(task / "1", STORES)


def test_no_commit_leaves_a_file_that_looks_cut_short(tmp_path: Path) -> None:
    """LMDB itself leaves out pages that a transaction took at the end and freed again."""
    chance, data = random.Random(7), tmp_path / "1" / "data.mdb"
    with opened(tmp_path / "1", a_store("sums", 1 << 26)) as environment:
        for _ in range(20):
            transaction = environment.begin()
            entries = {
                b"%d" % chance.randrange(5000): chance.randbytes(chance.choice((10, 1000))) for _ in range(500)
            }
            transaction.write("sums", entries)
            transaction.write("sums", dict.fromkeys(chance.sample(sorted(entries), len(entries) * 9 // 10)))
            transaction.commit()
            check_whole(data)


def test_a_file_that_is_cut_while_it_is_open_is_named_and_left_behind(task: Path, data: Path) -> None:
    with opened(task / "1") as environment:
        os.truncate(data, PAGE_BYTES * 2)

        with pytest.raises(DamagedStateError, match=f"found the file with {PAGE_BYTES * 2} bytes of"):
            environment.begin()

    with pytest.raises(DamagedStateError, match="found it damaged"):
        LmdbEnvironment(task / "1", STORES)


# --- bytes that were changed in place ---


def read_all(task: Path) -> str:
    """Read all entries in a process of its own; returns the output of the process."""
    code = f"""
environment = directory.existing()
if environment is None:
    sys.exit('left behind')
transaction = environment.begin()
try:
    position = transaction.position()
    for number in range({len(KEYS)}):
        key = b'key-%03d' % number
        if transaction.get('sums', key) != key * 7:
            sys.exit('WRONG ' + repr(key))
    for number in range({len(KEYS)}):
        if transaction.get('sums', b'key-%03d-' % number) is not None:
            sys.exit('WRONG, no key')
except LocalStateError:
    transaction.abort()
    sys.exit('named')
transaction.abort()
sys.exit('right' if position is None or position.epoch == 7 else 'WRONG position')
"""
    ended = child(task, code)
    return ended.stderr.strip().splitlines()[-1] if ended.returncode == 1 else f"signal {-ended.returncode}"


@pytest.mark.parametrize("seed", range(8))
def test_bytes_that_were_changed_in_place_are_detected_and_never_taken_for_state(
    task: Path, data: Path, seed: int
) -> None:
    chance = random.Random(seed)
    before = data.read_bytes()
    # Any page, the meta pages too.
    offset = chance.randrange(len(before) - 64)
    change(data, offset, chance.randbytes(64))

    first = read_all(task)
    second = first if first in ("right", "left behind") else read_all(task)

    assert first in ("right", "named", "left behind", "signal 7", "signal 11", "signal 6")
    assert second == ("right" if first == "right" else "left behind")


def change_entry(data: Path, key: bytes, at: int, content: bytes) -> None:
    """Change an entry from a place in its key on.

    LMDB leaves copies in the unused part of pages; those change too.
    """
    entry = b"\0" + key + sealed(b"\0" + key, VALUES[key])
    before = data.read_bytes()
    changed = entry[: 1 + at] + content + entry[1 + at + len(content) :]
    assert entry in before
    data.write_bytes(before.replace(entry, changed))


def test_a_value_that_was_changed_is_named_marked_and_left_behind_at_the_next_start(
    task: Path, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    change_entry(data, KEYS[123], len(KEYS[123]) + 20, b"!")
    with opened(task / "1") as environment:
        transaction = environment.begin()
        assert VALUES[KEYS[122]] == transaction.get("sums", KEYS[122])
        transaction.check()
        with pytest.raises(DamagedStateError, match="found another entry for the key b'key-123' in store sums"):
            transaction.get("sums", KEYS[123])
        # A task may have caught it.
        with pytest.raises(DamagedStateError):
            transaction.check()
        transaction.abort()

    replaced = LmdbStateDirectory(task, STORES).open()
    assert f"{task}/2" == replaced.directory
    replaced.close()
    assert "found it damaged; a start rebuilds it" in caplog.text


@pytest.mark.parametrize("changed", [b"key-000", b"key-399", b"kex-123", b"kez-123", b"\xff\xff\xff\xff\xff\xff\xff"])
def test_an_entry_whose_key_was_changed_is_missed_by_name(task: Path, data: Path, changed: bytes) -> None:
    change_entry(data, KEYS[123], 0, changed)

    with opened(task / "1") as environment:
        transaction = environment.begin()
        with pytest.raises(DamagedStateError, match="key-123"):
            transaction.get("sums", KEYS[123])
        transaction.abort()


def test_a_position_that_was_changed_counts_for_nothing(task: Path, data: Path) -> None:
    offset = data.read_bytes().index(b'"epoch":7') + len(b'"epoch":')
    change(data, offset, b"8")

    with opened(task / "1") as environment:
        assert position_in(environment) is None
    with pytest.raises(DamagedStateError, match="found it damaged"):
        LmdbEnvironment(task / "1", STORES)


@pytest.mark.parametrize("flags", [b"\0\0", b"\x01\0", b"\xff\xff"])
def test_a_page_of_the_position_that_is_no_page_is_named_and_left_behind(
    task: Path, data: Path, flags: bytes
) -> None:
    content = data.read_bytes()
    for start in range(0, len(content), PAGE_BYTES):
        if b'"epoch":7' in content[start : start + PAGE_BYTES]:
            change(data, start + PAGE_FLAGS_AT, flags)

    read = child(task, "print(position_in(directory.open()))")
    again = child(task, "print(directory.open().directory)")

    if read.returncode == 0:
        assert "None\n" == read.stdout
        assert "1 is left behind and rebuilt from the changelog" in read.stderr
    else:
        assert read.returncode < 0, read.stderr
    assert (0, f"{task}/2\n") == (again.returncode, again.stdout)


LEAF, BRANCH = b"\x02\0", b"\x01\0"


@pytest.mark.parametrize(
    ("flags", "at", "content", "value"),
    [
        # The free space of the root: LMDB ends the transaction, and reports it at the next call only.
        pytest.param(BRANCH, 14, b"\xa7\xb5", b"new", id="free space"),
        # The place of an entry: the next one behind a removed one is no entry.
        pytest.param(LEAF, 24, b"\x01\0", None, id="place of an entry"),
    ],
)
def test_a_write_into_a_page_that_was_changed_names_the_damage(
    task: Path, data: Path, flags: bytes, at: int, content: bytes, value: bytes | None
) -> None:
    whole = data.read_bytes()
    for start in range(2 * PAGE_BYTES, len(whole), PAGE_BYTES):
        page = whole[start : start + PAGE_BYTES]
        if page[PAGE_FLAGS_AT : PAGE_FLAGS_AT + 2] == flags and b"key-" in page:
            change(data, start + at, content)
    code = f"""
transaction = directory.existing().begin()
try:
    for number in reversed(range({len(KEYS)})):
        transaction.write('sums', {{b'key-%03d' % number: {value}}})
except DamagedStateError:
    transaction.abort()
    sys.exit('named')
"""

    assert child(task, code).stderr.endswith("named\n")
    assert f"{task}/2\n" == child(task, "print(directory.open().directory)").stdout


def test_changed_entries_are_copied_to_no_target(task: Path, data: Path, tmp_path: Path) -> None:
    change_entry(data, KEYS[123], len(KEYS[123]) + 20, b"!")

    with opened(task / "1") as environment, opened(tmp_path / "heir") as target:
        with pytest.raises(DamagedStateError, match="another entry than that in store sums"):
            environment.hand_over(["sums"], [target], [0])
        assert target.is_empty("sums")


@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_missing_keys_are_absent_whatever_other_keys_exist(tmp_path: Path, count: int) -> None:
    with opened(tmp_path / "1") as environment:
        transaction = environment.begin()
        transaction.write("sums", dict(list(VALUES.items())[:count]))
        for key in (b"", b"key", b"key-000-", b"key-150-", b"key-999", b"z", b"k" * 600):
            assert transaction.get("sums", key) is None
        transaction.abort()


def test_a_checksum_holds_for_its_own_key_and_value_only() -> None:
    raw = sealed(b"key", b"value")

    assert b"value" == unsealed(b"key", raw)
    assert None is unsealed(b"kez", raw) is unsealed(b"key", raw[:-1]) is unsealed(b"key", b"")
    assert b"" == unsealed(b"", sealed(b"", b""))


def test_the_state_of_an_earlier_release_has_no_checksums_and_is_rebuilt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path / "1"):
        pass
    data = tmp_path / "1" / "data.mdb"
    data.unlink()
    (tmp_path / "1" / "lock.mdb").unlink()
    with lmdb.open(str(tmp_path / "1"), max_dbs=3) as environment:
        environment.open_db(b"_samzapy")

    LmdbStateDirectory(tmp_path, STORES).open().close()

    assert "found that an earlier release wrote it; a start rebuilds it" in caplog.text


# --- processes that died ---

DIES = {
    "by SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "of a fault in LMDB": "os.truncate(task / '1' / 'data.mdb', 8192); transaction.get('sums', b'key-001')",
    "of a fault of the task's": "ctypes.string_at(0)",
}


def die(task: Path, how: str, *, after: str = "transaction = directory.open().begin()") -> None:
    ended = child(task, f"{after}\n{DIES[how]}\n")
    assert ended.returncode < 0, ended.stderr


def number_of(task: Path) -> str:
    """Which environment a start takes."""
    environment = LmdbStateDirectory(task, STORES).open()
    environment.close()
    return environment.path.name


def test_state_that_a_process_used_when_it_was_killed_is_kept(task: Path) -> None:
    die(task, "by SIGKILL")

    assert "1" == number_of(task)


def test_state_that_a_process_used_when_it_died_of_a_fault_in_lmdb_is_left_behind(
    task: Path, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = data.read_bytes()
    die(task, "of a fault in LMDB")
    # So that nothing but the mark speaks against it.
    data.write_bytes(content)

    assert "2" == number_of(task)
    assert "died of a fault while it used it: Bus error" in caplog.text


def test_state_that_a_process_used_when_the_task_s_own_code_ended_it_is_kept(task: Path) -> None:
    for _ in range(4):
        die(task, "of a fault of the task's")

    assert "1" == number_of(task)


def test_state_that_ended_a_process_while_it_was_opened_is_left_behind(task: Path, data: Path) -> None:
    """The meta pages are whole, and so is the length; the tree's root is not."""
    root = 2 * PAGE_BYTES
    content = data.read_bytes()
    change(data, root, b"\xff" * (len(content) - root))
    opened_once = child(task, "directory.open()")

    again = child(task, "print(directory.open().directory)")

    assert opened_once.returncode in (0, -signal.SIGBUS, -signal.SIGSEGV, -signal.SIGABRT)
    assert (0, f"{task}/2\n") == (again.returncode, again.stdout)


def test_the_third_process_in_a_row_that_is_killed_in_its_first_transaction_speaks_against_the_state(
    task: Path,
) -> None:
    die(task, "by SIGKILL")
    die(task, "by SIGKILL")
    assert "1" == number_of(task), "two may be chance"

    die(task, "by SIGKILL")

    assert "2" == number_of(task)


def test_a_transaction_that_ended_restarts_the_count_of_killed_processes(task: Path) -> None:
    for _ in range(5):
        die(task, "by SIGKILL", after="e = directory.open()\ne.begin().abort()\ntransaction = e.begin()")

    assert "1" == number_of(task)


def test_the_second_process_in_a_row_that_is_killed_while_it_opens_the_state_speaks_against_it(task: Path) -> None:
    killed = "import lmdb\nlmdb.open = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\ndirectory.open()"
    assert ended_by(child(task, killed), signal.SIGKILL)
    assert "1" == number_of(task)
    assert ended_by(child(task, killed), signal.SIGKILL)

    assert "2" == number_of(task)


def test_reading_for_another_task_keeps_no_writer_out_and_reports_a_fault(task: Path, data: Path) -> None:
    with opened(task / "1") as environment, environment._read_whole():
        assert "1" == number_of_other_process(task)
    assert "1" == number_of(task)
    content = data.read_bytes()

    ended = child(
        task,
        "heir = LmdbEnvironment(task.parent / 'heir' / '1', stores)\n"
        "environment = directory.open()\n"
        "check = environment._check_length\n"
        "environment._check_length = lambda: (check(), os.truncate(task / '1' / 'data.mdb', 8192))\n"
        "environment.hand_over(['sums'], [heir], [0])\n",
    )
    data.write_bytes(content)

    assert ended_by(ended, signal.SIGBUS)
    assert "2" == number_of(task)


def number_of_other_process(task: Path) -> str:
    return child(task, "print(directory.open().path.name)").stdout.strip()


# --- notes of faults ---


def test_a_process_notes_its_fault_and_one_that_is_killed_notes_none(tmp_path: Path) -> None:
    code = "from samzapy.adapters.faults import this_process\nprint(this_process(), flush=True)\n"
    task = tmp_path / "job" / "task"
    faulted, killed = child(task, f"{code}ctypes.string_at(0)"), child(task, f"{code}{DIES['by SIGKILL']}")

    faults = faults_directory(task.parent)
    fault = fault_of(faults, faulted.stdout.strip())
    assert fault is not None
    assert "Segmentation fault" == fault.name
    assert not fault.is_in(str(Path(__file__).parent))
    assert None is fault_of(faults, killed.stdout.strip())


def test_notes_of_processes_that_ended_without_a_fault_are_removed(tmp_path: Path) -> None:
    task = tmp_path / "job" / "task"
    child(task, DIES["by SIGKILL"])
    child(task, "ctypes.string_at(0)")
    faults = faults_directory(task.parent)
    old = faults / "1-2-3"
    old.write_text("Fatal Python error: Aborted\n")
    os.utime(old, (0, 0))
    living = faults / this_process()
    living.touch()

    child(task, "")

    left = {note.name: bool(note.stat().st_size) for note in faults.iterdir()}
    assert left.pop(living.name) is False
    assert [False, True] == sorted(left.values()), "the last one's own, and the fault"


def test_a_process_that_runs_for_days_can_still_note_its_fault(tmp_path: Path) -> None:
    task = tmp_path / "job" / "task"
    faults = faults_directory(task.parent)
    program = f"{SETUP}print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(task)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (note,) = faults.iterdir()
        os.utime(note, (0, 0))

        child(task, "")
        process.send_signal(signal.SIGSEGV)

    fault = fault_of(faults, note.name)
    assert fault is not None
    assert "Segmentation fault" == fault.name


def test_an_unwritable_directory_stops_no_job(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    note_faults(tmp_path / "file" / "faults")
