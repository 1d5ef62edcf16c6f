"""The JobModel as JSON: one documented shape, for `GET /jobModel` and whoever else shows one.

```json
{"generation": 3, "config": {"job.name": "flights"},
 "containers": [{"processor-id": "0", "location-id": "host-a", "tasks": [
   {"task-name": "SystemStreamPartition_kafka.orders.3", "mode": "active", "partition": 3, "changelog-partition": 3,
    "system-stream-partitions": [{"system": "kafka", "stream": "orders", "partition": 3, "keyBucket": -1}],
    "broadcast-system-stream-partitions": [
      {"system": "kafka", "stream": "rules", "partition": 0, "keyBucket": -1}]}]}]}
```

Names as in Samza's own JobModel. `location-id` is null where a processor has not run yet. `mode` is `active`,
`virtual` (one key bucket of a base task) or `standby`; `partition` is the StreamTask number of seed 003.
`keyBucket` is -1, or may be absent on reading, for a task that takes the whole partition; else `keyBucketFactor`
says of how many it is. Broadcast SSPs, which other tasks read too, have none; absent on reading means none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any, Final

from samzapy.model.job import ContainerModel, JobModel, ProcessorId, TaskMode, TaskModel, TaskName
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition

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


def job_model_of_json(found: object) -> JobModel:
    """Read `job_model_json` back.

    Raises:
        ValueError: something is missing or of another type; says which field.
    """
    return JobModel(
        generation=_field(found, "generation", int),
        config={str(key): str(value) for key, value in _field(found, "config", dict).items()},
        containers=tuple(_container_of(item) for item in _field(found, "containers", list)),
    )


def _container_of(found: object) -> ContainerModel:
    location = _field(found, "location-id", (str, NoneType))
    return ContainerModel(
        processor_id=ProcessorId(_field(found, "processor-id", str)),
        location_id=location,
        tasks=tuple(_task_of(item) for item in _field(found, "tasks", list)),
    )


def _task_of(found: object) -> TaskModel:
    return TaskModel(
        name=TaskName(_field(found, "task-name", str)),
        mode=TaskMode(_field(found, "mode", str)),
        partition_id=_field(found, "partition", int),
        changelog_partition=_field(found, "changelog-partition", int),
        ssp_kbs=tuple(_ssp_kb_of(item) for item in _field(found, "system-stream-partitions", list)),
        broadcast_ssps=tuple(_ssp_kb_of(item).ssp for item in _broadcast(found)),
    )


def _broadcast(found: object) -> list[object]:
    name = "broadcast-system-stream-partitions"
    given: list[object] = _field(found, name, list) if isinstance(found, dict) and name in found else []
    return given


def _ssp_kb_of(found: object) -> SspKeyBucket:
    ssp = SystemStreamPartition(
        _field(found, "system", str), _field(found, "stream", str), _field(found, "partition", int)
    )
    bucket = found.get("keyBucket", -1) if isinstance(found, dict) else -1
    return SspKeyBucket(ssp) if bucket == -1 else SspKeyBucket(ssp, bucket, _field(found, "keyBucketFactor", int))


def _field(found: object, name: str, kind: type[Any] | tuple[type[Any], ...]) -> Any:
    value = found.get(name, _MISSING) if isinstance(found, dict) else _MISSING
    if not isinstance(value, kind) or isinstance(value, bool):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        shown = "nothing" if value is _MISSING else repr(value)[:80]
        raise ValueError(f"{name}: wanted {' or '.join(one.__name__ for one in kinds)}, found {shown}")
    return value
