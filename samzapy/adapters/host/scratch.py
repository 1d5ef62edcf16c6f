"""An execution's scratch directory: Spark's files, the worker slots, and state that is to be kept nowhere.

In memory where there is room, as a commit of a micro-batch is a rename there and not a wait for a disk. What is in
memory must not stay when its execution was killed, so each start removes what nobody uses any more.
"""

from __future__ import annotations

import fcntl
import logging
import os
import pwd
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from samzapy.adapters.boot import boot_id
from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.errors import EnvironmentMissingError

_LOG = logging.getLogger(__name__)
_MEMORY = Path("/dev/shm")  # noqa: S108  # tmpfs on purpose: nothing in it outlives the host
# What spills there is as large as a micro-batch; Docker's default of 64 MiB is no room for one.
_MEMORY_FREE_MIN_BYTES = 512 << 20
# logind.conf(5), RemoveIPC: root and system users are exempt.
_SYSTEM_UID_MAX = 999
_LOGIND = Path("/run/systemd/users")
_LINGERING = Path("/var/lib/systemd/linger")
_WITHOUT_OWNER_S = 60.0


def scratch_directories() -> Sequence[Path]:
    """What executions of this user have, or have left, on this host; each is named by its execution."""
    return [path for root in _roots() for path in root.glob("*")]


@contextmanager
def scratch_directory(execution_id: str) -> Iterator[Path]:
    """A directory of this process's own, removed at its end; those of executions that are gone are removed now.

    Raises:
        EnvironmentMissingError: it cannot be made.
    """
    for old in scratch_directories():
        if _is_left_behind(old):
            shutil.rmtree(old, ignore_errors=True)
    roots = _roots()
    in_memory = not _is_removed_at_logout(os.getuid()) and _has_room(_MEMORY)
    path = (roots[0] if in_memory else roots[-1]) / execution_id
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(mode=0o700)
        # On the directory: what ages files away (systemd-tmpfiles) leaves one alone that is locked, with all in it.
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        own = ProcessIdentity.of(os.getpid())
        (path / "owner").write_text(f"{boot_id()} {own.pid} {own.started_ms}")
    except OSError as error:
        raise EnvironmentMissingError(
            f"wanted a scratch directory at {path}, found {error.strerror}; "
            "it must be writable for this user, and not be another one's"
        ) from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _roots() -> Sequence[Path]:
    """In memory, and on disk for where memory is short; the latter only where there is such a place."""
    places = [_MEMORY]
    with suppress(FileNotFoundError):
        places.append(Path(tempfile.gettempdir()))
    return [place / f"samzapy-{os.getuid()}" for place in places]


def _is_removed_at_logout(uid: int) -> bool:
    """Whether systemd-logind empties `/dev/shm` of a user's files, also those in use, when their last session ends.

    It does so by default for people, who log out while what they started with nohup goes on, and spares those whose
    services linger (`loginctl enable-linger`).
    """
    if uid <= _SYSTEM_UID_MAX or not _LOGIND.is_dir():
        return False
    try:
        return not (_LINGERING / pwd.getpwuid(uid).pw_name).exists()
    except (KeyError, OSError):
        return True


def _has_room(memory: Path) -> bool:
    if not os.access(memory, os.W_OK):
        return False
    found = os.statvfs(memory)
    free_bytes = found.f_bavail * found.f_frsize
    if free_bytes < _MEMORY_FREE_MIN_BYTES:
        _LOG.warning(
            "%s has %d MiB free, less than %d: scratch is in %s, which may be slower",
            memory,
            free_bytes >> 20,
            _MEMORY_FREE_MIN_BYTES >> 20,
            _roots()[-1],
        )
    return free_bytes >= _MEMORY_FREE_MIN_BYTES


def _is_left_behind(scratch_dir: Path) -> bool:
    """Whether nobody uses a scratch directory any more: its owner keeps a lock on it as long as it lives.

    A pid would not do: containers of one machine may share the directory, and do not see each other's processes. It
    counts all the same, as executions of earlier releases keep no lock.

    One without an owner is being made this moment, or a JVM that outlived its driver made parts of it anew.
    """
    try:
        lock = os.open(scratch_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            boot, pid, started = (scratch_dir / "owner").read_text().split()
            found, started_ms = ProcessIdentity.of(int(pid)), int(started)
        finally:
            os.close(lock)
    except ProcessLookupError:
        return True
    except (FileNotFoundError, ValueError):
        with suppress(OSError):
            return time.time() - scratch_dir.stat().st_mtime > _WITHOUT_OWNER_S
        return False
    except OSError:
        return False  # In use; or who uses it cannot be told.
    return (boot, started_ms) != (boot_id(), found.started_ms) or not found.is_alive()
