"""The JobModel as JSON: one documented shape, for `GET /jobModel` and whoever else shows one.

```json
{"generation": 3, "config": {"job.name": "flights"},
 "containers": [{"processor-id": "0", "location-id": "host-a", "tasks": [
   {"task-name": "SystemStreamPartition_kafka.orders.3", "mode": "active", "partition": 3, "changelog-partition": 3,
    "system-stream-partitions": [{"system": "kafka", "stream": "orders", "partition": 3, "keyBucket": -1}]}]}]}
```

Names as in Samza's own JobModel. `location-id` is null where a processor has not run yet. `keyBucket` is -1
for a task that takes the whole partition; else `keyBucketFactor` says of how many it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from samzapy.model.job import ContainerModel, JobModel, TaskModel
from samzapy.model.ssp import SspKeyBucket

Json = Mapping[str, object]


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
    }


def _ssp_kb(ssp_kb: SspKeyBucket) -> Json:
    ssp = {"system": ssp_kb.ssp.system, "stream": ssp_kb.ssp.stream, "partition": ssp_kb.ssp.partition}
    if ssp_kb.factor == 1:
        return ssp | {"keyBucket": -1}
    return ssp | {"keyBucket": ssp_kb.bucket, "keyBucketFactor": ssp_kb.factor}
