"""The documented JSON shape of a JobModel, to the byte."""

import json
from dataclasses import replace

from samzapy.model.ssp import SspKeyBucket, SystemStream
from samzapy.plan.job_model_json import job_model_json, job_model_of_json
from samzapy.plan.job_plan import plan_job
from samzapy.testing.builders import a_config, an_ssp


def a_model():
    return plan_job(a_config(), {SystemStream("kafka", "orders"): 1}, None, ["0"])


def test_the_shape_is_the_documented_one():
    expected = (
        '{"generation": 1, "config": {"job.name": "flights", "systems.kafka.bootstrap.servers": "localhost:9092", '
        '"systems.kafka.samza.offset.default": "oldest", "task.inputs": "kafka.orders"}, "containers": '
        '[{"processor-id": "0", "location-id": null, "tasks": [{"task-name": '
        '"SystemStreamPartition_kafka.orders.0", "mode": "active", "partition": 0, "changelog-partition": 0, '
        '"system-stream-partitions": [{"system": "kafka", "stream": "orders", "partition": 0, "keyBucket": -1}]}]}]}'
    )

    assert expected == json.dumps(job_model_json(a_model()))


def test_a_key_bucket_is_shown_with_its_factor():
    model = a_model()
    task = replace(model.tasks[0], ssp_kbs=(SspKeyBucket(an_ssp(), 1, 4),))
    model = replace(model, containers=(replace(model.containers[0], tasks=(task,)),))

    found = job_model_json(model)["containers"][0]["tasks"][0]["system-stream-partitions"]

    expected = {"system": "kafka", "stream": "orders", "partition": 0, "keyBucket": 1, "keyBucketFactor": 4}
    assert [expected] == found


def test_what_was_written_is_read_back():
    model = plan_job(a_config(), {SystemStream("kafka", "orders"): 3}, None, ["0", "1"])
    task = replace(model.tasks[0], ssp_kbs=(SspKeyBucket(an_ssp(), 1, 4),))
    model = replace(model, containers=(replace(model.containers[0], location_id="host-a", tasks=(task,)),))

    assert model == job_model_of_json(json.loads(json.dumps(job_model_json(model))))
