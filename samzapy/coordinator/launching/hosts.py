"""Hosts for new executions: their names, free capacity and condition.

A cluster manager may name its hosts or not. If it names none, no host can be requested: each execution is started on
any host, and its host is checked once it has started. If it names hosts, one is chosen here:

- never a host that is known to be full, because nothing is started there;
- preferably a host without a failed start, else the host whose last failed start is the oldest;
- then the host with the fewest containers of the job, and the first by name among equals.

A launch that is wanted and not started yet needs a place too. So each choice is made on the state after the choices
before it (`coordinator.state.Round`). The facts about a host are kept as long as the cluster manager names the host,
also after the container that reported them has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samzapy.coordinator.assignment.liveness import Liveness, is_alive
from samzapy.coordinator.state import CoordinatorState, remembered, sorted_processors
from samzapy.model.launch import UP, Launch, LaunchPhase

if TYPE_CHECKING:
    from samzapy.coordinator.commands import ReviewLaunches
    from samzapy.model.job import ExecutionId, ProcessorId


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The facts by which hosts are compared.

    Attributes:
        room: how many more containers fit, after the launches wanted there; None if the cluster manager does not say.
        load: how many containers of the job run or are wanted there.
        failed_at_ms: when the last start that failed there was wanted; 0 if no failed start is known.
        is_known: whether the host's fault domain is known, or fault domains are not used.
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
        """The sort key; the lowest is the best."""
        return self.failed_at_ms, not self.is_known, self.load


def hosts_there(command: ReviewLaunches, state: CoordinatorState, liveness: Liveness) -> Mapping[str, Host]:
    """All known hosts on which containers of the job can be started."""
    up = [launch for launch in state.launches.values() if launch.phase in UP]
    load = Counter(place_of(launch, state) for launch in up)
    coming = Counter(launch.host for launch in up if launch.phase is LaunchPhase.WANTED)
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
    """The hosts of `hosts_there` on which another execution of the processor may run."""
    return {
        host: use
        for host, use in hosts_there(command, state, liveness).items()
        if not clash(host, processor_id, state, liveness)
    }


def elsewhere(last: Launch, before: str, command: ReviewLaunches, state: CoordinatorState, liveness: Liveness) -> str:
    """The host for the next execution after `last` failed to start.

    Another host is chosen if possible. Returns an empty text for any host.

    Args:
        before: the host on which the processor ran last.
    """
    if not command.hosts:
        return "" if last.host else before
    avoided = last.host_found or last.host
    free = _free(command, state, liveness, but=avoided)
    return before if not avoided and before in free else _emptiest(free)


def there_or_elsewhere(host: str, command: ReviewLaunches, state: CoordinatorState, liveness: Liveness) -> str:
    """`host`, or another host if `host` is full or gone.

    An execution was wanted on `host` and was not started. Returns `host` if it is full and the others are too, and an
    empty text if it is gone and the others are full.
    """
    there = hosts_there(command, state, liveness)
    if host in there and not there[host].is_full:
        return host
    return _emptiest(_free(command, state, liveness, but=host)) or (host if host in there else "")


def _free(command: ReviewLaunches, state: CoordinatorState, liveness: Liveness, but: str) -> Mapping[str, Host]:
    there = hosts_there(command, state, liveness)
    return {host: use for host, use in there.items() if host != but and not use.is_full}


def _emptiest(hosts: Mapping[str, Host]) -> str:
    """The host with the most room among those without a failed start.

    If each has one, the host whose failed start is the oldest. If the room is not known, the host with the fewest
    containers. Returns an empty text if there is no host.
    """

    def rank(host: str) -> tuple[int, int, int, str]:
        use = hosts[host]
        return use.failed_at_ms, -(use.room or 0), use.load, host

    return min(hosts, key=rank, default="")


def place_of(launch: Launch, state: CoordinatorState) -> str:
    """The host on which an execution runs, else was started, else is wanted."""
    container = state.containers.get(launch.execution_id)
    return launch.host_found or launch.host if container is None else container.host


def hosts_taken(
    processor_id: ProcessorId, state: CoordinatorState, but: Collection[ExecutionId] = ()
) -> Mapping[str, ExecutionId]:
    """The hosts of a processor's executions, without the executions in `but`."""
    there = [
        launch
        for launch in state.launches.values()
        if launch.processor_id == processor_id
        and launch.execution_id not in but
        and (launch.phase in UP or is_alive(state, launch.execution_id))
    ]
    by_host = {place_of(launch, state): launch.execution_id for launch in sorted(there, key=_name)}
    return {host: by_host[host] for host in sorted(by_host) if host}


def clash(
    host: str,
    processor_id: ProcessorId,
    state: CoordinatorState,
    liveness: Liveness,
    but: Collection[ExecutionId] = (),
) -> str:
    """Why another execution of the processor may not run on `host`; else empty.

    Args:
        but: executions that do not count: those that stop, and the one that the caller asks about.
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
    """The names of the cluster's hosts, else of the hosts where containers ran."""
    if command.hosts:
        return tuple(sorted(command.hosts))
    launched = (place_of(launch, state) for launch in state.launches.values())
    remembered = (locality.host for locality in state.localities.values())
    return tuple(sorted({host for host in (*launched, *remembered) if host}))


def _domains_count(state: CoordinatorState) -> bool:
    return state.config.get("cluster-manager.fault-domain-aware.standby.enabled") == "true"


def _domains(state: CoordinatorState, liveness: Liveness) -> Mapping[str, str]:
    """The fault domain of each host; none if the job does not use fault domains."""
    if not _domains_count(state):
        return {}
    # A host that is only known for a failed start has no domain here, and that is no reason to forget the recorded one.
    kept = {host: known.fault_domain for host, known in liveness.hosts.items() if known.fault_domain}
    return {host: domain for host, domain in {**_domains_recorded(state), **kept}.items() if domain}


@remembered
def _domains_recorded(state: CoordinatorState) -> Mapping[str, str]:
    """The fault domain of each host, as its processors recorded it.

    Processors recorded different ones if the host was moved. One that runs there has the newest. Otherwise the last
    processor counts, so that equal states decide equally (law L7).
    """
    running = {
        (container.processor_id, container.host)
        for container in state.containers.values()
        if is_alive(state, container.execution_id)
    }
    in_order = (state.localities[processor_id] for processor_id in sorted_processors(state.localities))
    by_evidence = sorted(in_order, key=lambda locality: (locality.processor_id, locality.host) in running)
    return {locality.host: locality.fault_domain for locality in by_evidence}
