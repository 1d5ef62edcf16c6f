"""`samzapy container list`: the containers of a job, with host, role and state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from samzapy.cli.output.option import output_option
from samzapy.cli.output.table import show_rows
from samzapy.cli.target.address import read_of_a_job
from samzapy.cli.target.requests import recorded_state
from samzapy.model.container import Container
from samzapy.model.job import ExecutionId
from samzapy.model.launch import Launch, LaunchPhase
from samzapy.runtime.leader_status import reported_containers

if TYPE_CHECKING:
    from samzapy.coordinator.state import CoordinatorState
    from samzapy.runtime.job_address import JobAddress

_NUMBERS = ("tasks", "standbyLag", "restoreLeftMs", "heartbeatAgeMs")
_COLUMNS = ("processor", "container", "host", "role", "state", *_NUMBERS, "reason")


@click.command(name="list")
@read_of_a_job
@output_option()
def list_containers(address: JobAddress, output: str) -> None:
    """List the containers of a job, including those that are starting or stopping.

    A standby is named by its processor and its number: 4-0 is the first standby of processor 4. standbyLag is the
    number of changelog offsets that it has not copied yet; restoreLeftMs is the expected rest of a long restore.
    Unknown values are shown as `-`.

    \b
    Example:
      samzapy container list --job flight-delays-1 --bootstrap-servers localhost:9092
    """
    state = recorded_state(address)
    rows = container_rows(state, reported_containers(address.job, state, address.access))
    show_rows(rows, _COLUMNS, output, numbers=_NUMBERS, nothing="0 containers")


def container_rows(
    state: CoordinatorState, reported: Mapping[str, Mapping[str, object]]
) -> Sequence[Mapping[str, object]]:
    """A row for each execution that lives or has a launch, ordered by processor.

    Args:
        reported: the status of containers as the leader reports it, by execution.
    """
    from samzapy.coordinator.assignment.grants import grants_in_force
    from samzapy.coordinator.assignment.liveness import is_alive

    tasks = Counter(grant.execution_id for grant in grants_in_force(state).values())
    living = {item.execution_id for item in state.containers_sorted if is_alive(state, item.execution_id)}
    rows = [
        _row(execution_id, state, tasks[execution_id], reported.get(execution_id, {}))
        for execution_id in living | state.launches.keys()
    ]
    return sorted(rows, key=lambda row: (len(str(row["processor"])), str(row["processor"]), str(row["container"])))


def _row(
    execution_id: ExecutionId, state: CoordinatorState, task_count: int, reported: Mapping[str, object]
) -> Mapping[str, object]:
    from samzapy.coordinator.launching.standbys import role_of, standby_called

    container, launch = state.containers.get(execution_id), state.launches.get(execution_id)
    warm, figures = reported.get("warm"), reported.get("figures")
    return {
        "processor": standby_called(execution_id, state) or _processor_of(container, launch),
        "container": execution_id,
        "host": _host(container, launch, state),
        "role": role_of(execution_id, state).value,
        "state": _state(execution_id, state),
        "tasks": task_count,
        "standbyLag": warm.get("lag") if isinstance(warm, dict) else None,
        "restoreLeftMs": (figures.get("restoreLeftMs") or None) if isinstance(figures, dict) else None,
        "heartbeatAgeMs": reported.get("heartbeatAgeMs"),
        "reason": "" if launch is None else launch.reason,
        "warm": warm,
    }


def _processor_of(container: Container | None, launch: Launch | None) -> str:
    execution = launch or container
    assert execution is not None, "a row has a launch, a container, or both"
    return execution.processor_id


def _host(container: Container | None, launch: Launch | None, state: CoordinatorState) -> str:
    from samzapy.coordinator.launching.hosts import place_of

    if launch is not None:
        return place_of(launch, state)
    return "" if container is None else container.host


def _state(execution_id: ExecutionId, state: CoordinatorState) -> str:
    """The phase of the container, unless its launch has not begun or is stopping."""
    from samzapy.coordinator.assignment.liveness import is_alive

    container, launch = state.containers.get(execution_id), state.launches.get(execution_id)
    if launch is not None and (container is None or not is_alive(state, execution_id)):
        return launch.phase.value
    assert container is not None, "a row has a launch, a container, or both"
    is_stopping = launch is not None and launch.phase is LaunchPhase.STOPPING
    return LaunchPhase.STOPPING.value if is_stopping else container.phase.value
