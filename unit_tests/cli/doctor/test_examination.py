"""Examinations of a job in a cluster in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from samzapy.cli.doctor.examination import _readable
from samzapy.coordinator.replay import replay
from samzapy.errors import BrokerUnavailableError, ConfigError, RejectedError
from samzapy.inspection.diagnosis import OpenTransaction
from samzapy.model.container import ContainerPhase
from samzapy.plan.partitioners import murmur2
from samzapy.runtime.this_host import Here
from samzapy.stream.codec import encode, parse_headers
from samzapy.stream.log import LogRecord, Write
from samzapy.stream.numbering import VALUE_RESTORED
from samzapy.stream.records import EpochPut
from samzapy.testing.builders import a_config, a_heartbeat
from samzapy.testing.memory_log import MemoryLog
from unit_tests.fixtures.coordinator_world import World
from unit_tests.fixtures.examined_job import CHECKPOINTS, JOB, STREAM, ExaminedJob, codes_of, report_of

INTERMEDIATE = f"__samzapy-intermediate-{JOB}-again"


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> ExaminedJob:
    job = ExaminedJob()
    job.put_in_place(monkeypatch)
    return job


def set_topic(job: ExaminedJob, name: str, **settings: str) -> None:
    given = {setting.replace("_", "."): value for setting, value in settings.items()}
    job.topics[name] = replace(job.topics[name], settings={**job.topics[name].settings, **given})


def test_a_healthy_job_has_no_finding(job: ExaminedJob) -> None:
    report = report_of()

    assert ([], 0) == (report["findings"], report["exitCode"])


@pytest.mark.parametrize("error", [RejectedError("give --config"), ConfigError("give --config")])
def test_a_leader_that_refuses_the_credential_hides_no_finding(job: ExaminedJob, error: Exception) -> None:
    def refused() -> Mapping[str, object]:
        raise error

    job.answer = refused
    set_topic(job, CHECKPOINTS, cleanup_policy="delete")

    report = report_of()

    assert (["topic-cleanup-policy"], 8) == (codes_of(report), report["exitCode"])
    assert [text for text in report["notLookedAt"] if "the leader" in text and "give --config" in text]


def test_a_leader_that_is_not_asked_is_missing_if_the_election_has_no_member(job: ExaminedJob) -> None:
    def unreadable() -> Mapping[str, object]:
        raise ConfigError("wanted to read the secret")

    job.answer, job.candidate_count = unreadable, 0

    report = report_of()

    assert "leader-missing" in codes_of(report)
    assert 6 == report["exitCode"]


def test_the_leader_is_asked_as_soon_as_the_stream_was_read(job: ExaminedJob) -> None:
    report_of("--changelogs")

    (stream, *others) = [call for call in job.calls if call.startswith("read")]
    assert f"read {STREAM}-0" == stream
    assert job.calls.index(stream) + 1 == job.calls.index("leader") < job.calls.index(others[0])


def test_an_answer_of_a_later_leader_is_no_finding(job: ExaminedJob) -> None:
    # It was elected just now, and has heard of no container.
    job.answer = lambda: {**job.healthy_answer(), "term": 2, "containers": []}

    assert [] == codes_of(report_of())


@pytest.fixture
def two_steps(monkeypatch: pytest.MonkeyPatch) -> ExaminedJob:
    job = ExaminedJob(world=World(config=a_config(task_intermediate_again_partitions="2")))
    job.put_in_place(monkeypatch)
    return job


def put_messages(job: ExaminedJob, topic: str, partition_count: int) -> None:
    """The messages of a step that knows this number of partitions."""
    keys = [f"k{number}".encode() for number in range(40)]
    for partition in range(partition_count):
        own = [key for key in keys if murmur2(key) % partition_count == partition]
        job.records[topic, partition] = [
            LogRecord(offset=offset, timestamp_ms=0, key=key, value=b"v") for offset, key in enumerate(own)
        ]


@pytest.mark.parametrize("partition_count", [2, 4])
def test_a_stream_that_has_grown_before_the_leader_recorded_it_has_no_foreign_message(
    two_steps: ExaminedJob, partition_count: int
) -> None:
    topic = INTERMEDIATE
    two_steps.topics[topic] = replace(two_steps.topics[topic], partition_count=partition_count)
    put_messages(two_steps, topic, partition_count)

    assert [] == codes_of(report_of("--intermediates"))


def test_a_message_in_a_wrong_partition_of_a_stream_as_recorded_is_foreign(two_steps: ExaminedJob) -> None:
    put_messages(two_steps, INTERMEDIATE, 2)
    first = two_steps.records[INTERMEDIATE, 0]
    two_steps.records[INTERMEDIATE, 0], two_steps.records[INTERMEDIATE, 1] = two_steps.records[INTERMEDIATE, 1], first

    assert ["record-foreign", "record-foreign"] == codes_of(report_of("--intermediates"))


def test_a_transaction_that_began_while_records_were_read_is_judged_by_the_time_after_that(job: ExaminedJob) -> None:
    def read_for_minutes(question: str) -> None:
        if question == f"read {CHECKPOINTS}-0":
            job.now_ms += 300_000
            job.transactions = [
                OpenTransaction(
                    topic="orders",
                    partition=0,
                    offset_first=1,
                    offset_end=2,
                    since_ms=job.now_ms - 100_000,
                    is_append_time=True,
                )
            ]

    job.during = read_for_minutes

    assert ["transaction-hanging"] == codes_of(report_of())


def put_foreign(
    job: ExaminedJob, key: bytes, value: bytes | None, headers: Mapping[str, bytes] | None = None
) -> None:
    stranger = MemoryLog(job.world.topic, "stranger")
    stranger.take_over()
    stranger.append_atomically([Write(key=key, value=value, headers=headers or {})])


def test_a_term_that_the_leader_wrote_again_gives_no_skew_of_its_clock(job: ExaminedJob) -> None:
    job.world.topic.now_ms += 600_000
    put_foreign(job, b"term", b"junk")
    job.world.clock.advance(600_000)
    job.tick(a_heartbeat())
    (term, restored) = [
        parse_headers(one.headers) for one in job.world.log().read() if one.key == b"term" and one.headers
    ]
    assert term is not None and restored is not None and restored.event == VALUE_RESTORED

    assert "clock-skew" not in codes_of(report_of())


def test_a_clock_that_was_wrong_when_the_term_began_is_a_finding(job: ExaminedJob) -> None:
    job.world.topic.now_ms += 600_000
    job.world.coordinator("b").become_leader()
    job.answer = lambda: {**job.healthy_answer(), "term": 2}

    assert "clock-skew" in codes_of(report_of())


def damaged(record: LogRecord) -> LogRecord:
    return record._replace(value=b"\xff\xff")


@pytest.mark.parametrize("forged", [b"\xff\xff", encode(EpochPut(epoch=99))[1]], ids=["a copy", "another value"])
def test_a_second_record_with_the_number_of_an_unreadable_one_is_not_taken_for_it(
    job: ExaminedJob, forged: bytes
) -> None:
    records = list(job.world.log().read())
    # As a stranger writes it behind the record of the leader.
    copy = records[-1]._replace(key=b"epoch", value=forged, offset=records[-1].offset + 1)

    state = replay(_readable([*records[:-1], damaged(records[-1]), copy], STREAM), topic=STREAM).state

    assert replay(records[:-1], topic=STREAM).state == state


def test_an_unreadable_record_of_a_leader_and_its_copy_are_both_listed(
    job: ExaminedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = list(job.world.log().read())
    bad = damaged(records[-1])
    stream = [*records[:-1], bad, bad._replace(offset=bad.offset + 1)]
    monkeypatch.setattr(job, "read", lambda topic, _: stream if topic == STREAM else ())

    report = report_of()

    assert 8 == report["exitCode"]
    assert {"record-unreadable", "stream-two-writers"} <= {*codes_of(report)}


@pytest.mark.parametrize(
    "lost_at",
    ["leader", "members", f"read {CHECKPOINTS}-0", "transactions"],
    ids=lambda question: question.split()[0],
)
def test_a_cluster_that_is_lost_on_the_way_hides_no_finding(job: ExaminedJob, lost_at: str) -> None:
    def lose(question: str) -> None:
        if question == lost_at:
            raise BrokerUnavailableError("no broker answered")

    job.answer = lambda: None
    job.during = lose
    put_foreign(job, b"epoch", b"junk")
    set_topic(job, CHECKPOINTS, cleanup_policy="delete")

    report = report_of()

    assert 8 == report["exitCode"]
    codes = codes_of(report)
    assert "record-unreadable" in codes and "cluster-unreachable" == codes[-1]
    assert ("topic-cleanup-policy" in codes) == (lost_at not in ("leader", "members"))
    assert "the rest was not examined" in report["findings"][-1]["remedy"]


def test_a_cluster_that_never_answers_is_the_only_finding(job: ExaminedJob) -> None:
    def lose(question: str) -> None:
        raise BrokerUnavailableError("no broker answered")

    job.during = lose

    report = report_of()

    assert (["cluster-unreachable"], 6) == (codes_of(report), report["exitCode"])
    assert "nothing else was examined" in report["findings"][0]["remedy"]


@pytest.fixture
def on_loopback(monkeypatch: pytest.MonkeyPatch) -> ExaminedJob:
    """A job whose leader listens on 127.0.0.1 of host-a, which is another host."""
    job = ExaminedJob(coordinator="127.0.0.1")
    job.put_in_place(monkeypatch)
    # Nothing listens at that address of this host.
    job.answer = lambda: None
    return job


def test_a_leader_on_the_loopback_address_of_another_host_is_not_asked(on_loopback: ExaminedJob) -> None:
    report = report_of()

    assert ([], 0) == (codes_of(report), report["exitCode"])
    assert "leader" not in on_loopback.calls
    (text,) = [text for text in report["notLookedAt"] if "the leader" in text]
    assert "127.0.0.1 of host-a" in text and "run the command there" in text


def test_a_leader_on_the_loopback_address_of_another_host_is_missing_without_candidates(
    on_loopback: ExaminedJob,
) -> None:
    on_loopback.candidate_count = 0

    assert ["leader-missing", "container-ghost"] == codes_of(report_of())


def test_a_leader_of_a_host_that_was_restarted_since_is_missing(
    on_loopback: ExaminedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Here(host="host-a", boot_id="the next boot", pid=1, process_started_ms=1)
    monkeypatch.setattr(Here, "now", lambda: here)

    assert ["leader-missing", "container-ghost"] == codes_of(report_of())


def test_a_job_that_was_stopped_has_no_leader_to_ask(on_loopback: ExaminedJob) -> None:
    on_loopback.tick(a_heartbeat(state=ContainerPhase.STOPPED, held=()))

    report = report_of()

    assert [] == codes_of(report)
    assert [] == [text for text in report["notLookedAt"] if "the leader" in text]
