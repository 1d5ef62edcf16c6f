"""Make the class archive of Spark in the background.

A container does so after its start on a machine that has none. The next container there then starts some seconds
faster. The archive is made by a process of its own with idle priority. It must never harm the job, so it needs room on
the disk and in memory, and a failure is not repeated for a day.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from samzapy.adapters.maven.fetch import cache_root, jars_there
from samzapy.adapters.maven.locks import connector_lock
from samzapy.adapters.spark.class_archive import AUTO, USAGE_VARIABLE, VARIABLE, archive_path, make_archive
from samzapy.errors import SamzapyError
from samzapy.runtime.spark_submit import environment_of_spark

_LOG = logging.getLogger(__name__)

_BEGINS_AFTER_S = 20.0
"""By then a start is over, which would have to share the cores."""
_DISK_MIN_BYTES = 1 << 30
"""An archive takes 200 MB, twice that while it is moved."""
_MEMORY_MIN_BYTES = 2 << 30
_SPARK_MEMORY = "512m"
_NOT_AGAIN_FOR_S = 24 * 3600.0
_MEMORY_INFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
_KEPT = ("HOME", "LANG", "LOGNAME", "PATH", "PYTHONPATH", "SAMZAPY_CACHE_DIR", "TMPDIR", "USER")
_KEPT_FAMILIES = ("JAVA_", "JDK_", "LC_", "SPARK_", "XDG_")


class BackgroundArchive:
    """Starts the process that makes the archive.

    It starts some seconds after the container's Spark is up, or at the end of the container.

    Args:
        environment: of this process; `samzapy.runtime.spark_submit` has set `USAGE_VARIABLE` in it. A driver that was
            started in another way gets no archive, because its class path may be another one.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()
        self._has_begun = False

    def begin_soon(self) -> None:
        if self._environment.get(USAGE_VARIABLE) == AUTO:
            self._timer = threading.Timer(_BEGINS_AFTER_S, self._begin)
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        """Begin now if it has not begun. The process outlives the container."""
        if self._timer is not None:
            self._timer.cancel()
            self._begin()

    def _begin(self) -> None:
        with self._lock:
            has_begun, self._has_begun = self._has_begun, True
        if has_begun:
            return
        try:
            path = archive_path(cache_root(), jars_there(connector_lock()))
            obstacle = obstacle_to(path, self._environment)
            if obstacle is not None:
                _LOG.debug("makes no class archive: %s", obstacle)
                return
            subprocess.Popen(
                [sys.executable, "-m", __name__],
                env=environment_of_maker(self._environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, SamzapyError) as error:
            _LOG.debug("makes no class archive: %s", error)
            return
        _LOG.info(
            "makes a class archive in the background, so that containers start faster here (%s=manual: never)",
            USAGE_VARIABLE,
        )


def obstacle_to(path: Path, environment: Mapping[str, str]) -> str | None:
    """The reason not to make the archive `path` now; None if there is none."""
    if path.exists():
        return f"{path} exists"
    if "-XX:SharedArchiveFile" in environment.get(VARIABLE, ""):
        return f"{VARIABLE} names another archive"
    if _failed_lately(path):
        return f"it failed less than a day ago; {_failure_note(path)} has the reason"
    path.parent.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(path.parent).free) < _DISK_MIN_BYTES:
        return f"wanted {_DISK_MIN_BYTES} bytes of free disk at {path.parent}, found {free}"
    if (free := free_memory()) < _MEMORY_MIN_BYTES:
        return f"wanted {_MEMORY_MIN_BYTES} bytes of free memory, found {free}"
    return None


def free_memory(memory_info: Path = _MEMORY_INFO, cgroup: Path = _CGROUP, own_groups: Path = _OWN_GROUPS) -> int:
    """Bytes of memory that this process and its children may still take.

    The limit is that of the host and of its control groups, of which only version 2 is read. 0 if the host does not
    tell.
    """
    try:
        available = next(line for line in memory_info.read_text().splitlines() if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return 0
    free = int(available.split()[1]) * 1024
    for group in _groups_from_own_up(cgroup, own_groups):
        with suppress(OSError):  # The root of all groups has no limit.
            limit, used = (group / "memory.max").read_text().strip(), (group / "memory.current").read_text()
            free = free if limit == "max" else min(free, int(limit) - int(used))
    return free


def _groups_from_own_up(mount: Path, own_groups: Path) -> list[Path]:
    """The control group of this process and those above it, as directories.

    Each of them may have a limit. In a namespace of its own the group is the mount itself.
    """
    path = ""
    with suppress(OSError):
        lines = os.fsdecode(own_groups.read_bytes()).split("\n")
        paths = [line.removeprefix("0::/") for line in lines if line.startswith("0::/")]
        path = next(iter(paths), "")
    own = mount / path
    return [group for group in (own, *own.parents) if group.is_relative_to(mount)]


def environment_of_maker(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for an archive of the same Java, Spark and class path.

    It has nothing of the job.
    """
    return {name: value for name, value in environment.items() if name in _KEPT or name.startswith(_KEPT_FAMILIES)}


def _failure_note(path: Path) -> Path:
    return path.with_suffix(".failed")


def _failed_lately(path: Path) -> bool:
    try:
        return time.time() - _failure_note(path).stat().st_mtime < _NOT_AGAIN_FOR_S
    except OSError:
        return False


def main() -> None:
    """Make the archive with the lowest priority, and note a failure beside it."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    jars = jars_there(connector_lock())
    path = archive_path(cache_root(), jars)
    try:
        make_archive(path, {**environment_of_spark(), "SPARK_DRIVER_MEMORY": _SPARK_MEMORY}, jars, waits=False)
    except (OSError, SamzapyError) as error:
        _failure_note(path).write_text(f"{error}\n")
    else:
        _failure_note(path).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
