from __future__ import annotations

import re
from collections.abc import Mapping
from typing import get_type_hints

import pytest

from samzapy.config import (
    CLIENT_PROPERTIES_REFUSED,
    KEYS,
    REQUIRED,
    SERDES,
    AcceptedLoss,
    BroadcastInput,
    HostSlots,
    JobConfig,
    StoreConfig,
    exposes_coordinator,
    parse_config,
    recorded_properties,
)
from samzapy.config.parsing import FLAGS, NUMBERS, OPTIONAL_TEXTS, TEXTS
from samzapy.errors import ConfigError, UnknownConfigKeyError
from samzapy.model.topics import changelog_topic, checkpoint_topic, coordinator_topic, placement_topic
from samzapy.testing.builders import a_config

MINIMAL = {"job.name": "flights", "task.inputs": "kafka.orders"}


def config_with(properties: dict[str, str]) -> JobConfig:
    return parse_config(MINIMAL | properties)


# --- keys ---


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("job.nam", "job.name"),
        ("task.input", "task.inputs"),
        ("stores.seen.msg.serd", "stores.<name>.msg.serde"),
        ("systems.kafka.samza.offset.defaults", "systems.<system>.samza.offset.default"),
    ],
)
def test_an_unknown_key_names_the_nearest_known_one(wrong: str, nearest: str) -> None:
    with pytest.raises(UnknownConfigKeyError, match=re.escape(f"{wrong}; did you mean {nearest}?")):
        config_with({wrong: "x"})


def test_an_unknown_key_near_nothing_points_to_the_list_of_keys() -> None:
    with pytest.raises(UnknownConfigKeyError, match=re.escape("docs/reference/configuration.md lists all keys")):
        config_with({"qqqqq": "x"})


def test_a_key_of_spark_is_refused_with_where_it_belongs() -> None:
    with pytest.raises(UnknownConfigKeyError, match=re.escape("pass --conf spark.executor.memory=...")):
        config_with({"spark.executor.memory": "4g"})


@pytest.mark.parametrize("key", [key.name for key in KEYS if key.default is REQUIRED])
@pytest.mark.parametrize("value", [None, ""])
def test_a_required_key_that_is_missing_or_empty_is_named(key: str, value: str | None) -> None:
    properties = {name: text for name, text in MINIMAL.items() if name != key}
    if value is not None:
        properties[key] = value

    with pytest.raises(ConfigError, match=re.escape(f"wanted {key}, found nothing")):
        parse_config(properties)


def test_every_key_has_a_meaning_and_a_default_that_it_would_accept_itself() -> None:
    for key in KEYS:
        assert key.meaning.endswith(".")
        if isinstance(key.default, str) and "<" not in key.name:
            config_with({key.name: key.default} if key.default else {})
        if key.choices and key.default is not None:
            assert key.default in key.choices


def test_a_move_has_time_for_all_its_tries_and_a_restore_by_default() -> None:
    """A try without an answer takes the whole request timeout.

    A started container may restore for minutes.
    """
    config = parse_config(MINIMAL)

    all_tries_ms = config.placement_tries_max * config.container_request_timeout_ms

    assert config.placement_expiry_ms >= all_tries_ms + 180_000


