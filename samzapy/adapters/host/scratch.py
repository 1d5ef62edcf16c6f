"""The scratch directory of an execution.

It has Spark's files, the worker slots, and state that is not kept. It is in memory if there is room, because a commit
of a micro-batch is a rename there and does not wait for a disk. Directories of killed executions must not fill the
memory, so each start removes the ones that are not used any more.
"""

from __future__ import annotations

import fcntl
import logging
import os
import pwd
import shutil
import stat
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
# Spark spills as much as a micro-batch holds there; Docker's default of 64 MiB is too small for that.
_MEMORY_FREE_MIN_BYTES = 512 << 20
# logind.conf(5), RemoveIPC: root and system users are exempt.
_SYSTEM_UID_MAX = 999
_LOGIND = Path("/run/systemd/users")
_LINGERING = Path("/var/lib/systemd/linger")
_WITHOUT_OWNER_S = 60.0


def scratch_directories() -> Sequence[Path]:
    """All scratch directories of this user on this host, used or left behind.

    The name is the execution's id.
    """
    return [path for root in _roots() if _is_private(root) for path in root.glob("*")]


@contextmanager
def scratch_directory(execution_id: str) -> Iterator[Path]:
    """Make a directory for this process, and remove it at the end.

    Directories that are left behind go first.

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
        _refuse_unless_private(path.parent)
        path.mkdir(mode=0o700)
        # On the directory, because systemd-tmpfiles, which deletes old files, skips a locked one with all its files.
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        own = ProcessIdentity.of(os.getpid())
        (path / "owner").write_text(f"{boot_id()} {own.pid} {own.started_ms}")
    except OSError as error:
        raise EnvironmentMissingError(
            f"wanted a scratch directory at {path}, found {error.strerror}; "
            "make it writable for this user, or remove it"
        ) from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _roots() -> Sequence[Path]:
    """The parent directories: in memory, and on disk.

    The second is for a host with little memory, if it has a temporary directory.
    """
    places = [_MEMORY]
    with suppress(FileNotFoundError):
        places.append(Path(tempfile.gettempdir()))
    return [place / f"samzapy-{os.getuid()}" for place in places]


def _is_private(root: Path) -> bool:
    """Whether it is a directory of this user to which no other user may write.

    Any user may have made it, and could put other files in the place of ours.
    """
    try:
        status = root.lstat()
    except OSError:
        return False
    is_of_others = status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and not is_of_others


def _refuse_unless_private(root: Path) -> None:
    if not _is_private(root):
        status = root.lstat()
        raise EnvironmentMissingError(
            f"wanted {root} to be a directory of user {os.geteuid()} to which no other user may write, found "
            f"{stat.filemode(status.st_mode)} of user {status.st_uid}; remove it once no container of this user "
            "runs here"
        )


def _is_removed_at_logout(uid: int) -> bool:
    """Whether systemd-logind removes files from `/dev/shm` at logout.

    It removes this user's files when the last session ends. It does so by default for ordinary users, also with files
    in use, for instance by a job that was started with nohup. Users with lingering services are spared (`loginctl
    enable-linger`).
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
    size = os.statvfs(memory)
    free_bytes = size.f_bavail * size.f_frsize
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
    """Whether the owner of a scratch directory is gone.

    It keeps a lock on the directory as long as it lives. A pid alone is not enough: containers of one machine may share
    the directory, and do not see each other's processes. The pid is checked too, because executions of earlier releases
    keep no lock.

    A directory without an owner is just being made, or a JVM that outlived its driver has made it again.
    """
    try:
        lock = os.open(scratch_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            boot, pid, started = (scratch_dir / "owner").read_text().split()
            owner, started_ms = ProcessIdentity.of(int(pid)), int(started)
        finally:
            os.close(lock)
    except ProcessLookupError:
        return True
    except (FileNotFoundError, ValueError):
        with suppress(OSError):
            return time.time() - scratch_dir.stat().st_mtime > _WITHOUT_OWNER_S
        return False
    except OSError:
        return False  # In use, or its use cannot be determined.
    return (boot, started_ms) != (boot_id(), owner.started_ms) or not owner.is_alive()
