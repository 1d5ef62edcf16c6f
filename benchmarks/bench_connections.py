"""Heartbeats over TLS on kept and on new connections.

Both are measured alone and under bursts of slow connections, in one run on one coordinator. Run as a program it makes
the bursts, until its standard input ends: `python bench_connections.py <host> <port>`.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from bench_heartbeats import Answers, Fleet
from bench_measure import percentile
from bench_report import bullets, table

from samzapy.adapters.web.access import Access
from samzapy.adapters.web.tls import TlsFiles, client_context
from unit_tests.fixtures.certificates import Authority

INTERVAL_MS: Final = 5000
P99_MS_MAX: Final = 100.0
"""Under bursts too."""
BURST: Final = 200
_BURST_EVERY_S: Final = 1.0
_HELD_BURSTS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionsRun:
    """One way; `memory_mib` is the coordinator's afterwards."""

    keeps: bool
    has_bursts: bool
    answers: Answers
    memory_mib: float


def measure_connections(servers: str, directory: Path, containers: int, seconds: float) -> list[ConnectionsRun]:
    """Measure each way for so long, and first let every container send once that way."""
    authority = Authority.made(directory)
    certificate, key = authority.certificate("node", "DNS:localhost", "IP:127.0.0.1")
    settings = {"job_coordinator_tls_certificate": str(certificate), "job_coordinator_tls_key": str(key)}
    access = Access(tls=client_context(TlsFiles(ca=str(authority.ca))).context)
    runs = []
    with Fleet(servers, containers, access, settings) as fleet:
        fleet.start(core=0)
        for keeps, has_bursts in product((False, True), (False, True)):
            fleet.keeps_connections = keeps
            with ExitStack() as stack:
                fleet.measure(INTERVAL_MS, INTERVAL_MS / 1000)
                if has_bursts:
                    stack.enter_context(_bursts(fleet.url))
                answers = fleet.measure(INTERVAL_MS, seconds)
            run = ConnectionsRun(keeps=keeps, has_bursts=has_bursts, answers=answers, memory_mib=fleet.memory_mib)
            print(f"{_way(run)}: p99 {answers.p99_ms:.1f} ms, {answers.cpu_ms:.2f} ms of CPU each", flush=True)
            runs.append(run)
    return runs


def connections_section(containers: int, runs: Sequence[ConnectionsRun], conditions: Sequence[str]) -> str:
    """The section of the page."""
    columns = (
        "connections",
        "p50 ms",
        "p99 ms",
        "longest ms",
        "begun late, p99 ms",
        "not answered",
        "CPU ms a heartbeat",
        "coordinator MiB",
        "load",
        "",
    )
    rows = [
        (
            _way(run),
            f"{percentile(run.answers.answer_ms, 50.0):.1f}",
            f"**{run.answers.p99_ms:.1f}**",
            f"{max(run.answers.answer_ms):.0f}",
            f"{run.answers.late_p99_ms:.1f}",
            f"{run.answers.unanswered}",
            f"{run.answers.cpu_ms:.2f}",
            f"{run.memory_mib:.0f}",
            f"{run.answers.load:.1f}",
            "-" if not run.keeps else "pass" if run.answers.p99_ms <= P99_MS_MAX else "**fail**",
        )
        for run in runs
    ]
    notes = [
        f"A burst is {BURST} connections that send nothing, each {_BURST_EVERY_S:g} s, and at most "
        f"{_HELD_BURSTS * BURST} at a time. A process of its own makes them, on the core of the containers.",
        "CPU is all that of the coordinator's process, by the number of heartbeats.",
        "*New*: a container closes its connection after each heartbeat. The client is otherwise the same.",
    ]
    return "\n\n".join(
        [
            "## Heartbeats over TLS",
            f"{containers:,} containers with a heartbeat each {INTERVAL_MS // 1000} s, and one coordinator that is "
            f"held to one core; to be reached on kept connections: p99 of at most {P99_MS_MAX:.0f} ms.",
            table(columns, rows),
            "Conditions:",
            bullets([*conditions, *notes]),
        ]
    )


def _way(run: ConnectionsRun) -> str:
    return f"{'kept' if run.keeps else 'new'}{', under bursts' if run.has_bursts else ''}"


@contextmanager
def _bursts(url: str) -> Iterator[None]:
    """Bursts of slow connections meanwhile."""
    target = urlsplit(url)
    command = [sys.executable, __file__, str(target.hostname), str(target.port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        try:
            yield
        finally:
            process.stdin.close()
            process.wait()


def _make_bursts(host: str, port: int) -> None:
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    held: list[ExitStack] = []
    while not ended.wait(_BURST_EVERY_S):
        burst = ExitStack()
        for _ in range(BURST):
            with suppress(OSError):
                burst.enter_context(socket.create_connection((host, port), timeout=_BURST_EVERY_S))
        held.append(burst)
        if len(held) > _HELD_BURSTS:
            held.pop(0).close()
    for burst in held:
        burst.close()


if __name__ == "__main__":
    _make_bursts(sys.argv[1], int(sys.argv[2]))
