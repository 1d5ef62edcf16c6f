"""One broker of three has not heard of a change that the others have made.

The broker stands still while the change is made. Then the others stand still, and it goes on: it cannot hear of the
change, and answers as before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import pytest
from confluent_kafka.admin import AdminClient

from integration_tests.small_job import SmallJob
from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.coordinator.assignment.replanning import job_model
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import BrokerUnavailableError
from samzapy.model.ssp import SystemStream
from samzapy.model.topics import changelog_spec
from samzapy.plan.groupers import NO_GROUPERS
from samzapy.runtime.submission import check_submission_allowed, submission_of
from samzapy.testing.broker_cluster import DevCluster
from samzapy.testing.topics import grow_topic, make_topics
from samzapy.testing.waiting import wait_until

P, T = ParamSpec("P"), TypeVar("T")
_SETTING = "delete.retention.ms"
_BECAME_CONTROLLER = r"Becoming the active controller at epoch (\d+)"
_WITHIN_S = 60.0
_ASK_S = 1.0


class TwoViews:
    """Three brokers, of which one has not heard of a change."""

    def __init__(self, cluster: DevCluster) -> None:
        self._cluster = cluster
        # The others would wait half a minute for answers of the active controller before they ask the next one.
        self._late = next(node_id for node_id in cluster.nodes if node_id != active_controller(cluster))
        self._heard = [node_id for node_id in cluster.nodes if node_id != self._late]
        self.of_those_that_heard = self._connection(self._heard)
        self.of_the_late_one = self._connection([self._late])
        self.of_all = self._connection([*cluster.nodes])

    @contextmanager
    def change(self, topic: str) -> Iterator[None]:
        """Keep changes of the topic from the late broker, until its `late_answer`.

        Each broker knows the topic before.
        """
        for node_id in self._cluster.nodes:
            at = self._connection([node_id])
            wait_until(lambda at=at: topic in seen_by(at).topics, _WITHIN_S, f"the brokers to know {topic}")  # type: ignore[misc]
        self._cluster.node(self._late).pause()
        # Until then, clients may ask the one that stands still.
        for node_id in self._heard:
            at = self._connection([node_id])
            wait_until(lambda at=at: self._late not in seen_by(at).brokers, _WITHIN_S, "the others to go on alone")  # type: ignore[misc]
        yield
        for node_id in self._heard:
            self._cluster.node(node_id).pause()
        self._cluster.node(self._late).resume()
        wait_until(
            lambda: self._late in seen_by(self.of_the_late_one).brokers, _WITHIN_S, "the late broker to answer"
        )

    def late_answer(self, ask: Callable[[KafkaAdmin], T]) -> T:
        """The answer of the late broker, after which the change has spread."""

        def answer() -> T | None:
            # The client may choose another one, which stands still: such a question is short.
            try:
                return ask(KafkaAdmin(self.of_the_late_one, deadline_s=_ASK_S))
            except BrokerUnavailableError:
                return None

        late = wait_until(answer, _WITHIN_S, "the late broker to be asked")
        for node_id in self._heard:
            self._cluster.node(node_id).resume()
        return late

    def _connection(self, node_ids: Sequence[int]) -> KafkaConnection:
        servers = ",".join(self._cluster.node(node_id).bootstrap_servers for node_id in node_ids)
        return KafkaConnection(bootstrap_servers=servers)


@pytest.fixture
def views(own_cluster: DevCluster) -> TwoViews:
    return TwoViews(own_cluster)


def seen_by(connection: KafkaConnection) -> Any:
    """The cluster as its first broker of these sees it."""
    return AdminClient({"bootstrap.servers": connection.bootstrap_servers, "log_level": 0}).list_topics(timeout=10)


def active_controller(cluster: DevCluster) -> int:
    """The node that leads the controllers, by the logs of the nodes."""
    terms = {
        node_id: [int(epoch) for epoch in re.findall(_BECAME_CONTROLLER, node.log_path.read_text(errors="replace"))]
        for node_id, node in cluster.nodes.items()
    }
    return max(terms, key=lambda node_id: max(terms[node_id], default=-1))


def first(answer: T, ask: Callable[P, T]) -> Callable[P, T]:
    """`ask`, whose first answer is this one."""
    answers = [answer]

    def asked(*args: P.args, **kwargs: P.kwargs) -> T:
        return answers.pop() if answers else ask(*args, **kwargs)

    return asked


def planned(state: CoordinatorState) -> Sequence[int]:
    model = job_model(state)
    return [] if model is None else sorted(kb.ssp.partition for task in model.tasks for kb in task.ssp_kbs)


def test_new_partitions_stay_those_of_a_job_that_asks_a_broker_without_them(
    views: TwoViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SmallJob(views.of_those_that_heard)
    with views.change(job.input):
        grow_topic(views.of_those_that_heard.bootstrap_servers, job.input, 4)
        # The one from before knows the broker that stands still, and may ask it again and again.
        job.admin = KafkaAdmin(views.of_those_that_heard)
        with job:
            job.heartbeat("e1")
            wait_until(lambda: planned(job.service.status().state) == [0, 1, 2, 3], _WITHIN_S, "the plan")
            state = job.service.status().state

    late = views.late_answer(lambda admin: admin.find([job.input]))
    assert 2 == late[job.input].partition_count, "it has heard: no fault was injected"
    admin = KafkaAdmin(views.of_all)
    monkeypatch.setattr(admin, "find", first(late, admin.find))
    submission = submission_of(job.config, admin, "another processor", NO_GROUPERS, state)

    after = check_submission_allowed(state, submission, running=[])
    assert (4, [0, 1, 2, 3]) == (after.inputs[SystemStream("kafka", job.input)].partition_count, planned(after))


def test_a_setting_that_was_just_corrected_is_not_refused_where_a_late_broker_answers(
    views: TwoViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = changelog_spec("orders-1", "sums", 1)
    too_short, corrected = "60000", spec.settings[_SETTING]
    make_topics(views.of_those_that_heard.bootstrap_servers, {spec.name: 1}, {**spec.settings, _SETTING: too_short})
    with views.change(spec.name):
        KafkaAdmin(views.of_those_that_heard).alter_settings(spec.name, {_SETTING: corrected})

    late = views.late_answer(lambda admin: admin._settings([spec.name]))
    assert too_short == late[spec.name][_SETTING], "it has heard: no fault was injected"
    admin = KafkaAdmin(views.of_all)
    monkeypatch.setattr(admin, "_settings", first(late, admin._settings))

    assert corrected == admin.ensure_topic(spec).settings[_SETTING]
