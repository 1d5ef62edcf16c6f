"""Why a task is where it is, with the records that made it so. Pure.

There are two answers: the plan that put it on its processor and why (`plan.plan_change` of the two plans and of the
places that were known when the plan came into force), and the execution that runs it by which grant. Both are derived
from the stream; the reason of a plan from before the horizon is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from samzapy.coordinator.assignment.grants import epochs_before, newest_grants
from samzapy.coordinator.assignment.liveness import LIVING, living_runners
from samzapy.coordinator.replay import BATCH_RECORDS, NOTHING, Replayed, replay
from samzapy.coordinator.state import CoordinatorState, job_model, locality_of, works_for
from samzapy.errors import RejectedError
from samzapy.model.container import Container, ContainerPhase
from samzapy.model.container_end import ContainerEnd
from samzapy.model.grant import Grant, is_of_earlier_topic
from samzapy.model.job import JobModel, ProcessorId, TaskName
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.startpoint import StartpointIndex
from samzapy.plan.plan_change import plan_change
from samzapy.plan.task_names import TaskNameParts
from samzapy.stream.audit import LATEST_VALUE_ONLY, Entry, History, HistoryEntry, as_json, time_text
from samzapy.stream.keys import Namespace
from samzapy.stream.log import LogRecord
from samzapy.stream.numbering import BEGINNING, Foreign, Numbering, place
from samzapy.stream.records import PlannedTaskPut


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A plan that put the task on a processor.

    Attributes:
        offset: of the record `generation` that brought the plan into force.
        processor_before: None where the task was new.
        why: as `samzapy job plan` says it.
    """

    generation: int
    offset: int
    timestamp_ms: int
    processor_before: ProcessorId | None
    processor_id: ProcessorId
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a task is where it is.

    Attributes:
        planned: as the plan in force has it; None where it has no such task any more.
        assignments: the plans that moved it, the oldest first.
        runs: the execution that runs it, or the reason why it waits, as a sentence.
        end: the last end by an error of a container of its processor; None without one.
        evidence: the records about it, in their order.
    """

    task_name: TaskName
    planned: PlannedTaskPut | None
    assignments: tuple[Assignment, ...]
    runs: str
    end: ContainerEnd | None
    evidence: tuple[HistoryEntry, ...]


def explain(records: Iterable[LogRecord], task_name: TaskName, *, topic: str, whole_from: int) -> Explanation:
    """The explanation as of the last of `records`.

    Raises:
        RejectedError: no plan ever had such a task, as far as the stream tells.
        CorruptRecordError: a record cannot be read.
    """
    gatherer = _Gatherer(task_name, topic, whole_from)
    for record in records:
        gatherer.take(record)
    return gatherer.explanation()


def explanation_json(explanation: Explanation) -> Mapping[str, object]:
    """As `samzapy task explain -o json` shows it; the names are an interface."""
    planned = explanation.planned
    return {
        "task": explanation.task_name,
        "processor": None if planned is None else planned.processor_id,
        "generation": None if planned is None else planned.generation,
        "reads": [] if planned is None else [str(ssp_kb) for ssp_kb in planned.positions],
        "runs": explanation.runs,
        "end": None if explanation.end is None else explanation.end.as_json(),
        "assignments": [
            {
                "generation": item.generation,
                "offset": item.offset,
                "time": time_text(item.timestamp_ms),
                "from": item.processor_before,
                "to": item.processor_id,
                "why": item.why,
            }
            for item in explanation.assignments
        ],
        "records": [as_json(entry) for entry in explanation.evidence],
    }


class _Gatherer:
    """Folds the stream with the coordinator's own code.

    It keeps the records that concern one task.
    """

    def __init__(self, task_name: TaskName, topic: str, whole_from: int) -> None:
        self._task_name = task_name
        self._topic = topic
        self._whole_from = whole_from
        self._known: Replayed = NOTHING
        self._batch: list[LogRecord] = []
        self._numbering: Numbering = BEGINNING
        self._assignments: list[Assignment] = []
        # Of executions it is known only later whether they had the task.
        self._executions: set[str] = set()
        self._evidence: list[tuple[str | None, HistoryEntry]] = []
        self._history = History(topic, whole_from=whole_from)
        base = str(TaskNameParts.parse(task_name).base_name) if _is_task_name(task_name) else task_name
        self._keys = {
            f"{Namespace.TASK_LOCALITY}/{task_name}".encode(),
            f"{Namespace.CHANGELOG}/{base}".encode(),
            Namespace.GENERATION.encode(),
        }
        self._grants = f"{Namespace.GRANT}/{task_name}/".encode()
        self._plans = f"/task/{task_name}".encode()
        self._containers = f"{Namespace.CONTAINER}/".encode(), f"{Namespace.CONTAINER_END}/".encode()
        self._startpoints = f"{Namespace.STARTPOINT}/".encode()

    def take(self, record: LogRecord) -> None:
        self._numbering, headers = place(record, self._numbering)
        if isinstance(headers, Foreign):
            # The fold and the history leave it aside in the same way.
            self._batch.append(record)
            return
        brings_a_plan = record.key == Namespace.GENERATION.encode() and record.value is not None
        if brings_a_plan or len(self._batch) == BATCH_RECORDS:
            self._fold()
        before = self._known.state
        self._batch.append(record)
        if brings_a_plan:
            self._fold()
            self._plan_came(before, record)
        if self._concerns(record.key or b""):
            for entry in self._history.read((record,)):
                self._keep(entry)

    def explanation(self) -> Explanation:
        self._fold()
        state = self._known.state
        planned = next((item for item in state.plan if item.task_name == self._task_name), None)
        evidence = self._evidence_of_task()
        if planned is None and not evidence:
            known = ", ".join(item.task_name for item in state.plan[:10]) or "none"
            raise RejectedError(
                f"wanted the task {self._task_name}, found no record of it on {self._topic}; the tasks are {known}"
                f"{', ...' if len(state.plan) > 10 else ''} (`samzapy job status` lists them all)"
            )
        return Explanation(
            task_name=self._task_name,
            planned=planned,
            assignments=tuple(self._assignments),
            runs=runs_text(state, self._task_name, planned),
            end=None if planned is None else state.container_ends.get(planned.processor_id),
            evidence=evidence,
        )

    def _fold(self) -> None:
        self._known = replay(self._batch, topic=self._topic, before=self._known)
        self._batch.clear()

    def _concerns(self, key: bytes) -> bool:
        return (
            key in self._keys
            or key.startswith((self._grants, *self._containers))
            or (key.startswith(b"plan/") and key.endswith(self._plans))
            or (key.startswith(self._startpoints) and self._reads(key.removeprefix(self._startpoints)))
        )

    def _reads(self, name: bytes) -> bool:
        """Whether the task, as the plan of then has it, reads messages of an SSPKb."""
        state = self._known.state
        generation = state.generation_number
        planned = state.planned_tasks.get((generation, self._task_name))
        try:
            ssp_kb = SspKeyBucket.parse(name.decode())
        except ValueError:
            return False
        return planned is not None and any(map(ssp_kb.overlaps, planned.positions))

    def _keep(self, entry: Entry) -> None:
        if not isinstance(entry, HistoryEntry):
            return
        namespace, _, rest = entry.key.partition("/")
        if namespace == Namespace.GENERATION:
            # Told with the plans that moved the task.
            return
        if namespace == Namespace.GRANT and entry.after is not None:
            self._executions.add(str(entry.after["execution_id"]))
        if namespace == Namespace.CONTAINER_END:
            if entry.after is not None:
                self._evidence.append((str(entry.after["execution_id"]), entry))
            return
        self._evidence.append((rest if namespace == Namespace.CONTAINER else None, entry))
        if namespace == Namespace.CONTAINER and entry.after is None and rest not in self._executions:
            self._evidence = [item for item in self._evidence if item[0] != rest]

    def _evidence_of_task(self) -> tuple[HistoryEntry, ...]:
        return tuple(
            entry for execution, entry in self._evidence if execution is None or execution in self._executions
        )

    def _plan_came(self, before: CoordinatorState, record: LogRecord) -> None:
        after = job_model(self._known.state)
        assert after is not None, "the record `generation` was just folded"
        old = job_model(before)
        owner, owner_before = _processor_of(after, self._task_name), _processor_of(old, self._task_name)
        if owner is None or owner == owner_before:
            return
        if record.offset < self._whole_from:
            why = f"{LATEST_VALUE_ONLY}: what it was decided on may have been compacted away"
        else:
            change = plan_change(old, after, locality_of(before), lambda _: None)
            why = next(item.why for item in change.tasks if item.task_name == self._task_name)
        self._assignments.append(
            Assignment(
                generation=after.generation,
                offset=record.offset,
                timestamp_ms=record.timestamp_ms,
                processor_before=owner_before,
                processor_id=owner,
                why=why,
            )
        )


def runs_text(state: CoordinatorState, task_name: TaskName, planned: PlannedTaskPut | None) -> str:
    """The execution that runs the task, or the event that the task waits for."""
    if planned is None:
        return "no owner: the plan in force has no such task"
    grant = newest_grants(state).get(task_name)
    container = None if grant is None else state.containers.get(grant.execution_id)
    if grant is not None and container is not None and not grant.released:
        owner = f"execution {grant.execution_id} of processor {container.processor_id} on {container.host}"
        if container.phase in LIVING:
            return f"{owner}, under epoch {grant.epoch}{_until_release(state, grant, container, planned)}"
        if container.phase is ContainerPhase.LOST:
            return f"no owner: it waits until {owner}, which was declared lost ({container.reason}), is fenced"
    next_owner = living_runners(state).get(planned.processor_id)
    if next_owner is None:
        return f"no owner: processor {planned.processor_id} has no running container"
    return f"no owner yet: it waits for its grant to execution {next_owner.execution_id}"


def _until_release(state: CoordinatorState, grant: Grant, container: Container, planned: PlannedTaskPut) -> str:
    """The reason why a living owner has to release the task.

    Empty if it keeps the task.
    """
    if StartpointIndex(state.startpoints.values()).newer_than(grant):
        return ", until it releases the task for a rewind"
    if is_of_earlier_topic(grant, epochs_before(state)):
        return ", until it releases the task, because a topic that it reads was created again"
    if works_for(container, planned.processor_id, state):
        return ""
    return f", until it releases the task, which moves to processor {planned.processor_id}"


def _processor_of(model: JobModel | None, task_name: TaskName) -> ProcessorId | None:
    if model is None:
        return None
    return next(
        (
            container.processor_id
            for container in model.containers
            for task in container.tasks
            if task.name == task_name
        ),
        None,
    )


def _is_task_name(name: str) -> bool:
    try:
        TaskNameParts.parse(name)
    except ValueError:
        return False
    return True
