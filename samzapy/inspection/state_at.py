"""The job as it was at some moment, for people and programs that look back. Pure.

```json
{"job_model": {"generation": 3, …}, "owners": {"SystemStreamPartition_kafka.orders.0": "e1", …},
 "records": {"grant": {"grant/SystemStreamPartition_kafka.orders.0/7": {"task_name": …, "starts": […]}}, …}}
```

`records` has every fact that the coordinator knew, under its key, in the fields of its schema; by the first word of
the key. `job_model` is the plan in force in Samza's shape (`plan.job_model_json`), null before the first; `owners`
are the tasks that a living execution ran. Both follow from `records`, and are there because they are asked for most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from samzapy.coordinator.assignment.grants import owners
from samzapy.coordinator.state import CoordinatorState, job_model, records_of
from samzapy.plan.job_model_json import job_model_json
from samzapy.stream.audit import Fields, fields_of
from samzapy.stream.keys import Namespace, key_of
from samzapy.stream.records import PlannedTaskPut

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A fact that is otherwise at the second of two moments.

    Attributes:
        key: the record's; of a task of the plan in force `plan/task/<name>`, whatever the generation.
        before: None if it was missing; `after`: None if it was removed.
    """

    key: str
    before: Fields | None
    after: Fields | None


def moment_json(state: CoordinatorState) -> Json:
    """The shape above."""
    records: dict[str, dict[str, Fields]] = {}
    for key, fields in sorted((key_of(record), fields_of(record)) for record in records_of(state)):
        records.setdefault(key.partition("/")[0], {})[key] = fields
    model = job_model(state)
    return {
        "job_model": None if model is None else job_model_json(model),
        "owners": {task: grant.execution_id for task, grant in sorted(owners(state).items())},
        "records": records,
    }


def differences(before: CoordinatorState, after: CoordinatorState) -> tuple[Difference, ...]:
    """The differences of `after`, in the order of the keys.

    A plan stands under its generation, so each new one would be a difference of all its tasks: tasks are compared
    under their names instead, as the plan in force has them. A plan that is not in force changes nothing.
    """
    old, new = _facts(before), _facts(after)
    return tuple(
        Difference(key=key, before=old.get(key), after=new.get(key))
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    )


def task_key(task_name: str) -> str:
    """Under which a task of the plan in force is compared."""
    return f"{Namespace.PLAN}/task/{task_name}"


def _facts(state: CoordinatorState) -> Mapping[str, Fields]:
    facts: dict[str, Fields] = {}
    for record in records_of(state):
        if not isinstance(record, PlannedTaskPut):
            facts[key_of(record)] = fields_of(record)
        elif state.generation is not None and record.generation == state.generation.generation:
            fields = fields_of(record)
            facts[task_key(record.task_name)] = {name: fields[name] for name in fields if name != "generation"}
    return facts
