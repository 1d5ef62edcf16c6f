"""Keep processor ids on their host.

A process takes the first id of a directory that no other process holds. Each id is a file with a POSIX record lock. The
kernel frees the lock when the process ends, and children do not inherit it. So two processes on one host get two ids,
and a restarted process gets an earlier id, with its local state.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from samzapy.errors import EnvironmentMissingError

_ID = re.compile(r"[A-Za-z0-9_]{1,100}")


@contextmanager
def kept_processor_id(directory: Path) -> Iterator[str]:
    """Hold an id of `directory` until the end of the block.

    Call this once per process and directory: closing any descriptor of a file drops the process's lock on it.

    Raises:
        EnvironmentMissingError: the directory cannot be written, or its file system has no locks.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        locked = _first_free(directory)
    except OSError as error:
        raise EnvironmentMissingError(
            f"wanted to keep this processor's id in {directory}, found {error.strerror}; make the directory "
            "writable, on a file system that has locks, or set processor.id"
        ) from error
    try:
        yield _id_in(locked)
    finally:
        os.close(locked)


def _first_free(directory: Path) -> int:
    """The descriptor of the first file that could be locked.

    A new file is always free.
    """
    for number in count():
        descriptor = os.open(directory / str(number), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(descriptor)
            continue
        except OSError:
            os.close(descriptor)
            raise
        return descriptor
    raise AssertionError("unreachable: numbers do not end")


def _id_in(descriptor: int) -> str:
    kept = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
    if _ID.fullmatch(kept):
        return kept
    # The file is new, or its writer died over it. The host's name is for people; the rest makes the id unique.
    host = re.sub(r"[^A-Za-z0-9]", "_", socket.gethostname())[:40]
    made = f"{host}_{uuid.uuid4().hex[:12]}"
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, made.encode(), 0)
    os.fsync(descriptor)
    return made
