"""Intermediate streams: topics, serdes, starts, and the settings they exclude."""

from __future__ import annotations

import re

import pytest

from samzapy.config import IntermediateStream, JobConfig, parse_config
from samzapy.errors import ConfigError

MINIMAL = {"job.name": "flights", "task.inputs": "kafka.orders", "task.intermediate.by_carrier.partitions": "4"}
TOPIC = "kafka.__samzapy-intermediate-flights-1-by_carrier"


def config_with(**properties: str) -> JobConfig:
    """Two underscores are one, one is a dot."""
    dotted = {
        name.replace("__", "\0").replace("_", ".").replace("\0", "_"): value for name, value in properties.items()
    }
    return parse_config(MINIMAL | dotted)


def test_a_number_of_partitions_declares_an_intermediate_stream() -> None:
    declared = IntermediateStream(
        name="by_carrier",
        system_stream=TOPIC,
        partition_count=4,
        key_serde=None,
        msg_serde=None,
        replication_factor=None,
        retention_ms=7 * 24 * 3_600_000,
    )

    assert (declared,) == config_with().intermediates


def test_intermediate_streams_are_listed_by_name_after_the_inputs() -> None:
    config = config_with(task_intermediate_again_partitions="2", task_broadcast_inputs="kafka.rules")

    again = TOPIC.replace("by_carrier", "again")
    assert ("kafka.orders", again, TOPIC) == config.streams_divided
    assert ("kafka.orders", again, TOPIC, "kafka.rules") == config.streams_read
    assert ("kafka.orders",) == config.inputs


def test_no_two_intermediate_streams_of_any_jobs_share_a_topic() -> None:
    topics = [
        parse_config(
            {
                "job.name": job_name,
                "job.id": job_id,
                "task.inputs": "kafka.o",
                f"task.intermediate.{name}.partitions": "1",
            }
        )
        for job_name, job_id, name in [
            ("a", "1", "b"),
            ("a-1", "b", "c"),
            ("a", "1_b", "c"),
            ("a-1-b", "1", "c"),
            ("a", "1", "b_c"),
            ("a-1", "1", "b"),
        ]
    ]

    assert len(topics) == len({config.intermediates[0].topic for config in topics})


def test_serdes_of_an_intermediate_stream_are_its_own_else_the_system_s_and_never_those_of_a_pattern() -> None:
    config = config_with(
        systems_kafka_samza_key_serde="string",
        systems_kafka_samza_msg_serde="string",
        **{"systems_kafka_streams_~.*_samza_key_serde": "json"},
        task_intermediate_by__carrier_msg_serde="json",
    )

    assert ("string", "json") == (config.key_serde(TOPIC), config.msg_serde(TOPIC))
    assert ("json", "string") == (config.key_serde("kafka.orders"), config.msg_serde("kafka.orders"))
    assert ("bytes", "bytes") == (config_with().key_serde(TOPIC), config_with().msg_serde(TOPIC))


def test_an_intermediate_stream_is_always_read_from_its_oldest_message_on_and_has_no_end() -> None:
    config = config_with(
        systems_kafka_samza_offset_default="upcoming",
        systems_kafka_streams_orders_samza_offset_end="head",
        task_inputs="kafka.orders,kafka.refunds",
        **{"systems_kafka_streams_~.*_samza_reset_offset": "true"},
    )

    assert ("oldest", False, False) == (
        config.offset_default(TOPIC),
        config.resets_offset(TOPIC),
        config.is_bounded(TOPIC),
    )
    assert not config.is_bounded_job
    by_pattern = parse_config(MINIMAL | {"systems.kafka.streams.~__.*.samza.offset.end": "head"})
    assert not by_pattern.is_bounded(TOPIC)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"task_intermediate_x_msg_serde": "json"}, "task.intermediate.x: wanted task.intermediate.x.partitions"),
        ({"task_intermediate_no-dash_partitions": "1"}, "wanted a name of letters, digits and underscores"),
        ({"task_intermediate_x_partitions": "0"}, "task.intermediate.x.partitions: wanted a number from 1"),
        ({"task_intermediate_x_partitions": "many"}, "wanted a number (digits only), found 'many'"),
        ({"task_intermediate_by__carrier_retention_ms": "0"}, "wanted a number from 1"),
        (
            {"task_inputs": f"kafka.orders,{TOPIC}"},
            f"task.inputs: {TOPIC} is the topic of task.intermediate.by_carrier",
        ),
        ({"task_broadcast_inputs": TOPIC}, f"task.broadcast.inputs: {TOPIC} is the topic"),
        (
            {"task_error_policy": "dead-letter", "task_dead_letter_output": TOPIC},
            f"task.dead.letter.output: {TOPIC} is the topic",
        ),
        ({"systems_kafka_samza_offset_end": "head"}, "task.intermediate.by_carrier: wanted an input without an end"),
        (
            {"task_partition_scheme": "all-ssps-to-single-task", "processor_id": "0"},
            "wanted no intermediate streams, found by_carrier",
        ),
        ({"job_name": "j" * 220}, "wanted a topic name of at most 249 characters"),
    ],
)
def test_an_impossible_setting_is_refused_by_name(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        config_with(**properties)


@pytest.mark.parametrize("setting", ["samza.offset.default", "samza.msg.serde"])
def test_settings_of_the_topic_of_an_intermediate_stream_have_keys_of_their_own(setting: str) -> None:
    key = f"systems.kafka.streams.{TOPIC.removeprefix('kafka.')}.{setting}"

    with pytest.raises(ConfigError, match=r"its settings are task\.intermediate\.by_carrier\.key\.serde"):
        parse_config(MINIMAL | {key: {"samza.offset.default": "upcoming"}.get(setting, "json")})
