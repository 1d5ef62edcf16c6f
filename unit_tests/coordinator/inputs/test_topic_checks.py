"""A running job's topics: faults are shown, and a recreated topic ends the job."""

import logging
from dataclasses import replace

import pytest

from samzapy.coordinator.commands import OwnTopicFound, TopicsLooked
from samzapy.coordinator.inputs.topic_checks import compacted_topics, specs_of, topics_of
from samzapy.errors import TopicIdentityError
from samzapy.inspection.status import status_json
from samzapy.model.container import ContainerPhase
from samzapy.model.topic_checks import Cluster
from samzapy.plan.input_patterns import resolve_inputs
from samzapy.testing.builders import a_config, a_heartbeat, a_submission, a_topic_found, an_input_topic_found
from unit_tests.fixtures.coordinator_world import World

CLUSTER = Cluster(bootstrap_servers="b:9092", broker_count=1)
CHECKPOINT = "__samzapy-checkpoint-flights-1"
PLACEMENT = "__samzapy-placement-flights-1"
COORDINATOR = "__samzapy-coordinator-flights-1"


def looked(service, **changes):
    """The result of a look at the cluster, with `changes` by topic.

    A change is other settings, another id, or None for a topic that is gone.
    """
    state = service.status().state
    topics = {spec.name: a_topic_found(spec) for spec in specs_of(state)}
    topics["orders"] = an_input_topic_found("orders", 2)
    for name, change in changes.items():
        topics[name] = change(topics[name])
    return TopicsLooked(described=topics, cluster=CLUSTER)


def with_settings(**settings):
    def change(topic):
        spec = {name.replace("_", "."): value for name, value in settings.items()}
        return replace(topic, settings={**topic.settings, **spec})

    return change


def made_again(topic):
    return an_input_topic_found(topic.name, 1, topic_id="new")


def no_topic(topic):
    return None


@pytest.fixture
def world():
    return World()


@pytest.fixture
def service(world):
    service = world.coordinator()
    service.become_leader()
    service.submit(a_submission(partition_counts={"kafka.orders": 2}))
    world.queue.append(a_heartbeat())
    service.run_once(0)
    return service


def codes(service):
    return [finding.code for finding in service.status().findings]


def look(world, service, **changes):
    world.queue.append(looked(service, **changes))
    service.run_once(0)


def test_all_topics_of_the_job_are_looked_at(service):
    assert (CHECKPOINT, COORDINATOR, PLACEMENT, "orders") == topics_of(service.status().state)


def test_a_broadcast_input_is_looked_at_like_any_other(world, service):
    config = a_config(task_broadcast_inputs="kafka.rules#0")
    world.queue.append(a_heartbeat(state=ContainerPhase.STOPPED))
    service.run_once(0)
    service.submit(a_submission(config=config, partition_counts={"kafka.orders": 2}, cause="submit-2"))

    assert "rules" in topics_of(service.status().state)


def test_topics_as_they_should_be_are_no_finding(world, service):
    look(world, service)

    assert [] == codes(service)


def test_a_wrong_topic_setting_is_shown_and_does_not_stop_the_job(world, service):
    look(world, service, **{CHECKPOINT: with_settings(cleanup_policy="delete")})

    assert ["topic-cleanup-policy"] == codes(service)
    assert service.is_leader
    shown = status_json(service.status(), 0)
    assert [(f"topic {CHECKPOINT}", "data")] == [
        (finding["subject"], finding["severity"]) for finding in shown["findings"]
    ]


def test_a_finding_is_logged_when_it_appears_and_when_it_disappears(world, service, caplog):
    caplog.set_level(logging.INFO, "samzapy.coordinator.snapshot")
    wrong = {CHECKPOINT: with_settings(max_message_bytes="5")}

    for changes in (wrong, wrong, {}, {}):
        look(world, service, **changes)

    assert ["topic-message-size", "resolved"] == [record.message.partition(":")[0] for record in caplog.records]
    assert [] == codes(service)


def test_a_topic_that_a_broker_does_not_know_is_shown_and_ends_nothing(world, service):
    look(world, service, **{CHECKPOINT: no_topic, "orders": no_topic})

    assert ["topic-missing", "topic-missing"] == codes(service)
    assert service.is_leader


@pytest.mark.parametrize("name", [COORDINATOR, CHECKPOINT, "orders"])
def test_a_topic_that_was_made_again_ends_the_job_by_name(world, service, name):
    world.queue.append(looked(service, **{name: made_again}))

    with pytest.raises(TopicIdentityError, match=f"{name}.*found id new"):
        service.run_once(0)


def test_a_topic_that_was_not_looked_for_is_not_missing(world, service):
    world.queue.append(TopicsLooked(described={}, cluster=CLUSTER))
    service.run_once(0)

    assert [] == codes(service)


