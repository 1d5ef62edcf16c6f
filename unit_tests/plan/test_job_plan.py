"""The previous plan decides; keyed state is never left behind."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.config import PARTITION_SCHEMES
from samzapy.errors import ConfigError, PartitionSchemeError
from samzapy.model.container import Locality
from samzapy.model.ssp import SystemStream
from samzapy.plan.job_model_json import job_model_json
from samzapy.plan.job_plan import PARTITIONS_MAX, Recorded, factor_fixed_by, plan_job
from samzapy.plan.task_names import TaskNameParts
from samzapy.testing.builders import a_config, an_ssp

ORDERS, REFUNDS = SystemStream("kafka", "orders"), SystemStream("kafka", "refunds")
RULES, LIMITS = SystemStream("kafka", "rules"), SystemStream("kafka", "limits")


def a_stateful_config(**properties):
    return a_config(**{"stores_seen_msg_serde": "json", "local_store_dir": "/data"}, **properties)


def numbers(plan):
    return {str(task.ssp_kbs[0].ssp): task.partition_id for task in plan.tasks}


def tasks_of(plan):
    """The name of the task of each (stream, partition)."""
    return {(kb.ssp.stream, kb.ssp.partition): task.name for task in plan.tasks for kb in task.ssp_kbs}


def test_a_first_plan_numbers_tasks_in_the_order_of_task_inputs():
    plan = plan_job(a_config(task_inputs="kafka.refunds,kafka.orders"), {ORDERS: 2, REFUNDS: 3}, None, ["0"])

    assert plan.generation == 1
    expected = ["refunds.0", "refunds.1", "refunds.2", "orders.0", "orders.1"]
    assert {f"kafka.{ssp}": number for number, ssp in enumerate(expected)} == numbers(plan)
    assert list(range(5)) == [task.changelog_partition for task in plan.tasks]


@pytest.mark.parametrize(
    ("counts", "factor", "complaint"),
    [
        ({ORDERS: PARTITIONS_MAX + 1, REFUNDS: 1, RULES: 1}, 1, r"kafka\.orders: wanted at most 100000 partitions"),
        ({ORDERS: 1, REFUNDS: 1, RULES: 10**9}, 1, r"kafka\.rules: wanted at most 100000 .* found 1000000000"),
        ({ORDERS: PARTITIONS_MAX, REFUNDS: 1, RULES: 1}, 1, r"task\.inputs: wanted at most .* found 100001 times 1;"),
        ({ORDERS: 782 - 1, REFUNDS: 1, RULES: 1}, 128, r"task\.inputs: wanted at most .* found 782 times 128;"),
    ],
)
def test_more_partitions_than_can_be_planned_are_refused_at_once(counts, factor, complaint):
    config = a_config(task_inputs="kafka.orders,kafka.refunds", task_broadcast_inputs="kafka.rules#0")

    with pytest.raises(PartitionSchemeError, match=complaint):
        plan_job(config, counts, None, ["0"], factor=factor)


def test_a_reordered_task_inputs_renumbers_nothing():
    counts = {ORDERS: 2, REFUNDS: 3}
    before = plan_job(a_config(task_inputs="kafka.refunds,kafka.orders"), counts, None, ["0"])

    after = plan_job(a_config(task_inputs="kafka.orders,kafka.refunds"), counts, before, ["0"])

    assert before.tasks == after.tasks
    assert after.generation == 2


def test_a_reordered_task_inputs_changes_nothing_either_where_each_processor_reads_everything():
    everywhere = {"task_partition_scheme": "all-ssps-to-single-task", "processor_id": "0"}
    counts = {ORDERS: 2, REFUNDS: 1}
    before = plan_job(a_config(task_inputs="kafka.refunds,kafka.orders", **everywhere), counts, None, ["0"])

    after = plan_job(a_config(task_inputs="kafka.orders,kafka.refunds", **everywhere), counts, before, ["0"])

    assert before.tasks == after.tasks


def test_a_container_has_its_tasks_in_the_order_of_their_numbers():
    plan = plan_job(a_config(task_partition_scheme="group-by-partition"), {ORDERS: 12}, None, ["0"])

    assert list(range(12)) == [task.partition_id for task in plan.containers[0].tasks]


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
    second = plan_job(a_config(), {ORDERS: 2}, first, ["0"], recorded=Recorded(changelog_partitions=ever))
    ever |= {task.name: task.changelog_partition for task in second.tasks}

    third = plan_job(both, {ORDERS: 2, REFUNDS: 1}, second, ["0"], recorded=Recorded(changelog_partitions=ever))

    assert numbers(third) == {"kafka.orders.0": 0, "kafka.orders.1": 2, "kafka.refunds.0": 1}


def test_a_number_below_the_highest_is_never_given_again():
    plan = plan_job(a_config(), {ORDERS: 1}, None, ["0"], recorded=Recorded(changelog_partitions={"Partition_0": 5}))

    assert [6] == [task.partition_id for task in plan.tasks]


def test_a_job_with_stores_may_gain_an_input_because_no_key_moves():
    before = plan_job(a_stateful_config(), {ORDERS: 2}, None, ["0"])

    after = plan_job(
        a_stateful_config(task_inputs="kafka.refunds,kafka.orders"), {ORDERS: 2, REFUNDS: 2}, before, ["0"]
    )

    assert len(after.tasks) == 4


@pytest.mark.parametrize(
    ("inputs", "counts", "names"),
    [
        ("kafka.orders,kafka.refunds", {ORDERS: 3, REFUNDS: 2}, "kafka.orders: wanted a multiple of 2"),
        ("kafka.orders", {ORDERS: 2}, "kafka.refunds among the inputs"),
        ("kafka.orders,kafka.refunds", {ORDERS: 1, REFUNDS: 2}, "kafka.orders: wanted at least the 2"),
    ],
    ids=["no multiple", "left out", "shrunk"],
)
def test_a_change_that_leaves_keyed_state_behind_is_refused_with_the_way_out(inputs, counts, names):
    before = plan_job(
        a_stateful_config(task_inputs="kafka.orders,kafka.refunds"), {ORDERS: 2, REFUNDS: 2}, None, ["0"]
    )

    with pytest.raises(PartitionSchemeError, match=f"(?s){names}.*new job.id"):
        plan_job(a_stateful_config(task_inputs=inputs), counts, before, ["0"])


def test_without_state_an_input_may_be_left_out_and_the_scheme_changed():
    both = a_config(task_inputs="kafka.orders,kafka.refunds")
    before = plan_job(both, {ORDERS: 2, REFUNDS: 2}, None, ["0"])

    after = plan_job(a_config(task_partition_scheme="group-by-partition"), {ORDERS: 3}, before, ["0"])

    assert ["Partition_0", "Partition_1", "Partition_2"] == [task.name for task in after.tasks]
    # The numbers of the tasks that are no more are theirs.
    assert [4, 5, 6] == [task.partition_id for task in after.tasks]


@pytest.mark.parametrize(
    ("first", "then"),
    [("max", "group-by-partition"), ("group-by-partition", "max"), ("group-by-partition", "cogroup")],
)
def test_a_changed_scheme_that_moves_state_is_refused_with_the_way_out(first, then):
    inputs = {"task_inputs": "kafka.orders,kafka.refunds"}
    before = plan_job(a_stateful_config(task_partition_scheme=first, **inputs), {ORDERS: 4, REFUNDS: 2}, None, ["0"])

    with pytest.raises(
        PartitionSchemeError, match=r"(?s)wanted it in task .*Set task\.partition\.scheme.*new job\.id"
    ):
        plan_job(a_stateful_config(task_partition_scheme=then, **inputs), {ORDERS: 4, REFUNDS: 2}, before, ["0"])


def test_a_scheme_that_only_has_another_name_may_be_changed():
    before = plan_job(a_stateful_config(), {ORDERS: 2}, None, ["0"])

    after = plan_job(a_stateful_config(task_partition_scheme="group-by-ssp"), {ORDERS: 2}, before, ["0"])

    assert before.tasks == after.tasks


def test_state_that_was_kept_once_binds_also_when_the_store_was_taken_out():
    before = plan_job(a_config(), {ORDERS: 2}, None, ["0"])

    with pytest.raises(PartitionSchemeError, match="multiple of 2"):
        plan_job(a_config(), {ORDERS: 3}, before, ["0"], recorded=Recorded(keeps_state=True))


def test_a_first_store_binds_nothing_yet():
    before = plan_job(a_config(), {ORDERS: 2}, None, ["0"])

    after = plan_job(a_stateful_config(), {ORDERS: 5}, before, ["0"])

    assert 5 == len(after.tasks)


# --- expansion ---


@pytest.mark.parametrize("scheme", ["max", "group-by-partition", "cogroup", "group-by-ssp"])
def test_the_partitions_of_a_grown_input_are_read_by_the_tasks_their_keys_were_in(scheme):
    config = a_stateful_config(task_inputs="kafka.orders,kafka.refunds", task_partition_scheme=scheme)
    plan = plan_job(config, {ORDERS: 4, REFUNDS: 4}, None, ["0"])
    first = tasks_of(plan)
    # 12 is no multiple of 8, but of the 4 that the state began with.
    for orders in (8, 12, 24):
        plan = plan_job(config, {ORDERS: orders, REFUNDS: 4}, plan, ["0"])

    tasks = tasks_of(plan)

    assert {p: first["orders", p % 4] for p in range(24)} == {p: tasks["orders", p] for p in range(24)}
    assert first == {place: tasks[place] for place in first}


def test_without_state_added_partitions_are_tasks_of_their_own_in_any_number():
    plan = plan_job(a_config(), {ORDERS: 2}, None, ["0"])

    plan = plan_job(a_config(), {ORDERS: 5}, plan, ["0"])

    assert {f"kafka.orders.{p}": p for p in range(5)} == numbers(plan)


def test_state_that_began_after_an_expansion_counts_from_there():
    plan = plan_job(a_config(), {ORDERS: 2}, None, ["0"])
    plan = plan_job(a_config(), {ORDERS: 4}, plan, ["0"])
    plan = plan_job(a_stateful_config(), {ORDERS: 4}, plan, ["0"])

    with pytest.raises(PartitionSchemeError, match="multiple of 4 partitions, found 6"):
        plan_job(a_stateful_config(), {ORDERS: 6}, plan, ["0"])
    assert 4 == len(plan_job(a_stateful_config(), {ORDERS: 8}, plan, ["0"]).tasks)


def test_the_greatest_common_divisor_may_change_as_long_as_the_tasks_do_not():
    config = a_stateful_config(task_inputs="kafka.orders,kafka.refunds", task_partition_scheme="cogroup")
    before = plan_job(config, {ORDERS: 8, REFUNDS: 12}, None, ["0"])

    after = plan_job(config, {ORDERS: 8, REFUNDS: 24}, before, ["0"])

    assert {p: p % 4 for p in range(24)} == {
        kb.ssp.partition: task.partition_id
        for task in after.tasks
        for kb in task.ssp_kbs
        if kb.ssp.stream == "refunds"
    }


def test_an_input_that_would_lower_the_greatest_common_divisor_is_refused_by_name():
    before = plan_job(a_stateful_config(task_partition_scheme="cogroup"), {ORDERS: 8}, None, ["0"])
    both = a_stateful_config(task_inputs="kafka.orders,kafka.refunds", task_partition_scheme="cogroup")

    with pytest.raises(
        PartitionSchemeError, match=r"(?s)kafka\.refunds: wanted a multiple of 8.*found 12.*new job\.id"
    ):
        plan_job(both, {ORDERS: 8, REFUNDS: 12}, before, ["0"])
    assert 8 == len(plan_job(both, {ORDERS: 8, REFUNDS: 16}, before, ["0"]).tasks)


@given(
    scheme=st.sampled_from(["max", "group-by-partition", "cogroup"]),
    first=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    growth=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=4),
    reordered=st.lists(st.booleans(), min_size=4, max_size=4),
    hashed=st.integers(0, 2**31 - 1),
)
def test_a_key_stays_in_its_task_over_any_expansions_and_no_number_changes(scheme, first, growth, reordered, hashed):
    counts = {ORDERS: first[0], REFUNDS: first[1]}
    plan, seen, numbered = None, {}, {}
    for step, factors in enumerate([(1, 1), *growth]):
        counts = {stream: counts[stream] * factor for stream, factor in zip(counts, factors, strict=True)}
        inputs = ["kafka.orders", "kafka.refunds"][:: -1 if step and reordered[step - 1] else 1]
        config = a_stateful_config(task_inputs=",".join(inputs), task_partition_scheme=scheme)
        plan = plan_job(config, dict(reversed(counts.items())), plan, ["0", "1"])
        tasks = tasks_of(plan)
        for stream, count in counts.items():
            assert (
                seen.setdefault(stream, tasks[stream.stream, hashed % count]) == tasks[stream.stream, hashed % count]
            )
        for task in plan.tasks:
            assert numbered.setdefault(task.name, task.partition_id) == task.partition_id
        assert sum(counts.values()) == sum(len(task.ssp_kbs) for task in plan.tasks) == len(tasks)
        assert len(plan.tasks) == len({task.partition_id for task in plan.tasks})


@given(
    scheme=st.sampled_from(["max", "group-by-partition", "cogroup", "group-by-ssp"]),
    steps=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=5),
)
def test_without_state_numbers_are_given_once_whatever_tasks_are_added_and_removed(scheme, steps):
    plan, ever, counts = None, {}, {ORDERS: 0, REFUNDS: 0}
    for orders, refunds in steps:
        config = a_config(task_inputs="kafka.orders,kafka.refunds", task_partition_scheme=scheme)
        # Partitions only grow; tasks come and go with the divisor.
        counts = {ORDERS: counts[ORDERS] + orders, REFUNDS: counts[REFUNDS] + refunds}
        plan = plan_job(config, counts, plan, ["0"], recorded=Recorded(changelog_partitions=ever))
        partitions = {task.name: task.changelog_partition for task in plan.tasks}
        assert partitions == partitions | {name: number for name, number in ever.items() if name in partitions}
        ever |= partitions
        assert len(ever) == len(set(ever.values()))


# --- broadcast ---


def test_every_task_reads_every_broadcast_ssp_whatever_the_factor():
    config = a_config(task_broadcast_inputs="kafka.rules#[0-1],kafka.limits")
    counts = {ORDERS: 2, RULES: 3, LIMITS: 1}

    plans = [plan_job(config, counts, None, ["0", "1"], factor=factor) for factor in (1, 4)]

    expected = tuple(map(an_ssp, ["kafka.limits.0", "kafka.rules.0", "kafka.rules.1"]))
    assert [2, 8] == [len(plan.tasks) for plan in plans]
    assert {expected} == {task.broadcast_ssps for plan in plans for task in plan.tasks}
    assert {"orders"} == {kb.ssp.stream for plan in plans for task in plan.tasks for kb in task.ssp_kbs}


def test_virtual_tasks_share_their_base_task_s_number_and_changelog_partition():
    plan = plan_job(a_config(), {ORDERS: 2}, None, ["0"], factor=2)

    assert [
        ("SystemStreamPartition_kafka.orders.0-0-2", 0, 0),
        ("SystemStreamPartition_kafka.orders.0-1-2", 0, 0),
        ("SystemStreamPartition_kafka.orders.1-0-2", 1, 1),
        ("SystemStreamPartition_kafka.orders.1-1-2", 1, 1),
    ] == [(task.name, task.partition_id, task.changelog_partition) for task in plan.tasks]


def test_a_broadcast_partition_that_is_not_there_is_refused_by_name():
    config = a_config(task_broadcast_inputs="kafka.rules#3")

    with pytest.raises(ConfigError, match=r"wanted partition 3 of kafka\.rules, found a topic with 3"):
        plan_job(config, {ORDERS: 2, RULES: 3}, None, ["0"])


def test_broadcast_inputs_are_added_removed_and_grow_also_in_a_job_with_state():
    before = plan_job(a_stateful_config(task_broadcast_inputs="kafka.rules"), {ORDERS: 2, RULES: 2}, None, ["0"])
    grown = plan_job(a_stateful_config(task_broadcast_inputs="kafka.rules"), {ORDERS: 2, RULES: 3}, before, ["0"])
    other = plan_job(a_stateful_config(task_broadcast_inputs="kafka.limits"), {ORDERS: 2, LIMITS: 1}, grown, ["0"])

    assert [2, 3, 1] == [len(plan.tasks[0].broadcast_ssps) for plan in (before, grown, other)]
    with pytest.raises(PartitionSchemeError, match="made again"):
        plan_job(a_stateful_config(task_broadcast_inputs="kafka.rules"), {ORDERS: 2, RULES: 1}, grown, ["0"])


def test_a_broadcast_input_that_was_divided_before_is_missed_in_a_job_with_state():
    before = plan_job(a_stateful_config(task_inputs="kafka.orders,kafka.rules"), {ORDERS: 2, RULES: 2}, None, ["0"])

    with pytest.raises(PartitionSchemeError, match=r"wanted kafka\.rules among the inputs"):
        plan_job(a_stateful_config(task_broadcast_inputs="kafka.rules"), {ORDERS: 2, RULES: 2}, before, ["0"])


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("divided", "whole", "names"),
    [
        ({"task_inputs": "kafka.orders,kafka.rules"}, {"task_broadcast_inputs": "kafka.rules"}, "rules"),
        ({}, {"task_partition_scheme": "all-ssps-to-single-task", "processor_id": "0"}, "orders"),
    ],
)
def test_a_stream_that_is_read_as_a_whole_instead_of_divided_is_refused_without_state_too(
    divided, whole, names, turned
):
    """Its positions have other keys then: they would be lost."""
    first, then = (whole, divided) if turned else (divided, whole)
    before = plan_job(a_config(**first), {ORDERS: 2, RULES: 2}, None, ["0"])

    with pytest.raises(PartitionSchemeError, match=rf"kafka\.{names}: wanted it .* generation 1, found it .*job\.id"):
        plan_job(a_config(**then), {ORDERS: 2, RULES: 2}, before, ["0"])


def test_streams_may_be_added_and_removed_on_both_sides_as_long_as_none_changes_sides():
    before = plan_job(a_config(task_broadcast_inputs="kafka.rules"), {ORDERS: 2, RULES: 1}, None, ["0"])

    after = plan_job(
        a_config(task_inputs="kafka.refunds", task_broadcast_inputs="kafka.rules,kafka.limits"),
        {REFUNDS: 2, RULES: 1, LIMITS: 1},
        before,
        ["0"],
    )

    assert 2 == len(after.tasks)


# --- a task for each processor ---


def test_all_ssps_to_single_task_gives_each_processor_a_task_that_reads_everything():
    config = a_config(task_partition_scheme="all-ssps-to-single-task", processor_id="0")
    before = plan_job(config, {ORDERS: 2}, None, ["1", "0"])

    after = plan_job(config, {ORDERS: 3}, before, ["2", "1"])

    assert [("0", ["Task_0"]), ("1", ["Task_1"])] == [
        (one.processor_id, [task.name for task in one.tasks]) for one in before.containers
    ]
    assert [("1", ["Task_1"]), ("2", ["Task_2"])] == [
        (one.processor_id, [task.name for task in one.tasks]) for one in after.containers
    ]
    assert [("Task_1", 1, (), 3), ("Task_2", 2, (), 3)] == [
        (task.name, task.partition_id, task.ssp_kbs, len(task.broadcast_ssps)) for task in after.tasks
    ]


def test_all_ssps_to_single_task_with_a_factor_is_refused_by_name():
    config = a_config(task_partition_scheme="all-ssps-to-single-task", processor_id="0")

    with pytest.raises(PartitionSchemeError, match="all-ssps-to-single-task: wanted factor 1"):
        plan_job(config, {ORDERS: 2}, None, ["0"], factor=2)


def test_a_store_of_the_task_as_a_whole_is_not_divided():
    config = a_stateful_config(stores_totals_msg_serde="json", stores_totals_scope="task")
    before = plan_job(config, {ORDERS: 2}, None, ["0"], factor=2)

    with pytest.raises(PartitionSchemeError, match="wanted factor 2, because the store totals belongs to its task"):
        plan_job(config, {ORDERS: 2}, before, ["0"], factor=4)
    assert plan_job(config, {ORDERS: 2}, before, ["0", "1"], factor=2)


@pytest.mark.parametrize(
    ("properties", "fixed_by"),
    [
        ({}, ""),
        ({"stores_seen_msg_serde": "json", "local_store_dir": "/data"}, ""),
        (
            {"stores_seen_msg_serde": "json", "stores_seen_scope": "task", "local_store_dir": "/data"},
            "stores.seen.scope=task",
        ),
        (
            {"task_partition_scheme": "all-ssps-to-single-task", "processor_id": "0"},
            "task.partition.scheme=all-ssps-to-single-task",
        ),
    ],
)
def test_a_setting_that_fixes_the_factor_is_the_reason_to_refuse_another_one(properties, fixed_by):
    config = a_config(**properties)
    before = plan_job(config, {ORDERS: 2}, None, ["0"])

    assert fixed_by == factor_fixed_by(config)
    try:
        plan_job(config, {ORDERS: 2}, before, ["0"], factor=2)
    except PartitionSchemeError:
        assert fixed_by
    else:
        assert not fixed_by


def test_fewer_partitions_are_refused_without_stores_too():
    before = plan_job(a_config(), {ORDERS: 2}, None, ["0"])

    with pytest.raises(PartitionSchemeError, match="made again"):
        plan_job(a_config(), {ORDERS: 1}, before, ["0"])


def shuffled(random, mapping):
    items = list(mapping.items())
    random.shuffle(items)
    return dict(items)


@given(
    scheme=st.sampled_from(PARTITION_SCHEMES),
    stateful=st.booleans(),
    counts=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    growth=st.integers(1, 3),
    factor=st.sampled_from([1, 4]),
    random=st.randoms(use_true_random=False),
)
def test_equal_inputs_plan_equally_to_the_byte_in_whatever_order_they_are_given(
    scheme, stateful, counts, growth, factor, random
):
    factor = 1 if scheme == "all-ssps-to-single-task" else factor
    own = {"stores_seen_msg_serde": "json"} if stateful and scheme != "all-ssps-to-single-task" else {}
    broadcast = {"task_broadcast_inputs": "kafka.rules"} if scheme != "all-ssps-to-single-task" else {}
    given = {"task_inputs": "kafka.orders,kafka.refunds", "task_partition_scheme": scheme, "local_store_dir": "/data"}
    partitions = {ORDERS: counts[0], REFUNDS: counts[1], RULES: 2}
    processors, hosts = ["0", "1", "2", "10"], {"0": "host-a", "1": "host-b", "10": "host-a"}
    first = plan_job(a_config(**given, **own, **broadcast), partitions, None, processors, factor=factor)
    ever = {TaskNameParts.parse(task.name).base_name: task.changelog_partition for task in first.tasks}
    homes = {task.name: "host-b" for task in first.tasks[::2]}

    def again():
        """The same keys, in another order."""
        containers = list(first.containers)
        random.shuffle(containers)
        random.shuffle(processors)
        return plan_job(
            a_config(**shuffled(random, given | own | broadcast)),
            shuffled(random, {stream: count * growth for stream, count in partitions.items()}),
            replace(first, containers=tuple(containers), config=shuffled(random, first.config)),
            processors,
            recorded=Recorded(changelog_partitions=shuffled(random, ever)),
            locality=Locality(processors=shuffled(random, hosts), tasks=shuffled(random, homes)),
            factor=factor,
        )

    one_way, other_way = json.dumps(job_model_json(again())), json.dumps(job_model_json(again()))

    assert one_way == other_way


def test_a_task_without_its_processor_is_placed_where_its_state_is():
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