def test_an_empty_value_means_the_default() -> None:
    assert config_with({}).job_id == config_with({"job.id": ""}).job_id


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("task.error.policy", "ignore", "wanted one of fail, dead-letter, found 'ignore'"),
        ("task.transaction.max.ms", "5s", "wanted milliseconds (digits only), found '5s'"),
        ("task.transaction.max.ms", "-1", "wanted milliseconds (digits only), found '-1'"),
        ("task.transaction.max.ms", "9" * 5_000, "wanted milliseconds (digits only), found '9999"),
        ("task.transaction.max.bytes", "1k", "wanted bytes (digits only), found '1k'"),
        ("task.transaction.timeout.ms", "999", "wanted a number from 1000 to"),
        ("job.coordinator.transaction.timeout.ms", "999", "wanted a number from 1000 to"),
        ("task.batch.offsets.max", "٣", "wanted a number (digits only)"),
        ("job.name", "a/b", "wanted letters, digits, dots, dashes or underscores"),
        ("job.id", "a-b", "wanted letters, digits and underscores (no dashes), found 'a-b'"),
        ("processor.id", "a.b", "wanted letters, digits and underscores"),
        (
            "systems.kafka.samza.msg.serde",
            "avro",
            "wanted one of bytes, string, json, msgpack, integer, long, double, timestamp, uuid, found 'avro'",
        ),
        ("stores.seen.changelog.replication.factor", "two", "wanted a number"),
        ("stores.seen.changelog.replication.factor", "0", "wanted a number from 1 to"),
        (
            "stores.seen.msg.serde",
            "",
            "wanted one of bytes, string, json, msgpack, integer, long, double, timestamp, uuid, found ''",
        ),
        ("stores.no-dash.msg.serde", "json", "wanted a store name of letters, digits and underscores"),
    ],
)
def test_a_value_of_the_wrong_kind_names_the_key_the_wanted_kind_and_the_value(
    key: str, value: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)) as refused:
        config_with({key: value, "local.store.dir": "/data"})

    assert str(refused.value).startswith(key.removesuffix(".msg.serde") if "no-dash" in key else key)


# --- values that must fit together ---


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"task.inputs": " , "}, "task.inputs: wanted at least one input stream"),
        ({"task.inputs": "orders, kafka.orders"}, "task.inputs: wanted each stream once"),
        (
            {
                "task.inputs": "kafka.orders, other.orders",
                "systems.other.bootstrap.servers": "h:1",
            },
            "task.inputs: wanted streams of one cluster, found systems kafka, other",
        ),
        (
            {"task.inputs": "other.orders", "systems.other.bootstrap.servers": "h:1"},
            "set job.default.system=other",
        ),
        (
            {"task.transaction.max.ms": "10001", "task.transaction.timeout.ms": "20000"},
            "task.transaction.max.ms: wanted at most half of task.transaction.timeout.ms (20000), found 10001",
        ),
        (
            {"job.container.lost.ms": "10000", "job.container.lease.ms": "10000"},
            "job.container.lost.ms: wanted more than job.container.lease.ms (10000), found 10000",
        ),
        (
            {"job.container.heartbeat.ms": "5001", "job.container.lease.ms": "10000"},
            "job.container.heartbeat.ms: wanted at most half of job.container.lease.ms (10000), found 5001",
        ),
        ({"task.error.policy": "dead-letter"}, "wanted task.dead.letter.output (a stream), found nothing"),
        (
            {"task.dead.letter.max": "many"},
            "task.dead.letter.max: wanted a number of messages from 1 (20) or a share",
        ),
        ({"task.dead.letter.max": "0"}, "task.dead.letter.max: wanted a number of messages from 1 (20) or a share"),
        ({"task.dead.letter.max": "101%"}, "or a share from 1% to 100% (50%), found '101%'"),
        (
            {"task.dead.letter.max": "1001"},
            "wanted at most task.dead.letter.window (1000), found 1001, which can never",
        ),
        (
            {"task.dead.letter.output": "other.dead", "systems.other.bootstrap.servers": "h:1"},
            "task.dead.letter.output: wanted a stream of the inputs' cluster (kafka)",
        ),
        (
            {"task.error.policy": "dead-letter", "task.dead.letter.output": "kafka.orders"},
            "task.dead.letter.output: wanted a stream that the job does not read, found kafka.orders, which is in "
            "task.inputs too",
        ),
        (
            {
                "task.error.policy": "dead-letter",
                "task.dead.letter.output": "kafka.rules",
                "task.broadcast.inputs": "kafka.rules",
            },
            "wanted a stream that the job does not read, found kafka.rules, which is in task.broadcast.inputs too",
        ),
        ({"stores.seen.msg.serde": "json"}, "local.store.dir: wanted a directory that is kept over restarts"),
    ],
)
def test_values_that_contradict_each_other_are_refused(properties: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        config_with(properties)


@pytest.mark.parametrize("key", ["task.inputs", "task.broadcast.inputs", "task.dead.letter.output"])
@pytest.mark.parametrize("name", ["", "a/b", "a b", "é", ".", "..", "a" * 250, "a:1"])
def test_a_stream_that_can_be_no_topic_is_refused_by_name(key: str, name: str) -> None:
    if key == "task.broadcast.inputs":
        name = f"{name.replace(' ', '@')}#1"  # With a blank it is no broadcast input at all.

    with pytest.raises(ConfigError, match=rf"{re.escape(key)}: wanted the name of a Kafka topic .* found"):
        config_with({key: f"kafka.{name}"})


@pytest.mark.parametrize("name", ["a" * 249, "...", "._-", "__consumer_offsets", "__samzapy-changelog-other-1-seen"])
def test_every_name_that_kafka_takes_can_be_read(name: str) -> None:
    assert (f"kafka.{name}",) == config_with({"task.inputs": f"kafka.{name}"}).inputs


@pytest.mark.parametrize("key", ["task.inputs", "task.broadcast.inputs", "task.dead.letter.output"])
@pytest.mark.parametrize(
    "topic",
    [
        coordinator_topic("flights-1"),
        checkpoint_topic("flights-1"),
        placement_topic("flights-1"),
        changelog_topic("flights-1", "seen"),
    ],
)
def test_a_topic_of_the_job_s_own_is_no_stream(key: str, topic: str) -> None:
    with pytest.raises(ConfigError, match=f"{re.escape(key)}: .*{topic}, which is an internal topic of this job"):
        config_with({key: f"kafka.{topic}"})


@pytest.mark.parametrize(
    "properties",
    [
        {"task.transaction.max.ms": "10000", "task.transaction.timeout.ms": "20000"},
        {"job.container.lost.ms": "10001", "job.container.lease.ms": "10000"},
        {"job.container.heartbeat.ms": "5000", "job.container.lease.ms": "10000"},
    ],
)
def test_the_limit_itself_is_allowed(properties: dict[str, str]) -> None:
    config_with(properties)


@pytest.mark.parametrize("name", CLIENT_PROPERTIES_REFUSED)
def test_a_client_property_that_exactly_once_needs_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"systems.kafka.client.{name}: samzapy sets {name} itself")):
        config_with({f"systems.kafka.client.{name}": "x"})


