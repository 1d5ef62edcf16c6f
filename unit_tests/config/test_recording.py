from __future__ import annotations

from samzapy.config import Difference, Secret, differences, parse_config, parse_recorded, recorded_properties
from samzapy.plan.input_patterns import resolve_inputs
from samzapy.testing.builders import a_config


def test_the_recorded_settings_are_in_key_order_and_have_no_secret_and_nothing_of_one_process() -> None:
    config = parse_config(
        {
            "task.inputs": "kafka.orders",
            "systems.kafka.client.sasl.password": "hunter2",
            "systems.kafka.client.sasl.jaas.config": "password=hunter2",
            "systems.kafka.client.ssl.key.location": "/key",
            "job.name": "flights",
            "processor.id": "7",
            "task.lost.range.accept": "kafka.orders.0@1-2",
        }
    )

    assert [
        ("job.name", "flights"),
        ("systems.kafka.client.sasl.jaas.config", "***"),
        ("systems.kafka.client.sasl.password", "***"),
        ("systems.kafka.client.ssl.key.location", "/key"),
        ("task.inputs", "kafka.orders"),
    ] == list(recorded_properties(config).items())


def test_the_recorded_settings_are_read_back_unchanged() -> None:
    config = a_config(
        systems_kafka_client_sasl_password="hunter2", stores_tokens_msg_serde="json", local_store_dir="/d"
    )

    recorded = parse_recorded(recorded_properties(config))

    assert (config.inputs, config.lost_ms, config.stores) == (recorded.inputs, recorded.lost_ms, recorded.stores)
    assert Secret("***") == recorded.client_properties("kafka")["sasl.password"]


def test_a_store_and_a_stream_may_sound_like_a_secret() -> None:
    """A setting recorded as *** would keep the next leader from its plan."""
    config = a_config(
        task_inputs="kafka.password-resets",
        stores_tokens_changelog_replication_factor="3",
        local_store_dir="/d",
        **{"systems_kafka_streams_password-resets_samza_offset_default": "upcoming"},
    )

    recorded = parse_recorded(recorded_properties(config))

    assert 3 == recorded.stores[0].replication_factor
    assert "upcoming" == recorded.offset_default("kafka.password-resets")


def test_configurations_differ_in_the_keys_of_the_job_and_each_is_named_with_both_values() -> None:
    recorded = recorded_properties(a_config(task_hang_timeout_ms="5", job_id="2"))

    changed = differences(a_config(task_hang_timeout_ms="6", job_debounce_time_ms="7"), recorded)

    assert (
        Difference(key="job.debounce.time.ms", found="7", recorded=None),
        Difference(key="job.id", found=None, recorded="2"),
        Difference(key="task.hang.timeout.ms", found="6", recorded="5"),
    ) == changed
    assert "job.id=(not set) instead of 2" == str(changed[1])


def test_neither_another_secret_nor_a_setting_of_one_process_is_a_difference() -> None:
    recorded = recorded_properties(a_config(systems_kafka_client_sasl_password="a"))

    other = a_config(systems_kafka_client_sasl_password="b", processor_id="9", task_lost_range_accept="kafka.a.0@1-2")

    assert () == differences(other, recorded)
    assert ("systems.kafka.client.sasl.password",) == tuple(
        difference.key for difference in differences(a_config(), recorded)
    )


def test_the_matches_of_a_pattern_are_no_difference() -> None:
    config = a_config(task_inputs="kafka.~orders.*")

    recorded = recorded_properties(resolve_inputs(config, ["orders", "orders2"]))

    assert "kafka.orders,kafka.orders2" == recorded["task.inputs"]
    assert () == differences(config, recorded)


def test_without_a_recorded_configuration_nothing_differs() -> None:
    assert () == differences(a_config(), {})
