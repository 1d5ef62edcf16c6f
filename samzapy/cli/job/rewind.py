"""`samzapy job rewind`: move the positions of an input.

These are Samza's startpoints (SEP-18).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from samzapy.cli.output.confirm import confirm, is_at_terminal
from samzapy.cli.output.option import is_json, print_json
from samzapy.cli.output.table import print_rows
from samzapy.cli.target.address import of_a_job
from samzapy.cli.target.lazy_completion import completes
from samzapy.cli.target.requests import Asking, placement_store, recorded_state, run_id_of, show_answer, with_request
from samzapy.errors import ConfigError, RejectedError
from samzapy.model.placement import Rewind, rewind_arguments, rewind_of

if TYPE_CHECKING:
    from samzapy.coordinator.requests.rewind import Move
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
            "--processor",
            metavar="ID",
            shell_complete=completes("processors"),
            help="Rewind only the partitions that tasks of this processor read.",
        ),
        click.option(
            "--task",
            metavar="TASK",
            shell_complete=completes("tasks"),
            help="Rewind only the partitions that this task reads.",
        ),
        click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Rewind only this partition."),
    ):
        decorated = option(decorated)
    return decorated


@click.command()
@of_a_job
@click.option(
    "--stream",
    required=True,
    metavar="STREAM",
    shell_complete=completes("inputs"),
    help="Rewind this input, as system.stream (kafka.orders).",
)
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
@click.option("--yes", is_flag=True, help="Rewind without a question; the default without a terminal.")
@with_request
def rewind(
    address: JobAddress,
    stream: str,
    to: str,
    scope: _Scope,
    only_plan: bool,
    yes: bool,
    asking: Asking,
) -> None:
    """Move the tasks of a running job to another position in an input, back or ahead.

    Stores and outputs are not changed. After a move back, messages are processed again on top of their earlier effects.
    After a move ahead, messages are skipped. --plan shows which, and writes nothing. At a terminal the plan is shown
    first, and a question follows.

    With --wait, returns once the tasks run from the new position. Exits with 3 if the request is refused, 1 if it
    fails, 5 if no answer comes in time. A rewind that has begun continues, even if its request expires.

    \b
    Examples:
      samzapy job rewind --config flights.properties --stream kafka.flights --to oldest --plan
      samzapy job rewind --config flights.properties --stream kafka.flights --partition 3 --to 4711
    """
    from samzapy.coordinator.requests.rewind import refused_rewind
    from samzapy.runtime.planned_changes import rewind_moves

    wanted = _wanted(
        rewind_arguments(stream, to, partition=scope.partition, task=scope.task, processor=scope.processor)
    )
    state = recorded_state(address)
    # The leader checks again when the turn of the request comes.
    if reason := refused_rewind(wanted, state):
        raise RejectedError(f"{reason}; nothing was written")
    if only_plan:
        _show(rewind_moves(wanted, state, address.connection, address.job), asking.output)
        return
    if not yes and is_at_terminal():
        # The answer needs the plan, and with -o json stdout has the JSON alone.
        with redirect_stdout(sys.stderr) if is_json(asking.output) else nullcontext():
            _show(rewind_moves(wanted, state, address.connection, address.job), "table")
        confirm("Rewind?", "nothing was written")
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
        answer = asking.answer(store, uuid)
    show_answer(answer, asking.output)


def _wanted(arguments: Mapping[str, str]) -> Rewind:
    try:
        return rewind_of(arguments)
    except ValueError as error:
        raise ConfigError(str(error)) from error


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
    if is_json(output):
        print_json(rows, output)
        return
    print_rows(rows, _COLUMNS, numbers=_COLUMNS[2:], nothing="0 positions")
    click.echo(
        "Counts are offsets of the partition; a key bucket has its share of them. Stores and outputs are not changed: "
        "messages that come again are processed on top of their earlier effects; skipped ones never are."
    )