# --- results ---


def test_inputs_and_outputs_may_be_named_without_their_system() -> None:
    config = config_with(
        {
            "task.inputs": "orders, kafka.page.views, orders.v2",
            "task.dead.letter.output": "dead",
            "systems.kafka.bootstrap.servers": "h:1",
        }
    )

    assert ("kafka.orders", "kafka.page.views", "kafka.orders.v2") == config.inputs
    assert "kafka.dead" == config.dead_letter_output


def test_a_stream_s_own_setting_wins_over_its_system_s_and_that_over_the_default() -> None:
    config = config_with(
        {
            "task.inputs": "page.views, orders",
            "systems.kafka.samza.msg.serde": "json",
            "systems.kafka.streams.page.views.samza.msg.serde": "string",
            "systems.kafka.streams.page.views.samza.offset.default": "oldest",
        }
    )

    assert ("string", "json") == (config.msg_serde("kafka.page.views"), config.msg_serde("kafka.orders"))
    assert ("bytes", "bytes") == (config.key_serde("kafka.page.views"), config.key_serde("kafka.orders"))
    assert ("oldest", "upcoming") == (
        config.offset_default("kafka.page.views"),
        config.offset_default("kafka.orders"),
    )


def test_a_key_with_a_pattern_in_place_of_a_stream_is_for_every_stream_that_it_matches() -> None:
    config = config_with(
        {
            "task.inputs": "kafka.~orders-.*",
            "systems.kafka.samza.offset.default": "upcoming",
            "systems.kafka.streams.~orders-.*.samza.offset.default": "oldest",
            "systems.kafka.streams.orders-b.samza.offset.default": "upcoming",
        }
    )

    expected = {"orders-a": "oldest", "orders-b": "upcoming", "orders": "upcoming", "my-orders-a": "upcoming"}
    assert expected == {stream: config.offset_default(f"kafka.{stream}") for stream in expected}


