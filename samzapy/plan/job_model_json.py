"""The JobModel as JSON: one documented shape, for `GET /jobModel` and others.

```json
{"generation": 3, "config": {"job.name": "flights"},
 "containers": [{"processor-id": "0", "location-id": "host-a", "tasks": [
   {"task-name": "SystemStreamPartition_kafka.orders.3", "mode": "active", "partition": 3, "changelog-partition": 3,
    "system-stream-partitions": [{"system": "kafka", "stream": "orders", "partition": 3, "keyBucket": -1}],
    "broadcast-system-stream-partitions": [
      {"system": "kafka", "stream": "rules", "partition": 0, "keyBucket": -1}]}]}]}
```

Names as in Samza's own JobModel. `location-id` is null where a processor has not run yet. `mode` is `active`,
`virtual` (one key bucket of a base task) or `standby`; `partition` is Samza's StreamTask number.
Of a job that runs, `GET /jobModel` also has a container for each standby, under its name (`4-0` is the first one of
processor 4) and with that processor's tasks in mode `standby`. No plan has any; on reading they are left out.
`keyBucket` is -1, or may be absent on reading, for a task that takes the whole partition; else `keyBucketFactor`
says of how many it is. Broadcast SSPs, which other tasks read too, have none; absent on reading means none of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from types import NoneType
from typing import Any, Final

from samzapy.config import is_id
from samzapy.model.job import ContainerModel, JobModel, ProcessorId, TaskMode, TaskModel, TaskName
from samzapy.model.location import LocationId
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.plan.task_names import TaskNameParts

Json = Mapping[str, object]
_MISSING: Final = object()


def job_model_json(model: JobModel) -> Json:
    return {
        "generation": model.generation,
        "config": {key: model.config[key] for key in sorted(model.config)},
        "containers": [_container(container) for container in model.containers],
    }


def _container(container: ContainerModel) -> Json:
    return {
        "processor-id": container.processor_id,
        "location-id": container.location_id,
        "tasks": [_task(task) for task in container.tasks],
    }


def _task(task: TaskModel) -> Json:
    return {
        "task-name": task.name,
        "mode": task.mode.value,
        "partition": task.partition_id,
        "changelog-partition": task.changelog_partition,
        "system-stream-partitions": [_ssp_kb(ssp_kb) for ssp_kb in task.ssp_kbs],
        "broadcast-system-stream-partitions": [_ssp_kb(SspKeyBucket(ssp)) for ssp in task.broadcast_ssps],
    }


def _ssp_kb(ssp_kb: SspKeyBucket) -> Json:
    ssp = {"system": ssp_kb.ssp.system, "stream": ssp_kb.ssp.stream, "partition": ssp_kb.ssp.partition}
    if ssp_kb.factor == 1:
        return ssp | {"keyBucket": -1}
    return ssp | {"keyBucket": ssp_kb.bucket, "keyBucketFactor": ssp_kb.factor}


def job_model_of_json(document: object) -> JobModel:
    """Read `job_model_json` back.

    Raises:
        ValueError: something is missing, of another type, or such that it is no plan; says which field.
    """
    model = JobModel(
        generation=_number(document, "generation"),
        config={str(key): str(value) for key, value in _field(document, "config", dict).items()},
        containers=tuple(
            _container_of(item) for item in _field(document, "containers", list) if not _is_standby(item)
        ),
    )
    _check(model)
    return model


def _check(model: JobModel) -> None:
    """Refuse duplicates, and key buckets of several factors, which no planner makes."""
    parts = {task.name: TaskNameParts.parse(task.name) for task in model.tasks}
    _refuse_twice("processor-id", (container.processor_id for container in model.containers))
    _refuse_twice("task-name", (task.name for task in model.tasks))
    _refuse_twice("system-stream-partitions", (ssp_kb for task in model.tasks for ssp_kb in task.ssp_kbs))
    numbers = {(parts[task.name].base_name, task.partition_id) for task in model.tasks}
    _refuse_twice("partition", (number for _, number in sorted(numbers)))
    changelogs = {(parts[task.name].base_name, task.changelog_partition) for task in model.tasks}
    _refuse_twice("changelog-partition", (number for _, number in sorted(changelogs)))
    factors = sorted({one.factor for one in parts.values()})
    if len(factors) > 1:
        raise ValueError(f"task-name: wanted one number of key buckets, found {', '.join(map(str, factors))}")


def _refuse_twice(name: str, values: Iterable[Hashable]) -> None:
    known: set[Hashable] = set()
    for value in values:
        if value in known:
            raise ValueError(f"{name}: wanted {value} once, found it twice")
        known.add(value)


def _is_standby(document: object) -> bool:
    tasks = _field(document, "tasks", list)
    return bool(tasks) and all(_field(task, "mode", str) == TaskMode.STANDBY for task in tasks)


def _container_of(document: object) -> ContainerModel:
    location = _field(document, "location-id", (str, NoneType))
    if location is not None:
        LocationId(location)
    processor_id = _field(document, "processor-id", str)
    if not is_id(processor_id):
        raise ValueError(f"processor-id: wanted letters, digits and underscores, found {processor_id!r:.80}")
    return ContainerModel(
        processor_id=ProcessorId(processor_id),
        location_id=location,
        tasks=tuple(_task_of(item) for item in _field(document, "tasks", list)),
    )


def _task_of(document: object) -> TaskModel:
    task = TaskModel(
        name=TaskName(_field(document, "task-name", str)),
        mode=_mode(_field(document, "mode", str)),
        partition_id=_number(document, "partition"),
        changelog_partition=_number(document, "changelog-partition"),
        ssp_kbs=tuple(_ssp_kb_of(item) for item in _field(document, "system-stream-partitions", list)),
        broadcast_ssps=tuple(_ssp_kb_of(item).ssp for item in _broadcast(document)),
    )
    parts = TaskNameParts.parse(task.name)
    for ssp_kb in task.ssp_kbs:
        if (ssp_kb.bucket, ssp_kb.factor) != (parts.bucket, parts.factor):
            raise ValueError(
                f"keyBucket: wanted {parts.bucket} of {parts.factor}, as the task's name {task.name} says, "
                f"found {ssp_kb}"
            )
    return task


def _mode(text: str) -> TaskMode:
    if text not in list(TaskMode):
        raise ValueError(f"mode: wanted {' or '.join(TaskMode)}, found {text!r:.80}")
    return TaskMode(text)


def _broadcast(document: object) -> list[object]:
    name = "broadcast-system-stream-partitions"
    given: list[object] = _field(document, name, list) if isinstance(document, dict) and name in document else []
    return given


def _ssp_kb_of(document: object) -> SspKeyBucket:
    named = SystemStream(_field(document, "system", str), _field(document, "stream", str))
    ssp = SystemStreamPartition(named.system, named.stream, _number(document, "partition"))
    if not isinstance(document, dict) or document.get("keyBucket", -1) == -1:
        return SspKeyBucket(ssp)
    return SspKeyBucket(ssp, _number(document, "keyBucket"), _number(document, "keyBucketFactor"))


def _number(document: object, name: str) -> int:
    number: int = _field(document, name, int)
    if number < 0:
        raise ValueError(f"{name}: wanted a number from 0 on, found {str(number)[:80]}")
    return number


def _field(document: object, name: str, kind: type[Any] | tuple[type[Any], ...]) -> Any:
    value = document.get(name, _MISSING) if isinstance(document, dict) else _MISSING
    if not isinstance(value, kind) or isinstance(value, bool):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        shown = "nothing" if value is _MISSING else repr(value)[:80]
        raise ValueError(f"{name}: wanted {' or '.join(one.__name__ for one in kinds)}, found {shown}")
    return value
