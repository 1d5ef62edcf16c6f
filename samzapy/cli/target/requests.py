"""Send a request, for several commands.

This has the common options, the placement topic, the run and the answer.
"""

from __future__ import annotations

import time
import uuid as uuids
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import click

from samzapy.cli.output.option import is_json, output_option, print_json, print_result
from samzapy.cli.output.seconds import Seconds
from samzapy.cli.output.terminal import printable
from samzapy.errors import ConfigError, DeadlineError, RejectedError, SamzapyError
from samzapy.model.placement import (
    ANY_HOST,
    FORCE_RESTART_LAST_SEEN,
    LAST_SEEN,
    STANDBY,
    Action,
    ContainerPlacementResponseMessage,
    StatusCode,
)
from samzapy.model.topics import coordinator_topic

if TYPE_CHECKING:
    from samzapy.coordinator.state import CoordinatorState
    from samzapy.placement import ContainerPlacementMetadataStore
    from samzapy.runtime.job_address import JobAddress

WAIT_S = 600.0
"""The longest wait of a command by default: the default of job.placement.expiry.ms, by which a request has failed."""
RESTART_S = 300.0
"""Time for a container to drain and for its replacement to start Spark and restore state."""

_READ_WITHIN_S = 60.0
"""Longer than a healthy job needs to elect a new leader."""

_ASK_EVERY_S = 0.2

