"""`samzapy job top`: the load of each task, and a hint how to speed the job up."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from samzapy.cli.output.option import output_option
from samzapy.cli.output.seconds import Seconds
from samzapy.cli.output.table import print_table
from samzapy.cli.output.terminal import printable
from samzapy.cli.target.address import of_a_job
from samzapy.cli.target.status import read_status
from samzapy.inspection.load import JobLoad, ProcessorLoad, TaskLoad, hint_of, load_json, load_of
from samzapy.runtime.job_address import JobAddress
from samzapy.runtime.leader_status import leader_status

_COLUMNS = ("task", "processor", "records/s", "lag", "share of batch", "tail", "busiest key", "buckets")
_RIGHT = ("records/s", "lag", "share of batch")


@click.command()
@of_a_job
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
    if output == "json":
        click.echo(json.dumps(load_json(next(loads)), indent=2))
    elif once or not sys.stdout.isatty():
        _print(next(loads), limit)
    else:
        _refresh(loads, limit)


def _refresh(loads: Iterator[JobLoad], limit: int | None) -> None:
    """Redraw until Ctrl-C."""
    console = Console(highlight=False)
    with Live(Text("looking …"), console=console, screen=True, auto_refresh=False) as live:
        try:
            for load in loads:
                # The heading and the hint take some lines of their own.
                live.update(_shown(load, limit or max(1, console.height - 10)), refresh=True)
        except KeyboardInterrupt:
            return


def _loads(address: JobAddress, interval_s: float) -> Iterator[JobLoad]:
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
    leader = before.get("leader")
    status = leader_status(address.job, leader) if isinstance(leader, str) else None
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


def _rows(load: JobLoad, limit: int | None) -> tuple[list[tuple[str, ...]], list[str]]:
    """The busiest tasks, busiest first, and a line that counts the omitted ones."""
    busiest_first = sorted(load.tasks, key=lambda task: (-(task.batch_share or 0.0), -(task.lag or 0), task.task))
    shown = busiest_first[:limit]
    left_out = len(load.tasks) - len(shown)
    return [_cells(task) for task in shown], [f"… and {left_out} more"] if left_out else []


def _print(load: JobLoad, limit: int | None) -> None:
    rows, rest = _rows(load, limit)
    for line in _heading(load):
        click.echo(line)
    print_table(_COLUMNS, rows, right=_RIGHT)
    for line in rest:
        click.echo(line)


def _shown(load: JobLoad, limit: int | None) -> Group:
    """The load as a renderable that fits the width of the terminal."""
    rows, rest = _rows(load, limit)
    table = Table(box=None, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column.upper(), no_wrap=True, justify="right" if column in _RIGHT else "left")
    for cells in rows:
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return Group(*map(Text, _heading(load)), table, *map(Text, rest))


def _cells(task: TaskLoad) -> tuple[str, ...]:
    buckets = [f"{bucket.ssp} {_number(bucket.records_per_s)}/s lag {_number(bucket.lag)}" for bucket in task.buckets]
    return (
        task.task,
        task.processor_id or "-",
        _number(task.records_per_s),
        _number(task.lag),
        "-" if task.batch_share is None else f"{task.batch_share:.0%}",
        "yes" if task.tailing else "-",
        "-" if task.key is None else f"{task.key} {task.key_share:.0%}",
        ", ".join(buckets) or "-",
    )


def _processor(load: ProcessorLoad) -> str:
    busy = "-" if load.cores_busy is None else f"{load.cores_busy:.1f}"
    return f"processor {load.processor_id}  {load.tasks} tasks  {busy} of {load.cores} cores busy"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
