"""`samzapy container`: list, move and restart containers, and print their logs.

It also cleans the placement topic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import click

from samzapy.cli.container.listing import list_containers
from samzapy.cli.container.logs import logs
from samzapy.cli.output.groups import HintingGroup
from samzapy.cli.output.option import output_option, print_json, print_result
from samzapy.cli.target.address import of_a_job
from samzapy.cli.target.lazy_completion import completes
from samzapy.cli.target.requests import (
    RESTART_S,
    Asking,
    answer_json,
    ask_one_after_another,
    destination_host_option,
    every_processor,
    placement_store,
    processors_named,
    recorded_state,
    refuse_several_unwaited,
    run_id_of,
    show_answer,
    with_request,
)
from samzapy.errors import RejectedError
from samzapy.model.placement import Action, ContainerPlacementResponseMessage, StatusCode

if TYPE_CHECKING:
    from samzapy.runtime.job_address import JobAddress


@click.group(cls=HintingGroup)
def container() -> None:
    """List, move and restart containers, and print their logs."""


container.add_command(list_containers)
container.add_command(logs)

_PROCESSOR = click.option(
    "--processor-id",
    "--processor",
    required=True,
    metavar="ID",
    shell_complete=completes("processors"),
    help="Name the processor, as `samzapy job status` shows it.",
)


def _ask(
    address: JobAddress,
    processor_id: str,
    asking: Asking,
    action: Action,
    destination_host: str = "",
    arguments: Mapping[str, str] | None = None,
) -> ContainerPlacementResponseMessage | None:
    """Write a request and wait for its answer; None with --no-wait."""
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
        return asking.answer(store, uuid)


def _show_request(address: JobAddress, uuid: UUID, output: str) -> None:
    """Print the newest answer to a request, or that no coordinator has read it yet.

    Raises:
        RejectedError: there is no such request.
        BrokerUnavailableError: no broker answered.
    """
    from samzapy.adapters.kafka.admin import KafkaAdmin

    KafkaAdmin(address.connection).check_reachable()
    with placement_store(address) as store:
        request = store.read_container_placement_request_message(uuid)
        response = store.read_container_placement_response_message(uuid)
    if response is not None:
        shown = " ".join(part for part in (response.status_code, response.phase) if part)
        facts = {**answer_json(response), "phase": response.phase or None}
        print_result(facts, f"{shown}: {response.response_message}", output)
    elif request is not None:
        text = "not read yet; check with `samzapy job status` whether the job has a leader"
        facts = {"uuid": str(uuid), "statusCode": str(StatusCode.CREATED), "response": text}
        print_result(facts, f"{StatusCode.CREATED}: {text}", output)
    else:
        raise RejectedError(f"wanted request {uuid} or an answer to it, found neither on the placement topic")


@container.command()
@of_a_job
@click.argument("uuid", required=False, type=click.UUID)
@click.option(
    "--processor-id",
    "--processor",
    metavar="ID",
    shell_complete=completes("processors"),
    help="Name the processor, or a standby (`4-0`).",
)
@with_request
def status(address: JobAddress, uuid: UUID | None, processor_id: str | None, asking: Asking) -> None:
    """Show the coordinator's view of a processor, or the answer to request UUID.

    The view is JSON; the answer is the newest one. The answer is `CREATED` until a coordinator has read the request.
    Exits with 3 if the request is refused or not known, with 5 if no answer comes in time.

    \b
    Example:
      samzapy container status --job flight-delays-1 --bootstrap-servers localhost:9092 --processor-id 0
    """
    if (uuid is None) == (processor_id is None):
        raise click.UsageError("wanted a uuid or --processor-id, found both or neither")
    if uuid is not None:
        _show_request(address, uuid, asking.output)
        return
    answer = _ask(address, processor_id or "", asking, Action.CONTAINER_STATUS)
    if answer is not None:
        # The view is nested, so people get the JSON too.
        print_json(json.loads(answer.response_message), "jsonl" if asking.output == "jsonl" else "json")


@container.command()
@of_a_job
@click.option(
    "--processor-id",
    "--processor",
    "processors",
    metavar="ID,ID",
    shell_complete=completes("processors"),
    help="Restart these processors, in this order, as `samzapy job status` shows them.",
)
@click.option("--all", "every", is_flag=True, help="Restart all processors of the job.")
@click.option(
    "--query",
    "only_query",
    is_flag=True,
    help="Restart only the query and keep the process; the only choice for self-managed containers.",
)
@with_request
def restart(address: JobAddress, processors: str | None, every: bool, only_query: bool, asking: Asking) -> None:
    """Restart containers, one after the other.

    The next restart begins when the tasks of the restarted container run again. A container of a submitted job drains
    and exits, and a new one starts on its host, within 300 s unless --expiry is given. With --query, and for
    self-managed containers, the process stays: the running micro-batch ends, and a new query continues.

    Stops at the first request that is not done. Exits with 3 if it is refused, 1 if it fails, 5 if no answer comes in
    time. That request may still be done later.

    \b
    Examples:
      samzapy container restart --job flight-delays-1 --bootstrap-servers localhost:9092 --processor 0,2
      samzapy container restart --job flight-delays-1 --bootstrap-servers localhost:9092 --all
    """
    if (processors is None) != every:
        raise click.UsageError("wanted --processor or --all, found both or neither")
    named = None if processors is None else processors_named(processors)
    refuse_several_unwaited(asking, named)
    from samzapy.coordinator.launching.launches import wanted_processors

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
    """Move a processor to another host, while the others keep running.

    In a submitted job, a new container starts on that host and restores the state of the tasks; then the old container
    stops. `4-0` is the first standby of processor 4 and moves the same way. With self-managed containers, the tasks
    move to a spare container on that host; if the host is the current one, their query restarts.

    Exits with 3 if the request is refused, 1 if it fails, 5 if no answer comes in time; it may still be done later.

    \b
    Example:
      samzapy container place --job flight-delays-1 --bootstrap-servers localhost:9092 --processor 4 --host worker-7
    """
    show_answer(_ask(address, processor_id, asking, Action.PLACE_CONTAINER, destination_host), asking.output)


@container.command()
@of_a_job
@_PROCESSOR
@click.option("--start/--stop", "is_more", required=True, help="Start one more standby, or stop one.")
@with_request
def standby(address: JobAddress, processor_id: str, is_more: bool, asking: Asking) -> None:
    """Start or stop a standby of a processor.

    A standby keeps a copy of the processor's state on another host. Works for submitted jobs. A start is done when the
    state has caught up. Exits with 3 if the request is refused, 1 if it fails, 5 if no answer comes in time; it may
    still be done later.

    \b
    Example:
      samzapy container standby --job flight-delays-1 --bootstrap-servers localhost:9092 --processor 4 --start
    """
    arguments = {"command": "start" if is_more else "stop"}
    show_answer(_ask(address, processor_id, asking, Action.CONTROL_STANDBY, arguments=arguments), asking.output)


@container.command()
@of_a_job
@output_option()
def gc(address: JobAddress, output: str) -> None:
    """Remove finished and outdated requests from the placement topic.

    Requests of earlier runs and unreadable records are removed too. The coordinator does this itself after
    job.placement.retention.ms, except for unreadable records.

    \b
    Example:
      samzapy container gc --job flight-delays-1 --bootstrap-servers localhost:9092
    """
    run_id = run_id_of(address, recorded_state(address))
    with placement_store(address) as store:
        count = store.delete_outdated(run_id)
    print_result({"job": address.job, "removed": count}, f"{count} messages removed", output)