# Options that `samzapy container` and `place-container` have under names of their own.
destination_host_option = partial(
    click.option,
    "--destination-host",
    required=True,
    metavar="HOST",
    help=f"Set the destination: a host name; {ANY_HOST}, another host if one is known; {LAST_SEEN}, its current or "
    f"last host; {FORCE_RESTART_LAST_SEEN}, the same, but stopped first; or {STANDBY}, a host with its standby state.",
)
request_expiry_option = partial(
    click.option,
    "--request-expiry",
    type=Seconds(0.001),
    metavar="SECONDS",
    help="Let the request fail if it is not done in this time; for a move, if the new container is not ready "
    "[default: job.placement.expiry.ms].",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """The request options of the command line.

    Attributes:
        deployment_id: the run that is addressed; None: the current run.
        expiry: None: the default of the job.
        timeout_s: the maximum wait for the answer.
        output: a format of `-o`.
    """

    deployment_id: str | None
    expiry: timedelta | None
    wait: bool
    timeout_s: float = WAIT_S
    output: str = "table"

    def answer(
        self, store: ContainerPlacementMetadataStore, uuid: uuids.UUID
    ) -> ContainerPlacementResponseMessage | None:
        """Print the uuid of a request and wait for its final answer; None with --no-wait.

        Raises: as `_answer`.
        """
        if not self.wait:
            print_result({"uuid": str(uuid)}, str(uuid), self.output)
            return None
        click.echo(str(uuid), err=True)
        return _answer(store, uuid, self.timeout_s)


def wait_option(meaning: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option of each command that can wait for what it asks for."""
    return click.option("--wait/--no-wait", default=True, show_default=True, help=meaning)


def wait_timeout_option(subject: str, *, least: float = 0) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The bound of such a wait, which is the same for each command by default.

    Args:
        subject: the thing that is waited for.
    """
    return click.option(
        "--timeout",
        type=Seconds(least),
        default=WAIT_S,
        show_default=True,
        metavar="SECONDS",
        help=f"Set the maximum wait for {subject}.",
    )


def with_request(command: Callable[..., None]) -> Callable[..., None]:
    """Add the request options to a command, which receives them as `asking`."""

    @wraps(command)
    def asked(
        *args: Any,
        deployment_id: str | None,
        request_expiry: float | None,
        wait: bool,
        timeout: float,
        output: str,
        **options: Any,
    ) -> None:
        expiry = None if request_expiry is None else timedelta(seconds=request_expiry)
        asking = Asking(deployment_id=deployment_id, expiry=expiry, wait=wait, timeout_s=timeout, output=output)
        command(*args, asking=asking, **options)

    decorated: Callable[..., None] = asked
    for option in (
        wait_timeout_option("the answer, or 60 s if no coordinator picks the request up"),
        wait_option("Wait for the answer, or only print the uuid."),
        request_expiry_option("--expiry"),
        click.option(
            "--deployment-id",
            "--deployment",
            metavar="RUN",
            help="Address this run of the job [default: the current run].",
        ),
        output_option(),
    ):
        decorated = option(decorated)
    return decorated


def every_processor(state: CoordinatorState, action: Action) -> Sequence[str]:
    """The processors of a job that `action` can restart, in order.

    Raises:
        RejectedError: there is none.
    """
    from samzapy.coordinator.launching.launches import wanted_processors
    from samzapy.coordinator.requests.restart_query import processors_with_query
    from samzapy.coordinator.state import sorted_processors

    wanted = wanted_processors(state) if action is Action.RESTART_CONTAINER else None
    processor_ids = wanted or sorted_processors(processors_with_query(state))
    if not processor_ids:
        raise RejectedError(f"{action}: wanted processors that have tasks, found none; see `samzapy job status`")
    return processor_ids


def processors_named(text: str) -> Sequence[str]:
    """The processors of `0,2`, in that order. Raises ConfigError if there is none."""
    processor_ids = [item.strip() for item in text.split(",") if item.strip()]
    if not processor_ids:
        raise ConfigError(f"--processor: wanted processors separated by commas, found {text!r}")
    return processor_ids


def refuse_several_unwaited(asking: Asking, processors: Sequence[str] | None) -> None:
    """Refuse --no-wait for several processors; None stands for all."""
    if not asking.wait and (processors is None or len(processors) > 1):
        raise click.UsageError("wanted one processor with --no-wait, because each waits for the one before")


def ask_one_after_another(
    address: JobAddress, state: CoordinatorState, processors: Sequence[str], action: Action, asking: Asking
) -> None:
    """Send a request per processor, and print the answers.

    Each one is sent after the one before is done.

    Raises: as `_answer`, for the first request that is not done; the later ones are not sent.
    """
    run_id = asking.deployment_id or run_id_of(address, state)
    done: list[Mapping[str, object]] = []
    with placement_store(address) as store:
        for number, processor_id in enumerate(processors, start=1):
            uuid = store.write_container_placement_request_message(
                run_id, processor_id, request_expiry=asking.expiry, action=action
            )
            answer = asking.answer(store, uuid)
            if answer is None:
                return
            done.append(answer_json(answer))
            if not is_json(asking.output):
                counted = f"{number} of {len(processors)}: " if len(processors) > 1 else ""
                click.echo(f"{counted}{answer.status_code}: {printable(answer.response_message)}")
    if is_json(asking.output):
        print_json(done, asking.output)


def show_answer(answer: ContainerPlacementResponseMessage | None, output: str) -> None:
    """Print the answer to a request; None: the command did not wait for one."""
    if answer is not None:
        print_result(answer_json(answer), f"{answer.status_code}: {answer.response_message}", output)


def answer_json(answer: ContainerPlacementResponseMessage) -> Mapping[str, object]:
    """The answer to a request, for programs."""
    return {
        "uuid": str(answer.uuid),
        "processorId": answer.processor_id,
        "action": str(answer.action),
        "statusCode": str(answer.status_code),
        "response": answer.response_message,
    }


def placement_store(address: JobAddress) -> ContainerPlacementMetadataStore:
    """The placement topic of the job, not yet connected."""
    from samzapy.placement import ContainerPlacementMetadataStore

    connection = address.connection
    return ContainerPlacementMetadataStore(
        connection.bootstrap_servers,
        job=address.job,
        properties=connection.properties,
        credential=address.signing,
    )


def recorded_state(address: JobAddress) -> CoordinatorState:
    """The state that the coordinator stream folds to.

    Raises:
        RejectedError: there is no such job.
    """
    from samzapy.coordinator.replay import replay
    from samzapy.runtime.job_address import coordinator_records

    return replay(coordinator_records(address), topic=coordinator_topic(address.job)).state


def run_id_of(address: JobAddress, state: CoordinatorState) -> str:
    """The id of the current run.

    Raises:
        RejectedError: the job never ran.
    """
    from samzapy.runtime.job_address import never_ran

    if state.run is None:
        raise never_ran(address.job)
    return state.run.run_id


def _answer(
    store: ContainerPlacementMetadataStore, uuid: uuids.UUID, timeout_s: float
) -> ContainerPlacementResponseMessage:
    """Wait for the final answer to a request that succeeded.

    Raises:
        DeadlineError: no final answer came in time, or no coordinator picked the request up within `_READ_WITHIN_S`.
        RejectedError: the request was refused.
        SamzapyError: the request failed.
    """
    began_s = time.monotonic()
    give_up_at_s = began_s + min(timeout_s, _READ_WITHIN_S)
    response: ContainerPlacementResponseMessage | None = None
    shown = ""
    while time.monotonic() < give_up_at_s:
        response = store.read_container_placement_response_message(uuid)
        if response is not None and response.status_code.is_terminal:
            break
        if response is not None:
            give_up_at_s = began_s + timeout_s
        if response is not None and response.phase and response.response_message != shown:
            shown = response.response_message
            click.echo(f"{response.phase}: {printable(shown)}", err=True)
        time.sleep(_ASK_EVERY_S)
    if response is None or not response.status_code.is_terminal:
        raise DeadlineError(
            f"wanted an answer to request {uuid} within {time.monotonic() - began_s:.0f} s, found "
            f"{'none' if response is None else f'{response.status_code} ({response.response_message})'}; check with "
            "`samzapy job status` whether the job has a leader. The request stays, and may still be served"
        )
    if response.status_code is StatusCode.BAD_REQUEST:
        raise RejectedError(f"request {uuid} was refused: {printable(response.response_message)}")
    if response.status_code is StatusCode.FAILED:
        raise SamzapyError(f"request {uuid} failed: {printable(response.response_message)}")
    return response
