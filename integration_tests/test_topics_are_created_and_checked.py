"""Own topics have explicit settings; wrong ones are refused with the remedy."""

from __future__ import annotations

import re
import threading
import uuid
from dataclasses import replace

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource

from integration_tests.small_job import SmallJob
from samzapy.adapters.kafka.admin import KafkaAdmin, topic_id
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.topic_watch import TopicWatch
from samzapy.coordinator.commands import TopicsLooked
from samzapy.coordinator.inputs.topic_checks import topics_of
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import (
    BrokerUnavailableError,
    ConfigError,
    MissingTopicError,
    TopicIdentityError,
    TopicPolicyError,
)
from samzapy.model.topic_checks import Cluster, check_topic
from samzapy.model.topics import TopicSpec, changelog_spec, checkpoint_spec, coordinator_spec
from samzapy.plan.groupers import NO_GROUPERS
from samzapy.runtime.submission import submission_of
from samzapy.testing.broker import DevBroker
from samzapy.testing.builders import a_config
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until


@pytest.fixture
def connection(broker: DevBroker) -> KafkaConnection:
    return KafkaConnection(bootstrap_servers=broker.bootstrap_servers)


@pytest.fixture
def admin(connection: KafkaConnection) -> KafkaAdmin:
    return KafkaAdmin(connection)


@pytest.fixture
def job() -> str:
    return f"job{uuid.uuid4().hex[:8]}-1"


def plain_client(connection: KafkaConnection) -> AdminClient:
    return AdminClient({"bootstrap.servers": connection.bootstrap_servers})


def create(connection: KafkaConnection, name: str, partition_count: int = 1, **settings: str) -> None:
    make_topics(connection.bootstrap_servers, {name: partition_count}, settings)


def test_an_own_topic_is_made_with_its_settings(connection: KafkaConnection, admin: KafkaAdmin, job: str) -> None:
    for spec in (coordinator_spec(job), checkpoint_spec(job), changelog_spec(job, "counts", 3)):
        topic = admin.ensure_topic(spec)

        assert (topic.name, topic.partition_count) == (spec.name, spec.partition_count)
        resource = ConfigResource(ConfigResource.Type.TOPIC, spec.name)
        client = plain_client(connection)
        settings = client.describe_configs([resource])[resource].result()
        for name, value in {**spec.settings, "max.message.bytes": "1048588"}.items():
            assert settings[name].value == value, name
            assert not settings[name].is_default, f"{name} is only the broker's default"


def test_an_existing_topic_with_the_right_settings_is_accepted(admin: KafkaAdmin, job: str) -> None:
    first = admin.ensure_topic(coordinator_spec(job))

    assert admin.ensure_topic(coordinator_spec(job)) == first


def test_a_recreated_topic_has_another_id(connection: KafkaConnection, admin: KafkaAdmin, job: str) -> None:
    spec = coordinator_spec(job)
    first = admin.ensure_topic(spec)
    client = plain_client(connection)
    client.delete_topics([spec.name])[spec.name].result()
    # The controller has removed it; the broker that is asked hears of it a little later.
    wait_until(lambda: not admin.find([spec.name]), 60.0, f"{spec.name} to be deleted")

    second = admin.ensure_topic(spec)

    assert first.topic_id != second.topic_id
    assert topic_id(connection, spec.name) == second.topic_id
    described = client.describe_topics(TopicCollection([spec.name]))[spec.name].result()
    assert str(described.topic_id).replace("+", "-").replace("/", "_") == second.topic_id
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", second.topic_id)


