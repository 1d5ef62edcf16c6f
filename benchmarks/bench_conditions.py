"""The conditions of a benchmark: machine, load, versions."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from samzapy.adapters.maven.locks import KAFKA_BROKER, read_lock

LOAD_MAX = 5.0
"""A load average above this is not the benchmark's own."""
OTHERS_MAX_CORES = 0.3
"""The kernel's own work takes less."""

PRODUCTION_JVM = ("-XX:TieredStopAtLevel=4", "-XX:CompileThresholdScaling=1")
"""Options for a broker that is compiled as in production: a development broker saves the second compiler."""


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def load() -> float:
    """The load average of the last minute."""
    return os.getloadavg()[0]


def machine(begun: datetime.datetime, load_before: float) -> str:
    """Time, machine and load; a sentence for the list of conditions."""
    return (
        f"{begun:%Y-%m-%d}; {os.cpu_count()} x {processor()}; load average {load_before:.1f} before, "
        f"{load():.1f} after."
    )


def busy(loads: Sequence[float]) -> list[str]:
    """A warning where others were at work, else nothing."""
    if max(loads, default=0.0) <= LOAD_MAX:
        return []
    return [_indicative(f"load above {LOAD_MAX:g}")]


def disturbed(others_cores: Sequence[float]) -> list[str]:
    """As `busy`, by the CPU time of others during each run (`bench_measure.Others`)."""
    most = max(others_cores, default=0.0)
    if most <= OTHERS_MAX_CORES:
        return []
    return [_indicative(f"up to {most:.1f} cores during a run")]


def _indicative(why: str) -> str:
    return (
        f"Others were at work on this machine ({why}): **indicative only**. Rows under different loads are not "
        "comparable, least of all in latency."
    )


def versions(*packages: str) -> str:
    """Python, `packages` and the broker; a sentence for the list of conditions."""
    named = ", ".join(f"{package} {version(package)}" for package in packages)
    return f"Python {platform.python_version()}, {named}, broker Apache Kafka {_broker_version()}."


def _broker_version() -> str:
    return next(jar.version for jar in read_lock(KAFKA_BROKER) if jar.artifact.startswith("kafka_2"))
