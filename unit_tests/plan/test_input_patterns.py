"""The topics that a pattern of task.inputs matches, and the record of it."""

import pytest

from samzapy.config import parse_config, parse_recorded, recorded_properties
from samzapy.errors import ConfigError, MissingTopicError
from samzapy.model.ssp import SystemStream
from samzapy.plan.input_patterns import may_depart, refuse_unmatched, resolve_inputs, unread_matches
from samzapy.testing.builders import a_config

TOPICS = ["orders-b", "orders-a", "orders", "my-orders-a", "refunds", "__orders-offsets", "orders-dead"]


def resolved(inputs, topics=TOPICS, **properties):
    return resolve_inputs(a_config(task_inputs=inputs, **properties), topics)


def test_the_whole_name_must_match_and_internal_topics_never_do():
    assert ("kafka.orders-a", "kafka.orders-b", "kafka.orders-dead") == resolved("kafka.~orders-.*").inputs
    assert ("kafka.my-orders-a", "kafka.orders-a") == resolved("~.*-a").inputs
    assert not [stream for stream in resolved("kafka.~.*").inputs if "__" in stream]


def test_an_internal_topic_and_the_dead_letters_are_read_only_by_name():
    dead = {"task_dead_letter_output": "kafka.orders-dead"}

    for policy in ("dead-letter", "fail"):
        of_pattern = resolved("kafka.~orders-.*", task_error_policy=policy, **dead)
        assert ("kafka.orders-a", "kafka.orders-b") == of_pattern.inputs
    assert ("kafka.orders-dead", "kafka.__orders-offsets") == resolved(
        "kafka.orders-dead,kafka.__orders-offsets", **dead
    ).inputs


def test_a_broadcast_input_is_not_also_divided_because_a_pattern_matches_it():
    assert ("kafka.orders-a",) == resolved("kafka.~orders-[ab]", task_broadcast_inputs="kafka.orders-b#0").inputs


def test_names_and_patterns_keep_the_order_of_task_inputs_and_each_topic_is_read_once():
    inputs = resolved("kafka.~orders-[ab], kafka.refunds, kafka.~.*-a, kafka.orders-b").inputs

    assert ("kafka.orders-a", "kafka.refunds", "kafka.my-orders-a", "kafka.orders-b") == inputs


def test_a_comma_in_braces_is_the_patterns_own():
    assert ("kafka.orders", "kafka.refunds") == resolved("kafka.~[a-z]{6,7}").inputs


def test_a_pattern_that_matches_nothing_is_an_error_by_name():
    config = resolved("kafka.orders,kafka.~trains-.*")

    with pytest.raises(MissingTopicError, match=r"match kafka\.~trains-\.\* as a whole, found none"):
        refuse_unmatched(config)


def test_a_pattern_that_matches_only_named_inputs_is_none():
    config = resolved("kafka.orders,kafka.~orders")

    assert ("kafka.orders",) == config.inputs
    refuse_unmatched(config)


def test_an_input_of_an_unbounded_pattern_may_be_removed():
    end = {"systems_kafka_streams_orders-b_samza_offset_end": "head"}
    raw = a_config(task_inputs="kafka.orders-c,kafka.~orders.*", **end)

    for config in (
        raw,
        resolve_inputs(raw, TOPICS),
        parse_recorded(recorded_properties(resolve_inputs(raw, TOPICS))),
    ):
        may_go = [
            name for name in ("orders-a", "orders-b", "orders-c", "refunds") if may_depart(config, stream(name))
        ]
        assert ["orders-a"] == may_go


def stream(name):
    return SystemStream("kafka", name)


def test_a_pattern_that_is_no_regular_expression_is_refused():
    with pytest.raises(ConfigError, match=r"task\.inputs: wanted a regular expression.*'orders-\['"):
        a_config(task_inputs="kafka.~orders-[")


def test_names_and_patterns_are_recorded_and_read_back_the_same():
    config = resolved("kafka.~orders-[ab]")

    recorded = recorded_properties(config)

    assert ("kafka.orders-a,kafka.orders-b", "kafka.~orders-[ab]") == (
        recorded["task.inputs"],
        recorded["task.inputs.patterns"],
    )
    assert config == resolve_inputs(config, [])  # Resolved once, it stays.
    with pytest.raises(ConfigError, match="samzapy writes this key itself"):
        parse_config(recorded)


def test_a_topic_that_appears_later_is_reported_and_not_read():
    config = resolved("kafka.~orders-.*")

    assert () == unread_matches(config, TOPICS)
    assert ("kafka.orders-c", "kafka.orders-d") == unread_matches(config, [*TOPICS, "orders-d", "__x", "orders-c"])
    assert () == unread_matches(a_config(), TOPICS)


def test_without_a_pattern_nothing_changes():
    assert a_config() == resolve_inputs(a_config(), [])
