"""The documented JSON shape of a JobModel, to the byte."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from samzapy.model.container import Locality
from samzapy.model.job import ContainerModel, TaskMode
from samzapy.model.ssp import SspKeyBucket, SystemStream
from samzapy.plan.job_model_json import job_model_json, job_model_of_json
from samzapy.plan.job_plan import plan_job
from samzapy.testing.builders import a_config, an_ssp

GOLDEN = Path(__file__).parent / "golden"


def a_model():
    return plan_job(a_config(), {SystemStream("kafka", "orders"): 1}, None, ["0"])


def test_the_shape_is_the_documented_one():
    """The golden file has every field of the shape.

    Readers of GET /jobModel and `job plan` rely on it.
    """
    config = a_config(
        task_inputs="kafka.orders,kafka.refunds",
        task_partition_scheme="group-by-partition",
        task_broadcast_inputs="kafka.rules#0",
    )
    counts = {
        SystemStream("kafka", "orders"): 2,
        SystemStream("kafka", "refunds"): 1,
        SystemStream("kafka", "rules"): 1,
    }
    model = plan_job(config, counts, None, ["0", "1"], factor=2, locality=Locality(processors={"1": "host-b"}))
    tasks = tuple(replace(task, mode=TaskMode.STANDBY) for task in model.containers[1].tasks)
    standby = ContainerModel(processor_id="1-0", location_id="host-c", tasks=tasks)

    shown = job_model_json(replace(model, containers=(*model.containers, standby)))

    assert (GOLDEN / "job_model.json").read_text() == json.dumps(shown, indent=2) + "\n"
    # Standbys are no part of the plan.
    assert model == job_model_of_json(json.loads((GOLDEN / "job_model.json").read_text()))


def test_a_key_bucket_that_is_absent_means_none():
    model = job_model_json(a_model())
    (ssp,) = model["containers"][0]["tasks"][0]["system-stream-partitions"]
    assert -1 == ssp.pop("keyBucket")
    del model["containers"][0]["tasks"][0]["broadcast-system-stream-partitions"]

    assert a_model() == job_model_of_json(model)


def test_a_key_bucket_is_shown_with_its_factor():
    model = a_model()
    task = replace(model.tasks[0], ssp_kbs=(SspKeyBucket(an_ssp(), 1, 4),))
    model = replace(model, containers=(replace(model.containers[0], tasks=(task,)),))

    ssps = job_model_json(model)["containers"][0]["tasks"][0]["system-stream-partitions"]

    expected = {"system": "kafka", "stream": "orders", "partition": 0, "keyBucket": 1, "keyBucketFactor": 4}
    assert [expected] == ssps


def test_the_written_job_model_is_read_back():
    model = plan_job(a_config(), {SystemStream("kafka", "orders"): 3}, None, ["0", "1"])
    task = replace(model.tasks[0], name=f"{model.tasks[0].name}-1-4", ssp_kbs=(SspKeyBucket(an_ssp(), 1, 4),))
    model = replace(model, containers=(replace(model.containers[0], location_id="host-a", tasks=(task,)),))

    assert model == job_model_of_json(json.loads(json.dumps(job_model_json(model))))


def broken(change):
    """The golden plan with a change; it has two containers and four tasks of factor 2.

    It has a standby, too.
    """
    model = json.loads((GOLDEN / "job_model.json").read_text())
    change(model, model["containers"][0]["tasks"][0])
    return model


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda plan, task: plan["containers"][1].update(tasks=5), "tasks: wanted list, found 5"),
        (lambda plan, task: plan.update(generation=-1), "generation: wanted a number from 0 on, found -1"),
        (lambda plan, task: task.update({"task-name": "a/b"}), "wanted a task name .* found 'a/b'"),
        (lambda plan, task: task.update(mode="idle"), "mode: wanted active or virtual or standby, found 'idle'"),
        (lambda plan, task: task.update(partition=-3), "partition: wanted a number from 0 on, found -3"),
        (lambda plan, task: task.update({"changelog-partition": -1}), "changelog-partition: wanted a number from 0"),
        (lambda plan, task: task.update({"changelog-partition": 1}), "changelog-partition: wanted 1 once"),
        (lambda plan, task: task.update(partition=1), "partition: wanted 1 once, found it twice"),
        (lambda plan, task: an_own(task).update(system=""), "wanted a system without dots and a stream, found ''"),
        (lambda plan, task: an_own(task).update(stream=""), "wanted a system without dots and a stream"),
        (lambda plan, task: an_own(task).update(partition=-1), "partition: wanted a number from 0 on, found -1"),
        (lambda plan, task: an_own(task).update(keyBucket=-2), "keyBucket: wanted a number from 0 on, found -2"),
        (lambda plan, task: an_own(task).update(keyBucket="0"), "keyBucket: wanted int, found '0'"),
        (lambda plan, task: an_own(task).update(keyBucket=1), "keyBucket: wanted 0 of 2, as the task's name"),
        (
            lambda plan, task: task.update({"task-name": "Partition_0"}),
            "keyBucket: wanted 0 of 1, as the task's name",
        ),
        (lambda plan, task: rules(task).update(partition=-1), "partition: wanted a number from 0 on, found -1"),
        (lambda plan, task: plan["containers"][1].update({"processor-id": "0"}), "processor-id: wanted 0 once"),
        (lambda plan, task: plan["containers"][1].update({"processor-id": "a b"}), "processor-id: wanted letters"),
        (lambda plan, task: plan["containers"][1].update({"location-id": "a b"}), "host: wanted ASCII letters"),
        (lambda plan, task: plan["containers"][1]["tasks"].append(task), "task-name: wanted Partition_0-0-2 once"),
        (lambda plan, task: own(task).append(an_own(task)), r"wanted kafka\.orders\.0:0/2 once, found it twice"),
        (lambda plan, task: whole(task), "task-name: wanted one number of key buckets, found 1, 2"),
    ],
)
def test_a_text_that_is_no_plan_is_refused_by_name(change, complaint):
    with pytest.raises(ValueError, match=complaint):
        job_model_of_json(broken(change))


def own(task):
    return task["system-stream-partitions"]


def an_own(task):
    return own(task)[0]


def rules(task):
    return task["broadcast-system-stream-partitions"][0]


def whole(task):
    """A task of one bucket among those of two."""
    task.update({"task-name": "Partition_7", "partition": 7, "changelog-partition": 7})
    task["system-stream-partitions"] = [{"system": "kafka", "stream": "orders", "partition": 7}]
