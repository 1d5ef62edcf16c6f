"""Submissions at the start of a process and by a leader, when topics are wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from samzapy.config import JobConfig
from samzapy.coordinator.assignment.liveness import Liveness
from samzapy.coordinator.commands import SubmitJob
from samzapy.coordinator.decide import decide
from samzapy.coordinator.lifecycle.submission import submit_job
from samzapy.coordinator.state import INITIAL, CoordinatorState, evolve, uncommitted
from samzapy.errors import MissingTopicError, TopicIdentityError, TopicPolicyError
from samzapy.model.topic_checks import Cluster, TopicFound, check_topic, refuse
from samzapy.model.topics import TopicSpec, changelog_topic, checkpoint_topic, coordinator_topic
from samzapy.plan.groupers import NO_GROUPERS
from samzapy.runtime.submission import submission_of
from samzapy.testing.builders import a_config
from unit_tests.fixtures.coordinator_histories import a_term

JOB = "flights-1"
WITH_STATE = a_config(stores_seen_msg_serde="json", local_store_dir="/data")
CHANGELOG = changelog_topic(JOB, "seen")


class Cluster1:
    """A cluster of one broker, in the place of `KafkaAdmin`."""

    def __init__(self, **partition_counts: int) -> None:
        self.topics = {name: _a_topic(name, count) for name, count in partition_counts.items()}

    def topic_names(self) -> frozenset[str]:
        return frozenset(self.topics)

    def find(self, names: Iterable[str]) -> dict[str, TopicFound]:
        return {name: self.topics[name] for name in names if name in self.topics}

    def describe(self, names: Iterable[str]) -> dict[str, TopicFound]:
        described = set(names)
        if missing := described - self.topics.keys():
            raise MissingTopicError(f"found no {missing}")
        return self.find(described)

    def ensure_topic(self, spec: TopicSpec) -> TopicFound:
        if spec.name not in self.topics:
            self.topics[spec.name] = _made(spec)
        topic = self.grown_topic(spec)
        assert topic is not None
        refuse(check_topic(spec, topic, Cluster(bootstrap_servers="b:9092", broker_count=1)))
        return topic

    def grown_topic(self, spec: TopicSpec) -> TopicFound | None:
        topic = self.topics.get(spec.name)
        if topic is None:
            return None
        if spec.may_grow:
            topic = replace(topic, partition_count=max(topic.partition_count, spec.partition_count))
            self.topics[spec.name] = topic
        return topic

    def set(self, name: str, **settings: str) -> None:
        topic = self.topics[name]
        given = {key.replace("_", "."): value for key, value in settings.items()}
        self.topics[name] = replace(topic, settings={**topic.settings, **given})

    def make_again(self, name: str) -> None:
        self.topics[name] = replace(self.topics[name], topic_id="another id")


def _a_topic(name: str, partition_count: int) -> TopicFound:
    return TopicFound(
        name=name, topic_id=f"id of {name}", partition_count=partition_count, replication_factor=1, settings={}
    )


def _made(spec: TopicSpec) -> TopicFound:
    own = {"unclean.leader.election.enable": "false", "min.insync.replicas": "1", "max.message.bytes": "1048588"}
    return replace(_a_topic(spec.name, spec.partition_count), settings={**own, **spec.settings})


def handed_in(cluster: Cluster1, state: CoordinatorState | None = None, config: JobConfig = WITH_STATE) -> SubmitJob:
    admin: Any = cluster
    return submission_of(config, admin, "a test", NO_GROUPERS, state)


def a_job(cluster: Cluster1, config: JobConfig = WITH_STATE) -> CoordinatorState:
    """The state of its stream once it was submitted."""
    state = INITIAL
    for command in (a_term(0), handed_in(cluster, config=config)):
        state = evolve(state, uncommitted(decide(command, state, Liveness()).records))
    return state


@pytest.mark.parametrize("topic", [coordinator_topic(JOB), checkpoint_topic(JOB), CHANGELOG])
def test_a_setting_under_which_data_is_lost_is_refused_at_a_start_and_not_in_office(topic: str) -> None:
    cluster = Cluster1(orders=4)
    state = a_job(cluster)
    cluster.set(topic, delete_retention_ms="1000")

    with pytest.raises(TopicPolicyError, match="delete.retention.ms"):
        handed_in(cluster)
    assert () == submit_job(handed_in(cluster, state), state, Liveness())


@pytest.mark.parametrize("topic", ["orders", checkpoint_topic(JOB), CHANGELOG])
def test_a_leader_neither_requires_nor_creates_a_missing_topic(topic: str) -> None:
    """A broker that was just restarted may not know the topic yet.

    Made again, the topic would be another one.
    """
    cluster = Cluster1(orders=4)
    state = a_job(cluster)
    del cluster.topics[topic]

    assert () == submit_job(handed_in(cluster, state), state, Liveness())
    assert topic not in cluster.topics


def test_a_start_without_an_input_topic_is_refused() -> None:
    with pytest.raises(MissingTopicError, match="orders"):
        handed_in(Cluster1())


def test_a_leader_also_requires_inputs_that_were_never_read() -> None:
    cluster = Cluster1(orders=4)
    state = a_job(cluster)

    with pytest.raises(MissingTopicError, match="returns"):
        handed_in(cluster, state, a_config(task_inputs="kafka.orders,kafka.returns"))


@pytest.mark.parametrize("topic", ["orders", checkpoint_topic(JOB), CHANGELOG])
def test_a_topic_that_was_made_again_is_refused_in_office(topic: str) -> None:
    cluster = Cluster1(orders=4)
    state = a_job(cluster)
    cluster.make_again(topic)

    with pytest.raises(TopicIdentityError, match="it was deleted and made again"):
        submit_job(handed_in(cluster, state), state, Liveness())


def test_a_topic_that_the_job_does_not_have_yet_is_made_and_checked_in_office() -> None:
    cluster = Cluster1(orders=4)
    state = a_job(cluster, a_config())

    handed_in(cluster, state)
    assert 4 == cluster.topics[CHANGELOG].partition_count
    cluster.set(CHANGELOG, delete_retention_ms="1000")

    with pytest.raises(TopicPolicyError, match="delete.retention.ms"):
        handed_in(cluster, state)


def test_a_leader_leaves_out_a_missing_intermediate_stream() -> None:
    config = a_config(task_intermediate_again_partitions="2")
    cluster = Cluster1(orders=4)
    state = a_job(cluster, config)
    topic = f"__samzapy-intermediate-{JOB}-again"
    assert 2 == cluster.topics[topic].partition_count
    del cluster.topics[topic]

    submission = handed_in(cluster, state, config)

    assert () == submit_job(submission, state, Liveness())
    assert topic not in cluster.topics
