"""The last end of each processor's container by an error, as records.

A container reports its end in its last heartbeat. If no leader hears that, it leaves the report on its host and on the
checkpoint topic, and the next container that reads it there hands it over. The finder of a gone process knows less, so
a report of the container replaces what the finder recorded, and nothing replaces a report of the same container. So
each end is recorded once.

A record stays when its container is forgotten, because people ask an hour later. The number of records is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from samzapy.coordinator.assignment.liveness import LIVING, is_expected, may_register
from samzapy.coordinator.state import CoordinatorState, evolve, tombstone, uncommitted
from samzapy.model.container_end import UNKNOWN, ContainerEnd
from samzapy.model.finding import Finding
from samzapy.model.launch import Launched, LaunchedState, LaunchPhase
from samzapy.stream.audit import time_text
from samzapy.stream.records import ContainerEndPut, CoordinatorRecord

if TYPE_CHECKING:
    from samzapy.coordinator.commands import Heartbeat, LaunchesLooked
    from samzapy.coordinator.grant_values import ContainerGone
    from samzapy.model.container import Container
    from samzapy.model.job import ExecutionId

ENDS_MAX: Final = 1000
"""Processor ids that no configuration and no disk keeps are new with each start, so the oldest ends go."""
_FINDINGS_MAX: Final = 10
NO_REASON: Final = "process gone, no reason given"


def ended_by_heartbeat(heartbeat: Heartbeat, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """The ends that a container of the job reports: its own, and earlier ones there."""
    if not is_expected(state, heartbeat) and not may_register(state, heartbeat):
        return ()
    # The leader's name of its host counts, which may be the launcher's.
    known = state.containers.get(heartbeat.execution_id)
    host = heartbeat.host if known is None else known.host
    own = () if heartbeat.end is None else (replace(heartbeat.end, host=host),)
    return _recorded((*heartbeat.former_ends, *own), state)


def ended_by_process(command: ContainerGone, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """The end of a container whose process is gone."""
    container = state.containers.get(command.execution_id)
    if command.end is None or container is None or container.phase not in LIVING:
        return ()
    return _recorded((command.end,), state)


def ended_by_launcher(command: LaunchesLooked, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """The ends that the launcher has seen, with their exit codes."""
    return _recorded(
        (
            _seen(execution_id, launched, command.now_ms, state)
            for execution_id, launched in sorted(command.launched.items())
            if launched.state is LaunchedState.ENDED and _is_failure(execution_id, launched, state)
        ),
        state,
    )


def newest_ends(state: CoordinatorState) -> Sequence[ContainerEnd]:
    """The recorded ends, the newest first."""
    return sorted(state.container_ends.values(), key=lambda end: (-end.ended_at_ms, end.processor_id))


def end_findings(state: CoordinatorState) -> tuple[Finding, ...]:
    """A notice for each of the newest ends."""
    return tuple(
        Finding(
            code="container-ended",
            subject=f"processor {end.processor_id}",
            found=f"{time_text(end.ended_at_ms)}: {end}",
            remedy="Mend the reason. The notice stays until another container of the processor ends by an error",
        )
        for end in newest_ends(state)[:_FINDINGS_MAX]
    )


def gone(container: Container, at_ms: int) -> ContainerEnd:
    """The end of a container that gave no reason."""
    return ContainerEnd(
        processor_id=container.processor_id,
        execution_id=container.execution_id,
        host=container.host,
        message=NO_REASON,
        ended_at_ms=at_ms,
    )


def _is_failure(execution_id: ExecutionId, launched: Launched, state: CoordinatorState) -> bool:
    """Whether an execution ended although it was not told to, or by an error."""
    launch = state.launches.get(execution_id)
    if launch is None or launch.phase is LaunchPhase.ENDED:
        return False
    container = state.containers.get(execution_id)
    return bool(launched.exit_code) or (container is not None and container.phase in LIVING)


def _seen(execution_id: ExecutionId, launched: Launched, at_ms: int, state: CoordinatorState) -> ContainerEnd:
    launch = state.launches[execution_id]
    return ContainerEnd(
        processor_id=launch.processor_id,
        execution_id=execution_id,
        host=launched.host or launch.host_found or launch.host,
        exit_code=UNKNOWN if launched.exit_code is None else launched.exit_code,
        message=f"{NO_REASON}: {launched.reason}" if launched.reason else NO_REASON,
        ended_at_ms=at_ms,
    )


def _recorded(ends: Iterable[ContainerEnd], state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """The records of the ends that are news, and tombstones of the oldest ends."""
    records: list[CoordinatorRecord] = []
    for end in sorted(ends, key=lambda item: item.ended_at_ms):
        if _is_news(end, state):
            put = ContainerEndPut(end=end)
            records.append(put)
            state = evolve(state, uncommitted((put,)))
    if not records:
        return ()  # As for nearly every heartbeat.
    oldest_first = sorted(state.container_ends.values(), key=lambda item: (item.ended_at_ms, item.processor_id))
    return (*records, *(tombstone(ContainerEndPut(end=end)) for end in oldest_first[:-ENDS_MAX]))


def _is_news(end: ContainerEnd, state: CoordinatorState) -> bool:
    known = state.container_ends.get(end.processor_id)
    if known is None:
        ends = state.container_ends.values()
        return len(ends) < ENDS_MAX or end.ended_at_ms > min(item.ended_at_ms for item in ends)
    if known.execution_id != end.execution_id:
        return end.ended_at_ms > known.ended_at_ms
    return not known.has_reason and (end.has_reason or (known.exit_code == UNKNOWN) > (end.exit_code == UNKNOWN))