@pytest.mark.parametrize(
    ("key", "value", "names"),
    [
        ("systems.kafka.streams.ordres.samza.offset.default", "oldest", "did you mean kafka.orders"),
        ("systems.other.streams.orders.samza.offset.default", "oldest", "found other.orders, which the job does not"),
        ("systems.kafka.streams.orders.samza.offset.default", "earliest", "wanted one of oldest, upcoming"),
        ("systems.kafka.streams.ordres.samza.offset.end", "head", "did you mean kafka.orders"),
        ("systems.kafka.streams.orders.samza.offset.end", "tail", "wanted one of head"),
        ("systems.kafka.streams.ordres.samza.reset.offset", "true", "did you mean kafka.orders"),
        ("systems.kafka.streams.orders.samza.reset.offset", "yes", "wanted one of true, false"),
        ("systems.kafka.streams.~orders-[.samza.offset.default", "oldest", "wanted a regular expression after ~"),
    ],
)
def test_a_setting_of_an_input_that_cannot_be_is_refused_by_name(key: str, value: str, names: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(names)) as refused:
        config_with({"task.inputs": "kafka.orders", key: value})

    assert str(refused.value).startswith(key)


@pytest.mark.parametrize("broken", ["orders-[", "orders-{99999999999}"])
@pytest.mark.parametrize(
    ("key", "value", "others"),
    [
        ("task.inputs", "kafka.~{}", {"systems.kafka.streams.orders-a.samza.offset.default": "oldest"}),
        ("task.inputs", "kafka.~{}", {"systems.kafka.samza.offset.end": "head"}),
        ("systems.kafka.streams.~{}.samza.offset.end", "head", {"task.intermediate.x.partitions": "2"}),
        ("systems.kafka.streams.~{}.samza.offset.default", "oldest", {}),
    ],
)
def test_a_pattern_that_is_no_regular_expression_is_refused_by_name_whatever_else_is_set(
    broken: str, key: str, value: str, others: Mapping[str, str]
) -> None:
    key, value = key.replace("{}", broken), value.replace("{}", broken)

    with pytest.raises(ConfigError, match="wanted a regular expression after ~") as refused:
        config_with({key: value, **others})

    assert str(refused.value).startswith(key)
    assert 1 == len(str(refused.value).splitlines())


def test_a_pattern_that_is_nested_too_deep_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="task.inputs: wanted a regular expression after ~"):
        config_with({"task.inputs": "kafka.~" + "(" * 5000, "systems.kafka.streams.a.samza.offset.default": "oldest"})


def test_an_output_may_have_serdes_of_its_own() -> None:
    config = config_with({"task.inputs": "orders", "systems.kafka.streams.counts.samza.msg.serde": "json"})

    assert "json" == config.msg_serde("kafka.counts")


def test_a_store_is_declared_by_any_of_its_keys_and_stores_come_in_the_order_of_their_names() -> None:
    config = config_with(
        {
            "local.store.dir": "/data",
            "stores.seen.size.max.bytes": "1048576",
            "stores.counts.msg.serde": "json",
            "stores.counts.changelog.replication.factor": "2",
        }
    )

    assert (
        StoreConfig(
            name="counts", msg_serde="json", key_serde="string", replication_factor=2, size_max_bytes=17179869184
        ),
        StoreConfig(
            name="seen", msg_serde="bytes", key_serde="string", replication_factor=None, size_max_bytes=1048576
        ),
    ) == config.stores


def test_a_largest_message_that_is_no_number_is_refused_by_name() -> None:
    with pytest.raises(
        ConfigError, match="systems.kafka.client.message.max.bytes: wanted bytes .digits only., found"
    ):
        config_with({"systems.kafka.client.message.max.bytes": "2MB"})


def test_client_properties_are_passed_on_without_their_prefix() -> None:
    config = config_with(
        {
            "systems.kafka.client.security.protocol": "SASL_SSL",
            "systems.kafka.client.ssl.ca.location": "/ca",
            "systems.other.client.x": "y",
        }
    )

    assert {"security.protocol": "SASL_SSL", "ssl.ca.location": "/ca"} == dict(config.client_properties("kafka"))


