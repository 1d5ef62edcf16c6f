"""`samzapy job top`: where a job's time goes, task by task, and what would make it faster. Read-only."""

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

from samzapy.cli.job_address import JobAddress, of_a_job
from samzapy.cli.job_status import leader_status, read_status
from samzapy.cli.seconds import Seconds
from samzapy.cli.terminal import printable
from samzapy.coordinator.load import JobLoad, ProcessorLoad, TaskLoad, hint_of, load_json, load_of

_COLUMNS = ("task", "processor", "records/s", "lag", "share of batch", "busiest key", "buckets")
_PLAIN_WIDTH = 1000


@click.command()
@of_a_job
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option(
    "--interval",
    type=Seconds(1),
    default=6.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks, longer than job.container.heartbeat.ms; what is shown happened between them.",
)
@click.option("--once", is_flag=True, help="Show it once and end; so it is without a terminal, and with -o json.")
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="The busiest N tasks; default: as many as fit."
)
def top(address: JobAddress, output: str, interval: float, once: bool, limit: int | None) -> None:
    """Show the rate and the lag of each task and bucket, which share of the batches it takes, and what would help.

    The busiest task comes first. Ends with 3 when there is no such job. What nobody tells is shown as `-`.

    \b
    Example:
      samzapy job top --job flight-delays-1 --bootstrap-servers localhost:9092
    """
    loads = _loads(address, interval)
    if output == "json":
        click.echo(json.dumps(load_json(next(loads)), indent=2))
    elif once or not sys.stdout.isatty():
        console = Console(width=_PLAIN_WIDTH, highlight=False)
        console.print(_shown(next(loads), limit))
    else:
        _refresh(loads, limit)


def _refresh(loads: Iterator[JobLoad], limit: int | None) -> None:
    """Until Ctrl-C."""
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
    """The status now; of the leader that told it before, or else as the coordinator stream says."""
    leader = before.get("leader")
    told = leader_status(address.job, leader) if isinstance(leader, str) else None
    return read_status(address) if told is None else told


def _shown(load: JobLoad, limit: int | None) -> Group:
    hint = hint_of(load)
    heading = (
        f"{load.job}  factor {load.factor}  tasks {len(load.tasks)}  {_number(load.records_per_s)} records/s  "
        f"lag {_number(load.lag)}"
    )
    return Group(
        Text(printable(heading)),
        *(Text(printable(_processor(found))) for found in load.processors),
        Text(printable(f"{hint.advice}: {hint.text}")),
        Text(""),
        _table(load, limit),
    )


def _table(load: JobLoad, limit: int | None) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in _COLUMNS:
        right = column in ("records/s", "lag", "share of batch")
        table.add_column(column.upper(), no_wrap=True, justify="right" if right else "left")
    busiest_first = sorted(load.tasks, key=lambda task: (-(task.batch_share or 0.0), -(task.lag or 0), task.task))
    for task in busiest_first[:limit]:
        table.add_row(*(Text(printable(cell)) for cell in _cells(task)))
    left_out = len(load.tasks) - len(busiest_first[:limit])
    if left_out:
        table.add_row(Text(f"… and {left_out} more"))
    return table


def _cells(task: TaskLoad) -> tuple[str, ...]:
    buckets = [f"{found.ssp} {_number(found.records_per_s)}/s lag {_number(found.lag)}" for found in task.buckets]
    return (
        task.task,
        task.processor_id or "-",
        _number(task.records_per_s),
        _number(task.lag),
        "-" if task.batch_share is None else f"{task.batch_share:.0%}",
        "-" if task.key is None else f"{task.key} {task.key_share:.0%}",
        ", ".join(buckets) or "-",
    )


def _processor(found: ProcessorLoad) -> str:
    busy = "-" if found.cores_busy is None else f"{found.cores_busy:.1f}"
    return f"processor {found.processor_id}  {found.tasks} tasks  {busy} of {found.cores} cores busy"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
