"""The wait of a key when its container is killed: `scripts/bench placement loss`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import bench_report as report
import click
from bench_placement_job import WHAT_RUNS, LaunchedJob, Runner, at_work
from bench_scale_job import Ground
from bench_scale_probe import Probing

from samzapy.errors import SamzapyError

KILLS = 3
KEPT = "with its local state"
DELETED = "with its local state deleted"
STANDBY = "with a standby"
WANTED_S: Mapping[str, float] = {KEPT: 20.0, DELETED: 60.0, STANDBY: 12.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One kill.

    Attributes:
        back_s: of each key, from the kill to the first record that was sent after it and came through.
        identify_s: the next container's time for the state of the tasks, by its own figures.
    """

    kind: str
    back_s: Sequence[float]
    identify_s: float


def loss(ground: Ground, state_mb: int) -> str:
    """The time to recover from a kill, with a standby, local state or neither."""
    losses: list[Loss] = []
    count = ground.sized(KILLS, 1)
    with at_work(ground, "placement-loss", state_mb) as (job, probing):
        runner = job.wait_runner()
        for kind in (KEPT, DELETED) * count:
            runner = _kill(job, probing, runner, kind, losses)
            job.wait_alone(runner)
        job.have_standby()
        for _ in range(count):
            job.wait_standby(runner)
            probing.settle()
            runner = _kill(job, probing, runner, STANDBY, losses)
    return _text(losses, state_mb)


def _kill(job: LaunchedJob, probing: Probing, runner: Runner, kind: str, losses: list[Loss]) -> Runner:
    killed_s = time.monotonic()
    job.kill(runner.execution_id)
    if kind == DELETED:
        job.forget_state_of(runner.host)
    back_s = probing.back_s(killed_s)
    successor = job.wait_runner(but=runner.execution_id)
    if (successor.host != runner.host) != (kind == STANDBY):
        raise SamzapyError(f"killed {kind} on {runner.host}: found the tasks on {successor.host} after it")
    probing.settle()
    metrics = job.wait_at_work()
    losses.append(Loss(kind=kind, back_s=back_s, identify_s=metrics.total("task_store_identify_seconds")))
    click.echo(
        f"killed {kind}: {runner.host} -> {successor.host}  back after {statistics.median(back_s):.1f} "
        f"(last key {max(back_s):.1f}) s  state {losses[-1].identify_s:.2f} s"
    )
    return successor


def loss_rows(losses: Sequence[Loss]) -> list[tuple[str, ...]]:
    """A row for each kind; the bound holds for the last key of each kill."""
    rows: list[tuple[str, ...]] = []
    for kind, wanted_s in WANTED_S.items():
        own = [loss for loss in losses if loss.kind == kind]
        last = sorted(max(loss.back_s) for loss in own)
        rows.append(
            (
                kind,
                f"<= {wanted_s:g}",
                f"**{statistics.median(last):.1f}**",
                ", ".join(f"{found_s:.1f}" for found_s in last),
                "pass" if last[-1] <= wanted_s else "**fail**",
                f"{statistics.median(loss.identify_s for loss in own):.2f}",
            )
        )
    return rows


def _text(losses: Sequence[Loss], state_mb: int) -> str:
    return "\n\n".join(
        [
            f"## Losses: recovery after `kill -9`, with {state_mb} MB of state",
            report.table(
                ("killed", "wanted, s", "back after, s: median", "each", "", "state taken over in s"),
                loss_rows(losses),
            ),
            report.bullets(
                [
                    f"{WHAT_RUNS} `kill -9` to the process that was started for the container, the JVM.",
                    "*Back after*: from the kill until each key has a record that was sent later and read by a "
                    "`read_committed` reader of the output; the start of Spark is in it, where there is one. All "
                    "kills of a kind must keep to the wanted time. *State taken over*: the sum over all tasks of "
                    "`samzapy_task_store_identify_seconds`.",
                    "The state is deleted right after the kill. The standby is ready at the kill; while it takes over "
                    "the next standby starts on the other host, on the same cores.",
                ]
            ),
        ]
    )