def test_a_cluster_without_addresses_is_named_with_the_line_to_add() -> None:
    with pytest.raises(ConfigError, match=re.escape("--set systems.kafka.bootstrap.servers=host:port")):
        config_with({}).bootstrap_servers("kafka")


def test_the_job_s_name_carries_its_id() -> None:
    assert "page-views-eu_1" == config_with({"job.name": "page-views", "job.id": "eu_1"}).job


def test_broadcast_inputs_are_partitions_ranges_and_whole_streams_each_stream_once() -> None:
    text = "kafka.rules#3, kafka.rules#[0-1],limits, kafka.page.views#7,kafka.limits#2"

    inputs = config_with({"task.broadcast.inputs": text}).broadcast_inputs

    assert (
        BroadcastInput(system_stream="kafka.limits", partitions=None),
        BroadcastInput(system_stream="kafka.page.views", partitions=(7,)),
        BroadcastInput(system_stream="kafka.rules", partitions=(0, 1, 3)),
    ) == inputs


@pytest.mark.parametrize(
    "item",
    ["kafka.b#", "kafka.b#-1", "kafka.b#0-2", "kafka.b#[0-2", "kafka.b#1#2", "#1", "kafka.b#01", "kafka.b#1000000"],
)
def test_a_broadcast_input_that_is_neither_is_refused(item: str) -> None:
    with pytest.raises(ConfigError, match=r"task\.broadcast\.inputs: wanted a partition"):
        config_with({"task.broadcast.inputs": item})


def test_the_streams_of_a_job_are_its_inputs_in_their_order_and_its_broadcast_inputs() -> None:
    config = config_with({"task.inputs": "kafka.z,kafka.a", "task.broadcast.inputs": "kafka.rules,kafka.limits"})

    assert ("kafka.z", "kafka.a", "kafka.limits", "kafka.rules") == config.streams_read


ALL_TO_ONE = {"task.partition.scheme": "all-ssps-to-single-task"}
OWN_GROUPER = {"job.systemstreampartition.grouper.factory": "own:Ssps"}


@pytest.mark.parametrize(
    ("properties", "names"),
    [
        ({"task.broadcast.inputs": "kafka.orders#0"}, "kafka.orders is in task.inputs too"),
        (
            {"task.broadcast.inputs": "other.rules", "systems.other.bootstrap.servers": "b:1"},
            "streams of job.default.system",
        ),
        (ALL_TO_ONE | {"task.broadcast.inputs": "kafka.rules"}, "each task reads every input"),
        (ALL_TO_ONE | {"stores.seen.msg.serde": "json", "local.store.dir": "/d"}, "wanted no stores, found seen"),
        (ALL_TO_ONE, "wanted processor.id, or local.store.dir where one is kept, found neither"),
        (
            ALL_TO_ONE | {"processor.id": "0", "task.name.grouper.factory": "own:Tasks"},
            "each processor has its own task",
        ),
        (OWN_GROUPER | {"task.partition.scheme": "max"}, "it replaces task.partition.scheme"),
        ({"task.name.grouper.factory": "own.Tasks"}, "wanted module:Class"),
        ({"task.name.grouper.factory": "../own:Tasks"}, "wanted module:Class"),
    ],
)
def test_ways_of_grouping_that_contradict_each_other_are_refused(properties: dict[str, str], names: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(names)):
        config_with(properties)


@pytest.mark.parametrize("kept", [{"processor.id": "0"}, {"local.store.dir": "/data"}])
def test_a_task_for_each_processor_needs_processors_that_return(kept: dict[str, str]) -> None:
    assert "all-ssps-to-single-task" == config_with(ALL_TO_ONE | kept).partition_scheme


def test_the_setting_that_makes_the_tasks_is_recorded_in_short() -> None:
    assert ["max", "cogroup", "own:Ssps"] == [
        config_with(properties).grouping for properties in ({}, {"task.partition.scheme": "cogroup"}, OWN_GROUPER)
    ]


