"""Judges what leaders say of tasks that stand still, by the world's truth.

A leader looks at the log and at the heartbeats that it heard. The world knows more: the processes that live, the
transactions that may still commit, the time of each commit and of each delivery. A cause that the world denies is a
broken law.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from samzapy.coordinator.assignment.grants import is_run, newest_grants
from samzapy.coordinator.assignment.liveness import LIVING
from samzapy.coordinator.commands import Figures
from samzapy.coordinator.grant_values import HeldGrant
from samzapy.coordinator.state import CoordinatorState
from samzapy.inspection.standstill import STILL_MS, Cause, Standstill, standstills
from samzapy.model.container import ContainerPhase
from samzapy.model.grant import Grant
from samzapy.model.job import ExecutionId
from samzapy.model.launch import LaunchPhase
from samzapy.testing.virtual_clock import VirtualClock
from simulation.checks import BrokenLawError
from simulation.containers import SimulatedContainer
from simulation.coordinators import CoordinatorProcess

_WITHOUT_OWNER: Final = frozenset({Cause.NO_CONTAINER, Cause.DEBOUNCE, Cause.GRANT, Cause.NO_ROOM, Cause.STARTING})


class Delivered(Protocol):
    """The newest heartbeat of an execution that a leader heard.

    Times are true ones. Of two processes of one execution, `container` is the one that sent it.
    """

    sent_ms: int
    held: frozenset[HeldGrant]
    step: str
    figures: Figures
    container: SimulatedContainer


OF_HISTORIES: Final = frozenset(
    {Cause.DEBOUNCE, Cause.NO_CONTAINER, Cause.FENCING, Cause.RELEASE, Cause.GRANT, Cause.SILENT}
)
"""The causes that occur where people start the containers."""
OF_LAUNCHES: Final = frozenset({Cause.NO_ROOM, Cause.STARTING})
"""The causes that occur in addition where the coordinator starts them."""


class StandstillChecks:
    """Looks at what leaders say about tasks that stand still.

    Attributes:
        seen: the causes that occurred so far.
        heard: by leader and execution, the last heartbeat that arrived, and when, in true time.
    """

    def __init__(self, clock: VirtualClock, containers: Callable[[], Sequence[SimulatedContainer]]) -> None:
        self.seen: set[Cause] = set()
        self.heard: dict[tuple[str, ExecutionId], tuple[Delivered, int]] = {}
        self._clock = clock
        self._containers = containers

    def hear(self, process: CoordinatorProcess, execution_id: ExecutionId, message: Delivered) -> None:
        """A heartbeat came to `process`, which expects it."""
        self.heard[_named(process), execution_id] = message, self._clock.monotonic_ms()

    def observe(self, process: CoordinatorProcess) -> None:
        """Judge the causes that this leader names.

        Raises:
            BrokenLawError: the world denies one.
        """
        if process.queue:
            return  # Heartbeats came that it has not looked at.
        status = process.service.status()
        for still in standstills(status.state, status.liveness, process.monotonic_ms()).values():
            self.seen.add(still.cause)
            denial = self._denial(still, process, status.state)
            if denial:
                raise BrokenLawError(f"{process.name} says '{still}', but {denial}")

    def _denial(self, still: Standstill, process: CoordinatorProcess, state: CoordinatorState) -> str:
        """The fact that speaks against it; empty if none does."""
        grant = newest_grants(state).get(still.task_name)
        last_heard = None if grant is None else self.heard.get((_named(process), grant.execution_id))
        if still.cause is Cause.GRANT and grant is not None and is_run(grant, state):
            # The container may have read it meanwhile, which its next heartbeat says.
            held = frozenset[HeldGrant]() if last_heard is None else last_heard[0].held
            is_listed = HeldGrant(grant.task_name, grant.epoch) in held
            return "its last heartbeat lists the grant" if is_listed else ""
        if still.cause in _WITHOUT_OWNER:
            return self._of_one_without_owner(still, state)
        if still.cause is Cause.FENCING:
            return self._of_a_lost_one(_container_of(still))
        if still.cause is Cause.RELEASE:
            return self._of_a_release(_container_of(still), state)
        if grant is None:
            return "it was never granted"
        if still.cause is Cause.SILENT:
            return self._of_a_silent_one(still, last_heard)
        if still.cause in (Cause.STEP, Cause.NO_COMMIT):
            if last_heard is None or bool(last_heard[0].step) is not (still.cause is Cause.STEP):
                return "its last heartbeat does not say that"
            return self._commit_between(still, last_heard[0], grant)
        return "no history can have that"

    def _of_one_without_owner(self, still: Standstill, state: CoordinatorState) -> str:
        owners = [
            container.execution_id
            for container in self._containers()
            for grant in container.can_commit()
            if grant.task_name == still.task_name
        ]
        if owners:
            return f"{owners} can commit for it"
        if still.cause in (Cause.NO_ROOM, Cause.STARTING):
            return self._of_a_launch(still, state)
        processor_id = next(item.processor_id for item in state.plan if item.task_name == still.task_name)
        lives = any(
            container.processor_id == processor_id
            for container in self._containers()
            if container.alive and container.state is ContainerPhase.RUNNING
            if container.execution_id in state.containers and state.containers[container.execution_id].phase in LIVING
        )
        if still.cause is not Cause.GRANT and lives and processor_id not in state.placed:
            return f"a container of processor {processor_id} runs"
        return ""

    def _of_a_launch(self, still: Standstill, state: CoordinatorState) -> str:
        execution_id = _container_of(still)
        launch = state.launches.get(execution_id)
        if launch is None or launch.phase not in (LaunchPhase.WANTED, LaunchPhase.LAUNCHED):
            return f"{execution_id} is not to be started"
        if execution_id in state.containers:
            return f"{execution_id} has reported"
        return ""

    def _of_a_lost_one(self, execution_id: ExecutionId) -> str:
        """Judge a declaration of loss.

        A living process may be declared lost if it was silent, had no answer, or stopped with its grants.
        """
        mine = [item for item in self._containers() if item.execution_id == execution_id and item.alive]
        if not mine or any(item.paused or item.answers_until_ms is not None for item in mine):
            return ""
        if any(item.state is ContainerPhase.STOPPED for item in mine):
            return ""
        times = [at_ms for (_, sender), (_, at_ms) in self.heard.items() if sender == execution_id]
        silent_ms = self._clock.monotonic_ms() - max(times, default=0)
        return "" if silent_ms >= STILL_MS else f"{execution_id} lives, and was heard {silent_ms} ms ago"

    def _of_a_release(self, execution_id: ExecutionId, state: CoordinatorState) -> str:
        holds = any(grant.execution_id == execution_id and not grant.released for grant in state.grants.values())
        return "" if holds and state.containers[execution_id].phase in LIVING else f"{execution_id} holds nothing"

    def _of_a_silent_one(self, still: Standstill, last_heard: tuple[Delivered, int] | None) -> str:
        if last_heard is None or still.for_ms is None:
            return ""
        silent_ms = self._clock.monotonic_ms() - last_heard[1]
        return "" if silent_ms >= still.for_ms else f"its heartbeat came {silent_ms} ms ago"

    def _commit_between(self, still: Standstill, last: Delivered, grant: Grant) -> str:
        """A commit while it stood still, as far as the last heartbeat could know."""
        from_ms = self._clock.monotonic_ms() - (still.for_ms or 0)
        positions = last.figures.positions
        for ssp_kb in [start.ssp_kb for start in grant.starts]:
            position = positions.get(ssp_kb)
            if position is not None and position.offset_next >= position.offset_end:
                continue
            at_ms = last.container.committed_ms.get(ssp_kb)
            if at_ms is not None and from_ms < at_ms < last.sent_ms:
                return f"{grant.execution_id} committed for {ssp_kb} {last.sent_ms - at_ms} ms before it said so"
        return ""


def _container_of(still: Standstill) -> ExecutionId:
    """The container that its detail begins with."""
    return ExecutionId(still.detail.split()[1])


def _named(process: CoordinatorProcess) -> str:
    return f"{process.name}-{process.pid}"
