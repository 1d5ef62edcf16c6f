"""`samzapy container`: move a processor, restart its query, ask about it, clear the topic of requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps

import click

from samzapy.cli.job_address import JobAddress, of_a_job
from samzapy.cli.requests import Asking, placement_store, recorded_state, run_id_of, with_request
from samzapy.cli.terminal import printable
from samzapy.model.placement import ANY_HOST, LAST_SEEN, Action, ContainerPlacementResponseMessage


@click.group()
def container() -> None:
    """Move a processor, restart its query, ask about it."""


_PROCESSOR = click.option(
    "--processor-id",
    "--processor",
    required=True,
    metavar="ID",
    help="The processor, as `samzapy job status` shows it.",
)


def _request(action: Action) -> Callable[[Callable[[ContainerPlacementResponseMessage], None]], Callable[..., None]]:
    """Make a command of what shows the answer: the request is written, and the answer waited for, before that."""

    def command_of(show: Callable[[ContainerPlacementResponseMessage], None]) -> Callable[..., None]:
        @of_a_job
        @_PROCESSOR
        @with_request
        @wraps(show)
        def ask(address: JobAddress, processor_id: str, asking: Asking) -> None:
            with placement_store(address) as store:
                uuid = store.write_container_placement_request_message(
                    deployment_id=asking.deployment_id or run_id_of(address, recorded_state(address)),
                    processor_id=processor_id,
                    request_expiry=asking.expiry,
                    action=action,
                )
                found = asking.answer(store, uuid)
            if found is not None:
                show(found)

        return ask

    return command_of


@container.command()
@_request(Action.CONTAINER_STATUS)
def status(found: ContainerPlacementResponseMessage) -> None:
    """Show what the coordinator knows of a processor, as JSON.

    Ends with 3 when the request is refused, with 5 when no answer comes in time.

    \b
    Example:
      samzapy container status --job flight-delays-1 --bootstrap-servers localhost:9092 --processor-id 0
    """
    click.echo(json.dumps(json.loads(found.response_message), indent=2))


@container.command()
@_request(Action.RESTART_QUERY)
def restart(found: ContainerPlacementResponseMessage) -> None:
    """Restart the query of a processor: the running micro-batch ends, and a new query goes on where it stopped.

    The process stays. Ends with 3 when the request is refused, with 1 when it fails, with 5 when no answer comes in
    time; it may still be done then.

    \b
    Example:
      samzapy container restart --job flight-delays-1 --bootstrap-servers localhost:9092 --processor-id 0
    """
    click.echo(f"{found.status_code}: {printable(found.response_message)}")


@container.command()
@of_a_job
@_PROCESSOR
@click.option(
    "--destination-host",
    "--host",
    required=True,
    metavar="HOST",
    help=f"Where it is to run; or {ANY_HOST}, another host; or {LAST_SEEN}, where it runs or ran.",
)
@with_request
def place(address: JobAddress, processor_id: str, destination_host: str, asking: Asking) -> None:
    """Move the tasks of a processor to a container of the job that runs on another host.

    The others go on meanwhile. To where they are, it restarts their query. Ends with 3 when the request is refused,
    with 1 when it fails, with 5 when no answer comes in time; it may still be done then.

    \b
    Example:
      samzapy container place --job flight-delays-1 --bootstrap-servers localhost:9092 --processor 4 --host worker-7
    """
    with placement_store(address) as store:
        uuid = store.write_container_placement_request_message(
            deployment_id=asking.deployment_id or run_id_of(address, recorded_state(address)),
            processor_id=processor_id,
            destination_host=destination_host,
            request_expiry=asking.expiry,
        )
        found = asking.answer(store, uuid)
    if found is not None:
        click.echo(f"{found.status_code}: {printable(found.response_message)}")


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
