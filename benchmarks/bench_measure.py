"""The resources of a process tree, out of /proc, and differences of two samples.

CPU time is user plus system time of every living process of the tree and of those it has reaped: the JVM, the Python
driver, the daemon and its workers. The JVM's own compiling is a role of its own: it is a part of the
start that lasts for a minute or two. The subject itself is not asked.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from samzapy.runtime.spark_start import WORKER_DAEMON

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
ROLES = ("JVM", "driver", "workers")
JIT = "JIT"
CPU_ROLES = ("JVM", JIT, "driver", "workers")
_NEARLY = 0.98


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The subject at one moment: its records, the time, and its CPU time by role."""

    at_s: float
    records: int
    cpu_s: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """The difference of two samples of the steady state."""

    records: int
    wall_s: float
    cpu_s: Mapping[str, float]

    @property
    def per_cpu_s(self) -> float:
        """Without the JVM's compiling, which ends."""
        return self.records / sum(used_s for role, used_s in self.cpu_s.items() if role != JIT)

    @property
    def per_wall_s(self) -> float:
        return self.records / self.wall_s

    def cpu_us_per_record(self, role: str) -> float:
        return self.cpu_s.get(role, 0.0) * 1e6 / self.records


def steady_state(looks: Sequence[Look], warm_up_records: int) -> Steady:
    """From the batch end after `warm_up_records` to the end of the last full batch.

    The last batch takes the rest. It is small, and its fixed cost would count as that of a full one.

    Raises:
        ValueError: there are not two such moments.
    """
    # Spark divides a batch by partitions and rounds down, so N batches end a few records early.
    warm = [look for look in looks if look.records >= warm_up_records * _NEARLY]
    full = _NEARLY * statistics.median(_sizes(looks) or [0])
    sizes = _sizes(warm)
    while sizes and sizes[-1] < full:
        sizes.pop()
    if not sizes:
        raise ValueError(f"wanted two ends of full batches after {warm_up_records} records, found {len(warm)} ends")
    return steady_between(warm[0], warm[len(sizes)])


def steady_between(first: Look, last: Look) -> Steady:
    return Steady(
        records=last.records - first.records,
        wall_s=last.at_s - first.at_s,
        cpu_s={role: last.cpu_s.get(role, 0.0) - first.cpu_s.get(role, 0.0) for role in CPU_ROLES},
    )


def _sizes(looks: Sequence[Look]) -> list[int]:
    return [after.records - before.records for before, after in pairwise(looks)]


def percentile(values: Iterable[float], percent: float) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("wanted at least one value, found none")
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def tree_of(root_pid: int) -> dict[int, str]:
    """Living processes at and below `root_pid`, and the role of each."""
    children: dict[int, list[int]] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit() and (fields := _stat(int(directory.name))) is not None:
            children.setdefault(int(fields[1]), []).append(int(directory.name))
    roles: dict[int, str] = {}
    pending = [(root_pid, "")]
    while pending:
        pid, above = pending.pop()
        role = above if above == "workers" else _role(pid)
        roles[pid] = role
        pending += [(child, role) for child in children.get(pid, [])]
    return roles


def cpu_of(tree: Mapping[int, str]) -> dict[str, float]:
    """CPU seconds by role. The children a process has waited for count as its own."""
    used = dict.fromkeys(CPU_ROLES, 0.0)
    for pid, role in tree.items():
        if (fields := _stat(pid)) is not None:
            used[role] += sum(map(int, fields[11:15])) / _TICKS_PER_S
        if role == "JVM":
            compiling_s = _compiling_s(pid)
            used[role] -= compiling_s
            used[JIT] += compiling_s
    return used


def _compiling_s(pid: int) -> float:
    """CPU seconds of a JVM's compiler threads; on two cores there is one of each kind."""
    used_s = 0.0
    for directory in Path(f"/proc/{pid}/task").glob("*"):
        text = _text(directory / "stat")
        if "CompilerThre" in text:
            used_s += sum(map(int, text.rpartition(")")[2].split()[11:13])) / _TICKS_PER_S
    return used_s


class Others:
    """The CPU time of all other processes while a subject works.

    In cores, from when this is made. Unlike the load average it leaves out the benchmark's own subjects and broker.
    The time of a process that ended without a wait counts as the others'. This process and its children do not count.
    """

    def __init__(self) -> None:
        self._begun_s, self._begun_cpu_s = time.monotonic(), _cpu_of_others_s()

    def cores(self) -> float:
        passed_s = time.monotonic() - self._begun_s
        return max(0.0, _cpu_of_others_s() - self._begun_cpu_s) / passed_s if passed_s else 0.0


def _cpu_of_others_s() -> float:
    return machine_cpu_s() - sum(cpu_of(tree_of(os.getpid())).values())


def machine_cpu_s() -> float:
    """CPU seconds since boot of busy cores, with those that the host took away."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    # Interrupts are in the time of the processes that they interrupt too.
    return (user + nice + system + irq + softirq + steal) / _TICKS_PER_S


def memory_of(tree: Mapping[int, str], kind: str = "Pss") -> dict[str, float]:
    """Memory in MiB by role. `kind`: Pss, which counts shared pages once, or Rss."""
    used = dict.fromkeys(ROLES, 0.0)
    for pid, role in tree.items():
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        used[role] += next(int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{kind}:")) / 1024
    return used


def _role(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "driver"
    if "pyspark.daemon" in command or WORKER_DAEMON in command:
        return "workers"
    return "JVM" if command[0].endswith("java") else "driver"


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the state on: utime to cstime are 11 to 14."""
    text = _text(Path(f"/proc/{pid}/stat"))
    return text.rpartition(")")[2].split() if text else None


def _text(path: Path) -> str:
    """A file of /proc; empty if its process has ended."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
