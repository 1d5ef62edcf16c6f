"""`samzapy job top`: the load of each task, and a hint how to speed the job up."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from samzapy.cli.output.columns import Columns
from samzapy.cli.output.option import is_json, output_option, print_json
from samzapy.cli.output.seconds import Seconds
from samzapy.cli.output.table import print_table
from samzapy.cli.output.terminal import Terminal, printable
from samzapy.cli.target.address import read_of_a_job
from samzapy.inspection.load import JobLoad, ProcessorLoad, TaskLoad, hint_of, load_json, load_of
from samzapy.runtime.leader_status import leader_status

if TYPE_CHECKING:
    from rich.console import Group

    from samzapy.runtime.job_address import JobAddress

_WATERMARK = "watermark lag"
_COLUMNS = ("task", "processor", "records/s", "lag", _WATERMARK, "share of batch", "tail", "busiest key", "buckets")
_RIGHT = ("records/s", "lag", _WATERMARK, "share of batch")


@click.command()
@read_of_a_job
@output_option()
@click.option(
    "--interval",
    type=Seconds(1),
    default=6.0,
    show_default=True,
    metavar="SECONDS",
    help="Measure over this time; it must be longer than job.container.heartbeat.ms.",
)
@click.option("--once", is_flag=True, help="Print once and exit; the default without a terminal, and with -o json.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show only the busiest N tasks [default: as many as fit].",
)
def top(address: JobAddress, output: str, interval: float, once: bool, limit: int | None) -> None:
    """Show the load of each task and key bucket, and a hint how to speed the job up.

    The load is rate, lag and batch share. The busiest task comes first. Unknown values are shown as `-`. Exits with 3
    if there is no such job.

    \b
    Example:
      samzapy job top --job flight-delays-1 --bootstrap-servers localhost:9092
    """
    loads = _loads(address, interval)
    if is_json(output):
        print_json(load_json(next(loads)), output)
    elif once or not sys.stdout.isatty():
        _print(next(loads), limit)
    else:
        _refresh(loads, limit)


def _refresh(loads: Iterator[JobLoad], limit: int | None) -> None:
    """Redraw until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    with Live(Text("looking …"), console=console, screen=True, auto_refresh=False) as live:
        try:
            for load in loads:
                # The heading and the hint take some lines of their own.
                live.update(_shown(load, limit or max(1, console.height - 10), console.width), refresh=True)
        except KeyboardInterrupt:
            return


def _loads(address: JobAddress, interval_s: float) -> Iterator[JobLoad]:
    from samzapy.cli.target.status import read_status

    before = read_status(address)
    while True:
        time.sleep(interval_s)
        now = _look(address, before)
        yield load_of(before, now)
        before = now


def _look(address: JobAddress, before: Mapping[str, object]) -> Mapping[str, object]:
    """The current status.

    It comes from the same leader as before, or is read again from the topics.
    """
    from samzapy.cli.target.status import read_status

    leader = before.get("leader")
    status = leader_status(address.job, leader, address.access) if isinstance(leader, str) else None
    return read_status(address) if status is None else status


def _heading(load: JobLoad) -> list[str]:
    hint = hint_of(load)
    lines = (
        f"{load.job}  factor {load.factor}  tasks {len(load.tasks)}  {_number(load.records_per_s)} records/s  "
        f"lag {_number(load.lag)}",
        *map(_processor, load.processors),
        f"{hint.advice}: {hint.text}",
        "",
    )
    return [printable(line) for line in lines]


def _columns(load: JobLoad) -> tuple[str, ...]:
    """The columns; that of watermarks only for a job that keeps event time."""
    keeps_time = any(task.watermark_lag_ms is not None for task in load.tasks)
    return tuple(column for column in _COLUMNS if keeps_time or column != _WATERMARK)


def _rows(load: JobLoad, limit: int | None) -> tuple[list[list[str]], list[str]]:
    """The busiest tasks, busiest first, and a line that counts the omitted ones."""
    busiest_first = sorted(load.tasks, key=lambda task: (-(task.batch_share or 0.0), -(task.lag or 0), task.task))
    shown = busiest_first[:limit]
    left_out = len(load.tasks) - len(shown)
    columns = _columns(load)
    return [[_cells(task)[column] for column in columns] for task in shown], [
        f"… and {left_out} more"
    ] if left_out else []


def _print(load: JobLoad, limit: int | None) -> None:
    rows, rest = _rows(load, limit)
    for line in _heading(load):
        click.echo(line)
    print_table(_columns(load), rows, right=_RIGHT)
    for line in rest:
        click.echo(line)


def _shown(load: JobLoad, limit: int | None, width: int) -> Group:
    """The load as a renderable that fits the width of the terminal."""
    from rich.console import Group
    from rich.text import Text

    rows, rest = _rows(load, limit)
    lines = Columns(_columns(load), right=_RIGHT, on=Terminal(width=width)).lines(rows)
    return Group(*map(Text, (*_heading(load), *lines, *rest)))


def _cells(task: TaskLoad) -> Mapping[str, str]:
    buckets = [f"{bucket.ssp} {_number(bucket.records_per_s)}/s lag {_number(bucket.lag)}" for bucket in task.buckets]
    return {
        "task": task.task,
        "processor": task.processor_id or "-",
        "records/s": _number(task.records_per_s),
        "lag": _number(task.lag),
        _WATERMARK: "-" if task.watermark_lag_ms is None else f"{task.watermark_lag_ms / 1000:,.1f} s",
        "share of batch": "-" if task.batch_share is None else f"{task.batch_share:.0%}",
        "tail": "yes" if task.tailing else "-",
        "busiest key": "-" if task.key is None else f"{task.key} {task.key_share:.0%}",
        "buckets": ", ".join(buckets) or "-",
    }


def _processor(load: ProcessorLoad) -> str:
    busy = "-" if load.cores_busy is None else f"{load.cores_busy:.1f}"
    return f"processor {load.processor_id}  {load.tasks} tasks  {busy} of {load.cores} cores busy"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
