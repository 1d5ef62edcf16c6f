"""The partition count of an intermediate stream's topic, and its tasks."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from samzapy.errors import ConfigError, PartitionSchemeError
from samzapy.model.job import ProcessorId
from samzapy.model.ssp import SystemStream
from samzapy.plan.intermediates import partition_count_to_be, refuse_fewer_partitions
from samzapy.plan.job_plan import plan_job
from samzapy.testing.builders import a_config

ORDERS, AGAIN = SystemStream("kafka", "orders"), SystemStream("kafka", "__samzapy-intermediate-flights-1-again")
STATE = {"stores_seen_msg_serde": "json", "local_store_dir": "/data"}
PROCESSORS = [ProcessorId("0")]


def of(count):
    return a_config(task_intermediate_again_partitions=str(count)).intermediates[0]


@pytest.mark.parametrize(
    ("expected", "there", "to_be"), [(4, None, 4), (4, 4, 4), (8, 4, 8), (12, 4, 12), (4, 8, 8), (6, 8, 8)]
)
def test_a_topic_is_made_or_grows_and_never_shrinks(expected, there, to_be):
    assert to_be == partition_count_to_be(of(expected), there)


def test_a_topic_with_partitions_grows_by_a_whole_multiple_only():
    with pytest.raises(
        ConfigError, match=re.escape("task.intermediate.again.partitions: wanted a whole multiple of the 4")
    ):
        partition_count_to_be(of(6), 4)


def test_fewer_than_before_are_refused():
    recorded = {"task.intermediate.again.partitions": "8"}

    with pytest.raises(ConfigError, match=r"task\.intermediate\.again\.partitions: wanted at least 8.*found 4"):
        refuse_fewer_partitions([of(4)], recorded)
    refuse_fewer_partitions([of(8)], recorded)
    refuse_fewer_partitions([of(4)], {})


def test_partitions_of_an_intermediate_stream_are_divided_like_those_of_an_input_at_the_same_factor():
    config = a_config(task_intermediate_again_partitions="3")

    plan = plan_job(config, {ORDERS: 1, AGAIN: 3}, None, PROCESSORS, factor=2)

    read = [str(ssp_kb) for task in plan.tasks for ssp_kb in task.ssp_kbs]
    assert ["kafka.orders.0:0/2", "kafka.orders.0:1/2"] == read[:2]
    assert [f"{AGAIN}.{number}:{bucket}/2" for number in range(3) for bucket in range(2)] == read[2:]


def test_under_cogroup_keys_of_an_intermediate_stream_meet_those_of_the_inputs():
    config = a_config(task_intermediate_again_partitions="6", task_partition_scheme="cogroup")

    plan = plan_job(config, {ORDERS: 4, AGAIN: 6}, None, PROCESSORS)

    assert [(2, 3)] * 2 == [
        tuple(sum(kb.ssp.system_stream == stream for kb in task.ssp_kbs) for stream in (ORDERS, AGAIN))
        for task in plan.tasks
    ]


def test_added_partitions_of_an_intermediate_stream_join_the_tasks_with_the_state_of_their_keys():
    config = a_config(task_intermediate_again_partitions="2", **STATE)
    before = plan_job(config, {ORDERS: 1, AGAIN: 2}, None, PROCESSORS)

    after = plan_job(config, {ORDERS: 1, AGAIN: 4}, before, PROCESSORS)

    tasks = {str(ssp_kb.ssp): task.name for task in after.tasks for ssp_kb in task.ssp_kbs}
    assert len(before.tasks) == len(after.tasks)
    assert [tasks[f"{AGAIN}.{number}"] for number in (0, 1)] == [tasks[f"{AGAIN}.{number}"] for number in (2, 3)]


def test_a_job_with_state_cannot_leave_an_intermediate_stream_out():
    config = a_config(task_intermediate_again_partitions="2", **STATE)
    before = plan_job(config, {ORDERS: 1, AGAIN: 2}, None, PROCESSORS)

    with pytest.raises(PartitionSchemeError, match=rf"task\.intermediate\.again: wanted {AGAIN} among the inputs"):
        plan_job(replace(config, intermediates=()), {ORDERS: 1}, before, PROCESSORS)
