"""The receivers of heartbeats, and the answers that count.

The coordinators have given answers.
"""

import errno
from dataclasses import replace

import pytest

from samzapy.adapters.web.client import HeartbeatAnswer
from samzapy.adapters.web.heartbeat_sender import HeartbeatThread, Leader
from samzapy.container.ports import HeartbeatContent
from samzapy.errors import CorruptRecordError
from samzapy.model.standby_progress import StandbyProgress
from samzapy.testing.virtual_clock import VirtualClock
from samzapy.testing.waiting import wait_until

HOUR_MS = 3_600_000


class Coordinators:
    """The answers by URL; None or absent: no answer.

    `failing` is raised at the next heartbeat.
    """

    def __init__(self, **answers):
        self.answers = {f"http://{name}:1": answer for name, answer in answers.items()}
        self.asked = []
        self.bodies = []
        self.is_closed = False
        self.failing = None

    def heartbeat(self, url, body, timeout_ms):
        self.asked.append((url, body["streamOffset"]))
        self.bodies.append(body)
        failing, self.failing = self.failing, None
        if failing is not None:
            raise failing
        return self.answers.get(url)

    def close(self):
        self.is_closed = True


def content(url="http://a:1", term=1, offset=10, warm=None, outputs=()):
    return HeartbeatContent(
        coordinator_url=url,
        term=term,
        state="RUNNING",
        stream_offset=offset,
        held=(),
        figures={},
        reason="",
        warm=warm,
        outputs=outputs,
    )


class Sender:
    """A heartbeat thread, with its calls about leases and its questions to the stream."""

    def __init__(self, coordinators, newer=None, interval_ms=5):
        self.leases = []
        self.full_disk = None
        self.looked_from = []
        self.newer = newer
        self.thread = HeartbeatThread(
            coordinators,
            identity={"job": "flights-1", "executionId": "e1"},
            interval_ms=interval_ms,
            lease_ms=60_000,
            on_alive=self.extend,
            find_leader=self.find,
        )

    def extend(self, sent_at_ns):
        full_disk, self.full_disk = self.full_disk, None
        if full_disk is not None:
            raise full_disk
        self.leases.append(sent_at_ns)

    def find(self, offset_from):
        self.looked_from.append(offset_from)
        if isinstance(self.newer, Exception):
            raise self.newer
        return self.newer


@pytest.fixture
def started():
    senders = []

    def start(*args, **kwargs):
        sender = Sender(*args, **kwargs)
        senders.append(sender)
        sender.thread.start()
        return sender

    yield start
    for sender in senders:
        sender.thread.close()


def until(condition, awaited):
    wait_until(condition, 10, awaited)


def test_the_leader_on_the_stream_is_asked_and_its_answer_extends_the_lease(started):
    coordinators = Coordinators(a=HeartbeatAnswer(alive=True, term=1))
    sender = started(coordinators)

    sender.thread.publish(content())

    until(lambda: len(sender.leases) > 1, "two leases")
    assert [] == sender.looked_from
    assert "http://a:1" == sender.thread.leader_url()


def test_an_answer_of_a_term_below_the_newest_that_was_read_does_not_count(started):
    """An old leader that wakes up behind a URL that is used again."""
    coordinators = Coordinators(a=HeartbeatAnswer(alive=False, term=1))
    sender = started(coordinators)

    sender.thread.publish(content(term=2))

    until(lambda: len(coordinators.asked) > 2, "three heartbeats")
    assert ([], None) == (sender.leases, sender.thread.given_up())


def test_a_container_that_reports_its_exit_is_not_given_up_by_the_answer(started):
    coordinators = Coordinators(a=HeartbeatAnswer(alive=False, term=1))
    sender = started(coordinators)

    sender.thread.publish(replace(content(), exit_code=8, kafka_silent_ms=40_000))

    until(lambda: len(coordinators.asked) > 1, "two answers")
    assert sender.thread.given_up() is None
    assert (8, 40_000) == (coordinators.bodies[-1]["exitCode"], coordinators.bodies[-1]["kafkaSilentMs"])


def test_a_heartbeat_has_the_time_since_the_last_answered_one(started):
    coordinators = Coordinators()
    sender = started(coordinators)

    sender.thread.publish(content())
    until(lambda: coordinators.bodies and coordinators.bodies[-1]["unansweredMs"] > 0, "a heartbeat that says so")
    coordinators.answers["http://a:1"] = HeartbeatAnswer(alive=True, term=1)

    until(lambda: coordinators.bodies[-1]["unansweredMs"] == 0, "one that was sent behind an answer")
    assert 0 == coordinators.bodies[0]["unansweredMs"]


def test_the_next_leader_is_found_while_the_container_does_not_read_the_stream(started):
    """A restore may take longer than a lease: no container may be given up for that."""
    coordinators = Coordinators(b=HeartbeatAnswer(alive=True, term=2))
    sender = started(coordinators, newer=Leader(2, "http://b:1"))

    sender.thread.publish(content(offset=10))

    until(lambda: sender.leases, "an answer of the new leader")
    assert ("http://a:1", 10) == coordinators.asked[0]
    assert ("http://b:1", 10) == coordinators.asked[-1]
    assert {10} == set(sender.looked_from)
    assert "http://b:1" == sender.thread.leader_url()


