"""Suspended processors: their next container would fail as the last one did.

Theory. The exit code of a process says whether another try helps (`docs/reference/exit-codes.md`). After bad data, a
message that the task refuses, and a job that refuses the process, the next container meets the same. So none is
started: the processor is suspended, which is one record, `suspended/<processor>`, and no failure that counts towards
the end of the job. Its tasks wait, and the others go on. Wrong usage or a wrong environment may be of one host: it
suspends the processor when it is a second failure in a row, as the second try goes to another host where one is known.

Containers that end three times at one step of their start suspend it with code 1
(`coordinator.launching.dying_starts`).

The code comes in the last heartbeat of the container, else from the launcher; of the latter REJECTED counts as wrong
usage does, because a JVM that runs out of memory may end with the same code. A suspension ends with what may have
resolved its reason: a request to start the processor anew, a rewind of what it reads, an input range that is given up,
another run of the job; or with a container of the processor that runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from samzapy.config import JobConfig
from samzapy.coordinator.assignment.grants import executions_to_grant, newest_grants
from samzapy.coordinator.assignment.liveness import is_alive, is_expected
from samzapy.coordinator.commands import Heartbeat, LaunchesLooked
from samzapy.coordinator.state import CoordinatorState, sorted_processors, tombstone
from samzapy.errors import ExitCode
from samzapy.model.container import ContainerPhase
from samzapy.model.finding import Finding
from samzapy.model.job import ProcessorId
from samzapy.model.launch import Launch, LaunchedState, LaunchPhase, LaunchRole
from samzapy.model.ssp import SspKeyBucket
from samzapy.stream.records import Removed, SuspendedPut

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
    """The suspension that the last heartbeat of a container leads to, if any."""
    launch = state.launches.get(heartbeat.execution_id)
    if launch is None or not heartbeat.exit_code or not is_expected(state, heartbeat):
        return ()
    if heartbeat.exit_code not in _REPEATS and not _is_second(launch, heartbeat.exit_code):
        return ()
    return _suspension(launch, heartbeat.exit_code, heartbeat.reason, state)


def suspended_by_launcher(command: LaunchesLooked, state: CoordinatorState) -> tuple[SuspendedPut, ...]:
    """The suspensions that follow from how processes ended, of which no heartbeat told it."""
    return tuple(
        put
        for execution_id in sorted(command.launched.keys() & state.launches.keys())
        if (found := command.launched[execution_id]).state is LaunchedState.ENDED
        and found.exit_code is not None
        and (launch := state.launches[execution_id])
        and (found.exit_code in _REPEATS - _MAY_REPEAT or _is_second(launch, found.exit_code))
        for put in _suspension(launch, found.exit_code, found.reason, state)
    )


def _is_second(launch: Launch, exit_code: int) -> bool:
    """Whether it is a second failure in a row, and would be of the kind that a third one is, too."""
    return exit_code in _MAY_REPEAT and launch.failures > 0


def is_suspended_by(launch: Launch, state: CoordinatorState) -> bool:
    """Whether the end of this execution is why its processor is suspended: no failure, and no other one is started."""
    suspended = state.suspended.get(launch.processor_id)
    return suspended is not None and suspended.execution_id == launch.execution_id


def suspensions_over(state: CoordinatorState) -> tuple[Removed, ...]:
    """Tombstones of the suspensions of processors that have a container again which runs their tasks, or that are not
    wanted any more."""
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
    """Tombstones of the suspensions of these processors: a container is started for each."""
    there = frozenset(processor_ids) & state.suspended.keys()
    return tuple(tombstone(state.suspended[processor_id]) for processor_id in sorted_processors(there))


def resumed_by_losses(config: JobConfig, state: CoordinatorState) -> tuple[Removed, ...]:
    """Tombstones of the suspensions of processors that read an input range which a submission gives up for the first
    time."""
    given_up = [
        ssp_kb
        for loss in config.accepted_losses
        if (known := state.accepted_losses.get(ssp_kb := SspKeyBucket.parse(loss.ssp_kb))) is None
        or known.offset_from != loss.offset_from
    ]
    return resumed(_readers_of(given_up, state), state) if state.suspended and given_up else ()


def suspension_findings(state: CoordinatorState) -> tuple[Finding, ...]:
    """The processors that are suspended, why, and the way out."""
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
        return ()  # The tasks are at work elsewhere: it is a standby or a reserve that failed.
    return (
        SuspendedPut(
            processor_id=launch.processor_id,
            execution_id=launch.execution_id,
            exit_code=exit_code,
            reason=reason[:_REASON_LENGTH_MAX],
        ),
    )


def _runs_tasks(launch: Launch, state: CoordinatorState) -> bool:
    """Whether the newest grant of a task of the processor is this execution's."""
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
