"""`samzapy job rewind`: move the positions of an input.

These are Samza's startpoints (SEP-18).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from samzapy.adapters.kafka.positions import KafkaPositions
from samzapy.cli.output.option import output_option
from samzapy.cli.output.table import print_rows
from samzapy.cli.target.address import of_a_job
from samzapy.cli.target.requests import Asking, placement_store, recorded_state, run_id_of, show_answer, with_request
from samzapy.coordinator.requests.rewind import Move, meant, moves, refused_rewind
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import ConfigError, RejectedError
from samzapy.model.placement import Mark, Rewind, rewind_arguments, rewind_of
from samzapy.runtime.job_address import JobAddress

_COLUMNS = ("task", "position", "from", "to", "again", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """The partitions of an input to rewind, as the options name them.

    None stands for all partitions, tasks or processors.
    """

    partition: int | None
    task: str | None
    processor: str | None


def _with_scope(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose a part of an input to a command.

    The command receives them as `scope`.
    """

    @wraps(command)
    def scoped(*args: Any, partition: int | None, task: str | None, processor: str | None, **options: Any) -> None:
        scope = _Scope(partition=partition, task=task, processor=processor)
        command(*args, scope=scope, **options)

    decorated: Callable[..., None] = scoped
    for option in (
        click.option(
            "--processor", metavar="ID", help="Rewind only the partitions that tasks of this processor read."
        ),
        click.option("--task", metavar="TASK", help="Rewind only the partitions that this task reads."),
        click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Rewind only this partition."),
    ):
        decorated = option(decorated)
    return decorated


@click.command()
@of_a_job
@click.option("--stream", required=True, metavar="STREAM", help="Rewind this input, as system.stream (kafka.orders).")
@click.option(
    "--to",
    required=True,
    metavar="PLACE",
    help="Continue from oldest, newest, an OFFSET, a time (2026-01-01T00:00:00Z) or milliseconds since 1970 "
    "(1767225600000ms).",
)
@_with_scope
@click.option(
    "--plan", "only_plan", is_flag=True, help="Only show which messages would be processed again or skipped."
)
@with_request
@output_option()
def rewind(
    address: JobAddress,
    stream: str,
    to: str,
    scope: _Scope,
    only_plan: bool,
    asking: Asking,
    output: str,
) -> None:
    """Move the tasks of a running job to another position in an input, back or ahead.

    Stores and outputs are not changed. After a move back, messages are processed again on top of their earlier effects.
    After a move ahead, messages are skipped. --plan shows which, and writes nothing.

    With --wait, returns once the tasks run from the new position. Exits with 3 if the request is refused, 1 if it
    fails, 5 if no answer comes in time. A rewind that has begun continues, even if its request expires.

    \b
    Examples:
      samzapy job rewind --config flights.properties --stream kafka.flights --to oldest --plan
      samzapy job rewind --config flights.properties --stream kafka.flights --partition 3 --to 4711
    """
    wanted = _wanted(
        rewind_arguments(stream, to, partition=scope.partition, task=scope.task, processor=scope.processor)
    )
    state = recorded_state(address)
    # The leader checks again when the turn of the request comes.
    if reason := refused_rewind(wanted, state):
        raise RejectedError(f"{reason}; nothing was written")
    if only_plan:
        _show(_planned(address, wanted, state), output)
        return
    with placement_store(address) as store:
        uuid = store.write_rewind_request(
            asking.deployment_id or run_id_of(address, state),
            stream,
            to,
            partition=scope.partition,
            task=scope.task,
            processor=scope.processor,
            request_expiry=asking.expiry,
        )
        answer = asking.answer(store, uuid, state, output)
    if output == "json" and answer is not None:
        click.echo(json.dumps({"response": answer.response_message}, indent=2))
    else:
        show_answer(answer)


def _wanted(arguments: Mapping[str, str]) -> Rewind:
    try:
        return rewind_of(arguments)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _planned(address: JobAddress, wanted: Rewind, state: CoordinatorState) -> Sequence[Move]:
    """The moves that the rewind would make now; nothing is written."""
    positions = KafkaPositions(address.connection, address.job)
    concerned = meant(wanted, state.plan)
    ssps = sorted({ssp_kb.ssp for _, ssp_kb in concerned})
    offset_bounds = positions.offset_bounds(ssps, wanted.to.number if wanted.to.mark is Mark.TIME else None)
    # All positions of these tasks, because the start of a task is computed for all its positions at once.
    tasks = {task_name for task_name, _ in concerned}
    read = positions.read(
        sorted({ssp_kb.ssp for planned in state.plan if planned.task_name in tasks for ssp_kb in planned.positions})
    )
    try:
        return moves(wanted, state, read, offset_bounds)
    except ValueError as error:
        raise RejectedError(f"{error}; nothing was written") from error


def _show(planned: Sequence[Move], output: str) -> None:
    rows = [
        {
            "task": move.task_name,
            "position": str(move.ssp_kb),
            "from": move.offset_from,
            "to": move.offset_to,
            "again": max(0, move.offset_from - move.offset_to),
            "skipped": max(0, move.offset_to - move.offset_from),
        }
        for move in planned
    ]
    if output == "json":
        click.echo(json.dumps(rows, indent=2))
        return
    print_rows(rows, _COLUMNS, numbers=_COLUMNS[2:])
    click.echo(
        "Counts are offsets of the partition; a key bucket has its share of them. Stores and outputs are not changed: "
        "messages that come again are processed on top of their earlier effects; skipped ones never are."
    )
