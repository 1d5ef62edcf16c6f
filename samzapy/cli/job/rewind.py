"""`samzapy job rewind`: go on from another place in an input, while the job runs (Samza's startpoints, SEP-18)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import click

from samzapy.adapters.kafka.positions import KafkaPositions
from samzapy.cli.output.table import print_rows
from samzapy.cli.target.address import of_a_job
from samzapy.cli.target.requests import Asking, placement_store, recorded_state, run_id_of, show_answer, with_request
from samzapy.coordinator.requests.rewind import Move, meant, moves, refused_rewind
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import ConfigError, RejectedError
from samzapy.model.placement import Mark, Rewind, rewind_arguments, rewind_of
from samzapy.runtime.job_address import JobAddress

_COLUMNS = ("task", "position", "from", "to", "again", "skipped")


@click.command()
@of_a_job
@click.option("--stream", required=True, metavar="STREAM", help="The input, system.stream (kafka.orders).")
@click.option(
    "--to",
    required=True,
    metavar="PLACE",
    help="oldest, newest, an OFFSET, a time like 2026-01-01T00:00:00Z or milliseconds since 1970 like 1767225600000ms.",
)
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Only this partition of it.")
@click.option("--task", metavar="TASK", help="Only what this task reads of it.")
@click.option("--processor", metavar="ID", help="Only what the tasks of this processor read of it.")
@click.option("--plan", "only_plan", is_flag=True, help="Only show what would be processed again, or skipped.")
@with_request
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def rewind(
    address: JobAddress,
    stream: str,
    to: str,
    partition: int | None,
    task: str | None,
    processor: str | None,
    only_plan: bool,
    asking: Asking,
    output: str,
) -> None:
    """Let tasks of a running job go on from another place in an input, further back or ahead.

    Stores and outputs are left as they are: going back, messages are processed again on top of what they have done
    already; going ahead, messages are never processed. --plan shows which, and writes nothing.

    With --wait it ends when the tasks are at work from there. Ends with 3 when the request is refused, with 1 when it
    fails, with 5 when no answer comes in time. A rewind that began goes on, also when its request expires.

    \b
    Examples:
      samzapy job rewind --config flights.properties --stream kafka.flights --to oldest --plan
      samzapy job rewind --config flights.properties --stream kafka.flights --partition 3 --to 4711
    """
    wanted = _wanted(rewind_arguments(stream, to, partition=partition, task=task, processor=processor))
    state = recorded_state(address)
    # Who leads looks again when its turn comes.
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
            partition=partition,
            task=task,
            processor=processor,
            request_expiry=asking.expiry,
        )
        found = asking.answer(store, uuid, state, output)
    if output == "json" and found is not None:
        click.echo(json.dumps({"response": found.response_message}, indent=2))
    else:
        show_answer(found)


def _wanted(arguments: Mapping[str, str]) -> Rewind:
    try:
        return rewind_of(arguments)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _planned(address: JobAddress, wanted: Rewind, state: CoordinatorState) -> Sequence[Move]:
    """What would change as things stand now; nothing is written."""
    positions = KafkaPositions(address.connection, address.job)
    concerned = meant(wanted, state.plan)
    ssps = sorted({ssp_kb.ssp for _, ssp_kb in concerned})
    landmarks = positions.landmarks(ssps, wanted.to.number if wanted.to.mark is Mark.TIME else None)
    # Of all that its tasks read: where one begins is computed for all its positions at once.
    tasks = {task_name for task_name, _ in concerned}
    read = positions.read(
        sorted({ssp_kb.ssp for planned in state.plan if planned.task_name in tasks for ssp_kb in planned.positions})
    )
    try:
        return moves(wanted, state, read, landmarks)
    except ValueError as error:
        raise RejectedError(f"{error}; nothing was written") from error


def _show(found: Sequence[Move], output: str) -> None:
    rows = [
        {
            "task": move.task_name,
            "position": str(move.ssp_kb),
            "from": move.offset_from,
            "to": move.offset_to,
            "again": max(0, move.offset_from - move.offset_to),
            "skipped": max(0, move.offset_to - move.offset_from),
        }
        for move in found
    ]
    if output == "json":
        click.echo(json.dumps(rows, indent=2))
        return
    print_rows(rows, _COLUMNS, numbers=_COLUMNS[2:])
    click.echo(
        "Counted in offsets of the partition, of which a key bucket has its share. Stores and outputs stay as they "
        "are: what comes again is processed on top of what it has done already, what is skipped never is."
    )