def test_looking_writes_nothing(world, service):
    before = world.topic.end_offset

    look(world, service, **{CHECKPOINT: with_settings(cleanup_policy="delete")})

    assert before == world.topic.end_offset


def test_findings_are_those_of_the_term(world, service):
    look(world, service, **{CHECKPOINT: no_topic})

    service.become_leader()

    assert [] == codes(service)


def test_the_specifications_of_topics_come_from_the_log(world):
    config = a_config(
        job_coordinator_replication_factor="2",
        stores_seen_changelog_replication_factor="3",
        stores_known_msg_serde="json",
        local_store_dir="/data",
    )
    service = world.coordinator()
    service.become_leader()
    changelogs = ("__samzapy-changelog-flights-1-seen", "__samzapy-changelog-flights-1-known")
    made = (OwnTopicFound(name=name, topic_id=f"id-of-{name}", partition_count=4) for name in changelogs)
    submission = a_submission(config=config)
    service.submit(replace(submission, own_topics=(*submission.own_topics, *made)))

    specs = {spec.name: (spec.partition_count, spec.replication_factor) for spec in specs_of(service.status().state)}

    assert {
        COORDINATOR: (1, 2),
        CHECKPOINT: (1, 2),
        PLACEMENT: (1, 2),
        changelogs[0]: (4, 3),
        changelogs[1]: (4, 2),
    } == specs


def test_a_topic_that_a_pattern_matches_and_that_came_later_is_shown_until_it_is_taken_in(world, caplog):
    caplog.set_level(logging.WARNING, "samzapy.coordinator.snapshot")
    service = world.coordinator()
    service.become_leader()
    config = a_config(task_inputs="kafka.~orders.*")
    service.submit(a_submission(config=resolve_inputs(config, ["orders"]), partition_counts={"kafka.orders": 2}))
    world.queue.append(a_heartbeat())
    service.run_once(0)
    topics = frozenset(["orders", "orders-late", "refunds", "__orders"])

    world.queue.append(replace(looked(service), topics=topics))
    service.run_once(0)

    assert [("input-unread", "kafka.orders-late")] == [(one.code, one.subject) for one in service.status().findings]
    assert ["input-unread"] == [record.message.partition(":")[0] for record in caplog.records]
    # No plan is made of it before the job is handed in again.
    assert {"kafka.orders"} == {str(stream) for stream in service.status().state.inputs}
    both = resolve_inputs(config, topics)
    service.submit(a_submission(config=both, partition_counts={"kafka.orders": 2, "kafka.orders-late": 1}))
    world.queue.append(replace(looked(service), topics=topics))
    service.run_once(0)
    assert [] == codes(service)
    assert 3 == len(service.status().state.plan)


INTERMEDIATE = "__samzapy-intermediate-flights-1-again"


@pytest.fixture
def two_steps(world):
    """The same job with an intermediate stream."""
    service = world.coordinator()
    service.become_leader()
    config = a_config(task_intermediate_again_partitions="2")
    service.submit(a_submission(config=config, partition_counts={"kafka.orders": 2}))
    world.queue.append(a_heartbeat())
    service.run_once(0)
    return service


def of_the_input(topic):
    """Its id as `a_submission` records it."""
    return replace(topic, topic_id=f"id-of-kafka.{topic.name}")


def test_the_topic_of_an_intermediate_stream_is_one_of_ours(world, two_steps):
    look(world, two_steps, **{INTERMEDIATE: of_the_input})

    assert INTERMEDIATE in topics_of(two_steps.status().state)
    assert [] == codes(two_steps)


def test_an_intermediate_topic_expires_by_age_and_is_no_compacted_one(two_steps):
    assert {CHECKPOINT, PLACEMENT, COORDINATOR} == compacted_topics(two_steps.status().state)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (no_topic, "topic-missing"),
        (lambda topic: with_settings(cleanup_policy="compact")(of_the_input(topic)), "topic-cleanup-policy"),
        (lambda topic: with_settings(retention_ms="1")(of_the_input(topic)), "topic-retention"),
        (lambda topic: replace(of_the_input(topic), partition_count=1), "topic-partition-count"),
    ],
)
def test_each_problem_of_a_topic_is_one_finding(world, two_steps, change, code):
    look(world, two_steps, **{INTERMEDIATE: change})

    assert [code] == codes(two_steps)


def test_an_intermediate_topic_that_was_made_again_ends_the_job_by_name(world, two_steps):
    world.queue.append(looked(two_steps, **{INTERMEDIATE: made_again}))

    with pytest.raises(TopicIdentityError, match=f"{INTERMEDIATE}.*found id new"):
        two_steps.run_once(0)
