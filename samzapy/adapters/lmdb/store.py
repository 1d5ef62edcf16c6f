"""Local state in LMDB: one environment per task, stores as named databases, one writer at a time.

Layout under a task's directory: numbered environments `1/`, `2/`, ... of which the highest is in use. A rebuild
takes the next number and removes the older ones, so a process that still has an old one open can do no harm.

Beside each environment stands a lock file of ours (`1.lock`, a POSIX record lock): LMDB's own writer lock has no
time limit, and a stopped process may keep it for ever. Commits do not sync: after kill -9 the page cache still
holds them, and after a reboot the boot id says that they are in doubt (`container.restore`).

LMDB's keys end at 511 bytes. A longer one is kept under its digest, with the whole key in front of the value.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
from xxhash import xxh64_intdigest

from samzapy.config import StoreConfig
from samzapy.container.ports import LocalPosition
from samzapy.errors import DeadlineError, EnvironmentMissingError, LocalStateError
from samzapy.model.job import TaskName
from samzapy.plan.elasticity import XXHASH_SEED
from samzapy.plan.task_names import TaskNameParts
from samzapy.stream.changelog import split_changelog_key

_LOG = logging.getLogger(__name__)
LOCK_WAIT_S = 5.0
_RELATIVE_LOCK_WAIT_S = 0.5
_COPY_BYTES = 8 << 20
# The unit of st_blocks, whatever the file system's own is.
_BLOCK_BYTES = 512
_DATA = "data.mdb"
_LMDB_LOCK = "lock.mdb"
# Somebody else who removes the same directory does so once.
_MAKE_TRIES_MAX = 10
_POSITION = b"position"
_META = b"_samzapy"
# One byte in front of each key tells whole keys from digests.
_WHOLE, _DIGEST = b"\x00", b"\x01"
_KEY_BYTES_MAX = 511 - len(_WHOLE)
_NAME_BYTES_MAX = 200
_NAME_CUT = re.compile(r".{150}-[0-9a-f]{32}")


def task_directory(store_dir: Path, job: str, task_name: str) -> Path:
    """Where a task's environments stand. A name too long for a file name is cut and made unique by its digest."""
    name = task_name
    if len(name) > _NAME_BYTES_MAX:
        name = f"{name[:150]}-{hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}"
    return store_dir / job / name


def tasks_with_state(store_dir: Path, job: str) -> list[TaskName]:
    """The tasks that have a directory on this host; those whose names had to be cut are left out."""
    if not (store_dir / job).is_dir():
        return []
    found = []
    for path in sorted((store_dir / job).iterdir()):
        if _NAME_CUT.fullmatch(path.name):
            continue  # It may well be the name of a task, and is another's directory.
        try:
            name = TaskNameParts.parse(path.name).name
        except ValueError:
            continue
        if task_directory(store_dir, job, name) == path:
            found.append(name)
    return found


def current_environment(directory: Path) -> Path | None:
    """The environment in use under a task's directory, or None. A directory without data is what a removal left."""
    numbers = [int(path.parent.name) for path in directory.glob(f"[0-9]*/{_DATA}") if path.parent.name.isdigit()]
    return directory / str(max(numbers)) if numbers else None