def test_accepted_losses_are_ranges_of_named_buckets() -> None:
    given = "kafka.page.views.3:1/4@100-250, kafka.orders.0@0-7, kafka.rules.0@Partition_3@5-9"
    config = config_with({"task.lost.range.accept": given})

    assert (
        AcceptedLoss(ssp_kb="kafka.page.views.3:1/4", offset_from=100, offset_to=250),
        AcceptedLoss(ssp_kb="kafka.orders.0", offset_from=0, offset_to=7),
        AcceptedLoss(ssp_kb="kafka.rules.0@Partition_3", offset_from=5, offset_to=9),
    ) == config.accepted_losses


@pytest.mark.parametrize(
    "item",
    [
        "kafka.orders.3:0/1",
        "kafka.orders@1-2",
        "orders.3@1-2",
        "kafka.orders.3:4/4@1-2",
        "kafka.orders.3:0/1@100-100",
        "kafka.orders.3:0/1@250-100",
        "kafka.orders.3:0/1@a-b",
        "kafka.orders.03@1-2",
    ],
)
def test_an_accepted_loss_that_is_no_range_of_a_bucket_is_refused(item: str) -> None:
    with pytest.raises(ConfigError, match=re.escape("kafka.orders.3:0/1@100-250")):
        config_with({"task.lost.range.accept": item})


def test_an_election_session_has_room_for_two_lost_heartbeats() -> None:
    with pytest.raises(ConfigError, match="at most a third of job.coordinator.election.session.ms"):
        a_config(job_coordinator_election_session_ms="6000", job_coordinator_election_heartbeat_ms="2001")
    assert a_config(job_coordinator_election_heartbeat_ms="2000").election_heartbeat_ms == 2000


def test_by_default_an_election_fits_into_a_lease() -> None:
    """Otherwise each failover would stop every query.

    The election itself takes a second or two besides the session.
    """
    config = a_config()

    assert config.lease_ms >= 2 * config.election_session_ms


@pytest.mark.parametrize(
    ("key", "value"),
    [("task.batch.offsets.max", "0"), ("job.container.heartbeat.ms", "0"), ("job.coordinator.port", "65536")],
)
def test_a_number_out_of_its_bounds_is_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: wanted a number from .* to .*, found {value}"):
        config_with({key: value})


def test_a_store_of_scope_broadcast_needs_a_broadcast_input() -> None:
    settings = {"local.store.dir": "/data", "stores.rules.scope": "broadcast"}

    with pytest.raises(ConfigError, match=r"stores\.rules\.scope=broadcast: wanted task\.broadcast\.inputs"):
        config_with(settings)

    (store,) = config_with({**settings, "task.broadcast.inputs": "kafka.rules"}).stores
    assert "broadcast" == store.scope


# --- containers that the coordinator starts ---


def test_logical_hosts_have_slots() -> None:
    config = a_config(cluster_process_hosts="h1:2, rack-1.h2:16")

    assert (HostSlots(host="h1", slot_count=2), HostSlots(host="rack-1.h2", slot_count=16)) == config.process_hosts


@pytest.mark.parametrize("wrong", ["h1", "h1:0", "h1:2,h1:2", "../h1:2", "H1:2", "h1:2:3", ","])
def test_hosts_that_cannot_be_directories_or_have_no_slots_are_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match=re.escape("cluster.process.hosts")):
        a_config(cluster_process_hosts=wrong)


def test_the_launcher_is_no_part_of_the_recorded_configuration() -> None:
    config = a_config(cluster_manager="process", cluster_process_dir="/data")

    assert {"cluster.manager", "cluster.process.dir"}.isdisjoint(recorded_properties(config))


TLS = {"job.coordinator.tls.certificate": "/c.pem", "job.coordinator.tls.key": "/k.pem"}
MUTUAL = {"job.coordinator.tls.ca": "/ca.pem", "job.coordinator.tls.client.auth": "required"}
SECRET_FILE = {"job.coordinator.secret": "file:/secret"}


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.7", "node7"])
@pytest.mark.parametrize(
    ("access", "is_allowed"),
    [
        ({}, False),
        (TLS, False),
        (SECRET_FILE, False),
        (TLS | SECRET_FILE, True),
        (TLS | MUTUAL, True),
        ({"job.coordinator.insecure": "true"}, True),
    ],
    ids=["nothing", "TLS", "secret", "TLS and secret", "client certificates", "insecure"],
)
def test_the_coordinator_listens_beyond_loopback_with_tls_and_credentials_only(host, access, is_allowed):
    properties = {"job.coordinator.host": host} | access
    if is_allowed:
        assert ("job.coordinator.insecure" in access) == exposes_coordinator(config_with(properties))
    else:
        with pytest.raises(ConfigError, match=rf"job\.coordinator\.host={host}: wanted TLS and credentials"):
            config_with(properties)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost"])
