"""Local state in LMDB: one environment per task, one named database per store.

An environment has one writer at a time. Layout under a task's directory: numbered environments `1/`, `2/`, ... of which
the highest is in use. A rebuild takes the next number and removes the older ones, so a process that still has an old
one open can do no harm.

Beside each environment stands a lock file of ours (`1.lock`, a POSIX record lock): LMDB's own writer lock has no time
limit, and a stopped process may keep it for ever. Commits do not sync: after kill -9 the page cache still holds them.
After a reboot the file may be torn or cut short, and reading it can end the process. So the lock file has the boot of
the host in which unsynced commits were made, or a note that there are none. It is read before LMDB opens the
environment. So are the mark of the last user and its end (`use_mark`), and the length of the file (`file_size`). Each
value has a checksum (`checksums`).

LMDB's keys end at 511 bytes. A longer one is kept under its digest, with the whole key in front of the value. In an
ordered store, only the owner in front of the sub-key is replaced by its digest, so that the sub-keys stay in order.

Timers have an index by time, with an entry of moment and key for each. It is made of the entries of their store: kept
up to date by each write, and made anew where another environment handed the entries over.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import logging
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import lmdb
import msgspec
from xxhash import xxh3_64_digest, xxh64_intdigest

from samzapy.adapters.boot import boot_id
from samzapy.adapters.lmdb.checksums import SUM_BYTES, is_absent, sealed, unsealed
from samzapy.adapters.lmdb.file_size import check_whole, extend
from samzapy.adapters.lmdb.use_mark import UseMark
from samzapy.config import StoreConfig
from samzapy.container.task.changelog_mark import ChangelogMark
from samzapy.container.task.ports import LocalPosition
from samzapy.errors import DamagedStateError, DeadlineError, EnvironmentMissingError, LocalStateError
from samzapy.model.job import TaskName
from samzapy.model.store_size import StoreSize
from samzapy.model.timer_entry import DUE_BYTES, VALUE_BYTES, due_before, due_prefix, moment_of
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
# In place of a boot id in a lock file: everything that was committed has been synced.
_CLEAN = "clean"
# In place of a descriptor. Its number may be that of another file by now.
_CLOSED = -1
_MARK_BYTES = 64
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
# Another process that removes the same directory does so once.
_MAKE_TRIES_MAX = 10
_POSITION = b"position"
# Of entries with checksums; an earlier release, which knows none, finds no position here and rebuilds.
_META = b"_samzapy2"
_META_WITHOUT_CHECKSUMS = b"_samzapy"
_DUE = b"_samzapy_due"
# A page that is not a page may end the transaction without an error; the next call then says BAD_TXN.
_DAMAGE = (
    lmdb.BadTxnError,
    lmdb.CorruptedError,
    lmdb.InvalidError,
    lmdb.PageFullError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
)
# One byte in front of each key tells whole keys from digests, and from those whose owner is a digest.
_WHOLE, _DIGEST, _OWNER_DIGEST = b"\x00", b"\x01", b"\x02"
_KEY_BYTES_MAX = 511 - len(_WHOLE)
# A sub-key, with the byte in front of it in a store of tasks, has 256 bytes at most.
_OWNER_BYTES_MAX = 202
_OWNER_DIGEST_BYTES = 16
_NAME_BYTES_MAX = 200
_NAME_CUT = re.compile(r".{150}-[0-9a-f]{32}")


def task_directory(store_dir: Path, job: str, task_name: str) -> Path:
    """The directory of a task's environments.

    A name too long for a file name is cut and made unique by its digest.
    """
    name = task_name
    if len(name) > _NAME_BYTES_MAX:
        name = f"{name[:150]}-{hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}"
    return store_dir / job / name


def faults_directory(job_dir: Path) -> Path:
    """The directory of the notes on faults in a job's environments.

    See `adapters.faults`. It is beside the directories of the tasks, under a name that no task has.
    """
    return job_dir / ".faults"


def tasks_with_state(store_dir: Path, job: str) -> list[TaskName]:
    """The tasks that have a directory on this host, without those with a cut name."""
    if not (store_dir / job).is_dir():
        return []
    names = []
    for path in sorted((store_dir / job).iterdir()):
        if _NAME_CUT.fullmatch(path.name):
            continue  # It may well be the name of a task, and is another's directory.
        try:
            name = TaskNameParts.parse(path.name).name
        except ValueError:
            continue
        if task_directory(store_dir, job, name) == path:
            names.append(name)
    return names


def current_environment(directory: Path) -> Path | None:
    """The environment in use under a task's directory, or None.

    A directory without data remains after a removal.
    """
    # Unlike `Path.glob` it passes over a directory that another process removes between its two looks at it.
    names = [os.path.dirname(data) for data in glob.glob(f"[0-9]*/{_DATA}", root_dir=directory)]
    numbers = [int(name) for name in names if name.isdigit()]
    return directory / str(max(numbers)) if numbers else None


class LmdbEnvironment:
    """One environment, open in this process.

    An environment must not be opened twice in one process.
    """

    def __init__(
        self, path: Path, stores: Sequence[StoreConfig], lock_wait_s: float = LOCK_WAIT_S, *, makes_it: bool = True
    ) -> None:
        """Open it.

        Args:
            makes_it: whether to make it, if it is not there.

        Raises:
            EnvironmentMissingError: the directory cannot be written.
            DeadlineError: another process keeps the lock.
            LocalStateError: it is not there and is not to be made; it is damaged, or in doubt since a reboot or by the
                end of its last user; the disk is full.
        """
        self.path = path
        self.ordered = frozenset(store.name for store in stores if store.is_ordered)
        self.timers = next((store.name for store in stores if store.kind == "timer"), None)
        self.due: Any = None
        self.damage: DamagedStateError | None = None
        self._lock_wait_s = lock_wait_s
        try:
            if makes_it:
                self._lock_file = _made(path)
            elif (path / _DATA).exists():
                self._lock_file = _lock_file_of(path)
            else:
                raise FileNotFoundError
        except FileNotFoundError as error:
            # Another container on this host may remove the state of a task that is gone.
            raise LocalStateError(f"local state: wanted {path}, found that it was removed") from error
        except OSError as error:
            if error.errno in _FULL_DISK:
                raise LocalStateError(_no_use(path, error)) from error
            raise EnvironmentMissingError(
                f"local.store.dir: wanted to write {path}, found {error.strerror}; "
                "the directory must be readable and writable by every processor of the job on this host"
            ) from error
        try:
            # Opening a named database needs the writer's lock the first time, so it is taken in our way.
            self._mark_use = UseMark(self._lock_file, faults_directory(path.parent.parent))
            self._lock()
            try:
                self._check_mark()
                self._mark_use.opening()
                try:
                    self._environment, self._data_file, self.meta, self.stores = self._opened(stores)
                finally:
                    self._mark_use.opened()
            finally:
                self._unlock()
        except (lmdb.Error, FileNotFoundError) as error:
            os.close(self._lock_file)
            # The other one may have removed it since the directory was found, too.
            gone = isinstance(error, FileNotFoundError)
            text = f"local state: wanted {path}, found that it was removed" if gone else _no_use(path, error)
            raise LocalStateError(text) from error
        except BaseException:
            os.close(self._lock_file)
            raise

    def _check_mark(self) -> None:
        """Check the lock file before the environment is opened.

        Raises:
            LocalStateError: the data may be torn or damaged, and must not be opened.
        """
        if not (self.path / _DATA).exists():
            self._mark(boot_id())
            return
        doubt = self._mark_use.doubt()
        if doubt:
            raise DamagedStateError(
                f"local state: wanted to use {self.path}, found that {doubt}; a start rebuilds it"
            )
        self._check_boot()
        try:
            check_whole(self.path / _DATA)
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            raise DamagedStateError(f"local state {self.path / _DATA}: {error}; a start rebuilds it") from error

    def _check_boot(self) -> None:
        if (boot := self._marked()) in (boot_id(), _CLEAN):
            return
        raise LocalStateError(
            f"local state: wanted {self.path} as this boot of the host wrote it, or synced, found it written in "
            f"{f'boot {boot}' if boot else 'a boot that is not known'} and never synced; a start rebuilds it"
        )

    def _opened(self, stores: Sequence[StoreConfig]) -> tuple[Any, int, Any, dict[str, Any]]:
        environment = lmdb.open(
            str(self.path),
            map_size=max(1 << 20, sum(store.size_max_bytes for store in stores)),
            max_dbs=len(stores) + 2,
            sync=False,
            metasync=False,
            readahead=False,
            mode=0o664,
        )
        try:
            names = [_META, *(store.name.encode() for store in stores)]
            with environment.begin() as read:
                has_all = all(read.get(name) is not None for name in names)
                has_checksums = read.get(_META_WITHOUT_CHECKSUMS) is None
            if not has_checksums:
                raise LocalStateError(
                    f"local state: wanted {self.path} with checksums, found that an earlier release wrote it; a start "
                    "rebuilds it"
                )
            if not has_all:
                self._mark_unsynced()  # They are made now.
            meta, *opened = [environment.open_db(name) for name in names]
            by_name = {store.name: database for store, database in zip(stores, opened, strict=True)}
            # Another process may remove the environment, or make one of the same number anew. This file stays ours.
            data_file = os.open(self.path / _DATA, os.O_RDWR | os.O_CLOEXEC)
            try:
                self._bytes_least = self._extended(environment, data_file)
                if self.timers is not None:
                    self._open_index(environment, by_name[self.timers])
                    # It may have written.
                    self._bytes_least = self._extended(environment, data_file)
            except BaseException:
                os.close(data_file)
                raise
        except BaseException:
            environment.close()
            raise
        return environment, data_file, meta, by_name

    def _open_index(self, environment: Any, timers: Any) -> None:
        """Open the index of timers, and make it if it is not that of the entries.

        Both are written in one transaction, so it has as many entries as they unless they were handed over.
        """
        with environment.begin() as read:
            is_there = read.get(_DUE) is not None
        if not is_there:
            self._mark_unsynced()
        self.due = environment.open_db(_DUE)
        with environment.begin() as read:
            if read.stat(db=self.due)["entries"] == read.stat(db=timers)["entries"]:
                return
            index = []
            for stored, raw in read.cursor(db=timers):
                if unsealed(stored, raw) is None:
                    raise self.damaged(f"another timer than that under {stored[:60]!r}")
                index.append(due_prefix(raw[-VALUE_BYTES:]) + stored)
        index.sort()
        self._mark_unsynced()
        with environment.begin(write=True) as write:
            write.drop(self.due, delete=False)
            with write.cursor(db=self.due) as cursor:
                cursor.putmulti(((due, sealed(due, b"")) for due in index), append=True)

    def _extended(self, environment: Any, data_file: int) -> int:
        """Extend the file after a commit, under the lock; it is never shorter from now on.

        Raises LocalStateError when the file cannot be extended.
        """
        try:
            return extend(data_file, environment.info()["last_pgno"], environment.stat()["psize"])
        except OSError as error:
            raise LocalStateError(_no_use(self.path, error)) from error

    def begin(self) -> LmdbTransaction:
        """Begin the one write transaction there can be.

        Raises:
            DeadlineError: another process keeps the lock.
            DamagedStateError: pages of the environment are gone.
            LocalStateError: the environment cannot be read.
        """
        self._lock()
        try:
            self._check_length()
            self._mark_use.using()
            transaction = self._environment.begin(write=True, buffers=False)
        except _DAMAGE as error:
            damage = self.damaged(error)
            self.release()
            raise damage from error
        except lmdb.Error as error:
            self.release()
            raise LocalStateError(_no_use(self.path, error)) from error
        except BaseException:
            self.release()
            raise
        return LmdbTransaction(self, transaction)

    def _check_length(self) -> None:
        """Check that the file was not cut while it was open.

        To read a file that was cut would end this process.

        Raises:
            DamagedStateError: it was cut.
        """
        length = os.fstat(self._data_file).st_size
        if length < self._bytes_least:
            raise self.damaged(f"the file with {length} bytes of {self._bytes_least}")

    def damaged(self, damage: object) -> DamagedStateError:
        """Mark it, so that the next start discards it; returns the error to raise."""
        self._mark_use.damaged()
        text = f"local state: wanted {self.path} as it was written, found {damage}; a start rebuilds it"
        self.damage = DamagedStateError(text)
        return self.damage

    def release(self) -> None:
        """Let the next one in, after a transaction."""
        self._mark_use.used()
        self._unlock()

    def before_commit(self) -> None:
        """Note a commit that is not synced.

        Raises:
            LocalStateError: the note cannot be written.
        """
        self._mark_unsynced()

    def after_commit(self) -> None:
        """Extend the file.

        Raises:
            LocalStateError: it cannot be extended.
        """
        self._bytes_least = self._extended(self._environment, self._data_file)

    @property
    def directory(self) -> str:
        return str(self.path)

    def bytes_on_disk(self) -> int:
        """The disk space of the file, which may be less than its length; 0 if it is gone."""
        try:
            return (self.path / _DATA).stat().st_blocks * _BLOCK_BYTES
        except OSError:
            return 0

    def sync(self) -> None:
        """Force everything committed to disk, and note that it is there.

        Raises:
            DeadlineError: another process keeps the lock.
            LocalStateError: the disk refuses it.
        """
        # Under the lock: nothing can be committed between the two.
        self._lock()
        try:
            with _reported(self):
                self._environment.sync(True)
            self._mark(_CLEAN)
        finally:
            self._unlock()

    def hand_over(
        self, stores: Sequence[str], targets: Sequence[LmdbEnvironment], target_of_bucket: Sequence[int]
    ) -> None:
        """Copy entries into other environments by key bucket.

        See `container.ports.StateEnvironment`. One walk over the file gives the entries in the order of the tree. So
        they are appended to an empty target, which is several times as fast as finding a place for each.
        """
        with self._read_whole() as read:
            for store in stores:
                copies = [_Copy(target, store) for target in targets]
                count, before = 0, b""
                for stored, value in read.cursor(db=self.stores[store]):
                    if unsealed(stored, value) is None or stored <= before:
                        raise self.damaged(f"another entry than that in store {store} behind {before[:60]!r}")
                    count, before = count + 1, stored
                    target = target_of_bucket[_hash_of(stored, value) % len(target_of_bucket)]
                    if target >= 0:
                        copies[target].add(stored, value)
                if count != (wanted := read.stat(db=self.stores[store])["entries"]):
                    raise self.damaged(f"{count} of {wanted} entries in store {store}")
                for copy in copies:
                    copy.flush()

    @contextmanager
    def _read_whole(self) -> Iterator[Any]:
        """A read transaction over all entries.

        Other processes may read them at the same time, so the lock is not kept.
        """
        self._lock()
        try:
            self._check_length()
            self._mark_use.reading()
        finally:
            self._unlock()
        with _reported(self), self._environment.begin(buffers=False) as read:
            yield read
        self._mark_use.read()

    def close(self) -> None:
        """Close it; once more does nothing."""
        files, self._data_file, self._lock_file = (self._data_file, self._lock_file), _CLOSED, _CLOSED
        if _CLOSED in files:
            return
        self._environment.close()
        for descriptor in files:
            os.close(descriptor)

    def append(self, store: str, entries: Sequence[tuple[bytes, bytes]], *, is_ascending: bool) -> None:
        """Put entries as they stand in another environment.

        `is_ascending`: they are behind all entries that are there.
        """
        self._lock()
        try:
            self._mark_unsynced()
            with self._environment.begin(write=True) as write, write.cursor(db=self.stores[store]) as cursor:
                cursor.putmulti(entries, append=is_ascending)
            self._bytes_least = self._extended(self._environment, self._data_file)
        finally:
            self._unlock()

    def is_empty(self, store: str) -> bool:
        with self._environment.begin() as read:
            return bool(read.stat(db=self.stores[store])["entries"] == 0)

    def _marked(self) -> str:
        try:
            return os.pread(self._lock_file, _MARK_BYTES, 0).decode(errors="replace").strip()
        except OSError as error:
            raise LocalStateError(_no_use(self.path, error)) from error

    def _mark_unsynced(self) -> None:
        """Note that there are commits of this boot. Comes before each; the lock is kept."""
        # Looked at each time, which takes a microsecond: another process may have synced it in between.
        if self._marked() != boot_id():
            self._mark(boot_id())

    def _mark(self, text: str) -> None:
        """Note a boot id, or `_CLEAN`: durably, unless the data is in doubt anyway."""
        must_last = _CLEAN in (text, self._marked())
        try:
            os.pwrite(self._lock_file, text.ljust(_MARK_BYTES).encode(), 0)
            if must_last:
                os.fsync(self._lock_file)
        except OSError as error:
            # A text that is read here again may not be on the disk.
            with suppress(OSError):
                os.ftruncate(self._lock_file, 0)
            raise LocalStateError(_no_use(self.path, error)) from error

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
    """A write transaction (`container.task.ports.LocalTransaction`).

    It ends, and releases the lock, exactly once.
    """

    def __init__(self, environment: LmdbEnvironment, transaction: Any) -> None:
        self._environment = environment
        self._transaction = transaction
        self._is_over = False
        # Of each store that was asked for a key that is not there.
        self._cursors: dict[str, Any] = {}

    def position(self) -> LocalPosition | None:
        """The position; None in a fresh environment.

        Raises:
            DamagedStateError: it has changed since it was written.
            LocalStateError: another release wrote it.
        """
        try:
            raw = self._transaction.get(_POSITION, db=self._environment.meta)
        except lmdb.Error as error:
            # Any error: a page that is not a page ends the transaction too, and its next read says BAD_TXN only.
            raise self._environment.damaged(error) from error
        if raw is None:
            return None
        position = unsealed(_POSITION, raw)
        if position is None:
            raise self._environment.damaged("another position")
        try:
            fields = msgspec.json.decode(position)
            marks = fields.pop("changelog_last", {})
            return LocalPosition(
                **fields, changelog_last={store: ChangelogMark(*mark) for store, mark in marks.items()}
            )
        except (AttributeError, ValueError, TypeError, msgspec.DecodeError) as error:
            raise LocalStateError(_no_use(self._environment.path, error)) from error

    def set_position(self, position: LocalPosition) -> None:
        fields = {name: getattr(position, name) for name in LocalPosition.__dataclass_fields__}
        with _reported(self._environment):
            value = sealed(_POSITION, msgspec.json.encode(fields))
            self._transaction.put(_POSITION, value, db=self._environment.meta)

    def get(self, store: str, key: bytes) -> bytes | None:
        """The value of a key; None if it is absent.

        Raises:
            DamagedStateError: the entry, or one beside it, has changed since it was written.
        """
        if len(key) <= _OWNER_BYTES_MAX:
            stored, is_whole = _WHOLE + key, True
        else:
            stored = self._stored(store, key)
            is_whole = stored[:1] == _WHOLE
        try:
            raw: bytes | None = self._transaction.get(stored, None, self._environment.stores[store])
            if raw is None and is_absent(self._cursor(store), stored):
                return None
        except lmdb.Error as error:
            raise self._environment.damaged(error) from error
        # As `unsealed`, without its call: this is done for each record.
        value = b"" if raw is None else raw[SUM_BYTES:]
        if raw is None or xxh3_64_digest(stored + value) != raw[:SUM_BYTES]:
            raise self._environment.damaged(f"another entry for the key {key[:60]!r} in store {store}")
        return value if is_whole else value[len(key) :]

    def _stored(self, store: str, key: bytes) -> bytes:
        """The key in the file.

        In an ordered store it may also be the beginning of a key.
        """
        if store in self._environment.ordered:
            _, rest = split_changelog_key(key)
            owner = key[: len(key) - len(rest)]
            return _WHOLE + key if len(owner) <= _OWNER_BYTES_MAX else _owner_digest(owner) + rest
        return _WHOLE + key if len(key) <= _KEY_BYTES_MAX else _digest(key)

    def scan(
        self, store: str, prefix: bytes, first: bytes, end: bytes | None, *, reverse: bool, count_max: int
    ) -> Sequence[tuple[bytes, bytes]]:
        """A range of an ordered store (`container.task.ports.LocalTransaction`).

        Raises:
            DamagedStateError: an entry has changed since it was written.
        """
        stored_prefix = self._stored(store, prefix)
        least = stored_prefix + first
        behind = _successor(stored_prefix) if end is None else stored_prefix + end
        is_whole = stored_prefix[:1] == _WHOLE
        rows: list[tuple[bytes, bytes]] = []
        try:
            with self._transaction.cursor(db=self._environment.stores[store]) as cursor:
                for stored, raw in _walk(cursor, least, behind, reverse=reverse):
                    if len(rows) == count_max or not least <= stored < behind:
                        break
                    value = unsealed(stored, raw)
                    if value is None:
                        raise self._environment.damaged(f"another entry for {stored[:60]!r} in store {store}")
                    name = stored[len(stored_prefix) :]
                    rows.append((name, value if is_whole else value[len(prefix) + len(name) :]))
        except lmdb.Error as error:
            raise self._environment.damaged(error) from error
        return rows

    def owners(self, store: str, place: bytes, count_max: int) -> tuple[Sequence[bytes], bytes | None]:
        """The message keys that have entries (`container.task.ports.LocalTransaction`).

        Raises:
            DamagedStateError: an entry has changed since it was written.
        """
        owners: list[bytes] = []
        try:
            with self._transaction.cursor(db=self._environment.stores[store]) as cursor:
                is_there = cursor.set_range(place) if place else cursor.first()
                while is_there and len(owners) < count_max:
                    stored, raw = cursor.item()
                    value = unsealed(stored, raw)
                    if value is None:
                        raise self._environment.damaged(f"another entry for {stored[:60]!r} in store {store}")
                    owner, place = _owner_of(stored, value)
                    owners.append(owner)
                    is_there = cursor.set_range(place)
        except lmdb.Error as error:
            raise self._environment.damaged(error) from error
        return owners, place if is_there else None

    def check(self) -> None:
        """Raise DamagedStateError if an entry has changed since it was written."""
        if self._environment.damage is not None:
            raise self._environment.damage

    def _cursor(self, store: str) -> Any:
        if store not in self._cursors:
            self._cursors[store] = self._transaction.cursor(db=self._environment.stores[store])
        return self._cursors[store]

    def write(self, store: str, entries: Mapping[bytes, bytes | None]) -> None:
        """Set or, where the value is None, remove entries."""
        # In the order of the tree, and in one call: a third of the time of one call each in any order.
        puts, removed = [], []
        for key, value in entries.items():
            if len(key) <= _OWNER_BYTES_MAX:
                stored = _WHOLE + key
            else:
                stored = self._stored(store, key)
                if value is not None and stored[:1] != _WHOLE:
                    value = key + value
            if value is None:
                removed.append(stored)
            else:
                puts.append((stored, sealed(stored, value)))
        puts.sort()
        database = self._environment.stores[store]
        if store == self._environment.timers:
            with _reported(self._environment):
                self._write_index(database, puts, removed)
        with _reported(self._environment):
            with self._transaction.cursor(db=database) as cursor:
                cursor.putmulti(puts)
            self._delete(removed, database)

    def _delete(self, stored: Iterable[bytes], database: Any) -> None:
        """Remove entries.

        Not by the cursor, which raises SystemError where the next entry is no entry.
        """
        delete = self._transaction.delete
        for key in stored:
            delete(key, b"", database)

    def _write_index(self, timers: Any, puts: Sequence[tuple[bytes, bytes]], removed: Sequence[bytes]) -> None:
        """Move the timers in the index, before their entries are written."""
        index, get = self._environment.due, self._transaction.get
        earlier = []
        for stored in (*(stored for stored, _ in puts), *removed):
            before = get(stored, None, timers)
            if before is not None:
                earlier.append(due_prefix(before[-VALUE_BYTES:]) + stored)
        # In the order of the tree, as entries.
        self._delete(sorted(earlier), index)
        due = sorted(due_prefix(raw[-VALUE_BYTES:]) + stored for stored, raw in puts)
        with self._transaction.cursor(db=index) as cursor:
            cursor.putmulti((one, sealed(one, b"")) for one in due)

    def due(
        self, store: str, domain: int, until_ms: int | None, count_max: int
    ) -> Sequence[tuple[int, bytes, bytes]]:
        """The timers up to a moment (`container.task.ports.LocalTransaction`).

        Raises:
            DamagedStateError: an entry has changed since it was written, or is gone.
        """
        first, behind = due_before(domain, until_ms)
        get, timers, digest = self._transaction.get, self._environment.stores[store], xxh3_64_digest
        rows: list[tuple[int, bytes, bytes]] = []
        try:
            with self._transaction.cursor(db=self._environment.due) as cursor:
                for due, seal in _walk(cursor, first, behind, reverse=False):
                    if len(rows) == count_max or not first <= due < behind:
                        break
                    stored = due[DUE_BYTES:]
                    raw = get(stored, b"", timers)
                    value = raw[SUM_BYTES:]
                    # As `unsealed`, without its calls: a million timers may be due.
                    if digest(due) != seal or digest(stored + value) != raw[:SUM_BYTES]:
                        raise self._environment.damaged(f"another timer than that under {stored[:60]!r}")
                    key = stored[1:] if stored[:1] == _WHOLE else value[:-VALUE_BYTES]
                    value = value[-VALUE_BYTES:]
                    rows.append((moment_of(value), key, value))
        except lmdb.Error as error:
            raise self._environment.damaged(error) from error
        return rows

    def remove_due(self, store: str, rows: Sequence[tuple[int, bytes, bytes]]) -> None:
        """Remove timers that are due (`container.task.ports.LocalTransaction`)."""
        stored = [_WHOLE + key if len(key) <= _OWNER_BYTES_MAX else self._stored(store, key) for _, key, _ in rows]
        # The index stands in the order of the rows, and the entries in that of their keys.
        index = [due_prefix(value) + key for key, (_, _, value) in zip(stored, rows, strict=True)]
        with _reported(self._environment):
            self._delete(index, self._environment.due)
            self._delete(sorted(stored), self._environment.stores[store])

    def size(self, store: str) -> StoreSize:
        """The size of a store (`container.task.ports.LocalTransaction`).

        That of timers has the pages of their index.
        """
        environment = self._environment
        with _reported(environment):
            own = self._transaction.stat(environment.stores[store])
            pages = _pages(own)
            if store == environment.timers:
                pages += _pages(self._transaction.stat(environment.due))
        return StoreSize(bytes_used=pages * own["psize"], entries=own["entries"])

    def commit(self) -> None:
        try:
            self._environment.before_commit()
        except BaseException:
            self.abort()
            raise
        try:
            with _reported(self._environment):
                self._transaction.commit()
            self._environment.after_commit()
        finally:
            self._release()

    def abort(self) -> None:
        """Undo everything; harmless after the end."""
        if not self._is_over:
            self._transaction.abort()
            self._release()

    def _release(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._environment.release()


@contextmanager
def _reported(environment: LmdbEnvironment) -> Iterator[None]:
    try:
        yield
    except lmdb.MapFullError as error:
        raise LocalStateError(
            "local state: the environment is full; raise stores.<name>.size.max.bytes and start the job again"
        ) from error
    except _DAMAGE as error:
        raise environment.damaged(error) from error
    except lmdb.Error as error:
        raise LocalStateError(_no_use(environment.path, error)) from error


def _no_use(path: Path, error: Exception) -> str:
    return (
        f"local state: wanted to use {path}, found: {error}, and {_free_text(path)} free on its disk; free space "
        "if the disk is full, else remove the directory: a start rebuilds it from the changelog"
    )


def _free_text(path: Path) -> str:
    """The free space of the disk with `path`.

    LMDB reports a full disk as an input/output error, so the error alone does not name the cause.
    """
    there = next((one for one in (path, *path.parents) if one.exists()), Path("/"))
    return f"{shutil.disk_usage(there).free / 1_000_000:,.1f} MB"


def _made(path: Path) -> int:
    """Make an environment's directory; return its lock file, open.

    Another process may be removing the directory just now.
    """
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
    it is not seen, and is lost: closing any descriptor of a file drops the locks that the process has there.
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

    def __init__(self, target: LmdbEnvironment, store: str) -> None:
        self._target = target
        self._store = store
        self._is_ascending = target.is_empty(store)
        self._entries: list[tuple[bytes, bytes]] = []
        self._bytes = 0

    def add(self, stored: bytes, value: bytes) -> None:
        self._entries.append((stored, value))
        self._bytes += len(stored) + len(value)
        if self._bytes >= _COPY_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._entries:
            self._target.append(self._store, self._entries, is_ascending=self._is_ascending)
        self._entries, self._bytes = [], 0


def _pages(stat: Mapping[str, int]) -> int:
    return stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]


def _hash_of(stored: bytes, value: bytes) -> int:
    """The hash that determines the key bucket of an entry under any factor.

    `value` is the stored one, with its checksum.
    """
    # Nearly every key: whole, and of less than 128 bytes (`stream.changelog`).
    if stored[0] == 0 and stored[1] < 0x80:
        return xxh64_intdigest(stored[2 : 2 + stored[1]], XXHASH_SEED)
    message_key, _ = split_changelog_key(stored[1:] if stored[:1] == _WHOLE else value[SUM_BYTES:])
    return xxh64_intdigest(message_key, XXHASH_SEED)


def _walk(cursor: Any, least: bytes, behind: bytes, *, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
    """The entries from `least` on, or from before `behind` back."""
    if not reverse:
        return cursor.iternext() if cursor.set_range(least) else iter(())
    there = cursor.prev() if cursor.set_range(behind) else cursor.last()
    return cursor.iterprev() if there else iter(())


def _successor(prefix: bytes) -> bytes:
    """The first key behind all that begin with `prefix`, which does not begin with ff."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,))


