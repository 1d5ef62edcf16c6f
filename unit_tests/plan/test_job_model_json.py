"""The documented JSON shape of a JobModel, to the byte."""

import json
from dataclasses import replace
from pathlib import Path

from samzapy.model.container import Locality
from samzapy.model.ssp import SspKeyBucket, SystemStream
from samzapy.plan.job_model_json import job_model_json, job_model_of_json
from samzapy.plan.job_plan import plan_job
from samzapy.testing.builders import a_config, an_ssp

GOLDEN = Path(__file__).parent / "golden"


def a_model():
    return plan_job(a_config(), {SystemStream("kafka", "orders"): 1}, None, ["0"])


def test_the_shape_is_the_documented_one():
    """The golden file holds everything that the shape can say: it is what GET /jobModel and `job plan` are read by."""
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

    assert (GOLDEN / "job_model.json").read_text() == json.dumps(job_model_json(model), indent=2) + "\n"
    assert model == job_model_of_json(json.loads((GOLDEN / "job_model.json").read_text()))


def test_a_key_bucket_that_is_absent_means_none():
    found = job_model_json(a_model())
    (ssp,) = found["containers"][0]["tasks"][0]["system-stream-partitions"]
    assert -1 == ssp.pop("keyBucket")
    del found["containers"][0]["tasks"][0]["broadcast-system-stream-partitions"]

    assert a_model() == job_model_of_json(found)


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
