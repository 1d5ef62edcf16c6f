"""Hosts for new executions: their names, free capacity and condition.

Theory. The cluster manager names its hosts, or does not. Where it names none, none can be asked for: each execution is
started anywhere, and looked at when it has come. Where it names them, a host is chosen here:

- never one that is known to be full, whatever else speaks for it: nothing is started there;
- rather one on which no start came to nothing, else the one where that is longest ago;
- the one with the fewest containers of the job, and the first by name among equals.

What was wanted and is not started yet is to have a place too, so each choice is made on the state that the choices
before it leave (`coordinator.state.Round`). What is known of a host is kept for as long as the cluster manager names
it, and outlives the container that told it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from samzapy.coordinator.assignment.liveness import Liveness, is_alive
from samzapy.coordinator.commands import ReviewLaunches
from samzapy.coordinator.state import CoordinatorState
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.model.launch import UP, Launch, LaunchPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What speaks for a host, and against it.

    Attributes:
        room: how many more containers it takes, what is wanted there included; None where nobody says so.
        load: how many containers of the job it has or is to have.
        failed_at_ms: when the last start that came to nothing there was wanted; 0: none is known.
        is_known: whether its fault domain is known, or does not count.
    """

    room: int | None
    load: int
    failed_at_ms: int = 0
    is_known: bool = True

    @property
    def is_full(self) -> bool:
        return self.room is not None and self.room <= 0

    @property
    def rank(self) -> tuple[int, bool, int]:
        """The lowest is the best."""
        return self.failed_at_ms, not self.is_known, self.load


def hosts_there(command: ReviewLaunches, state: CoordinatorState, liveness: Liveness) -> Mapping[str, Host]:
    """All hosts that containers of the job can be started on, as far as they are known."""
    up = [launch for launch in state.launches.values() if launch.phase in UP]
    load = Counter(place_of(launch, state) for launch in up)
    coming = Counter(found.host for found in up if found.phase is LaunchPhase.WANTED)
    domains, known = _domains(state, liveness), liveness.hosts

    def use(host: str) -> Host:
        room = command.hosts.get(host)
        return Host(
            room=None if room is None else room - coming[host],
            load=load[host],
            failed_at_ms=known[host].failed_at_ms if host in known else 0,
            is_known=not _domains_count(state) or host in domains,
        )

    return {host: use(host) for host in _names(command, state)}


def hosts_allowed(
    processor_id: ProcessorId, command: ReviewLaunches, state: CoordinatorState, liveness: Liveness
) -> Mapping[str, Host]:
    """Those of them on which another execution of the processor may be."""
    return {
        host: use
        for host, use in hosts_there(command, state, liveness).items()
        if not clash(host, processor_id, state, liveness)
    }


def elsewhere(last: Launch, before: str, command: ReviewLaunches, state: CoordinatorState, liveness: Liveness) -> str:
    """Where to start the next one after one that never came up: rather not there. Empty for any host.

    Args:
        before: where the processor was last.
    """
    if not command.hosts:
        return "" if last.host else before
    avoided = last.host_found or last.host
    free = _free(command, state, liveness, but=avoided)
    return before if not avoided and before in free else _emptiest(free)


def there_or_elsewhere(host: str, command: ReviewLaunches, state: CoordinatorState, liveness: Liveness) -> str:
    """`host`, where one was wanted that was not started; another one where it is full or gone and that one is neither.
    Empty where it is gone and the others are full."""
    there = hosts_there(command, state, liveness)
    if host in there and not there[host].is_full:
        return host
    return _emptiest(_free(command, state, liveness, but=host)) or (host if host in there else "")


def _free(command: ReviewLaunches, state: CoordinatorState, liveness: Liveness, but: str) -> Mapping[str, Host]:
    there = hosts_there(command, state, liveness)
    return {host: found for host, found in there.items() if host != but and not found.is_full}


def _emptiest(hosts: Mapping[str, Host]) -> str:
    """Of those on which no start came to nothing, else of those where that is longest ago; empty where there is none.
    Where nobody tells what is free it is the one with the fewest containers."""

    def rank(host: str) -> tuple[int, int, int, str]:
        found = hosts[host]
        return found.failed_at_ms, -(found.room or 0), found.load, host

    return min(hosts, key=rank, default="")


def place_of(launch: Launch, state: CoordinatorState) -> str:
    """The host of an execution: where it is, else where it was put, else where it is wanted."""
    container = state.containers.get(launch.execution_id)
    return launch.host_found or launch.host if container is None else container.host


def hosts_taken(
    processor_id: ProcessorId, state: CoordinatorState, but: Collection[ExecutionId] = ()
) -> Mapping[str, ExecutionId]:
    """The hosts of a processor's executions, without those of `but`."""
    there = [
        launch
        for launch in state.launches.values()
        if launch.processor_id == processor_id
        and launch.execution_id not in but
        and (launch.phase in UP or is_alive(state, launch.execution_id))
    ]
    found = {place_of(launch, state): launch.execution_id for launch in sorted(there, key=_name)}
    return {host: found[host] for host in sorted(found) if host}


def clash(
    host: str,
    processor_id: ProcessorId,
    state: CoordinatorState,
    liveness: Liveness,
    but: Collection[ExecutionId] = (),
) -> str:
    """Why another execution of the processor may not be on `host`, for people; empty where it may.

    Args:
        but: executions that are no reason against it: those that go, and the one that is asked about.
    """
    domains = _domains(state, liveness)
    own = domains.get(host, host)
    for other, execution_id in hosts_taken(processor_id, state, but).items():
        if other == host:
            return f"{execution_id} of processor {processor_id} is on {host} already, and would be lost with it"
        if domains.get(other, other) == own:
            return f"{execution_id} of processor {processor_id} is in the fault domain of {host} already ({own})"
    return ""


def _name(launch: Launch) -> str:
    return launch.execution_id


def _names(command: ReviewLaunches, state: CoordinatorState) -> tuple[str, ...]:
    """The hosts that containers of the job can be started on, as far as anybody knows: all that there are, else those
    where some were."""
    if command.hosts:
        return tuple(sorted(command.hosts))
    seen = (place_of(launch, state) for launch in state.launches.values())
    return tuple(sorted({host for host in (*seen, *(found.host for found in state.localities.values())) if host}))


def _domains_count(state: CoordinatorState) -> bool:
    return state.config.get("cluster-manager.fault-domain-aware.standby.enabled") == "true"


def _domains(state: CoordinatorState, liveness: Liveness) -> Mapping[str, str]:
    """The fault domains of hosts, where they count."""
    if not _domains_count(state):
        return {}
    recorded = {found.host: found.fault_domain for found in state.localities.values()}
    kept = {host: known.fault_domain for host, known in liveness.hosts.items()}
    return {host: domain for host, domain in (recorded | kept).items() if domain}