class LmdbEnvironment:
    """One environment, open in this process. An environment must not be opened twice in one process."""

    def __init__(
        self, path: Path, stores: Sequence[StoreConfig], lock_wait_s: float = LOCK_WAIT_S, *, makes_it: bool = True
    ) -> None:
        """Open it.

        Args:
            makes_it: whether to make it, if it is not there.

        Raises:
            EnvironmentMissingError: the directory cannot be written.
            LocalStateError: it is not there and is not to be made.
            lmdb.Error: what is there is no LMDB environment, or a damaged one.
        """
        self.path = path
        self._lock_wait_s = lock_wait_s
        try:
            if makes_it:
                self._lock_file = _made(path)
            elif (path / _DATA).exists():
                self._lock_file = _lock_file_of(path)
            else:
                raise FileNotFoundError
        except FileNotFoundError as error:
            # Another container on this host may remove what belonged to a task that is no more.
            raise LocalStateError(f"local state: wanted {path}, found that it was removed") from error
        except OSError as error:
            raise EnvironmentMissingError(
                f"local.store.dir: wanted to write {path}, found {error.strerror}; "
                "the directory must be readable and writable by every processor of the job on this host"
            ) from error
        try:
            self._environment = lmdb.open(
                str(path),
                map_size=max(1 << 20, sum(store.size_max_bytes for store in stores)),
                max_dbs=len(stores) + 1,
                sync=False,
                metasync=False,
                meminit=False,
                readahead=False,
                mode=0o664,
            )
            # Opening a named database needs the writer's lock the first time, so it is taken in our way.
            self._lock()
            try:
                self._meta = self._environment.open_db(_META)
                self._stores = {store.name: self._environment.open_db(store.name.encode()) for store in stores}
            finally:
                self._unlock()
            with self._environment.begin() as looked:
                # Who cannot be asked where it stands is damaged too, and that is to be known before it is used.
                _position_of(looked.get(_POSITION, db=self._meta))
        except BaseException:
            os.close(self._lock_file)
            raise

    def begin(self) -> LmdbTransaction:
        """Begin the one write transaction there can be.

        Raises:
            DeadlineError: another process keeps the lock.
            LocalStateError: LMDB refused it.
        """
        self._lock()
        try:
            with _reported():
                transaction = self._environment.begin(write=True, buffers=False)
        except BaseException:
            self._unlock()
            raise
        return LmdbTransaction(transaction, self._meta, self._stores, self._unlock)

    @property
    def directory(self) -> str:
        return str(self.path)

    def bytes_on_disk(self) -> int:
        """What the file takes, which may be less than its length; 0 when it is there no more."""
        try:
            return (self.path / _DATA).stat().st_blocks * _BLOCK_BYTES
        except OSError:
            return 0

    def sync(self) -> None:
        """Force everything committed to disk."""
        self._environment.sync(True)

    def hand_over(
        self, stores: Sequence[str], heirs: Sequence[LmdbEnvironment], heir_of_bucket: Sequence[int]
    ) -> None:
        """Copy entries into other environments, by key bucket (`container.ports.StateEnvironment`).

        One walk over the file. What comes from it stands in the order of the tree, so into an empty heir it is
        appended, which is several times as fast as finding a place for each.
        """
        with _reported(), self._environment.begin(buffers=False) as read:
            for store in stores:
                copies = [_Copy(heir, store) for heir in heirs]
                for stored, value in read.cursor(db=self._stores[store]):
                    heir = heir_of_bucket[_hash_of(stored, value) % len(heir_of_bucket)]
                    if heir >= 0:
                        copies[heir].add(stored, value)
                for copy in copies:
                    copy.flush()

    def close(self) -> None:
        self._environment.close()
        os.close(self._lock_file)

    def append(self, store: str, entries: Sequence[tuple[bytes, bytes]], *, is_ascending: bool) -> None:
        """Put entries as they stand in another environment; `is_ascending`: behind all that are there."""
        self._lock()
        try:
            with self._environment.begin(write=True) as write, write.cursor(db=self._stores[store]) as cursor:
                cursor.putmulti(entries, append=is_ascending)
        finally:
            self._unlock()

    def is_empty(self, store: str) -> bool:
        with self._environment.begin() as read:
            return bool(read.stat(db=self._stores[store])["entries"] == 0)

    def _lock(self) -> None:
        deadline_s = time.monotonic() + self._lock_wait_s
        while True:
            try:
                fcntl.lockf(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except (BlockingIOError, PermissionError):
                if time.monotonic() >= deadline_s:
                    raise DeadlineError(
                        f"local state {self.path}: wanted its lock, another process kept it {self._lock_wait_s:.0f} s"
                    ) from None
                time.sleep(0.005)

    def _unlock(self) -> None:
        fcntl.lockf(self._lock_file, fcntl.LOCK_UN)


class LmdbTransaction:
    """A write transaction (`container.ports.LocalTransaction`). Ends, and lets the lock go, exactly once."""

    def __init__(self, transaction: Any, meta: Any, stores: dict[str, Any], unlock: Any) -> None:
        self._transaction = transaction
        self._meta = meta
        self._stores = stores
        self._unlock = unlock

    def position(self) -> LocalPosition | None:
        with _reported():
            return _position_of(self._transaction.get(_POSITION, db=self._meta))

    def set_position(self, position: LocalPosition) -> None:
        fields = {name: getattr(position, name) for name in LocalPosition.__dataclass_fields__}
        with _reported():
            self._transaction.put(_POSITION, json.dumps(fields).encode(), db=self._meta)

    def get(self, store: str, key: bytes) -> bytes | None:
        stored = _WHOLE + key if len(key) <= _KEY_BYTES_MAX else _digest(key)
        try:
            found: bytes | None = self._transaction.get(stored, db=self._stores[store])
        except lmdb.Error as error:
            raise LocalStateError(
                f"local state: an entry cannot be read ({error}); it is rebuilt if removed"
            ) from error
        return found if found is None or len(key) <= _KEY_BYTES_MAX else found[len(key) :]

    def write(self, store: str, entries: Mapping[bytes, bytes | None]) -> None:
        """Set or, where the value is None, remove entries."""
        # In the order of the tree, and in one call: a third of the time of one call each in any order.
        puts, removed = [], []
        for key, value in entries.items():
            if len(key) > _KEY_BYTES_MAX:
                stored, value = _digest(key), None if value is None else key + value
            else:
                stored = _WHOLE + key
            if value is None:
                removed.append(stored)
            else:
                puts.append((stored, value))
        puts.sort()
        with _reported(), self._transaction.cursor(db=self._stores[store]) as cursor:
            cursor.putmulti(puts)
            for stored in removed:
                if cursor.set_key(stored):
                    cursor.delete()

    def commit(self) -> None:
        try:
            with _reported():
                self._transaction.commit()
        finally:
            self._release()

    def abort(self) -> None:
        """Undo everything; harmless after the end."""
        if self._unlock is not None:
            self._transaction.abort()
            self._release()

    def _release(self) -> None:
        unlock, self._unlock = self._unlock, None
        if unlock is not None:
            unlock()


def _position_of(raw: bytes | None) -> LocalPosition | None:
    """Raises LocalStateError: what stands there is none."""
    try:
        return None if raw is None else LocalPosition(**json.loads(raw))
    except (ValueError, TypeError) as error:
        raise LocalStateError(
            f"local state: wanted a position, found {raw!r:.100}; it is rebuilt if removed"
        ) from error


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except lmdb.MapFullError as error:
        raise LocalStateError(
            "local state: the environment is full; raise stores.<name>.size.max.bytes and start the job again"
        ) from error
    except lmdb.Error as error:
        raise LocalStateError(f"local state: a write was refused ({error}); free space and start again") from error


def _made(path: Path) -> int:
    """Make an environment's directory; gives its lock file, open. Another process may be removing it just now."""
    tries_left = _MAKE_TRIES_MAX
    while True:
        try:
            path.mkdir(parents=True, exist_ok=True)
            return _lock_file_of(path)
        except (FileExistsError, FileNotFoundError):
            tries_left -= 1
            if not tries_left:
                raise


def _lock_file_of(path: Path) -> int:
    return os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o664)


