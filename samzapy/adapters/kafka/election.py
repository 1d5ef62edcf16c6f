"""Elect a leader by a consumer group (`coordinator.ports.Election`).

The group subscribes to the coordinator topic, which has one partition. The candidate that is assigned the partition is
elected. The group notices a dead candidate after the session timeout, without clocks that must agree. The partition
stays with its owner when other candidates join (cooperative-sticky). Nothing is read from the partition and no offset
is committed. There is no static membership: two processes with one copied instance id would fence each other for ever.

A thread of its own serves the group: a rebalance that is not answered within the session costs the seat, and a
coordinator may wait longer than that for a broker. The thread gives the seat up when the coordinator has not asked for
it in a long while, so that a coordinator that hangs does not keep it for ever. A coordinator that becomes the leader
may read for long, so each record that it reads counts as a question.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from samzapy.adapters.kafka.clients import ErrorEvents, KafkaConnection, make_consumer
from samzapy.adapters.kafka.errors import consumer_recovers, translate
from samzapy.errors import MissingTopicError, SamzapyError
from samzapy.model.container import election_group
from samzapy.model.topics import coordinator_topic

_LOG = logging.getLogger(__name__)
_POLL_S = 0.1
_CLOSE_WAIT_S = 3.0
_REJOINS_AFTER_S = 0.5
ASKED_WITHIN_S = 120.0
"""Longer than any wait of a coordinator between two questions: a take-over (30 s), or the next record."""


class KafkaElection:
    """This process as a candidate in the election. `job` is `<name>-<id>`.

    Args:
        session_ms: Kafka removes a member that sends no heartbeat for so long.
        heartbeat_ms: the interval of heartbeats, and the longest time until this process learns of a change.
        asked_within_s: the seat is given up if the coordinator does not ask for it in so long.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        job: str,
        *,
        session_ms: int,
        heartbeat_ms: int,
        asked_within_s: float = ASKED_WITHIN_S,
    ) -> None:
        self._connection = connection
        self._topic = coordinator_topic(job)
        self._doing = f"taking part in the election of the group {election_group(job)} on {self._topic}"
        self._settings = {
            "group.id": election_group(job),
            "group.protocol": "classic",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": heartbeat_ms,
            "max.poll.interval.ms": max(60_000, session_ms),
            # The partition is never read; without a committed offset the consumer starts at its end.
            "auto.offset.reset": "latest",
        }
        self._asked_within_s = asked_within_s
        # The other candidates learn of a free seat with their next heartbeat, and one of the members then gets it.
        self._rejoins_after_s = 2 * heartbeat_ms / 1000 + _REJOINS_AFTER_S
        self._changed = threading.Condition()
        self._elected = False
        # A seat that was lost and won again between two questions counts as lost: another leader may have written.
        self._lost = False
        self._error: SamzapyError | None = None
        self._asked_at_s = time.monotonic()
        self._leaves = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samzapy-election", daemon=True)

    def start(self) -> None:
        """Join the queue; returns at once."""
        self._thread.start()

    def wait(self, timeout_ms: int) -> bool:
        """See `Election.wait`."""
        with self._changed:
            self._asked_at_s = time.monotonic()
            if self._lost and self._error is None:
                self._lost = False
                return False
            self._changed.wait_for(lambda: self._elected or self._error is not None, timeout_ms / 1000)
            self._asked_at_s = time.monotonic()
            if self._error is not None:
                raise self._error
            return self._elected

    def still_at_work(self) -> None:
        """Count as a question: the coordinator is busy, and will ask again.

        It is cheap, and any thread may call it.
        """
        self._asked_at_s = time.monotonic()

    def rejoin(self) -> None:
        """See `Election.rejoin`."""
        self._leaves.set()
        self._set(elected=False)

    def close(self) -> None:
        """Leave; the others need not wait for the session to run out."""
        self._ended.set()
        self._leaves.set()
        self._set(elected=False)
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_WAIT_S)

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._leaves.clear()
                self._take_part()
                self._ended.wait(self._rejoins_after_s)
        except SamzapyError as error:
            self._set(elected=False, error=error)
        except BaseException as error:
            # Otherwise this candidate would never be elected again, without a trace.
            _LOG.exception("the election failed")
            failure = SamzapyError(f"the election failed: {type(error).__name__}: {error}")
            self._set(elected=False, error=failure)

    def _take_part(self) -> None:
        consumer = make_consumer(self._connection, self._settings, ErrorEvents())
        try:
            consumer.subscribe(
                [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
            )
            while not self._is_leaving():
                message = consumer.poll(_POLL_S)
                if message is not None and message.error() is not None:
                    self._check(message.error())
                self._give_up_if_unasked()
        except KafkaException as error:
            raise translate(error, self._doing) from error
        finally:
            self._set(elected=False)
            # Leaves the group, so that the next one is elected at once.
            consumer.close()

    def _is_leaving(self) -> bool:
        # Both, because a close may come just before this thread forgets an earlier wish to leave.
        return self._leaves.is_set() or self._ended.is_set()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if not partitions:
            return  # Others came or went.
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)
        if not self._is_leaving():
            self._set(elected=True)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if not partitions:
            return
        self._set(elected=False)
        consumer.incremental_unassign(partitions)

    def _check(self, error: Any) -> None:
        """Raise an error that only an operator can mend.

        The client recovers from all others by itself.
        """
        failure = translate(error, self._doing)
        if consumer_recovers(error) or isinstance(failure, MissingTopicError):
            # A broker that was just started does not know its topics yet; the coordinator checks that they are there.
            _LOG.debug("%s", failure)
            return
        raise failure

    def _give_up_if_unasked(self) -> None:
        with self._changed:
            unasked_s = time.monotonic() - self._asked_at_s
            if not self._elected or unasked_s < self._asked_within_s:
                return
            # The next membership begins with a question, so that it does not end at once.
            self._asked_at_s = time.monotonic()
        _LOG.error("the coordinator has not asked for its seat for %.0f s: it hangs; leaving the election", unasked_s)
        self._leaves.set()

    def _set(self, *, elected: bool, error: SamzapyError | None = None) -> None:
        with self._changed:
            self._lost = self._lost or (self._elected and not elected)
            self._elected = elected
            self._error = error if error is not None else self._error
            self._changed.notify_all()
