"""Commit the positions of a job to a consumer group, for tools that show lag.

The group has no members, and samzapy never reads it: the positions of record are the checkpoints. So a commit that
fails is logged and repeated, and nothing waits for it. It has a thread of its own, because a cluster that does not
answer must not keep the coordinator from answering.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from samzapy.adapters.kafka.clients import ErrorEvents, KafkaConnection, make_consumer
from samzapy.adapters.kafka.errors import lacks_right, translate
from samzapy.errors import DeadlineError, SamzapyError, TemporaryError
from samzapy.model.ssp import SystemStreamPartition

_LOG = logging.getLogger(__name__)
COMMIT_EVERY_S: Final = 5.0
"""Heartbeats, which bring the positions, are as far apart by default."""
ALL_EVERY_S: Final = 600.0
"""How often positions are committed that have not changed; a group without commits forgets them in time."""
# A trouble that may pass is logged when it has lasted for so long. The coordinator of a new group is not known at once.
_PATIENCE_S: Final = 60.0
_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.1
# Partitions in one request.
_BATCH_MAX: Final = 5000

Positions = Mapping[SystemStreamPartition, int]


class KafkaLagGroup:
    """The consumer group of one job.

    A consumer commits, without joining the group. An admin client could do the same, but librdkafka ends the process
    by a failed assertion (`eonce->refcnt > 0`) when an admin request to a group's coordinator is not answered in time.
    """

    def __init__(self, connection: KafkaConnection, group: str) -> None:
        self.name = group
        self._connection = connection
        self._events = ErrorEvents()
        # A process that never leads makes no client.
        self._consumer: Consumer | None = None
        # The client reports a missing right once, and then goes on asking for the group's coordinator.
        self._refusal: KafkaError | None = None
        # None: the last commit is not answered yet.
        self._answer: tuple[KafkaError | None, Sequence[TopicPartition]] | None = (None, ())

    def commit(self, positions: Positions) -> None:
        """Commit positions.

        Raises:
            SamzapyError: the cluster does not answer, or refuses some of them. Others may be committed.
        """
        places = [TopicPartition(ssp.stream, ssp.partition, offset) for ssp, offset in positions.items()]
        refused = [
            (place, place.error)
            for start in range(0, len(places), _BATCH_MAX)
            for place in self._committed(places[start : start + _BATCH_MAX])
            if place.error is not None
        ]
        if refused:
            (first, error), *more = refused
            place = f"{first.topic}-{first.partition}" + (f", and {len(more)} more" if more else "")
            raise translate(error, f"committing the position in {place} to the consumer group {self.name}")

    def close(self) -> None:
        """Close the connections. It may wait for the answer to a commit."""
        if self._consumer is not None:
            self._consumer.close()

    def _committed(self, places: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        if self._consumer is None:
            # A commit waits for the group's coordinator as long as a session lasts.
            settings = {
                "group.id": self.name,
                "on_commit": self._take_answer,
                "session.timeout.ms": round(_TIMEOUT_S * 1000),
            }
            self._consumer = make_consumer(self._connection, settings, self._events)
        # Events since the last commit say nothing about this one.
        self._events.latest = []
        # librdkafka repeats a commit until it is answered. A second one would only wait behind it.
        self._await_answer(self._consumer)
        try:
            self._consumer.commit(offsets=[*places], asynchronous=True)
        except KafkaException as error:
            raise translate(error, self._doing) from error
        self._answer = None
        error_of_all, answered = self._await_answer(self._consumer)
        if error_of_all is not None and not any(place.error for place in answered):
            raise translate(error_of_all, self._doing)
        return answered

    def _await_answer(self, consumer: Consumer) -> tuple[KafkaError | None, Sequence[TopicPartition]]:
        """Wait for the answer to the last commit; its callback runs in `poll`."""
        until_s = time.monotonic() + _TIMEOUT_S
        while self._answer is None:
            message = consumer.poll(_POLL_S)
            event = None if message is None else message.error()
            if event is not None and lacks_right(event):
                self._refusal = event
            if self._refusal is not None:
                raise translate(self._refusal, self._doing)
            if self._answer is None and time.monotonic() >= until_s:
                raise self._connection.unavailable(_TIMEOUT_S, self._doing, self._events.latest)
        return self._answer

    def _take_answer(self, error: KafkaError | None, places: Sequence[TopicPartition]) -> None:
        self._answer, self._refusal = (error, places), None

    @property
    def _doing(self) -> str:
        return f"committing positions to the consumer group {self.name}"


class LagCommits:
    """Commits positions every few seconds, while this process leads.

    Args:
        positions: those of the job now; empty while this process does not lead. Called from the thread of this class.
        now_s: any clock that only goes forward.
    """

    def __init__(
        self,
        group: KafkaLagGroup,
        *,
        positions: Callable[[], Positions],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group = group
        self._positions = positions
        self._now_s = now_s
        self._committed: Positions = {}
        self._all_next_s = now_s()
        self._is_logged = False
        self._failing_since_s: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samzapy-lag-group", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End after the current round; does not wait for it."""
        self._ended.set()

    def go_on(self) -> None:
        """Commit the positions that have changed, and all of them now and then."""
        positions = self._positions()
        if not positions or self._now_s() >= self._all_next_s:
            # Another leader may have committed others meanwhile.
            self._committed, self._all_next_s = {}, self._now_s() + ALL_EVERY_S
        changed = {ssp: offset for ssp, offset in positions.items() if self._committed.get(ssp) != offset}
        if not changed:
            return
        try:
            self._group.commit(changed)
        except SamzapyError as error:
            self._note_trouble(error)
        else:
            self._committed = {**self._committed, **changed}
            self._note_success()

    def _run(self) -> None:
        try:
            while not self._ended.wait(COMMIT_EVERY_S):
                self.go_on()
            self._group.close()
        except Exception:
            # Whatever it is, the job goes on without the group.
            _LOG.exception("positions are no longer committed to the consumer group %s", self._group.name)

    def _note_trouble(self, error: SamzapyError) -> None:
        """Log a trouble once: at once, or, if it may pass, when it lasts."""
        now_s = self._now_s()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        may_pass = isinstance(error, TemporaryError | DeadlineError) and now_s < self._failing_since_s + _PATIENCE_S
        if not self._is_logged and not may_pass:
            self._is_logged = True
            _LOG.warning(
                "%s. The job goes on; Kafka's tools show an old lag (job.consumer.group=off commits nothing)", error
            )

    def _note_success(self) -> None:
        """Log that a trouble is over, if it was logged."""
        if self._is_logged:
            _LOG.info("positions are committed to the consumer group %s again", self._group.name)
        self._is_logged, self._failing_since_s = False, None