def test_the_coordinator_listens_on_loopback_without_credentials(host):
    assert not exposes_coordinator(config_with({"job.coordinator.host": host}))


def test_signatures_are_required_only_of_a_job_that_can_check_them() -> None:
    required = {"job.placement.signature.required": "true"}

    assert config_with(required | SECRET_FILE).are_signatures_required
    with pytest.raises(
        ConfigError, match=r"job\.placement\.signature\.required=true: wanted job\.coordinator\.secret"
    ):
        config_with(required)


@pytest.mark.parametrize("text", ["hunter2", "file:relative", "env:", "env:A B", "file:"])
def test_a_secret_is_configured_by_reference_and_never_quoted(text):
    with pytest.raises(ConfigError, match=r"wanted where the secret is") as refusal:
        config_with({"job.coordinator.secret": text})

    assert text == "file:" or text == "env:" or text not in str(refusal.value)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"job.coordinator.tls.key": "/k.pem"}, "wanted both or none"),
        ({"job.coordinator.tls.certificate": "c.pem", "job.coordinator.tls.key": "/k"}, "wanted an absolute path"),
        (TLS | {"job.coordinator.tls.client.auth": "required"}, r"wanted .*\.certificate, \.key and \.ca"),
    ],
)
def test_settings_of_tls_that_contradict_each_other_are_refused(properties, reason):
    with pytest.raises(ConfigError, match=reason):
        config_with(properties)


@pytest.mark.parametrize("key", ["job.coordinator.host", "job.coordinator.advertised.host"])
@pytest.mark.parametrize("wrong", ["::1", "[fd00::7]", "node-7:8080", "http://node-7", "node 7"])
def test_an_address_that_no_heartbeat_would_reach_is_refused(key: str, wrong: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"{key}: wanted a host's name or its IPv4 address, without a port, found "
    ):
        a_config(**{key.replace(".", "_"): wrong})


@pytest.mark.parametrize("wrong", ["*", "*.example.org", "proxy:443", "https://proxy"])
def test_a_further_name_of_the_server_that_no_request_would_have_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"job.coordinator.allowed.hosts: wanted names of hosts .* found "):
        a_config(job_coordinator_allowed_hosts=f"proxy,{wrong}")


# --- everything that is wrong, at once ---


def test_all_problems_are_reported_in_one_message() -> None:
    wrong = {
        "job.nam": "flights",
        "task.eror.policy": "fail",
        "qqqqq": "x",
        "task.inputs": "kafka.orders",
        "job.container.heartbeat.ms": "5s",
        "stores.seen.msg.serde": "avro",
        "systems.kafka.client.client.id": "${env:NOT_THERE}",
    }

    with pytest.raises(UnknownConfigKeyError) as refused:
        parse_config(wrong)

    first, *lines = str(refused.value).splitlines()
    assert "wanted a valid configuration, found 7 problems:" == first
    starts = (
        "- unknown config key job.nam; did you mean job.name?",
        "- unknown config key qqqqq; docs/reference/configuration.md lists all keys",
        "- unknown config key task.eror.policy; did you mean task.error.policy?",
        "- systems.kafka.client.client.id: wanted the environment variable NOT_THERE",
        f"- stores.seen.msg.serde: wanted one of {', '.join(SERDES)}, found 'avro'",
        "- wanted job.name, found nothing",
        "- job.container.heartbeat.ms: wanted milliseconds (digits only), found '5s'",
    )
    for line, start in zip(lines, starts, strict=True):
        assert line.startswith(start)


