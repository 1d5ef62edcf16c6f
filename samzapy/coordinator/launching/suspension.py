"""Suspended processors: their next container would fail as the last one did.

The exit code of a process says whether another try helps (`docs/reference/exit-codes.md`). After bad data, a message
that the task refuses, or a job that refuses the process, the next container fails in the same way. So no container is
started: the processor is suspended. A suspension is one record, `suspended/<processor>`, and does not count as a
failure that ends the job. The processor's tasks wait, and the other processors run on.

Wrong usage or a wrong environment may concern one host only. It suspends the processor at the second failure in a row,
because the second try goes to another host if one is known. A failure is a first one again if the processor ran and
the retry window is over (`coordinator.launching.launches`). If three containers end at one step of their start, the
processor is suspended with code 1 (`coordinator.launching.dying_starts`).

The code comes from the container's last heartbeat, else from the launcher. REJECTED from the launcher counts as wrong
usage, because a JVM that runs out of memory may end with the same code.

A suspension ends when its reason may be resolved: by a request to restart the processor, a rewind of its inputs, an
input range that is given up, or another run of the job. It also ends when a container of the processor runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from samzapy.coordinator.assignment.grants import executions_to_grant, newest_grants
from samzapy.coordinator.assignment.liveness import is_alive, is_expected
from samzapy.coordinator.state import CoordinatorState, sorted_processors, tombstone
from samzapy.errors import ExitCode
from samzapy.model.container import ContainerPhase
from samzapy.model.finding import Finding
from samzapy.model.launch import Launch, LaunchedState, LaunchPhase, LaunchRole, by_age
from samzapy.model.ssp import SspKeyBucket
from samzapy.stream.records import Removed, SuspendedPut

if TYPE_CHECKING:
    from samzapy.config import JobConfig
    from samzapy.coordinator.commands import Heartbeat, LaunchesLooked
    from samzapy.model.job import ProcessorId

_REPEATS: Final = frozenset({ExitCode.REJECTED, ExitCode.TASK_FAILED, ExitCode.BAD_DATA})
_MAY_REPEAT: Final = frozenset({ExitCode.USAGE, ExitCode.REJECTED})
_REASON_LENGTH_MAX: Final = 2000
_REMEDIES: Final = {
    ExitCode.FAILED: "See the ends of its containers' logs",
    ExitCode.USAGE: "Correct what it names",
    ExitCode.REJECTED: "Correct what it names",
    ExitCode.TASK_FAILED: "Correct the task, choose another task.error.policy, or leave the message out with "
    "`samzapy job rewind`, which starts the processor again",
    ExitCode.BAD_DATA: "Mend what it names. An input range is left out by `samzapy job rewind`, which starts the "
    "processor again, or given up by another `samzapy job submit` with task.lost.range.accept",
}


def suspended_by_heartbeat(heartbeat: Heartbeat, state: CoordinatorState) -> tuple[SuspendedPut, ...]:
    """The suspension that follows from the last heartbeat of a container, if any."""
    launch = state.launches.get(heartbeat.execution_id)
    if launch is None or not heartbeat.exit_code or not is_expected(state, heartbeat):
        return ()
    if heartbeat.exit_code not in _REPEATS and not _is_second(launch, heartbeat.exit_code, state):
        return ()
    return _suspension(launch, heartbeat.exit_code, heartbeat.reason, state)


def suspended_by_launcher(command: LaunchesLooked, state: CoordinatorState) -> tuple[SuspendedPut, ...]:
    """The suspensions that follow from exit codes which no heartbeat reported."""
    return tuple(
        put
        for execution_id in sorted(command.launched.keys() & state.launches.keys())
        if (launched := command.launched[execution_id]).state is LaunchedState.ENDED
        and launched.exit_code is not None
        and (launch := state.launches[execution_id])
        and (launched.exit_code in _REPEATS - _MAY_REPEAT or _is_second(launch, launched.exit_code, state))
        for put in _suspension(launch, launched.exit_code, launched.reason, state)
    )


def _is_second(launch: Launch, exit_code: int, state: CoordinatorState) -> bool:
    """Whether this is a second failure in a row, after which a third would follow.

    The failures of executions that had taken over are counted on the newest active one. An older one may stop for
    hours, and its failures are those of back then.
    """
    active = (
        other
        for other in state.launches.values()
        if other.processor_id == launch.processor_id and other.role is LaunchRole.ACTIVE
    )
    counting = max(active, key=by_age, default=launch)
    return exit_code in _MAY_REPEAT and (launch.failures > 0 or counting.failures > 0)


def is_suspended_by(launch: Launch, state: CoordinatorState) -> bool:
    """Whether the end of this execution is the reason why its processor is suspended.

    Then its end is not a failure, and no other execution is started.
    """
    suspended = state.suspended.get(launch.processor_id)
    return suspended is not None and suspended.execution_id == launch.execution_id


def suspensions_over(state: CoordinatorState) -> tuple[Removed, ...]:
    """Tombstones of suspensions that no longer apply.

    Either a new container runs the processor's tasks, or the processor is not wanted any more.
    """
    if not state.suspended:
        return ()
    runners = executions_to_grant(state)
    count = 0 if state.container_count is None else state.container_count.count
    wanted = {str(number) for number in range(count)}
    over = []
    for processor_id in sorted_processors(state.suspended):
        runner = runners.get(processor_id)
        runs = (
            runner is not None
            and runner != state.suspended[processor_id].execution_id
            and is_alive(state, runner)
            and state.containers[runner].phase is ContainerPhase.RUNNING
        )
        if runs or processor_id not in wanted:
            over.append(processor_id)
    return resumed(over, state)


def resumed(processor_ids: Iterable[ProcessorId], state: CoordinatorState) -> tuple[Removed, ...]:
    """Tombstones of these processors' suspensions, so that containers are started."""
    there = frozenset(processor_ids) & state.suspended.keys()
    return tuple(tombstone(state.suspended[processor_id]) for processor_id in sorted_processors(there))