@pytest.mark.parametrize(
    ("setting", "value", "remedy"),
    [
        ("cleanup.policy", "delete", "--add-config cleanup.policy=compact"),
        ("cleanup.policy", "compact,delete", "--add-config cleanup.policy=compact"),
        ("message.timestamp.type", "CreateTime", "--add-config message.timestamp.type=LogAppendTime"),
        ("unclean.leader.election.enable", "true", "--add-config unclean.leader.election.enable=false"),
        ("max.message.bytes", "1000000", "--add-config max.message.bytes=1048588"),
        ("delete.retention.ms", "60000", "--add-config delete.retention.ms=604800000"),
        ("min.insync.replicas", "2", "--add-config min.insync.replicas=1"),
    ],
)
def test_a_setting_that_loses_data_is_refused_with_the_command_that_corrects_it(
    connection: KafkaConnection, admin: KafkaAdmin, job: str, setting: str, value: str, remedy: str
) -> None:
    spec = coordinator_spec(job)
    create(connection, spec.name, **{**spec.settings, setting: value})

    with pytest.raises(TopicPolicyError) as caught:
        admin.ensure_topic(spec)

    message = str(caught.value)
    assert f"the topic {spec.name} with {setting}=" in message
    assert f"found {value}" in message
    assert f"--bootstrap-server {connection.bootstrap_servers} " in message
    assert message.endswith(remedy)


@pytest.mark.parametrize(("partition_count", "remedy"), [(1, "--partitions 2"), (3, "--delete --topic")])
def test_a_wrong_partition_count_is_refused(
    connection: KafkaConnection, admin: KafkaAdmin, job: str, partition_count: int, remedy: str
) -> None:
    spec = replace(coordinator_spec(job), partition_count=2)
    create(connection, spec.name, partition_count, **spec.settings)

    with pytest.raises(TopicPolicyError, match=f"with 2 partitions, found {partition_count}.*{remedy}"):
        admin.ensure_topic(spec)


def test_a_changelog_grows_with_its_job_and_never_shrinks(admin: KafkaAdmin, job: str) -> None:
    small = admin.ensure_topic(changelog_spec(job, "counts", 2))

    grown = admin.ensure_topic(changelog_spec(job, "counts", 5))

    assert (grown.partition_count, grown.topic_id) == (5, small.topic_id)
    assert admin.ensure_topic(changelog_spec(job, "counts", 2)) == grown


def test_a_cluster_that_does_not_take_the_settings_is_named(admin: KafkaAdmin, job: str) -> None:
    spec = coordinator_spec(job, replication_factor=7)

    with pytest.raises(TopicPolicyError, match=f"creating the topic {spec.name} .* replication factor 7"):
        admin.ensure_topic(spec)


def test_a_missing_input_is_named_with_its_cluster(connection: KafkaConnection, admin: KafkaAdmin, job: str) -> None:
    create(connection, f"{job}-there", 5)

    assert admin.partition_count(f"{job}-there") == 5
    assert list(admin.find([f"{job}-there", f"{job}-not"])) == [f"{job}-there"]
    with pytest.raises(MissingTopicError, match=f"{job}-not at {connection.bootstrap_servers}"):
        admin.describe([f"{job}-there", f"{job}-not"])


def test_a_cluster_that_is_not_there_is_named_with_addresses_and_time() -> None:
    admin = KafkaAdmin(KafkaConnection(bootstrap_servers="127.0.0.1:1"), deadline_s=4.0)

    with pytest.raises(BrokerUnavailableError, match=r"within \d s at 127\.0\.0\.1:1; .*refused"):
        admin.check_reachable()


def test_a_reachable_cluster_is_fine(admin: KafkaAdmin) -> None:
    admin.check_reachable()

    assert admin.broker_count() == 1


@pytest.mark.parametrize(
    "properties",
    [
        {"security.protocol": "SSL"},
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ann",
            "sasl.password": "hush-hush",
        },
    ],
    ids=["tls", "sasl"],
)
def test_a_security_protocol_that_the_listener_lacks_is_reported_as_such(
    connection: KafkaConnection, properties: dict[str, str]
) -> None:
    """Kafka itself only reports "transport failure"."""
    wrong = KafkaConnection(bootstrap_servers=connection.bootstrap_servers, properties=properties)

    with pytest.raises((ConfigError, BrokerUnavailableError), match="authentication or TLS") as caught:
        KafkaAdmin(wrong, deadline_s=8.0).check_reachable()

    assert "security.protocol" in str(caught.value)
    assert "hush-hush" not in str(caught.value)
    assert "hush-hush" not in repr(wrong)