def test_contradictions_are_reported_together_with_unknown_keys() -> None:
    with pytest.raises(UnknownConfigKeyError) as refused:
        config_with({"nonsense": "1", "job.container.lost.ms": "1", "task.error.policy": "dead-letter"})

    assert 4 == len(str(refused.value).splitlines())
    assert "- unknown config key nonsense" in str(refused.value)
    assert "- job.container.lost.ms: wanted more than" in str(refused.value)
    assert "- task.error.policy=dead-letter: wanted task.dead.letter.output" in str(refused.value)


def test_values_are_not_held_against_one_that_is_no_value() -> None:
    with pytest.raises(ConfigError, match=re.escape("job.container.lease.ms: wanted milliseconds")) as refused:
        config_with({"job.container.lease.ms": "long", "job.container.lost.ms": "1"})

    assert 1 == len(str(refused.value).splitlines())


# --- hints, paths and lengths ---


@pytest.mark.parametrize("key", ["job.kame.x", "task.outputs", "systems.kafka.topics"])
def test_a_key_that_is_near_no_other_is_not_taken_for_one(key: str) -> None:
    with pytest.raises(UnknownConfigKeyError) as refused:
        config_with({key: "x"})

    assert "did you mean" not in str(refused.value)


def test_a_long_name_of_a_store_hides_no_misspelled_key() -> None:
    with pytest.raises(UnknownConfigKeyError, match="did you mean stores.<name>.scope"):
        config_with({"stores.a_name_that_is_much_longer_than_the_rest_of_the_key.scpe": "task"})


@pytest.mark.parametrize("key", ["local.store.dir", "cluster.process.dir", "systems.kafka.client.ssl.ca.location"])
def test_a_path_that_begins_with_a_home_sign_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{key}: wanted a path, found '~/kept': ~ is not expanded")):
        config_with({key: "~/kept"})


def made_topics(config: JobConfig) -> list[str]:
    job = config.job
    return [
        coordinator_topic(job),
        checkpoint_topic(job),
        placement_topic(job),
        *(changelog_topic(job, store.name) for store in config.stores),
        *(item.topic for item in config.intermediates),
    ]


STORE = {"stores.sums.msg.serde": "json", "local.store.dir": "/data"}


@pytest.mark.parametrize(
    ("name_length", "properties", "key"),
    [
        (225, {}, "job.name"),
        (222, STORE, "stores.sums"),
        (218, STORE | {"task.intermediate.again.partitions": "1"}, "task.intermediate.again"),
    ],
)
def test_the_longest_topic_name_that_a_job_makes_is_checked_with_its_number(
    name_length: int, properties: dict[str, str], key: str
) -> None:
    fits = config_with({**properties, "job.name": "n" * name_length})

    assert 249 == max(map(len, made_topics(fits)))
    with pytest.raises(
        ConfigError, match=f"^{key}: wanted a topic name of at most 249 characters, found "
    ) as refused:
        config_with({**properties, "job.name": "n" * (name_length + 5)})
    assert "which has 254; shorten" in str(refused.value)
    assert str(refused.value).endswith("by 5")


@pytest.mark.parametrize(
    ("table", "type_of_field"), [(TEXTS, str), (OPTIONAL_TEXTS, str | None), (NUMBERS, int), (FLAGS, bool)]
)
def test_each_field_of_a_table_has_the_type_of_its_table(table: Mapping[str, str], type_of_field: object) -> None:
    fields = get_type_hints(JobConfig)

    assert {name: fields[name] for name in table} == dict.fromkeys(table, type_of_field)
    assert {key.name for key in KEYS}.issuperset(table.values())


def test_positions_are_committed_to_a_group_of_the_jobs_name_or_another_or_none() -> None:
    groups = [a_config(**{"job_consumer_group": name} if name else {}).lag_group for name in ("", "billing", "off")]

    assert ["samzapy-flights-1", "billing", None] == groups


def test_a_long_value_is_not_repeated_as_a_whole() -> None:
    for values in ({"k" * 9_000: "1"}, {"k" * 9_000: "1", "job.id": "-" * 9_000}):
        with pytest.raises(ConfigError, match="characters are left out") as refused:
            config_with(values)
        assert len(str(refused.value)) < 4_000
