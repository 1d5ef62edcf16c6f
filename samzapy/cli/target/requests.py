"""What commands that ask a running job have in common: options, its placement topic, its run, and the answer."""

from __future__ import annotations

import json
import time
import uuid as uuids
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial, wraps
from typing import Any

import click

from samzapy.cli.output.seconds import Seconds
from samzapy.cli.output.terminal import printable
from samzapy.config import parse_recorded
from samzapy.coordinator.launching.launches import wanted_processors
from samzapy.coordinator.replay import replay
from samzapy.coordinator.requests.restart_query import processors_with_query
from samzapy.coordinator.state import CoordinatorState, sorted_processors
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
from samzapy.placement import ContainerPlacementMetadataStore
from samzapy.runtime.job_address import JobAddress, coordinator_records, never_ran

RESTART_S = 300.0
"""So long a container may drain and another one take to start, with Spark and the state."""

_READ_WITHIN_S = 60.0
"""Longer than a job that is well takes to have a leader again."""

_ANSWER_S = 30.0
"""A coordinator that dies when a request is late has a successor by then, which answers."""

_ASK_EVERY_S = 0.2

# Options that `samzapy container` and `place-container` have under names of their own.
destination_host_option = partial(
    click.option,
    "--destination-host",
    required=True,
    metavar="HOST",
    help=f"Where it is to run; or {ANY_HOST}, another host if one is known; or {LAST_SEEN}, where it runs or ran; or "
    f"{FORCE_RESTART_LAST_SEEN}, there too, and it is stopped first; or {STANDBY}, where its state is at hand.",
)
request_expiry_option = partial(
    click.option,
    "--request-expiry",
    type=Seconds(0.001),
    metavar="SECONDS",
    help="The request fails when it is not done by then, a move when the container for it is not ready; default: the "
    "job's (job.placement.expiry.ms).",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How a request is made, as the options say.

    Attributes:
        deployment_id: the run that it is for; None: the one that is on.
        expiry: None: the job's.
        timeout_s: how long to wait for its answer; None: until it must have expired.
    """

    deployment_id: str | None
    expiry: timedelta | None
    wait: bool
    timeout_s: float | None

    def answer(
        self,
        store: ContainerPlacementMetadataStore,
        uuid: uuids.UUID,
        state: CoordinatorState,
        output: str = "table",
    ) -> ContainerPlacementResponseMessage | None:
        """Show the uuid of a request that was written, and wait for its terminal answer; None where nobody waits.

        Args:
            state: of the job, whose expiry is that of a request without its own.
            output: `json` where nobody waits: the uuid is all that the command prints.

        Raises: as `_answer`.
        """
        if not self.wait:
            click.echo(json.dumps({"uuid": str(uuid)}, indent=2) if output == "json" else str(uuid))
            return None
        click.echo(str(uuid), err=True)
        if self.timeout_s is not None:
            return _answer(store, uuid, self.timeout_s, 0)
        config = parse_recorded(state.config)
        default_s, release_s = config.placement_expiry_ms / 1000, config.release_timeout_ms / 1000
        expiry_s = default_s if self.expiry is None else self.expiry.total_seconds()
        # Until it is ready, and what has begun then has that time once more, behind a release
        # (`coordinator.requests.request_queue`).
        return _answer(store, uuid, _READ_WITHIN_S, expiry_s + max(expiry_s, default_s) + release_s + _ANSWER_S)


def with_request(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a request, and hand it the `asking` they stand for."""

    @wraps(command)
    def asked(
        *args: Any,
        deployment_id: str | None,
        request_expiry: float | None,
        wait: bool,
        timeout: float | None,
        **options: Any,
    ) -> None:
        expiry = None if request_expiry is None else timedelta(seconds=request_expiry)
        found = Asking(deployment_id=deployment_id, expiry=expiry, wait=wait, timeout_s=timeout)
        command(*args, asking=found, **options)

    found: Callable[..., None] = asked
    for option in (
        click.option(
            "--timeout",
            type=Seconds(),
            metavar="SECONDS",
            help="Longest time to wait; default: until it must have expired, or nobody has read it within a minute.",
        ),
        click.option(
            "--wait/--no-wait", default=True, show_default=True, help="Wait for the answer, or only show the uuid."
        ),
        request_expiry_option("--expiry"),
        click.option(
            "--deployment-id",
            "--deployment",
            metavar="RUN",
            help="The run of the job that it is for; default: the one that is on.",
        ),
    ):
        found = option(found)
    return found


def every_processor(state: CoordinatorState, action: Action) -> Sequence[str]:
    """The processors of a job for which that can be asked, in their order: to restart a process, or a query.

    Raises:
        RejectedError: there is none.
    """
    wanted = wanted_processors(state) if action is Action.RESTART_CONTAINER else None
    found = wanted or sorted_processors(processors_with_query(state))
    if not found:
        raise RejectedError(f"{action}: wanted processors that have tasks, found none; see `samzapy job status`")
    return found


def processors_named(text: str) -> Sequence[str]:
    """The processors of `0,2`, in that order. Raises ConfigError where there is none."""
    found = [item.strip() for item in text.split(",") if item.strip()]
    if not found:
        raise ConfigError(f"--processor: wanted processors with commas between, found {text!r}")
    return found


def ask_one_after_another(
    address: JobAddress, state: CoordinatorState, processors: Sequence[str], action: Action, asking: Asking
) -> None:
    """Ask the same for each processor, the next one when the one before is done, and print the answers.

    Raises: as `_answer`, at the first one that is not done; those behind it are not asked for then.
    """
    run_id = asking.deployment_id or run_id_of(address, state)
    with placement_store(address) as store:
        for number, processor_id in enumerate(processors, start=1):
            uuid = store.write_container_placement_request_message(
                run_id, processor_id, request_expiry=asking.expiry, action=action
            )
            found = asking.answer(store, uuid, state)
            if found is not None and len(processors) > 1:
                click.echo(f"{number} of {len(processors)}: ", nl=False)
            show_answer(found)


def show_answer(found: ContainerPlacementResponseMessage | None) -> None:
    """Print the answer to a request, if one was waited for."""
    if found is not None:
        click.echo(f"{found.status_code}: {printable(found.response_message)}")


def placement_store(address: JobAddress) -> ContainerPlacementMetadataStore:
    """The job's placement topic, not yet connected."""
    connection = address.connection
    return ContainerPlacementMetadataStore(
        connection.bootstrap_servers, job=address.job, properties=connection.properties
    )


def recorded_state(address: JobAddress) -> CoordinatorState:
    """What the coordinator stream says.

    Raises:
        RejectedError: there is no such job.
    """
    return replay(coordinator_records(address), topic=coordinator_topic(address.job)).state


def run_id_of(address: JobAddress, state: CoordinatorState) -> str:
    """The run that is on.

    Raises:
        RejectedError: there is none.
    """
    if state.run is None:
        raise never_ran(address.job)
    return state.run.run_id


def _answer(
    store: ContainerPlacementMetadataStore, uuid: uuids.UUID, read_within_s: float, served_within_s: float
) -> ContainerPlacementResponseMessage:
    """The terminal answer to a request that was served.

    Args:
        read_within_s: the longest time until anything is heard of it.
        served_within_s: the longest time from then on; less than what is left of the other one counts for nothing.

    Raises:
        DeadlineError: none came in time.
        RejectedError, SamzapyError: it was refused; it failed.
    """
    began_s = time.monotonic()
    give_up_at_s = began_s + read_within_s
    found: ContainerPlacementResponseMessage | None = None
    shown = ""
    while time.monotonic() < give_up_at_s:
        is_first = found is None
        found = store.read_container_placement_response_message(uuid)
        if found is not None and found.status_code.is_terminal:
            break
        if found is not None and is_first:
            # Expiry is counted from when the coordinator read it, which may be long after it was written.
            give_up_at_s = max(give_up_at_s, time.monotonic() + served_within_s)
        if found is not None and found.phase and found.response_message != shown:
            shown = found.response_message
            click.echo(f"{found.phase}: {printable(shown)}", err=True)
        time.sleep(_ASK_EVERY_S)
    if found is None or not found.status_code.is_terminal:
        raise DeadlineError(
            f"wanted an answer to request {uuid} within {time.monotonic() - began_s:.0f} s, found "
            f"{'none' if found is None else f'{found.status_code} ({found.response_message})'}; see with "
            "`samzapy job status` whether the job has a leader. The request stands, and may still be served"
        )
    if found.status_code is StatusCode.BAD_REQUEST:
        raise RejectedError(f"request {uuid} was refused: {printable(found.response_message)}")
    if found.status_code is StatusCode.FAILED:
        raise SamzapyError(f"request {uuid} failed: {printable(found.response_message)}")
    return found
