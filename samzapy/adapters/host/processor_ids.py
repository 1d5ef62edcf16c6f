"""A processor's id that is kept on its host: the first one in a directory that no living process has.

Each id is a file with a POSIX record lock, which the kernel frees when the process ends, however it ends; children do
not inherit it. So two processes on one host get two ids, and each that comes back gets one that was there before,
together with the local state that belongs to it.
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
    """An id of `directory`, this process's own until the end of the block. Once per process and directory: closing
    any descriptor of a file drops the process's lock on it.

    Raises:
        EnvironmentMissingError: the directory cannot be written, or knows no locks.
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
    """The descriptor of the first file that could be locked; there is always one more."""
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
    # New, or its writer died over it. The host's name is for people; the rest makes it like no other.
    host = re.sub(r"[^A-Za-z0-9]", "_", socket.gethostname())[:40]
    made = f"{host}_{uuid.uuid4().hex[:12]}"
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, made.encode(), 0)
    os.fsync(descriptor)
    return made
