"""The previous plan decides; keyed state is never left behind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.errors import PartitionSchemeError
from samzapy.model.container import Locality
from samzapy.model.ssp import SystemStream
from samzapy.plan.job_plan import plan_job
from samzapy.testing.builders import a_config

ORDERS, REFUNDS = SystemStream("kafka", "orders"), SystemStream("kafka", "refunds")


def a_stateful_config(**properties):
    return a_config(**{"stores_seen_msg_serde": "json", "local_store_dir": "/data"}, **properties)


def numbers(plan):
    return {str(task.ssp_kbs[0].ssp): task.partition_id for task in plan.tasks}


def test_a_first_plan_numbers_tasks_in_the_order_of_task_inputs():
    plan = plan_job(a_config(task_inputs="kafka.refunds,kafka.orders"), {ORDERS: 2, REFUNDS: 3}, None, ["0"])

    assert plan.generation == 1
    expected = ["refunds.0", "refunds.1", "refunds.2", "orders.0", "orders.1"]
    assert {f"kafka.{ssp}": number for number, ssp in enumerate(expected)} == numbers(plan)
    assert list(range(5)) == [task.changelog_partition for task in plan.tasks]


def test_a_reordered_task_inputs_renumbers_nothing():
    counts = {ORDERS: 2, REFUNDS: 3}
    before = plan_job(a_config(task_inputs="kafka.refunds,kafka.orders"), counts, None, ["0"])

    after = plan_job(a_config(task_inputs="kafka.orders,kafka.refunds"), counts, before, ["0"])

    assert before.tasks == after.tasks
    assert after.generation == 2


def test_new_partitions_of_a_stateless_job_are_new_tasks_with_the_next_free_numbers():
    config = a_config(task_inputs="kafka.orders,kafka.refunds")
    before = plan_job(config, {ORDERS: 2, REFUNDS: 1}, None, ["0"])

    after = plan_job(config, {ORDERS: 3, REFUNDS: 2}, before, ["0"])

    assert numbers(before) | {"kafka.orders.2": 3, "kafka.refunds.1": 4} == numbers(after)


def test_a_number_of_a_task_that_is_no_more_is_kept_for_it():
    both = a_config(task_inputs="kafka.orders,kafka.refunds")
    counts = {ORDERS: 1, REFUNDS: 1}
    first = plan_job(both, counts, None, ["0"])
    ever = {task.name: task.changelog_partition for task in first.tasks}
    second = plan_job(a_config(), {ORDERS: 2}, first, ["0"], changelog_partitions=ever)
    ever |= {task.name: task.changelog_partition for task in second.tasks}

    third = plan_job(both, {ORDERS: 2, REFUNDS: 1}, second, ["0"], changelog_partitions=ever)

    assert numbers(third) == {"kafka.orders.0": 0, "kafka.orders.1": 2, "kafka.refunds.0": 1}


def test_a_job_with_stores_may_gain_an_input_because_no_key_moves():
    before = plan_job(a_stateful_config(), {ORDERS: 2}, None, ["0"])

    after = plan_job(
        a_stateful_config(task_inputs="kafka.refunds,kafka.orders"), {ORDERS: 2, REFUNDS: 2}, before, ["0"]
    )

    assert len(after.tasks) == 4


@pytest.mark.parametrize(
    ("inputs", "counts", "names"),
    [
        ("kafka.orders,kafka.refunds", {ORDERS: 4, REFUNDS: 2}, "kafka.orders: wanted the 2 partitions"),
        ("kafka.orders", {ORDERS: 2}, "kafka.refunds among the inputs"),
        ("kafka.orders,kafka.refunds", {ORDERS: 1, REFUNDS: 2}, "kafka.orders: wanted at least the 2"),
    ],
    ids=["grown", "left out", "shrunk"],
)
def test_a_change_that_leaves_keyed_state_behind_is_refused_with_the_way_out(inputs, counts, names):
    before = plan_job(
        a_stateful_config(task_inputs="kafka.orders,kafka.refunds"), {ORDERS: 2, REFUNDS: 2}, None, ["0"]
    )

    with pytest.raises(PartitionSchemeError, match=f"(?s){names}.*new job.id"):
        plan_job(a_stateful_config(task_inputs=inputs), counts, before, ["0"])


def test_fewer_partitions_are_refused_without_stores_too():
    before = plan_job(a_config(), {ORDERS: 2}, None, ["0"])

    with pytest.raises(PartitionSchemeError, match="made again"):
        plan_job(a_config(), {ORDERS: 1}, before, ["0"])


@given(
    counts=st.tuples(st.integers(0, 6), st.integers(0, 6)),
    processors=st.permutations(["0", "1", "2", "10"]),
)
def test_equal_inputs_plan_equally_in_whatever_order_they_are_given(counts, processors):
    config = a_config(task_inputs="kafka.orders,kafka.refunds")
    one_way, other_way = {ORDERS: counts[0], REFUNDS: counts[1]}, {REFUNDS: counts[1], ORDERS: counts[0]}

    plan = plan_job(config, one_way, None, processors)

    assert repr(plan) == repr(plan_job(config, other_way, None, processors[::-1]))
    assert repr(plan.tasks) == repr(plan_job(config, one_way, plan, processors).tasks)


def test_a_task_without_its_processor_goes_to_where_its_state_is():
    before = plan_job(a_config(), {ORDERS: 4}, None, ["0", "1"])
    # Processor 1 had 1 and 3, and ran on host-b; it is gone, and 2 and 3 came.
    state = {task.name: "host-b" for task in before.tasks if task.partition_id in (1, 3)}

    after = plan_job(
        a_config(), {ORDERS: 4}, before, ["0", "2", "3"], locality=Locality(processors={"3": "host-b"}, tasks=state)
    )

    assert [("0", None), ("2", None), ("3", "host-b")] == [(c.processor_id, c.location_id) for c in after.containers]
    assert [[0, 2], [3], [1]] == [[task.partition_id for task in c.tasks] for c in after.containers]


def test_a_plan_shows_no_secret():
    config = a_config(**{"systems_kafka_client_sasl_password": "canary"})

    assert "canary" not in repr(plan_job(config, {ORDERS: 1}, None, ["0"]))
