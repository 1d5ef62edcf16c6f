"""The election: a consumer group on the coordinator topic's one partition (`coordinator.ports.Election`).

Whoever is assigned the partition is elected. What the group gives us: a candidate that dies is noticed after the
session, without clocks that must agree, and the partition stays where it is when others join (cooperative-sticky).
Nothing is read from the partition and no offset is committed. There is no static membership: two processes with one
copied instance id would fence each other for ever.

The group is served by a thread of its own, because a rebalance that is not answered within the session costs the
seat, and a coordinator may wait longer than that for a broker. So that a coordinator that hangs does not keep the seat
for ever, the thread gives it up when nobody has asked for it in a long while. What it reads to take office counts as
asking, because that may be long.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from samzapy.adapters.kafka.clients import ErrorEvents, KafkaConnection, make_consumer
from samzapy.adapters.kafka.errors import translate
from samzapy.errors import MissingTopicError, SamzapyError, TemporaryError
from samzapy.model.topics import coordinator_topic

_LOG = logging.getLogger(__name__)
_POLL_S = 0.1
_CLOSE_WAIT_S = 3.0
_STANDS_BACK_S = 0.5
ASKED_WITHIN_S = 120.0
"""Longer than all that a coordinator waits for between two questions: taking over (30 s), or the next record."""


def election_group(job: str) -> str:
    """The consumer group in which the candidates of a job stand."""
    return f"samzapy-election/{job}"


class KafkaElection:
    """This process's seat, or place in the queue for it. `job` is `<name>-<id>`.

    Args:
        session_ms: a member that Kafka heard nothing of for so long is out.
        heartbeat_ms: how often it hears of us, and the longest time until we hear of a change.
        asked_within_s: a seat that nobody asked for in so long is given up.
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
        self._settings = {
            "group.id": election_group(job),
            "group.protocol": "classic",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": heartbeat_ms,
            "max.poll.interval.ms": max(60_000, session_ms),
            # The partition is never read; without a committed offset this is where nothing is.
            "auto.offset.reset": "latest",
        }
        self._asked_within_s = asked_within_s
        # The others hear of a free seat with their next heartbeat, and share it among those who are there by then.
        self._stands_back_s = 2 * heartbeat_ms / 1000 + _STANDS_BACK_S
        self._changed = threading.Condition()
        self._elected = False
        # A seat that was lost and won again between two questions was lost: somebody may have led in between.
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
        """Whoever has asked for the seat is busy with it, and will ask again. Cheap; any thread may call it."""
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
                self._be_a_member()
                self._ended.wait(self._stands_back_s)
        except SamzapyError as error:
            self._set(elected=False, error=error)
        except BaseException as error:
            # Nobody would be elected any more, and nobody would know.
            _LOG.exception("the election failed")
            failure = SamzapyError(f"the election failed: {type(error).__name__}: {error}")
            self._set(elected=False, error=failure)

    def _be_a_member(self) -> None:
        consumer = make_consumer(self._connection, self._settings, ErrorEvents())
        try:
            consumer.subscribe(
                [self._topic], on_assign=self._assigned, on_revoke=self._taken_away, on_lost=self._taken_away
            )
            while not self._leaves.is_set():
                message = consumer.poll(_POLL_S)
                if message is not None and message.error() is not None:
                    self._check(message.error())
                self._give_up_if_unasked()
        except KafkaException as error:
            raise translate(error, f"standing for election on {self._topic}") from error
        finally:
            self._set(elected=False)
            # Leaves the group, so that the next one is elected at once.
            consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if not partitions:
            return  # Others came or went.
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)
        if not self._leaves.is_set():
            self._set(elected=True)

    def _taken_away(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if not partitions:
            return
        self._set(elected=False)
        consumer.incremental_unassign(partitions)

    def _check(self, error: Any) -> None:
        """Raise what only a person can mend; the client goes on by itself after everything else."""
        found = translate(error, f"standing for election on {self._topic}")
        if isinstance(found, TemporaryError | MissingTopicError):
            # A broker that was just started does not know its topics yet; the coordinator checks that they are there.
            _LOG.debug("%s", found)
            return
        raise found

    def _give_up_if_unasked(self) -> None:
        with self._changed:
            unasked_s = time.monotonic() - self._asked_at_s
            if not self._elected or unasked_s < self._asked_within_s:
                return
            # Asked now, as far as the next membership is concerned: it must not leave again at once.
            self._asked_at_s = time.monotonic()
        _LOG.error(
            "the coordinator has not asked for its seat for %.0f s: it hangs, and the seat is given up", unasked_s
        )
        self._leaves.set()

    def _set(self, *, elected: bool, error: SamzapyError | None = None) -> None:
        with self._changed:
            self._lost = self._lost or (self._elected and not elected)
            self._elected = elected
            self._error = error if error is not None else self._error
            self._changed.notify_all()