def _owner_of(stored: bytes, value: bytes) -> tuple[bytes, bytes]:
    """The message key of an entry, and the least key in the file behind all of its."""
    if stored[:1] == _WHOLE:
        owner, sub_key = split_changelog_key(stored[1:])
        own = stored[: len(stored) - len(sub_key)]
    else:
        owner, _ = split_changelog_key(value)
        own = stored if stored[:1] == _DIGEST else stored[: 1 + _OWNER_DIGEST_BYTES]
    return owner, _successor(own)


def _owner_digest(owner: bytes) -> bytes:
    return _OWNER_DIGEST + hashlib.blake2b(owner, digest_size=_OWNER_DIGEST_BYTES).digest()


def _digest(key: bytes) -> bytes:
    # 32 bytes of BLAKE2b: a collision is not something that happens.
    return _DIGEST + hashlib.blake2b(key, digest_size=32).digest()


class LmdbStateDirectory:
    """The local state of one task on the driver.

    It is opened for a start and closed before workers open it.
    """

    def __init__(self, directory: Path, stores: Sequence[StoreConfig], lock_wait_s: float = LOCK_WAIT_S) -> None:
        self._directory = directory
        self._stores = stores
        self._lock_wait_s = lock_wait_s

    def open(self) -> LmdbEnvironment:
        """The environment in use; a fresh one if there is none that can be used.

        It cannot be used if it is damaged, in doubt or locked by another process.

        Raises:
            LocalStateError: no fresh one can be made: the disk is full.
        """
        path = current_environment(self._directory)
        if path is not None:
            try:
                return LmdbEnvironment(path, self._stores, self._lock_wait_s, makes_it=False)
            except (DeadlineError, LocalStateError) as error:
                _LOG.warning("local state %s is left behind and rebuilt from the changelog: %s", path, error)
        return self.fresh()

    def existing(self) -> LmdbEnvironment | None:
        """The environment in use; None when there is none, or it is damaged or in doubt.

        Raises:
            DeadlineError: another process keeps its lock.
        """
        path = current_environment(self._directory)
        if path is None:
            return None
        try:
            wait_s = min(self._lock_wait_s, _RELATIVE_LOCK_WAIT_S)
            return LmdbEnvironment(path, self._stores, wait_s, makes_it=False)
        except LocalStateError as error:
            _LOG.warning("local state %s is of no use: %s", path, error)
            return None

    def remove(self) -> None:
        """Remove everything; a process that has it open still reads its own view."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def unused_since_ms(self) -> int | None:
        """Wall clock of the last write; None if it is open elsewhere or not known.

        Whether it can be read does not matter. Each commit sets the file's time, so a position in it is no younger.
        """
        try:
            if any(map(_is_open, self._directory.glob(f"[0-9]*/{_LMDB_LOCK}"))):
                return None
            path = current_environment(self._directory)
            written = self._directory if path is None else path / _DATA
            return written.stat().st_mtime_ns // 1_000_000
        except OSError:
            return None  # It was removed meanwhile, or belongs to another user.

    def fresh(self) -> LmdbEnvironment:
        """Make a new, empty environment; older ones are removed.

        Raises:
            LocalStateError: the disk is full.
        """
        before = current_environment(self._directory)
        number = self._number_taken(1 if before is None else int(before.name) + 1)
        environment = LmdbEnvironment(self._directory / str(number), self._stores, self._lock_wait_s)
        # Another process may remove the directory just now, and all that is old with it.
        with suppress(FileNotFoundError):
            self._remove_before(number)
        return environment

    def _remove_before(self, number: int) -> None:
        for path in self._directory.iterdir():
            # One with a higher number is that of another process, which came later.
            if (text := path.name.partition(".")[0]).isdigit() and int(text) < number:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    def _number_taken(self, number: int) -> int:
        """Take the first free number from `number` on.

        It is taken by its directory, which only one process can make.
        """
        tries_left = _MAKE_TRIES_MAX
        while tries_left:
            path = self._directory / str(number)
            try:
                self._directory.mkdir(parents=True, exist_ok=True)
                path.mkdir()
                return number
            except (FileExistsError, FileNotFoundError):
                # It is another one's, or the whole directory is being removed just now.
                if path.exists():
                    number += 1
                else:
                    tries_left -= 1
            except OSError:
                break
        return number  # Opening it reports the error.
