"""`samzapy state drop` deletes the topic of a dropped store, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from samzapy.cli import state as state_command
from samzapy.cli.output import confirm
from samzapy.config import recorded_properties
from samzapy.coordinator.state import INITIAL, CoordinatorState, committed, evolve
from samzapy.model.topic_checks import TopicFound
from samzapy.model.topics import changelog_spec, changelog_topic
from samzapy.stream.records import ConfigPut, GenerationPut, JobIdentityPut, OwnTopicPut
from samzapy.testing.builders import a_config, a_topic_found

_TOPIC = changelog_topic("flights-1", "seen")
_TOPIC_FOUND = a_topic_found(changelog_spec("flights-1", "seen", 2), topic_id="id")
_ARGUMENTS = ("--job", "flights-1", "--bootstrap-servers", "localhost:1", "--store")


class Cluster:
    """A cluster with the topic, and a stream on which the job dropped the store."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicFound] = {_TOPIC: _TOPIC_FOUND}
        self.states = [a_state()]

    def find(self, names: Iterable[str]) -> dict[str, TopicFound]:
        return {name: self.topics[name] for name in names if name in self.topics}

    def delete_topic(self, name: str) -> None:
        del self.topics[name]

    def state(self, address: Any) -> CoordinatorState:
        """The state as of each look; the last one stays."""
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


def a_state(**properties: str) -> CoordinatorState:
    config = a_config(**(properties or {"stores_seen_drop": "true"}))
    topic = OwnTopicPut(name=_TOPIC, topic_id="id", partition_count=2)
    settings = [ConfigPut(config_key=key, value=value) for key, value in recorded_properties(config).items()]
    plan = GenerationPut(generation=1, factor=1, task_count=0, scheme="max")
    job = JobIdentityPut(job_name="flights", job_id="1")
    return evolve(INITIAL, committed([job, *settings, topic, plan], 0))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr("samzapy.adapters.kafka.admin.KafkaAdmin", lambda connection: cluster)
    monkeypatch.setattr(state_command, "recorded_state", cluster.state)
    monkeypatch.setattr(
        "samzapy.adapters.kafka.reading.beginning_offsets", lambda _, places: dict.fromkeys(places, 3)
    )
    monkeypatch.setattr("samzapy.adapters.kafka.reading.end_offsets", lambda _, places: dict.fromkeys(places, 10))
    return cluster


def drop(*options: str, store: str = "seen", answer: str = "") -> Result:
    return CliRunner().invoke(state_command.state, ["drop", *_ARGUMENTS, store, *options], input=answer)


def test_the_topic_is_deleted_after_its_contents_were_shown(cluster: Cluster) -> None:
    result = drop("--yes")

    assert 0 == result.exit_code
    assert f"to delete: {_TOPIC} (2 partitions, 14 records at most)" in result.output
    assert f"flights-1: {_TOPIC} is deleted; the name seen can be used again" in result.output
    assert {} == cluster.topics


def test_without_a_terminal_and_without_yes_nothing_is_deleted(cluster: Cluster) -> None:
    result = drop(answer="y\n")

    assert "wanted a terminal to ask" in str(result.exception)
    assert {_TOPIC} == cluster.topics.keys()


@pytest.mark.parametrize(("answer", "topics"), [("y\n", set()), ("n\n", {_TOPIC}), ("\n", {_TOPIC})])
def test_an_operator_at_a_terminal_is_asked(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, answer: str, topics: set[str]
) -> None:
    monkeypatch.setattr(confirm, "is_at_terminal", lambda: True)

    result = drop(answer=answer)

    assert "Delete it?" in result.output
    assert topics == set(cluster.topics)


def test_a_store_in_use_is_refused(cluster: Cluster) -> None:
    cluster.states = [a_state(stores_seen_msg_serde="json", local_store_dir="/data")]

    assert "found that its configuration names seen" in str(drop("--yes").exception)
    assert {_TOPIC} == cluster.topics.keys()


def test_a_store_that_was_declared_again_while_the_question_was_open_is_refused(cluster: Cluster) -> None:
    cluster.states.append(a_state(stores_seen_msg_serde="json", local_store_dir="/data"))

    assert "found that its configuration names seen" in str(drop("--yes").exception)
    assert {_TOPIC} == cluster.topics.keys()


def test_a_topic_of_the_name_that_the_job_never_had_is_refused(cluster: Cluster) -> None:
    cluster.topics[_TOPIC] = replace(_TOPIC_FOUND, topic_id="another")

    assert "found another one of this name (id another)" in str(drop("--yes").exception)
    assert {_TOPIC} == cluster.topics.keys()


def test_a_store_that_the_job_never_had_is_refused_with_those_that_it_had(cluster: Cluster) -> None:
    assert "has dropped (seen), found 'sen'" in str(drop("--yes", store="sen").exception)


def test_a_job_that_never_ran_has_no_stores(cluster: Cluster) -> None:
    cluster.states = [INITIAL]

    assert "flights-1" in str(drop("--yes").exception)


def test_a_repetition_prints_that_the_topic_is_deleted(cluster: Cluster) -> None:
    drop("--yes")

    result = drop("--yes")

    assert (0, f"flights-1: {_TOPIC} is deleted already\n") == (result.exit_code, result.output)
