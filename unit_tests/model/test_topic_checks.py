"""Each way in which a topic of ours can lose data is a finding of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samzapy.errors import MissingTopicError, TopicIdentityError, TopicPolicyError
from samzapy.model.finding import CODES, Finding, Severity, finding_json
from samzapy.model.topic_checks import Cluster, check_topic, missing, refuse
from samzapy.model.topics import (
    TopicSpec,
    changelog_spec,
    checkpoint_spec,
    coordinator_spec,
    intermediate_spec,
    placement_spec,
)
from samzapy.testing.builders import a_config, a_topic_found

ONE = Cluster(bootstrap_servers="b:9092", broker_count=1)
THREE = Cluster(bootstrap_servers="b:9092", broker_count=3)
COORDINATOR = coordinator_spec("flights-1")
INTERMEDIATE = intermediate_spec(a_config(task_intermediate_again_partitions="4").intermediates[0])
SPECS = [
    COORDINATOR,
    placement_spec("flights-1"),
    checkpoint_spec("flights-1"),
    changelog_spec("flights-1", "seen", 4),
    INTERMEDIATE,
]
BY_CLUSTER = ("unclean.leader.election.enable", "max.message.bytes", "min.insync.replicas")
NO_SETTINGS = {*BY_CLUSTER, *(name for spec in SPECS for name in spec.settings)}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@pytest.mark.parametrize(("cluster", "replicas"), [(ONE, 1), (THREE, 3)])
def test_a_new_topic_has_no_finding(spec: TopicSpec, cluster: Cluster, replicas: int) -> None:
    topic = a_topic_found(spec, replication_factor=replicas)

    assert check_topic(spec, topic, cluster, topic_id=topic.topic_id) == ()


@pytest.mark.parametrize(
    ("setting", "value", "code", "remedy"),
    [
        ("cleanup.policy", "delete", "topic-cleanup-policy", "cleanup.policy=compact"),
        ("cleanup.policy", "compact,delete", "topic-cleanup-policy", "cleanup.policy=compact"),
        ("message.timestamp.type", "CreateTime", "topic-timestamp-type", "message.timestamp.type=LogAppendTime"),
        ("unclean.leader.election.enable", "true", "topic-unclean-election", "unclean.leader.election.enable=false"),
        ("max.message.bytes", "1048587", "topic-message-size", "max.message.bytes=1048588"),
        ("delete.retention.ms", "604799999", "topic-tombstone-retention", "delete.retention.ms=604800000"),
        ("min.insync.replicas", "1", "topic-min-isr", "min.insync.replicas=2"),
        # More than there are: no producer could write.
        ("min.insync.replicas", "4", "topic-min-isr", "min.insync.replicas=2"),
        ("min.insync.replicas", "", "topic-min-isr", "min.insync.replicas=2"),
    ],
)
def test_each_wrong_setting_has_its_code_and_the_command_that_mends_it(
    setting: str, value: str, code: str, remedy: str
) -> None:
    topic = a_topic_found(COORDINATOR, replication_factor=3, settings={setting: value})

    (finding,) = check_topic(COORDINATOR, topic, THREE)

    assert finding.code == code
    assert finding.severity is Severity.DATA
    assert f"with {setting}=" in finding.found
    assert f"found {value or 'nothing'}" in finding.found
    assert finding.remedy.endswith(
        f"--bootstrap-server b:9092 --alter --entity-type topics --entity-name "
        f"{COORDINATOR.name} --add-config {remedy}"
    )


def test_each_code_of_a_topic_s_settings_is_one_that_a_wrong_topic_has() -> None:
    """Those of numbers and ids have tests of their own."""
    of_settings = set()
    for spec in SPECS:
        topic = a_topic_found(spec, replication_factor=3, settings=dict.fromkeys(NO_SETTINGS, ""))
        of_settings |= {finding.code for finding in check_topic(spec, topic, THREE)}

    others = {"missing", "identity", "partition-count", "replication", "few-replicas", "truncated"}
    of_topics = {code for code in CODES if code.startswith("topic-")}
    assert of_topics - {f"topic-{name}" for name in others} == of_settings


@pytest.mark.parametrize(
    ("setting", "value"),
    [("max.message.bytes", "1048588"), ("delete.retention.ms", "604800000"), ("min.insync.replicas", "3")],
)
def test_a_setting_that_keeps_more_than_needed_is_no_finding(setting: str, value: str) -> None:
    topic = a_topic_found(COORDINATOR, replication_factor=3, settings={setting: value})

    assert check_topic(COORDINATOR, topic, THREE) == ()


def test_a_setting_that_the_cluster_does_not_report_is_not_taken_for_right() -> None:
    topic = a_topic_found(COORDINATOR, settings=dict.fromkeys(("cleanup.policy", "max.message.bytes"), ""))

    assert {finding.code for finding in check_topic(COORDINATOR, topic, ONE)} == {
        "topic-cleanup-policy",
        "topic-message-size",
    }


@pytest.mark.parametrize(("count", "remedy"), [(3, "--alter --topic .* --partitions 4"), (5, "--delete --topic")])
def test_a_wrong_partition_count_is_reported(count: int, remedy: str) -> None:
    spec = replace(COORDINATOR, partition_count=4)

    (finding,) = check_topic(spec, a_topic_found(spec, partition_count=count), ONE)

    assert finding.code == "topic-partition-count"
    assert f"with 4 partitions, found {count}" in finding.found
    with pytest.raises(TopicPolicyError, match=remedy):
        refuse([finding])


def test_a_changelog_may_have_more_partitions_than_tasks_and_never_fewer() -> None:
    spec = changelog_spec("flights-1", "seen", 4)

    assert check_topic(spec, a_topic_found(spec, partition_count=5), ONE) == ()
    assert [finding.code for finding in check_topic(spec, a_topic_found(spec, partition_count=3), ONE)] == [
        "topic-partition-count"
    ]


def test_configured_replicas_are_required_and_a_larger_cluster_is_only_reported() -> None:
    configured = coordinator_spec("flights-1", 3)

    (insisted,) = check_topic(configured, a_topic_found(configured, replication_factor=2), THREE)
    (finding,) = check_topic(COORDINATOR, a_topic_found(COORDINATOR, replication_factor=1), THREE)

    assert (insisted.code, insisted.severity) == ("topic-replication", Severity.DATA)
    assert (finding.code, finding.severity) == ("topic-few-replicas", Severity.DEGRADED)
    assert "with 3 replicas, found 1" in finding.found
    refuse([finding])
    with pytest.raises(TopicPolicyError, match=r"^topic-replication: .* with 3 replicas, found 2"):
        refuse([insisted])


def test_a_recreated_topic_is_the_only_finding_of_its_kind() -> None:
    topic = a_topic_found(COORDINATOR, topic_id="new", settings={"cleanup.policy": "delete"})

    (finding,) = check_topic(COORDINATOR, topic, ONE, topic_id="old")

    assert finding.code == "topic-identity"
    with pytest.raises(TopicIdentityError, match="id old.*found id new"):
        refuse([finding])


def test_a_missing_topic_is_a_finding() -> None:
    (finding,) = check_topic(COORDINATOR, None, ONE)

    assert finding == missing(COORDINATOR.name)
    with pytest.raises(MissingTopicError, match=COORDINATOR.name):
        refuse([finding])


def test_a_refusal_names_every_fault_at_once() -> None:
    topic = a_topic_found(COORDINATOR, settings={"cleanup.policy": "delete", "max.message.bytes": "5"})

    with pytest.raises(TopicPolicyError) as caught:
        refuse(check_topic(COORDINATOR, topic, ONE))

    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == [
        "topic-cleanup-policy",
        "topic-message-size",
    ]


def test_a_finding_is_one_of_the_codes() -> None:
    with pytest.raises(AssertionError, match="not listed"):
        Finding(code="no-such-code", subject="s", found="f", remedy="r")


def test_a_finding_as_json_has_its_severity() -> None:
    assert finding_json(missing("t"))["severity"] == "data"
    assert all(code.islower() for code in CODES)


@pytest.mark.parametrize(
    ("setting", "value", "code", "why"),
    [
        ("cleanup.policy", "compact", "topic-cleanup-policy", "of several messages of a key only the last one"),
        (
            "cleanup.policy",
            "compact,delete",
            "topic-cleanup-policy",
            "of several messages of a key only the last one",
        ),
        ("message.timestamp.type", "CreateTime", "topic-timestamp-type", "under an old time would be deleted"),
        ("retention.ms", "604799999", "topic-retention", "sooner than the configuration says"),
        ("retention.ms", "", "topic-retention", "sooner than the configuration says"),
        ("retention.bytes", "1000000", "topic-retention", "deleted by size"),
        ("max.message.bytes", "1048587", "topic-message-size", "may be larger"),
    ],
)
def test_a_topic_of_messages_that_might_lose_some_unread_is_a_finding(
    setting: str, value: str, code: str, why: str
) -> None:
    (finding,) = check_topic(INTERMEDIATE, a_topic_found(INTERMEDIATE, settings={setting: value}), ONE)

    assert (code, Severity.DATA) == (finding.code, finding.severity)
    assert why in finding.found
    assert f"--entity-name {INTERMEDIATE.name} --add-config {setting}=" in finding.remedy


@pytest.mark.parametrize("kept_ms", ["-1", "604800001"])
def test_messages_may_be_kept_for_longer(kept_ms: str) -> None:
    assert () == check_topic(INTERMEDIATE, a_topic_found(INTERMEDIATE, settings={"retention.ms": kept_ms}), ONE)


@pytest.mark.parametrize(("partition_count", "codes"), [(3, ["topic-partition-count"]), (4, []), (8, [])])
def test_a_topic_of_messages_may_have_more_partitions_and_not_fewer(partition_count: int, codes: list[str]) -> None:
    topic = a_topic_found(INTERMEDIATE, partition_count=partition_count)

    assert codes == [finding.code for finding in check_topic(INTERMEDIATE, topic, ONE)]