def resumed_by_losses(config: JobConfig, state: CoordinatorState) -> tuple[Removed, ...]:
    """Tombstones of the suspensions that end because an input range is given up.

    They are those of the readers of a range that this submission gives up for the first time.
    """
    given_up = [
        ssp_kb
        for loss in config.accepted_losses
        if (known := state.accepted_losses.get(ssp_kb := SspKeyBucket.parse(loss.ssp_kb))) is None
        or known.offset_from != loss.offset_from
    ]
    return resumed(_readers_of(given_up, state), state) if state.suspended and given_up else ()


def suspension_findings(state: CoordinatorState) -> tuple[Finding, ...]:
    """A finding for each suspended processor, with the reason and the remedy."""
    return tuple(
        Finding(
            code="processor-suspended",
            subject=f"processor {suspended.processor_id}",
            found=f"processor {suspended.processor_id} waits without a container, because the next one would end as "
            f"{suspended.execution_id} did, with exit code {suspended.exit_code}: {suspended.reason}",
            remedy=f"{_REMEDIES[suspended.exit_code]}; `samzapy job restart --processor {suspended.processor_id}` "
            "starts it again",
        )
        for suspended in (state.suspended[processor_id] for processor_id in sorted_processors(state.suspended))
    )


def _suspension(launch: Launch, exit_code: int, reason: str, state: CoordinatorState) -> tuple[SuspendedPut, ...]:
    container = state.containers.get(launch.execution_id)
    has_drained = container is not None and container.phase is ContainerPhase.STOPPED
    if has_drained or launch.phase is LaunchPhase.ENDED or is_suspended_by(launch, state):
        return ()
    if launch.role is not LaunchRole.ACTIVE and not _runs_tasks(launch, state):
        return ()  # A standby or a reserve failed; the tasks run in another container.
    return (
        SuspendedPut(
            processor_id=launch.processor_id,
            execution_id=launch.execution_id,
            exit_code=exit_code,
            reason=reason[:_REASON_LENGTH_MAX],
        ),
    )


def _runs_tasks(launch: Launch, state: CoordinatorState) -> bool:
    """Whether this execution has the newest grant of a task of the processor."""
    newest = newest_grants(state)
    return any(
        planned.processor_id == launch.processor_id
        and planned.task_name in newest
        and newest[planned.task_name].execution_id == launch.execution_id
        for planned in state.plan
    )


def _readers_of(ssp_kbs: Collection[SspKeyBucket], state: CoordinatorState) -> frozenset[ProcessorId]:
    return frozenset(
        planned.processor_id
        for planned in state.plan
        if any(ssp_kb.overlaps(position) for ssp_kb in ssp_kbs for position in planned.positions)
    )
