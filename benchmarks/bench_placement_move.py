"""The wait of a key when its container moves: `scripts/bench placement move`.

Moves with a warm reserve and restarts that stop first come in turn in the same run.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import bench_report as report
import click
from bench_measure import percentile
from bench_placement_job import HOSTS, WHAT_RUNS, LaunchedJob, Runner, at_work
from bench_scale_job import Ground
from bench_scale_pause import QUIET_S, in_quiet
from bench_scale_probe import Probing

from samzapy.errors import SamzapyError

MOVES = 6
WARM_P95_S_MAX = 3.0
WARM = "warm reserve, to another host"
STOPPED = "stop, then start, on the same host"
_RUNS_AGAIN = re.compile(r"query runs again after (\d+) ms")
_STOPPED_FIRST = "was stopped first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One move.

    Attributes:
        silences_ms: of each key, as a reader of the output saw them.
        reported_ms: after how long the query ran again, by the answer.
        took_s: from the request to its answer.
    """

    kind: str
    silences_ms: Sequence[float]
    reported_ms: int
    took_s: float


def move(ground: Ground, state_mb: int) -> str:
    """The pause of a key, by how the container is moved."""
    moves: list[Move] = []
    count = ground.sized(MOVES, 1)
    with at_work(ground, "placement-move", state_mb) as (job, probing):
        quiet = in_quiet(probing)
        runner = job.wait_runner()
        for _ in range(count):
            runner = _move(job, probing, runner, WARM, moves)
            runner = _move(job, probing, runner, STOPPED, moves)
    return _text(moves, quiet, state_mb)


def _move(job: LaunchedJob, probing: Probing, runner: Runner, kind: str, moves: list[Move]) -> Runner:
    host = runner.host
    if kind == WARM:
        host = next(other for other in HOSTS if other != runner.host)
        job.forget_state_of(host)
    began_s = time.monotonic()
    answer = job.place("LAST_SEEN" if kind == STOPPED else host)
    took_s = time.monotonic() - began_s
    probing.settle()
    moved = Move(
        kind=kind,
        silences_ms=probing.silences(began_s, time.monotonic()),
        reported_ms=runs_again_ms(answer),
        took_s=took_s,
    )
    successor = job.wait_runner(but=runner.execution_id)
    if successor.host != host or (_STOPPED_FIRST in answer) != (kind == STOPPED):
        raise SamzapyError(f"wanted {kind}, from {runner} to {host}, found {successor}: {answer.strip()}")
    job.wait_alone(successor)
    click.echo(
        f"{kind}: {runner.host} -> {host}  silence {statistics.median(moved.silences_ms):.0f} "
        f"(longest {max(moved.silences_ms):.0f}) ms  reported {moved.reported_ms} ms  took {took_s:.1f} s"
    )
    moves.append(moved)
    return successor


def runs_again_ms(answer: str) -> int:
    """The pause in the answer to a move.

    Raises:
        SamzapyError: it has none.
    """
    match = _RUNS_AGAIN.search(answer)
    if match is None:
        raise SamzapyError(f"wanted an answer with {_RUNS_AGAIN.pattern!r}, found {answer.strip()}")
    return int(match[1])


def move_rows(moves: Sequence[Move]) -> list[tuple[str, ...]]:
    """A row for each kind: pauses of all keys of all its moves."""
    rows: list[tuple[str, ...]] = []
    for kind in dict.fromkeys(move.kind for move in moves):
        own = [move for move in moves if move.kind == kind]
        pauses = [ms for move in own for ms in move.silences_ms]
        reported = [move.reported_ms for move in own]
        rows.append(
            (
                kind,
                f"{len(own)}",
                f"{percentile(pauses, 50):.0f}",
                f"**{percentile(pauses, 95):.0f}**",
                f"{max(pauses):.0f}",
                ", ".join(f"{max(move.silences_ms):.0f}" for move in own),
                f"{statistics.median(reported):.0f}",
                f"{max(reported)}",
                f"{statistics.median(move.took_s for move in own):.0f}",
            )
        )
    return rows


def reached(moves: Sequence[Move]) -> str:
    """Whether the pause with a warm reserve is within its bound."""
    p95_s = percentile([ms for move in moves if move.kind == WARM for ms in move.silences_ms], 95) / 1000
    verdict = "pass" if p95_s <= WARM_P95_S_MAX else "**fail**"
    return f"To be reached with a warm reserve: p95 of at most {WARM_P95_S_MAX:g} s; found {p95_s:.1f} s: {verdict}."


def _text(moves: Sequence[Move], quiet: Sequence[float], state_mb: int) -> str:
    return "\n\n".join(
        [
            f"## Moves: the pause of a key, with {state_mb} MB of state",
            reached(moves),
            report.table(
                (
                    *("how", "moves", "silence of a key, ms: p50", "p95", "longest", "worst key of each move"),
                    *("query runs again after, ms: median", "longest", "request to answer, s"),
                ),
                move_rows(moves),
            ),
            report.bullets(
                [
                    f"{WHAT_RUNS} In turn: a move, a restart in place (`LAST_SEEN`) where there is no second place, a "
                    "move back, a restart, and so on. The destination of a move has no state on its disk, so all of it "
                    "comes from the changelog; a restart in place finds it there.",
                    "*Silence of a key*: the longest time between two records of a key, as a `read_committed` "
                    "reader of the output saw them, from the request until every key came through again. So it has "
                    "the cost of the reserve's start and restore on the same cores. In "
                    f"{QUIET_S:g} s without a move the same was {percentile(quiet, 50):.0f} ms at p50 and "
                    f"{max(quiet):.0f} ms at most. *Query runs again*: as the answer to the "
                    "request says; a key also waits for the first micro-batch.",
                ]
            ),
        ]
    )
