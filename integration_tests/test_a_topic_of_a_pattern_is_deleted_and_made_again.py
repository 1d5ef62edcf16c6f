"""A topic of a pattern is deleted under a running job with state, and made again.

The job continues with the other topics and loses and doubles none of their records. It reads the new topic from its
first offset.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from integration_tests.summed import EACH, Summed, check_sums, feed
from integration_tests.support.tails import Tails
from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.coordinator.state import CoordinatorState
from samzapy.testing.broker import DevBroker
from samzapy.testing.container_broker import ContainerBroker
from samzapy.testing.topics import delete_topic, make_topics

PARTITIONS = 2
_WITHIN_S = 240.0


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("scheme", "has_tails"), [("max", True), ("group-by-partition", False)])
def test_a_topic_of_a_pattern_is_deleted_and_made_again_under_a_job_that_runs(
    broker: DevBroker | ContainerBroker, tmp_path: Path, scheme: str, has_tails: bool
) -> None:
    servers = broker.bootstrap_servers
    summed = Summed(servers)
    stays, goes = summed.topic("fed-a"), summed.topic("fed-b")
    make_topics(servers, {stays: PARTITIONS, goes: PARTITIONS, **summed.outputs})
    admin = KafkaAdmin(KafkaConnection(bootstrap_servers=servers))
    fed = feed(servers, stays, PARTITIONS) + feed(servers, goes, PARTITIONS)
    settings = {
        # A task for each partition of a topic, or one for both topics.
        "task.partition.scheme": scheme,
        "task.batch.interval.ms": "0" if has_tails else "500",
        "job.coordinator.topic.check.ms": "1000",
        "job.coordinator.monitor-partition-change.frequency.ms": "1000",
    }
    with summed.process(tmp_path, f"kafka.~{summed.topic('fed-.')}", settings) as job, summed.reader() as reader:

        def await_all(what: str) -> None:
            job.wait_until(lambda: len(reader.read()) >= fed, _WITHIN_S, what)

        job.start()
        await_all("every message to be answered")
        driver = job.driver()
        tails = Tails(lambda: job)
        if has_tails:
            job.wait_until(tails.batch, _WITHIN_S, "a tail")
        fed += feed(servers, stays, PARTITIONS)
        await_all("the new messages to be answered")
        if has_tails:
            job.wait_until(lambda: has_handled(tails), _WITHIN_S, "a tail to have handled it")

        first_id = admin.topic_id(goes)
        delete_topic(servers, goes)
        fed += feed(servers, stays, PARTITIONS)
        await_all("the messages of the other topic to be answered")
        job.wait_until(
            lambda: _streams(summed.state()) == {stays}, _WITHIN_S, "the job to be planned without the topic"
        )
        fed += feed(servers, stays, PARTITIONS)
        await_all("the later messages to be answered")
        assert admin.find([goes]) == {}, "no request for the topic made it again"

        make_topics(servers, {goes: PARTITIONS})
        fed += feed(servers, goes, PARTITIONS) + feed(servers, stays, PARTITIONS)
        await_all("the messages of the new topic to be answered")

        after = summed.state()
        assert driver == job.driver(), "it is the process that was started"
        assert job.terminate() == 0, job.log_text()[-4000:]
        outs = list(reader.read())

    assert {stays, goes} == _streams(after)
    assert first_id != next(put.topic_id for stream, put in after.inputs.items() if stream.stream == goes)
    places = Counter((out.stream, out.partition, out.offset) for out in outs)
    assert {(stays, partition, offset): 1 for partition in range(PARTITIONS) for offset in range(5 * EACH)} | {
        # Once in the topic that was deleted, and once in the new one.
        (goes, partition, offset): 2
        for partition in range(PARTITIONS)
        for offset in range(EACH)
    } == places
    # State of keys is kept, of those of the topic that went too.
    check_sums(outs)


def has_handled(tails: Tails) -> bool:
    batch = tails.batch()
    return batch is not None and batch.in_tails > 0


def _streams(state: CoordinatorState) -> set[str]:
    return {ssp_kb.ssp.stream for planned in state.plan for ssp_kb in planned.positions}
