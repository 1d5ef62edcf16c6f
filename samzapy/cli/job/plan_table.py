"""A change of the plan as a table, with its effects below."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import click

from samzapy.cli.output.table import print_table
from samzapy.cli.output.terminal import printable
from samzapy.model.job import TaskModel
from samzapy.plan.input_keys import refusal_of, warnings_of
from samzapy.plan.plan_change import PlanChange, StateSize, TaskChange
from samzapy.plan.store_changes import StoreFate

_FATES = {StoreFate.NEW: "is new", StoreFate.CHANGES: "changes", StoreFate.DROPPED: "is dropped"}
_COLUMNS = ("task", "reads", "change", "from", "to", "location", "restore", "why")


def print_change(job: str, change: PlanChange) -> None:
    """Print a change of the plan as a table."""
    since = f"generation {change.generation_from}" if change.generation_from else "nothing: the job has no plan yet"
    click.echo(f"job {job}  plan of {len(change.tasks)} tasks, made from {since}")
    reads = {task.name: _reads(task) for task in change.plan.tasks}
    rows = [
        (
            task.task_name,
            reads[task.task_name],
            task.change.value,
            task.processor_before or "-",
            task.processor_id,
            task.location_id or "-",
            _state(task),
            task.why,
        )
        for task in change.tasks
    ]
    print_table(_COLUMNS, rows, heading=str)
    for text in _effects(change):
        click.echo(printable(text))
    counted = ", ".join(f"{count} {name}" for name, count in change.counts.items())
    click.echo(
        f"{counted}; to restore: {_size(change.restore)}; to copy on the host: {_copy_size(change.copy_bytes)}"
    )


def _effects(change: PlanChange) -> Iterator[str]:
    """The lines below the table: effects besides the places of tasks, and warnings."""
    for task_name in change.gone:
        yield f"gone: {task_name}"
    for topic in change.topics:
        done = "grows to" if topic.partition_count_before else "is created with"
        yield f"topic: {topic.topic} {done} {topic.partition_count} partitions"
    for store in change.stores:
        if store.fate not in (StoreFate.STAYS, StoreFate.REFUSED):
            yield f"store: {store.store} {_FATES[store.fate]}{store.text and f': {store.text}'}"
    for stream, ssps in groupby(change.waiting, lambda ssp: ssp.system_stream):
        numbers = ", ".join(str(ssp.partition) for ssp in ssps)
        yield (
            f"not at once: new partitions of {stream} ({numbers}) wait until the old ones are read to their ends; "
            "until then the plan does not have them"
        )
    refusal = refusal_of(change.keys)
    for text in (*((refusal,) if refusal else ()), *warnings_of(change.keys)):
        yield f"warning: {text}"


def _reads(task: TaskModel) -> str:
    own = (str(one if one.factor > 1 else one.ssp) for one in task.ssp_kbs)
    return ", ".join([*own, *(f"{ssp} (all)" for ssp in task.broadcast_ssps)])


def _state(task: TaskChange) -> str:
    """The work to restore or copy the state of a task; no task does both."""
    return _size(task.restore) if task.copy_bytes == 0 else f"copy {_copy_size(task.copy_bytes)}"


def _copy_size(count: int | None) -> str:
    if count is None:
        return "unknown"
    return f"~{count} bytes" if count else "nothing"


def _size(size: StateSize | None) -> str:
    if size is None:
        return "unknown"
    if not size.records_max:
        return "nothing"
    return f"<= {size.records_max} records, ~{size.bytes_about} bytes"
