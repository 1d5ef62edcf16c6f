"""`place-container`: the command of SEP-22 with its own options.

It is for existing scripts.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

import click

from samzapy.cli.output.failures import run_command
from samzapy.cli.output.option import output_option, print_result
from samzapy.cli.target.address import Target, with_target
from samzapy.cli.target.requests import destination_host_option, placement_store, request_expiry_option
from samzapy.errors import ConfigError
from samzapy.model.placement import Action, ContainerPlacementRequestMessage, check_message


class _Sep22Command(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, joined(args))


@click.command(name="place-container", cls=_Sep22Command)
@click.option("--deployment-id", required=True, metavar="RUN", help="Address this run of the job.")
@click.option("--app-name", required=True, metavar="NAME", help="Name the job: its job.name.")
@click.option("--app.id", "app_id", default="1", show_default=True, metavar="ID", help="Give the job's job.id.")
@click.option("--processor-id", required=True, metavar="ID", help="Move or restart this processor.")
@destination_host_option()
@request_expiry_option()
@partial(with_target, has_job=False)
@output_option()
def place_container(
    deployment_id: str,
    app_name: str,
    app_id: str,
    processor_id: str,
    destination_host: str,
    request_expiry: float | None,
    target: Target,
    output: str,
) -> None:
    """Request to move or restart a container at destination-host.

    Writes the request and prints its uuid; `samzapy container status` shows the answer.

    \b
    Example:
      place-container --deployment-id 1581635852024-5117e303 --app-name flight-delays --app.id = 1 --processor-id 4
          --request-expiry 10 --destination-host worker-7 --bootstrap-servers localhost:9092
    """
    address = replace(target, job=f"{app_name}-{app_id}").address_to_write()
    message = ContainerPlacementRequestMessage(
        uuid=uuid.uuid4(),
        deployment_id=deployment_id,
        processor_id=processor_id,
        destination_host=destination_host,
        request_expiry=None if request_expiry is None else timedelta(seconds=request_expiry),
        timestamp_ms=time.time_ns() // 1_000_000,
        action=Action.PLACE_CONTAINER,
    )
    try:
        check_message(message)
    except ValueError as error:
        raise ConfigError(f"{error}; nothing was written") from error
    # The placement topic waits in silence; this question says what it waits for.
    from samzapy.adapters.kafka.admin import KafkaAdmin

    KafkaAdmin(address.connection).check_reachable()
    with placement_store(address) as store:
        store.write_request(message)
    text = f"Request received query the status using: {message.uuid}"
    print_result({"uuid": str(message.uuid)}, text, output)


def joined(arguments: Sequence[str]) -> list[str]:
    """The arguments with `--app.id = 1`, the form of SEP-22, joined to `--app.id=1`.

    Raises:
        click.UsageError: no value follows the sign.
    """
    whole: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "=" and whole and whole[-1].startswith("--"):
            value = next(rest, "")
            if not value or value.startswith("--"):
                following = f"the option {value}" if value else "nothing"
                raise click.UsageError(f"wanted a value behind `{whole[-1]} =`, found {following}")
            whole[-1] = f"{whole[-1]}={value}"
        else:
            whole.append(argument)
    return whole


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and end the process with its exit code (`errors.ExitCode`)."""
    run_command(place_container, "place-container", sys.argv[1:] if arguments is None else arguments)
