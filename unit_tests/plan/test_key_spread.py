"""Which keys of a sample several tasks get."""

from samzapy.model.ssp import SystemStream
from samzapy.plan.job_plan import plan_job
from samzapy.plan.key_spread import SpreadKeys, spread_keys
from samzapy.testing.builders import a_config, an_ssp

ORDERS = SystemStream("kafka", "orders")


def a_plan(count=4, *, previous=None, factor=1, **settings):
    config = a_config(stores_seen_msg_serde="json", local_store_dir="/data", **settings)
    counts = {SystemStream.parse(name): count for name in config.inputs}
    return plan_job(config, counts, previous, ["0"], factor=factor)


def sampled(**keys):
    """`orders_0=[b"a"]`: the keys found in a partition."""
    return {an_ssp(f"kafka.{name.replace('_', '.')}"): frozenset(sampled_keys) for name, sampled_keys in keys.items()}


def test_a_key_that_is_in_one_partition_is_fine():
    assert () == spread_keys(sampled(orders_0=[b"a", b"b"], orders_1=[b"c"]), a_plan())


def test_keys_in_partitions_of_several_tasks_are_listed_by_their_spread():
    keys_of = sampled(
        orders_0=[b"a", b"b", b"c", b"d", b"alone"],
        orders_1=[b"\xff\x00", b"d", b"b"],
        orders_2=[b"a", b"c", b"d"],
        orders_3=[b"\xff\x00"],
    )

    expected = SpreadKeys(
        system_stream=ORDERS, key_count=5, examples=(("d", (0, 1, 2)), ("a", (0, 2)), ("b", (0, 1)))
    )
    assert (expected,) == spread_keys(keys_of, a_plan())


def test_a_key_that_is_no_text_is_shown_in_hex():
    [key] = spread_keys(sampled(orders_0=[b"\xff\x00"], orders_3=[b"\xff\x00"]), a_plan())

    assert (("0xff00", (0, 3)),) == key.examples


def test_the_same_key_in_two_inputs_is_no_spread():
    plan = a_plan(task_inputs="kafka.orders,kafka.refunds")

    assert () == spread_keys(sampled(orders_0=[b"a"], refunds_1=[b"a"]), plan)


def test_a_key_that_moved_with_added_partitions_is_in_one_task_still():
    grown = a_plan(4, previous=a_plan(2))
    keys_of = sampled(orders_0=[b"a"], orders_1=[b"b"], orders_2=[b"a"])

    assert () == spread_keys(keys_of, grown)
    assert [1] == [spread.key_count for spread in spread_keys(keys_of, a_plan(4))]


def test_key_buckets_make_no_difference():
    keys_of = sampled(orders_0=[b"a", b"b"], orders_1=[b"a"])

    assert spread_keys(keys_of, a_plan()) == spread_keys(keys_of, a_plan(factor=4)) != ()


def test_inputs_that_are_not_divided_among_tasks_are_left_out():
    assert () == spread_keys(sampled(rules_0=[b"a"], rules_1=[b"a"]), a_plan())
