"""The state of a coordinator stream at moments, in one reading, up to the limits."""

from types import SimpleNamespace

import pytest

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.errors import ConfigError, DeadlineError, RejectedError
from samzapy.inspection.page.moments import ROWS_MAX, Rows, moment_difference, moment_view
from samzapy.model.topic_checks import Cluster, TopicFound
from samzapy.runtime import history, stream_source
from samzapy.runtime.history import READ_S, RECORDS_MAX, KafkaHistory, moments_of, page_limits
from samzapy.stream.position import Position
from unit_tests.fixtures.operated_job import ScaledJob
from unit_tests.fixtures.operated_page import source_of_memory


@pytest.fixture(scope="module")
def job():
    """A job that was scaled from factor 1 to factor 2."""
    job = ScaledJob()
    job.settles()
    job.offset_before = job.world.topic.end_offset - 1
    job.scale(1, 2)
    job.settles()
    return job


def moments(job, *offsets, now_s=lambda: 0.0, records_max=RECORDS_MAX):
    at = [None if offset is None else Position(offset=offset) for offset in offsets]
    return moments_of(source_of_memory(job.world, page_limits(now_s, records_max)), at)


def test_a_past_state_of_the_job_is_shown(job):
    before, after = moments(job, job.offset_before, None)

    assert job.state == after.state
    assert {"Generation": "1", "Factor": "1", "Tasks": "4"}.items() <= dict(moment_view(before.state).facts).items()
    assert {"Generation": "2", "Factor": "2", "Tasks": "8"}.items() <= dict(moment_view(after.state).facts).items()
    assert 4 == moment_view(before.state).tasks.count
    assert "kafka.orders.0:0/1 from 0" == moment_view(before.state).tasks.shown[0][3]
    assert ["2", "2"] == [row[4] for row in moment_view(before.state).containers.shown]
    assert before.is_whole


def test_the_difference_names_factor_tasks_and_positions(job):
    before, after = moments(job, job.offset_before, job.world.topic.end_offset - 1)

    difference = moment_difference(before.state, after.state)

    assert ("Factor", "1", "2") in difference.facts
    assert 12 == difference.tasks.count, "4 tasks are gone, and 8 are new"
    assert ("SystemStreamPartition_kafka.orders.0", "processor 0, e0", "-") in difference.tasks.shown
    assert ("kafka.orders.0:1/2", "-", "0") in difference.positions.shown
    assert Rows(shown=[], count=0) == difference.containers


def test_a_moment_is_no_different_from_itself(job):
    (moment,) = moments(job, job.offset_before)

    difference = moment_difference(moment.state, moment.state)

    assert not difference.facts
    assert {0} == {rows.count for rows in (difference.tasks, difference.containers, difference.positions)}


def test_each_moment_names_the_next_record_past_markers_of_transactions(job):
    offsets, later = [], 0
    while later is not None:
        (moment,) = moments(job, later)
        offsets.append(moment.offset)
        later = moment.offset_later

    assert [record.offset for record in job.world.log().read()] == offsets


def test_a_moment_that_is_not_reached_is_refused(job):
    with pytest.raises(RejectedError, match="found that it ends at"):
        moments(job, job.world.topic.end_offset)


def test_the_later_moment_first_is_refused(job):
    with pytest.raises(ConfigError, match="wanted the earlier moment first"):
        moments(job, job.world.topic.end_offset - 1, 3)


def test_a_reading_ends_at_its_limit_of_records(job):
    assert moments(job, 3, records_max=10)
    with pytest.raises(RejectedError, match="at most 10 records"):
        moments(job, job.offset_before, records_max=10)


def test_a_reading_ends_at_its_limit_of_time(job):
    times = iter([0.0, *[READ_S + 1] * 9])

    with pytest.raises(DeadlineError, match="found 0 records read by then"):
        moments(job, job.offset_before, now_s=lambda: next(times))


@pytest.fixture
def kafka(job, monkeypatch):
    """A cluster with the stream of `job`.

    All of its records are younger than the horizon. `records` are those of each reading, and each takes `record_s` of
    the page's clock.
    """
    cluster = SimpleNamespace(records=list(job.world.log().read()), record_s=0.0, now_s=0.0, readings=0)

    def read_to_end(*_, **__):
        cluster.readings += 1
        for record in cluster.records:
            cluster.now_s += cluster.record_s
            yield record

    def looked(*_):
        return TopicFound(name=topic, topic_id="t", partition_count=1, replication_factor=1, settings={})

    topic, where = job.world.topic.name, (job.world.topic.name, 0)
    admin = SimpleNamespace(
        check_reachable=lambda: None, cluster=lambda: Cluster(bootstrap_servers="kafka:9092", broker_count=1)
    )
    monkeypatch.setattr(stream_source, "KafkaAdmin", lambda *_, **__: admin)
    monkeypatch.setattr(stream_source, "Admin", lambda _: admin)
    monkeypatch.setattr(stream_source, "heard", looked)
    monkeypatch.setattr(stream_source, "beginning_offsets", lambda *_: {where: 0})
    monkeypatch.setattr(stream_source, "offsets_at", lambda *_: {where: 0})
    monkeypatch.setattr(stream_source, "end_offsets", lambda *_, **__: {where: job.world.topic.end_offset})
    monkeypatch.setattr(stream_source, "read_to_end", read_to_end)
    clock = SimpleNamespace(monotonic=lambda: cluster.now_s, sleep=lambda _: None)
    monkeypatch.setattr(history, "time", clock)
    return cluster


def kafka_moments(job):
    return KafkaHistory(KafkaConnection(bootstrap_servers="kafka:9092"), job.service.status().job).moments([None])


def test_the_first_of_two_readings_ends_at_the_limit_of_records(job, kafka, monkeypatch):
    def endless(records):
        yield from records
        pytest.fail("the reading goes on past its limit")

    monkeypatch.setattr(history, "RECORDS_MAX", len(kafka.records) - 1)
    kafka.records = endless(kafka.records)

    with pytest.raises(RejectedError, match=f"at most {history.RECORDS_MAX} records"):
        kafka_moments(job)
    assert 1 == kafka.readings


def test_two_readings_of_one_view_have_one_deadline(job, kafka):
    (moment,) = kafka_moments(job)
    assert job.state == moment.state
    assert 2 == kafka.readings

    kafka.record_s = READ_S / len(kafka.records) * 0.75
    with pytest.raises(DeadlineError, match="wanted the moment within 20 s"):
        kafka_moments(job)
    assert 4 == kafka.readings


def test_a_long_table_is_cut_and_counted(job):
    (moment,) = moments(job, job.offset_before)
    planned = moment.state.plan[0]
    tasks = {(1, f"t{number}"): planned for number in range(ROWS_MAX + 1)}
    object.__setattr__(moment.state, "planned_tasks", tasks)
    moment.state.views.clear()

    rows = moment_view(moment.state).tasks

    assert (ROWS_MAX, ROWS_MAX + 1) == (len(rows.shown), rows.count)
