"""The actions of the page: requests from forms, and their plans. Pure.

An action is a request for the placement topic, as a command writes it. Its plan names the tasks that would move or
pause and the messages that would come again or be skipped.
"""

from __future__ import annotations

import uuid as uuids
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from samzapy.coordinator.assignment.grants import executions_to_grant, owners
from samzapy.coordinator.launching.launches import wanted_processors
from samzapy.coordinator.launching.standbys import named
from samzapy.coordinator.requests.place_container import destination
from samzapy.coordinator.requests.read import refused
from samzapy.coordinator.requests.rewind import Move, refused_rewind
from samzapy.coordinator.requests.turns import run_id_of, turns_taken
from samzapy.coordinator.state import CoordinatorState, locality_of, sorted_processors
from samzapy.errors import RejectedError
from samzapy.model.container import Container
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.placement import (
    ANY_HOST,
    FORCE_RESTART_LAST_SEEN,
    LAST_SEEN,
    STANDBY,
    Action,
    ContainerPlacementRequestMessage,
    check_message,
    generation_expected,
    rewind_arguments,
    rewind_of,
)
from samzapy.plan.plan_change import PlanChange

ROWS_MAX: Final = 500
"""So many tasks of a plan are listed; the sentences count all of them."""
_PLACES: Final = (ANY_HOST, LAST_SEEN, FORCE_RESTART_LAST_SEEN, STANDBY)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionPlan:
    """The effect of an action.

    Attributes:
        sentences: what happens, in its order.
        columns, rows: the tasks or positions that change, at most `ROWS_MAX`.
        count: of all rows.
    """

    title: str
    sentences: Sequence[str]
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The values that the forms offer.

    Attributes:
        containers: how many the coordinator keeps running; None: they are self-managed.
    """

    processors: Sequence[str]
    hosts: Sequence[str]
    streams: Sequence[str]
    factor: int
    containers: int | None


def choices(state: CoordinatorState) -> Choices:
    """The choices in a state."""
    planned = () if state.generation is None else state.generation.processor_ids
    streams = {str(ssp_kb.ssp.system_stream) for task in state.plan for ssp_kb in task.positions}
    return Choices(
        processors=sorted_processors({*planned, *(wanted_processors(state) or ())}),
        hosts=(*_PLACES, *sorted({container.host for container in state.containers.values()})),
        streams=sorted(streams),
        factor=1 if state.generation is None else state.generation.factor,
        containers=None if state.container_count is None else state.container_count.count,
    )


def request_of(
    parameters: Mapping[str, str], state: CoordinatorState, *, uuid: uuids.UUID, now_ms: int, by: str | None
) -> ContainerPlacementRequestMessage:
    """The request that a form asks for, for the plan in force.

    Args:
        by: the name of the credential; None: callers are not told apart.

    Raises:
        RejectedError: a field has a value that there is not.
    """
    action = _action_of(parameters, state)
    in_force = state.generation_number
    common = {"expectedGeneration": str(in_force)} | ({} if by is None else {"by": by})
    try:
        message = ContainerPlacementRequestMessage(
            uuid=uuid,
            deployment_id=run_id_of(state),
            processor_id="" if action.is_of_job else parameters.get("processor", "").strip(),
            destination_host=parameters.get("host", "").strip() if action is Action.PLACE_CONTAINER else "",
            timestamp_ms=now_ms,
            action=action,
            arguments={**common, **_arguments(action, parameters)},
        )
        check_message(message)
    except ValueError as error:
        raise RejectedError(str(error)) from error
    return message


def made_for_now(
    message: ContainerPlacementRequestMessage, state: CoordinatorState, *, uuid: uuids.UUID, now_ms: int
) -> ContainerPlacementRequestMessage:
    """The same request for the plan in force now, as another request."""
    in_force = state.generation_number
    return replace(
        message,
        uuid=uuid,
        timestamp_ms=now_ms,
        deployment_id=run_id_of(state),
        arguments={**message.arguments, "expectedGeneration": str(in_force)},
    )


def is_for(message: ContainerPlacementRequestMessage, state: CoordinatorState) -> bool:
    """Whether the plan and the run that a request was made for are in force."""
    in_force = state.generation_number
    return generation_expected(message.arguments) == in_force and message.deployment_id == run_id_of(state)


def check_possible(message: ContainerPlacementRequestMessage, state: CoordinatorState) -> None:
    """Raise RejectedError if the coordinator would refuse the request now."""
    reason = refused(message, state, turns_taken(state))
    if reason is None and message.action is Action.REWIND:
        reason = refused_rewind(rewind_of(message.arguments), state)
    if reason is not None:
        raise RejectedError(str(reason))


def place_plan(message: ContainerPlacementRequestMessage, state: CoordinatorState) -> ActionPlan:
    """The plan of a move."""
    name, host = message.processor_id, message.destination_host
    title = f"Move processor {name} to {host}"
    processor_id, number = named(name, state)
    if number is not None:
        return ActionPlan(title=title, sentences=(f"The standby {name} moves. No task pauses.",))
    here = locality_of(state).processors.get(processor_id, "-")
    if state.container_count is not None:
        there = host
        sentences = [
            f"A container starts at {host}, and restores the state of the tasks.",
            f"Then the container on {here} stops. The tasks pause from then until they run in the new container.",
        ]
        if host == FORCE_RESTART_LAST_SEEN:
            sentences = [f"The container on {here} stops first. Then another one starts there, and the tasks go on."]
    else:
        target = destination(processor_id, host, state)
        assert isinstance(target, Container), "a request without a destination is refused"
        there = f"{target.execution_id} on {target.host}"
        sentences = [f"The tasks pause, move to the container {there}, and go on there."]
        if target.execution_id == executions_to_grant(state).get(processor_id):
            sentences = [f"The tasks run there already. Their query in {there} restarts."]
    return _of_tasks(title, [*sentences, _KEPT], _tasks_of(processor_id, state), state, there)


def restart_plan(message: ContainerPlacementRequestMessage, state: CoordinatorState) -> ActionPlan:
    """The plan of a restart."""
    processor_id = ProcessorId(message.processor_id)
    if message.action is Action.RESTART_CONTAINER:
        sentence = (
            "The container finishes its batch and ends. Another one starts on its host. Its tasks pause until then."
        )
    else:
        sentence = (
            "The query finishes its batch, and another query starts in the same process. Its tasks pause until then."
        )
    runner = executions_to_grant(state).get(processor_id, ExecutionId("-"))
    tasks = _tasks_of(processor_id, state)
    return _of_tasks(f"Restart processor {processor_id}", [sentence, _KEPT], tasks, state, f"after {runner}")


def scale_plan(message: ContainerPlacementRequestMessage, change: PlanChange) -> ActionPlan:
    """The plan of another factor or number of containers."""
    arguments = message.arguments
    is_factor = "factor" in arguments
    what = f"factor {arguments['factor']}" if is_factor else f"{arguments.get('containers')} containers"
    counts = ", ".join(f"{count} {kind}" for kind, count in change.counts.items() if count) or "nothing"
    pause = change.expected_pause_ms
    moved = [task for task in change.tasks if task.change != "stays"]
    sentences = [
        f"{len(change.tasks):,} tasks: {counts}.",
        f"Expected pause of a key: {'not known' if pause is None else f'about {pause / 1000:.1f} s'}.",
    ]
    if change.restore is not None and change.restore.bytes_about:
        sentences.append(f"About {change.restore.bytes_about:,} bytes of state are restored from changelogs.")
    if not is_factor:
        sentences.append("The tasks move as each container joins or leaves, so the plan is made in several steps.")
    rows = [
        (task.task_name, task.change.value, task.processor_before or "-", task.processor_id, task.why)
        for task in moved[:ROWS_MAX]
    ]
    columns = ("Task", "Change", "From processor", "To processor", "Why")
    return ActionPlan(
        title=f"Scale to {what}", sentences=[*sentences, _KEPT], columns=columns, rows=rows, count=len(moved)
    )


def rewind_plan(message: ContainerPlacementRequestMessage, moves: Sequence[Move]) -> ActionPlan:
    """The plan of a rewind."""
    wanted = rewind_of(message.arguments)
    again = sum(max(0, move.offset_from - move.offset_to) for move in moves)
    skipped = sum(max(0, move.offset_to - move.offset_from) for move in moves)
    sentences = [
        f"{again:,} offsets are processed again, and {skipped:,} are skipped. A key bucket has its share of them.",
        "Stores and outputs are not changed. Repeated messages act on top of their earlier effects.",
    ]
    if skipped:
        sentences.append("Skipped messages are never processed, unless the input is rewound again.")
    rows = [
        (
            move.task_name,
            str(move.ssp_kb),
            f"{move.offset_from:,}",
            f"{move.offset_to:,}",
            f"{move.offset_to - move.offset_from:+,}",
        )
        for move in moves[:ROWS_MAX]
    ]
    return ActionPlan(
        title=f"Rewind {wanted.stream} to {wanted.to}",
        sentences=sentences,
        columns=("Task", "Position", "From", "To", "Difference"),
        rows=rows,
        count=len(moves),
    )


_KEPT: Final = "Each message is still processed exactly once."


def _action_of(parameters: Mapping[str, str], state: CoordinatorState) -> Action:
    wanted = parameters.get("action", "")
    if wanted == "restart":
        # As `samzapy container restart`: only the coordinator can replace the process of a container.
        return Action.RESTART_QUERY if wanted_processors(state) is None else Action.RESTART_CONTAINER
    known = {"place": Action.PLACE_CONTAINER, "scale": Action.SCALE, "rewind": Action.REWIND}
    if wanted not in known:
        raise RejectedError(f"action: wanted place, restart, scale or rewind, found {wanted[:50]!r}")
    return known[wanted]


def _arguments(action: Action, parameters: Mapping[str, str]) -> Mapping[str, str]:
    given = {name: text.strip() for name, text in parameters.items() if text.strip()}
    if action is Action.SCALE:
        return {name: given[name] for name in ("factor", "containers") if name in given}
    if action is not Action.REWIND:
        return {}
    partition = given.get("partition")
    if partition is not None and not (partition.isascii() and partition.isdigit() and len(partition) < 10):
        raise ValueError(f"partition: wanted a whole number, found {partition[:50]!r}")
    return rewind_arguments(
        given.get("stream", ""),
        given.get("to", ""),
        partition=None if partition is None else int(partition),
        task=given.get("task"),
        processor=given.get("processor"),
    )


def _tasks_of(processor_id: ProcessorId, state: CoordinatorState) -> Sequence[TaskName]:
    return [planned.task_name for planned in state.plan if planned.processor_id == processor_id]


def _of_tasks(
    title: str, sentences: Sequence[str], tasks: Sequence[TaskName], state: CoordinatorState, there: str
) -> ActionPlan:
    """A plan in which tasks pause."""
    running = owners(state)
    rows = [
        (name, running[name].execution_id if name in running else "no container", there) for name in tasks[:ROWS_MAX]
    ]
    pausing = "1 task pauses." if len(tasks) == 1 else f"{len(tasks):,} tasks pause."
    return ActionPlan(
        title=title, sentences=[pausing, *sentences], columns=("Task", "Runs in", "To"), rows=rows, count=len(tasks)
    )