def test_heartbeats_continue_without_a_readable_stream_which_is_logged_once(started, caplog):
    coordinators = Coordinators()
    sender = started(coordinators, newer=CorruptRecordError("offset 11: no such schema"))
    sender.thread.publish(content())
    until(lambda: len(sender.looked_from) > 2, "three looks at the stream")

    coordinators.answers["http://a:1"] = HeartbeatAnswer(alive=True, term=1)

    until(lambda: sender.leases, "a lease")
    assert 1 == caplog.text.count("offset 11: no such schema")


def test_heartbeats_continue_after_a_moment_without_a_thread_for_a_connection(started, caplog):
    coordinators = Coordinators(a=HeartbeatAnswer(alive=True, term=1))
    coordinators.failing = RuntimeError("can't start new thread")
    sender = started(coordinators)

    sender.thread.publish(content())

    until(lambda: sender.leases, "a lease")
    assert "can't start new thread; heartbeats continue" in caplog.text


def test_heartbeats_continue_after_a_moment_without_room_for_the_lease(started, caplog):
    sender = started(Coordinators(a=HeartbeatAnswer(alive=True, term=1)))
    sender.full_disk = OSError(errno.ENOSPC, "No space left on device")

    sender.thread.publish(content())

    until(lambda: sender.leases, "a lease")
    assert "No space left on device; heartbeats continue" in caplog.text


def test_content_of_an_older_read_does_not_restore_the_old_leader(started):
    coordinators = Coordinators(a=HeartbeatAnswer(alive=True, term=1), b=HeartbeatAnswer(alive=True, term=2))
    sender = started(coordinators)
    sender.thread.publish(content("http://b:1", term=2))
    until(lambda: sender.leases, "an answer of the new leader")

    sender.thread.publish(content("http://a:1", term=1))

    before = len(coordinators.asked)
    until(lambda: len(coordinators.asked) > before + 2, "more heartbeats")
    assert {"http://b:1"} == {url for url, _ in coordinators.asked}


def test_no_heartbeat_is_sent_before_a_leader_is_known(started):
    coordinators = Coordinators()
    sender = started(coordinators)

    sender.thread.publish(content(url=None, term=0))

    until(lambda: len(sender.looked_from) > 2, "three looks for a leader")
    assert None is sender.thread.leader_url()
    assert [] == coordinators.asked


def test_a_heartbeat_thread_that_was_never_started_can_be_closed():
    Sender(Coordinators()).thread.close()


@pytest.mark.parametrize(
    "news",
    [
        content(offset=11),
        content(warm=StandbyProgress(lag=3)),
        content(warm=StandbyProgress(is_query_warm=False)),
        content(outputs=("sums",)),
    ],
)
def test_progress_is_sent_before_the_next_heartbeat_is_due(started, news):
    sender = started(Coordinators(a=HeartbeatAnswer(alive=True, term=1)), interval_ms=HOUR_MS)
    sender.thread.publish(content(warm=None if news.warm is None else StandbyProgress()))
    until(lambda: sender.leases, "the first heartbeat")

    sender.thread.publish(news)

    until(lambda: len(sender.leases) > 1, "the second one")


def test_outputs_are_in_a_heartbeat_if_there_are_any(started):
    coordinators = Coordinators(a=HeartbeatAnswer(alive=True, term=1))
    sender = started(coordinators, interval_ms=HOUR_MS)
    sender.thread.publish(content())
    until(lambda: sender.leases, "the first heartbeat")

    sender.thread.publish(content(outputs=("sums", "alerts")))

    until(lambda: len(sender.leases) > 1, "the second one")
    assert [None, ["sums", "alerts"]] == [body.get("outputs") for body in coordinators.bodies]


def test_a_heartbeat_without_an_answer_is_repeated_soon(started):
    coordinators = Coordinators()
    sender = started(coordinators, interval_ms=HOUR_MS)
    sender.thread.publish(content())
    until(lambda: coordinators.asked, "a heartbeat without an answer")

    coordinators.answers["http://a:1"] = HeartbeatAnswer(alive=True, term=1)

    until(lambda: sender.leases, "an answer")


def test_a_thread_that_is_closed_closes_the_connection_of_its_client():
    coordinators = Coordinators()
    Sender(coordinators).thread.close()

    assert coordinators.is_closed


def test_the_grace_without_a_coordinator_begins_with_the_heartbeats():
    """Spark's start comes before, and may take longer than the grace."""
    clock = VirtualClock()
    thread = HeartbeatThread(
        Coordinators(),
        identity={},
        interval_ms=HOUR_MS,
        lease_ms=60_000,
        on_alive=lambda sent_at_ns: None,
        now_s=lambda: clock.monotonic_ms() / 1000,
    )
    clock.advance(60_000)

    thread.start()
    begun_ms = clock.monotonic_ms()
    clock.advance(1)

    assert begun_ms == thread.lease_ran_out_at_ms()
    thread.close()