def _is_open(lmdb_lock: Path) -> bool:
    """Whether another process has the environment open, between its transactions too.

    LMDB itself keeps a lock on the first byte of its lock file for as long. If it is this process that has it open,
    it is not seen, and is lost: closing any descriptor of a file drops what the process has locked there.
    """
    descriptor = os.open(lmdb_lock, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    except (BlockingIOError, PermissionError):
        return True
    finally:
        os.close(descriptor)
    return False


class _Copy:
    """Entries on their way into an environment, put there many at a time."""

    def __init__(self, heir: LmdbEnvironment, store: str) -> None:
        self._heir = heir
        self._store = store
        self._is_ascending = heir.is_empty(store)
        self._entries: list[tuple[bytes, bytes]] = []
        self._bytes = 0

    def add(self, stored: bytes, value: bytes) -> None:
        self._entries.append((stored, value))
        self._bytes += len(stored) + len(value)
        if self._bytes >= _COPY_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._entries:
            self._heir.append(self._store, self._entries, is_ascending=self._is_ascending)
        self._entries, self._bytes = [], 0


def _hash_of(stored: bytes, value: bytes) -> int:
    """The hash that the key bucket of an entry follows from, whatever the factor."""
    # Nearly every key: whole, and of less than 128 bytes (`stream.changelog`).
    if stored[0] == 0 and stored[1] < 0x80:
        return xxh64_intdigest(stored[2 : 2 + stored[1]], XXHASH_SEED)
    message_key, _ = split_changelog_key(stored[1:] if stored[:1] == _WHOLE else value)
    return xxh64_intdigest(message_key, XXHASH_SEED)


def _digest(key: bytes) -> bytes:
    # 32 bytes of BLAKE2b: a collision is not something that happens.
    return _DIGEST + hashlib.blake2b(key, digest_size=32).digest()


class LmdbStateDirectory:
    """The local state of one task, from the driver's side: opened for a start, closed before workers open it."""

    def __init__(self, directory: Path, stores: Sequence[StoreConfig], lock_wait_s: float = LOCK_WAIT_S) -> None:
        self._directory = directory
        self._stores = stores
        self._lock_wait_s = lock_wait_s

    def open(self) -> LmdbEnvironment:
        """The environment in use; a fresh one if there is none, or if it is damaged or locked by somebody else."""
        path = current_environment(self._directory)
        if path is not None:
            try:
                return LmdbEnvironment(path, self._stores, self._lock_wait_s, makes_it=False)
            except (lmdb.Error, DeadlineError, LocalStateError) as error:
                _LOG.warning("local state %s is left behind and rebuilt from the changelog: %s", path, error)
        return self.fresh()

    def existing(self) -> LmdbEnvironment | None:
        """The environment in use; None when there is none, or it is damaged or locked by somebody else."""
        path = current_environment(self._directory)
        if path is None:
            return None
        try:
            wait_s = min(self._lock_wait_s, _RELATIVE_LOCK_WAIT_S)
            return LmdbEnvironment(path, self._stores, wait_s, makes_it=False)
        except (lmdb.Error, LocalStateError, DeadlineError) as error:
            _LOG.warning("local state %s is of no use: %s", path, error)
            return None

    def remove(self) -> None:
        """Remove everything; whoever has it open keeps what it sees."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def unused_since_ms(self) -> int | None:
        """Wall clock of the last write to it; None while another process has it open, or when that is not known.

        Whether it can be read does not matter. Each commit sets the file's time, so a position in it is no younger.
        """
        try:
            if any(map(_is_open, self._directory.glob(f"[0-9]*/{_LMDB_LOCK}"))):
                return None
            path = current_environment(self._directory)
            written = self._directory if path is None else path / _DATA
            return written.stat().st_mtime_ns // 1_000_000
        except OSError:
            return None  # It was removed meanwhile, or is somebody else's.

    def fresh(self) -> LmdbEnvironment:
        """A new, empty environment; older ones are removed. Raises LocalStateError: the disk is full."""
        before = current_environment(self._directory)
        number = 1 if before is None else int(before.name) + 1
        with _reported():
            environment = LmdbEnvironment(self._directory / str(number), self._stores, self._lock_wait_s)
        for path in self._directory.iterdir():
            if path.name.partition(".")[0] != str(number):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        return environment