def test_fixed_settings_of_any_spec_are_checked(connection: KafkaConnection, admin: KafkaAdmin, job: str) -> None:
    create(connection, job, **{"retention.ms": "5"})
    spec = TopicSpec(
        name=job, partition_count=1, replication_factor=1, settings={"retention.ms": "-1"}, fixed=("retention.ms",)
    )

    with pytest.raises(TopicPolicyError, match="retention.ms=-1, found 5"):
        admin.ensure_topic(spec)


def test_a_look_shows_the_settings_of_topics_and_the_missing_topics(
    connection: KafkaConnection, admin: KafkaAdmin, job: str
) -> None:
    spec = coordinator_spec(job)
    made = admin.ensure_topic(spec)
    watch = TopicWatch(admin, names=tuple, put=print, interval_ms=1000)

    looked = watch.look([spec.name, f"{job}-not"])

    assert looked.described == {spec.name: made, f"{job}-not": None}
    assert check_topic(spec, looked.described[spec.name], looked.cluster, topic_id=made.topic_id) == ()
    assert looked.cluster == Cluster(bootstrap_servers=connection.bootstrap_servers, broker_count=1)


def test_a_new_leader_checks_topics_at_once_and_then_periodically(admin: KafkaAdmin, job: str) -> None:
    spec = coordinator_spec(job)
    admin.ensure_topic(spec)
    leads = threading.Event()
    seen: list[TopicsLooked] = []
    watch = TopicWatch(admin, names=lambda: [spec.name] if leads.is_set() else [], put=seen.append, interval_ms=1_000)
    watch.start()

    leads.set()
    wait_until(lambda: seen, 30.0, "the first look")
    wait_until(lambda: len(seen) > 1, 30.0, "the second look")

    watch.close()
    assert set(seen[0].described) == {spec.name}


def test_a_checkpoint_topic_that_is_made_again_ends_the_job_that_runs(
    connection: KafkaConnection, admin: KafkaAdmin
) -> None:
    job = SmallJob(connection)
    job.become_leader()
    service = job.service
    watch = TopicWatch(
        admin, names=lambda: topics_of(service.status().state), put=job.commands.put, interval_ms=1_000
    )
    spec = checkpoint_spec(job.job)
    recorded = service.status().state.own_topics[spec.name]
    job.client.delete_topics([spec.name])[spec.name].result()
    wait_until(lambda: not admin.find([spec.name]), 60.0, f"{spec.name} to be deleted")
    admin.ensure_topic(spec)

    watch.start()

    with pytest.raises(TopicIdentityError, match=f"topic {spec.name}: .* with id {recorded.topic_id}"):
        wait_until(lambda: service.run_once(100), 60.0, "the leader to stop")
    watch.close()
    job.close()


def test_the_topic_of_an_intermediate_stream_is_created_at_once_and_only_the_leader_grows_it(
    connection: KafkaConnection, admin: KafkaAdmin, job: str
) -> None:
    create(connection, f"in-{job}", 1)
    topic = f"__samzapy-intermediate-{job}-again"

    def submitted(partitions: int, *, is_leader: bool) -> int:
        config = a_config(
            job_name=job.removesuffix("-1"),
            task_inputs=f"kafka.in-{job}",
            task_intermediate_again_partitions=str(partitions),
        )
        submission = submission_of(
            config, admin, "processor 0", NO_GROUPERS, CoordinatorState() if is_leader else None
        )
        (of_input,) = [one for one in submission.inputs if one.system_stream.stream == topic]
        (own,) = [one for one in submission.own_topics if one.name == topic]
        assert (of_input.topic_id, of_input.partition_count) == (own.topic_id, own.partition_count)
        count = own.partition_count
        assert count == admin.partition_count(topic)
        return count

    assert submitted(2, is_leader=False) == 2
    made = admin.look([topic])[topic].settings
    assert ("delete", "604800000", "-1", "LogAppendTime") == tuple(
        made[name] for name in ("cleanup.policy", "retention.ms", "retention.bytes", "message.timestamp.type")
    )
    assert submitted(4, is_leader=False) == 2
    assert submitted(4, is_leader=True) == 4
    assert submitted(2, is_leader=True) == 4
    with pytest.raises(ConfigError, match="wanted a whole multiple of the 4 partitions"):
        submitted(6, is_leader=True)
    assert admin.partition_count(topic) == 4
