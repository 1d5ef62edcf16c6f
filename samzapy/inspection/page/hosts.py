"""The containers by fault domain and host.

Standbys, starts under way and suspended processors are listed with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from samzapy.coordinator.assignment.container_ends import newest_ends
from samzapy.coordinator.assignment.liveness import Sighting
from samzapy.coordinator.launching.standbys import role_of, standby_called
from samzapy.coordinator.state import sorted_processors
from samzapy.inspection.page.look import Look
from samzapy.inspection.page.task_table import Page, paged
from samzapy.model.container import Container
from samzapy.model.container_end import ContainerEnd
from samzapy.model.launch import UP, Launch, LaunchRole, standby_name
from samzapy.model.standby_progress import StandbyProgress
from samzapy.stream.records import SuspendedPut


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRow:
    """A container that lives, or whose end is still of interest.

    Attributes:
        role: ACTIVE, RESERVE, or the name of a standby.
        heartbeat_age_ms: None without a heartbeat in this term.
        notes: what is unusual about it, as sentences.
    """

    container: Container
    role: str
    task_count: int
    cores_busy: float | None
    records_per_s: float | None
    heartbeat_age_ms: int | None
    notes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGroup:
    """A host and its containers; `fault_domain` is empty where none is known."""

    fault_domain: str
    host: str
    containers: Sequence[ContainerRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRow:
    """An execution that the coordinator starts, with the obstacle to it."""

    launch: Launch
    name: str
    obstacle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """The view of containers.

    Attributes:
        page: the containers that are shown, of all of them.
        suspended: processors for which no container is started, each with the reason.
        standbys_missing: standbys that are not started, each with the reason.
        ends: the last end of each processor's container by an error, the newest first.
    """

    page: Page[Container]
    groups: Sequence[HostGroup]
    launches: Sequence[LaunchRow]
    suspended: Sequence[tuple[str, str]]
    standbys_missing: Sequence[tuple[str, str]]
    ends: Sequence[ContainerEnd]


def hosts(look: Look, page: int = 1) -> Hosts:
    """The view of a look, with one page of its containers.

    A page of all of them is 837 kB for 1,000 containers, and each viewer loads it whenever something is new.
    """
    state, liveness = look.snapshot.state, look.snapshot.liveness
    by_host: dict[tuple[str, str], list[ContainerRow]] = {}
    busy = {item.execution_id: (item.tasks, item.cores_busy) for item in look.load.processors}
    rates = {
        execution_id: pace.per_s(lambda figures: figures.records_in) for execution_id, pace in look.paces().items()
    }

    def place(container: Container) -> tuple[str, str]:
        known = liveness.hosts.get(container.host)
        return known.fault_domain if known is not None else "", container.host

    shown = paged(sorted(state.containers_sorted, key=place), page)
    for container in shown.rows:
        tasks, cores_busy = busy.get(container.execution_id, (0, None))
        row = _row(look, container, tasks, cores_busy, rates.get(container.execution_id))
        by_host.setdefault(place(container), []).append(row)
    launches = sorted(state.launches.values(), key=lambda item: (item.wanted_at_ms, item.execution_id))
    return Hosts(
        page=shown,
        groups=[
            HostGroup(fault_domain=domain, host=host, containers=by_host[domain, host])
            for domain, host in sorted(by_host)
        ],
        launches=[
            LaunchRow(
                launch=launch, name=_launch_name(launch), obstacle=liveness.troubles.get(launch.execution_id, "")
            )
            for launch in launches
            if launch.phase in UP and launch.execution_id not in state.containers
        ],
        suspended=[
            (processor_id, _suspension(state.suspended[processor_id]))
            for processor_id in sorted_processors(state.suspended)
        ],
        standbys_missing=sorted(liveness.standbys_missing.items()),
        ends=newest_ends(state),
    )


def _row(
    look: Look, container: Container, tasks: int, cores_busy: float | None, records_per_s: float | None
) -> ContainerRow:
    state = look.snapshot.state
    sighting = look.snapshot.liveness.last.get(container.execution_id)
    standby = standby_called(container.execution_id, state)
    return ContainerRow(
        container=container,
        role=role_of(container.execution_id, state).value if standby is None else f"standby {standby}",
        task_count=tasks,
        cores_busy=cores_busy,
        records_per_s=records_per_s,
        heartbeat_age_ms=None if sighting is None else max(0, look.now_ms - sighting.at_ms),
        notes=[*([container.reason] if container.reason else []), *_notes(sighting)],
    )


def _notes(sighting: Sighting | None) -> Sequence[str]:
    if sighting is None:
        return []
    figures = sighting.figures
    notes = []
    if sighting.step:
        notes.append(f"start: {sighting.step}")
    if figures.restore_total:
        left_s = figures.restore_left_ms // 1000
        notes.append(f"restores {figures.restored:,} of {figures.restore_total:,} records, about {left_s} s left")
    if sighting.warm is not None:
        notes.append(_warm(sighting.warm))
    if sighting.failing is not None:
        notes.append(f"its query failed {sighting.failing.attempts} times: {sighting.failing.reason}")
    if sighting.unanswered_ms:
        notes.append(f"its heartbeats have had no answer for {sighting.unanswered_ms // 1000} s")
    if sighting.kafka_silent_ms:
        notes.append(f"no broker has answered it for {sighting.kafka_silent_ms // 1000} s")
    return notes


def _warm(warm: StandbyProgress) -> str:
    return f"has the state of {warm.level} of {warm.tasks} tasks ({warm.percent} %), {warm.lag:,} records behind"


def _launch_name(launch: Launch) -> str:
    return f"standby {standby_name(launch)}" if launch.role is LaunchRole.STANDBY else launch.role.value


def _suspension(put: SuspendedPut) -> str:
    return f"exit code {put.exit_code} of container {put.execution_id}: {put.reason}"
