"""Give Spark's class loader paths that it can read.

ADD JAR resolves links and writes the path into a URL without quoting. So a blank or a letter beyond ASCII in it hides
all classes of the jar (Spark 4.2), and no error says so.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import quote

from samzapy.errors import EnvironmentMissingError

_PLAIN_PLACES: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  # mkdtemp makes a directory of this user


def readable_jar(jar: Path, copies: Path) -> Path:
    """`jar`, or a copy of it if Spark's class loader could not read its path.

    Args:
        copies: the directory for a copy, as for `readable_directory`.
    """
    return jar if _is_readable(jar) else Path(shutil.copy(jar, readable_directory(copies)))


def readable_directory(wanted: Path) -> Path:
    """Make `wanted`, or another directory.

    The other one is for a path at which Spark's class loader could not read jars. It is removed at the end of the
    process.

    Raises:
        EnvironmentMissingError: there is none.
    """
    if not _is_readable(wanted):
        return _plain_directory()
    wanted.mkdir(exist_ok=True)
    return wanted


def _is_readable(path: Path) -> bool:
    return quote(resolved := str(path.resolve())) == resolved


@cache
def _plain_directory() -> Path:
    for place in _PLAIN_PLACES:
        if os.access(place, os.W_OK | os.X_OK):
            made = tempfile.mkdtemp(prefix="samzapy-jars-", dir=place)
            atexit.register(shutil.rmtree, made, ignore_errors=True)
            return Path(made)
    raise EnvironmentMissingError(
        f"wanted a directory for jars whose path Java's URLs can hold, found that none of {', '.join(_PLAIN_PLACES)} "
        "can be written; set TMPDIR to a path without blanks and letters beyond ASCII"
    )
