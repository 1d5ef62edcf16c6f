"""`samzapy container`: list them, move one, restart some, ask about one, clear the topic of requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import click

from samzapy.cli.container.listing import list_containers
from samzapy.cli.output.terminal import printable
from samzapy.cli.target.address import of_a_job
from samzapy.cli.target.requests import (
    RESTART_S,
    Asking,
    ask_one_after_another,
    destination_host_option,
    every_processor,
    placement_store,
    processors_named,
    recorded_state,
    run_id_of,
    show_answer,
    with_request,
)
from samzapy.coordinator.launching.launches import wanted_processors
from samzapy.errors import RejectedError
from samzapy.model.placement import Action, ContainerPlacementResponseMessage, StatusCode
from samzapy.runtime.job_address import JobAddress


@click.group()
def container() -> None:
    """List containers, move one, restart some, ask about one."""


container.add_command(list_containers)

_PROCESSOR = click.option(
    "--processor-id",
    "--processor",
    required=True,
    metavar="ID",
    help="The processor, as `samzapy job status` shows it.",
)


def _ask(
    address: JobAddress,
    processor_id: str,
    asking: Asking,
    action: Action,
    destination_host: str = "",
    arguments: Mapping[str, str] | None = None,
) -> ContainerPlacementResponseMessage | None:
    """Write a request and wait for its answer; None where nobody waits."""
    state = recorded_state(address)
    with placement_store(address) as store:
        uuid = store.write_container_placement_request_message(
            deployment_id=asking.deployment_id or run_id_of(address, state),
            processor_id=processor_id,
            destination_host=destination_host,
            request_expiry=asking.expiry,
            action=action,
            arguments=arguments,
        )
        return asking.answer(store, uuid, state)


def _told(address: JobAddress, uuid: UUID) -> str:
    """How a request is: the newest answer to it, or that nobody has read it yet.

    Raises:
        RejectedError: there is none such.
    """
    with placement_store(address) as store:
        request = store.read_container_placement_request_message(uuid)
        told = store.read_container_placement_response_message(uuid)
    if told is not None:
        shown = " ".join(part for part in (told.status_code, told.phase) if part)
        return f"{shown}: {printable(told.response_message)}"
    if request is not None:
        return f"{StatusCode.CREATED}: not read yet; see with `samzapy job status` whether the job has a leader"
    raise RejectedError(f"wanted request {uuid} or an answer to it, found neither on the placement topic")


@container.command()
@of_a_job
@click.argument("uuid", required=False, type=click.UUID)
@click.option("--processor-id", "--processor", metavar="ID", help="The processor, or a standby (`4-0`).")
@with_request
def status(address: JobAddress, uuid: UUID | None, processor_id: str | None, asking: Asking) -> None:
    """Show what the coordinator knows of a processor, as JSON; or the newest answer to the request UUID,
    `CREATED` while nobody has read it.

    Ends with 3 when the request is refused or not known, with 5 when no answer comes in time.

    \b
    Example:
      samzapy container status --job flight-delays-1 --bootstrap-servers localhost:9092 --processor-id 0
    """
    if (uuid is None) == (processor_id is None):
        raise click.UsageError("wanted a uuid or --processor-id, found both or neither")
    if uuid is not None:
        click.echo(_told(address, uuid))
        return
    found = _ask(address, processor_id or "", asking, Action.CONTAINER_STATUS)
    if found is not None:
        click.echo(json.dumps(json.loads(found.response_message), indent=2))


@container.command()
@of_a_job
@click.option(
    "--processor-id",
    "--processor",
    "processors",
    metavar="ID,ID",
    help="The processors, in this order, as `samzapy job status` shows them.",
)
@click.option("--all", "every", is_flag=True, help="All processors of the job.")
@click.option(
    "--query",
    "only_query",
    is_flag=True,
    help="Restart the query and keep the process; where people start the containers it is all that can be done.",
)
@with_request
def restart(address: JobAddress, processors: str | None, every: bool, only_query: bool, asking: Asking) -> None:
    """Restart containers, one after the other; the next one when the tasks of the one before are at work again.

    Of a job that was submitted with `samzapy job submit` each drains and ends, and another one starts on its host,
    within 300 s unless --expiry says otherwise. Where people start the containers, and with --query, the process stays:
    the running micro-batch ends, and a new query goes on where it stopped.

    Stops at the first one that is not done: with 3 when it is refused, with 1 when it fails, with 5 when no answer
    comes in time; that one may still be done then.

    \b
    Examples:
      samzapy container restart --job flight-delays-1 --bootstrap-servers localhost:9092 --processor 0,2
      samzapy container restart --job flight-delays-1 --bootstrap-servers localhost:9092 --all
    """
    if (processors is None) != every:
        raise click.UsageError("wanted --processor or --all, found both or neither")
    named = None if processors is None else processors_named(processors)
    if not asking.wait and (named is None or len(named) > 1):
        raise click.UsageError("wanted one processor with --no-wait, because each waits for the one before")
    state = recorded_state(address)
    action = Action.RESTART_CONTAINER
    if only_query or wanted_processors(state) is None:
        action = Action.RESTART_QUERY
    elif asking.expiry is None:
        asking = replace(asking, expiry=timedelta(seconds=RESTART_S))
    ask_one_after_another(address, state, every_processor(state, action) if named is None else named, action, asking)


@container.command()
@of_a_job
@_PROCESSOR
@destination_host_option("--host")
@with_request
def place(address: JobAddress, processor_id: str, destination_host: str, asking: Asking) -> None:
    """Move a processor to another host, while the others go on.

    Of a job that was submitted with `samzapy job submit`: a container is started there and brings the state of the
    tasks level; only then the one that runs them stops. `4-0` is the first standby of processor 4 and moves alike.
    Where people start the containers, the tasks go to one that stands there; to where they are, their query restarts.

    Ends with 3 when the request is refused,
    with 1 when it fails, with 5 when no answer comes in time; it may still be done then.

    \b
    Example:
      samzapy container place --job flight-delays-1 --bootstrap-servers localhost:9092 --processor 4 --host worker-7
    """
    show_answer(_ask(address, processor_id, asking, Action.PLACE_CONTAINER, destination_host))


@container.command()
@of_a_job
@_PROCESSOR
@click.option("--start/--stop", "is_more", required=True, help="Have one standby more, or one less.")
@with_request
def standby(address: JobAddress, processor_id: str, is_more: bool, asking: Asking) -> None:
    """Start a standby for a processor of a running job, or stop one: it has the state at hand on another host.

    Of jobs that were submitted with `samzapy job submit`. A start is done when the state is level. Ends with 3 when the
    request is refused, with 1 when it fails, with 5 when no answer comes in time; it may still be done then.

    \b
    Example:
      samzapy container standby --job flight-delays-1 --bootstrap-servers localhost:9092 --processor 4 --start
    """
    arguments = {"command": "start" if is_more else "stop"}
    show_answer(_ask(address, processor_id, asking, Action.CONTROL_STANDBY, arguments=arguments))


@container.command()
@of_a_job
def gc(address: JobAddress) -> None:
    """Remove what nobody waits for from the placement topic: finished requests, earlier runs, what cannot be read.

    The coordinator does it by itself after job.placement.retention.ms, but for what cannot be read.

    \b
    Example:
      samzapy container gc --job flight-delays-1 --bootstrap-servers localhost:9092
    """
    run_id = run_id_of(address, recorded_state(address))
    with placement_store(address) as store:
        count = store.delete_outdated(run_id)
    click.echo(f"{count} messages removed")
