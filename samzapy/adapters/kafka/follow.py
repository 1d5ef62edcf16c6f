"""Follow the coordinator stream, and find the leader on it.

A container follows it as a `container.ports.CoordinatorStream`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.reading import PartitionReader
from samzapy.errors import ConfigError, DeadlineError, MissingTopicError, TemporaryError
from samzapy.stream.log import LogRecord
from samzapy.stream.numbering import BEGINNING, Foreign, fact_of, place
from samzapy.stream.records import TermPut

_LOG = logging.getLogger(__name__)
_ASK_EVERY_S = 0.2
_POLL_DEADLINE_S = 2.0
_APPEARS_WITHIN_S = 15.0


class KafkaFollower:
    """Hands out the committed records of one partition, once each, in order."""

    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        self._reader = PartitionReader(connection, topic, may_end_earlier=False)
        self._offset_next = 0
        self._asked_at_s = 0.0
        # The last time at which no broker said that the topic is missing.
        self._not_missing_at_s = time.monotonic()
        # The beginning of the first poll that no broker answered; None while one answers.
        self._silent_since_s: float | None = None

    def silent_ms(self) -> int:
        """For how long no broker has answered this follower; 0 while one does."""
        since_s = self._silent_since_s
        return 0 if since_s is None else int((time.monotonic() - since_s) * 1000)

    def offset_next(self) -> int:
        return self._offset_next

    def poll(self) -> Sequence[LogRecord]:
        """The newly committed records.

        The result is also empty while the broker does not answer or a transaction is open. Asks the broker five times a
        second at most, however often it is called.
        """
        if time.monotonic() - self._asked_at_s < _ASK_EVERY_S:
            return ()
        records: list[LogRecord] = []
        began_s = time.monotonic()
        try:
            for record in self._reader.read_to_end(self._offset_next, _POLL_DEADLINE_S):
                records.append(record)
                self._offset_next = record.offset + 1
            self._not_missing_at_s, self._silent_since_s = time.monotonic(), None
        except (TemporaryError, DeadlineError) as error:
            _LOG.debug("following the coordinator stream: %s", error)
            self._not_missing_at_s = time.monotonic()
            if self._silent_since_s is None or records:
                self._silent_since_s = began_s
        except MissingTopicError:
            # Brokers that have just started report a missing topic for a moment.
            if time.monotonic() - self._not_missing_at_s > _APPEARS_WITHIN_S:
                raise
        self._asked_at_s = time.monotonic()
        return records

    def to_the_end(self) -> Sequence[LogRecord]:
        """All committed records that were not handed out yet, up to the end.

        Raises:
            DeadlineError, BrokerUnavailableError: it could not be read to the end.
        """
        records = list(self._reader.read_to_end(self._offset_next))
        # Only after the last record: after an error, records that were not handed out come again.
        if records:
            self._offset_next = records[-1].offset + 1
        return records

    def close(self) -> None:
        self._reader.close()


class KafkaLeaderSearch:
    """Finds newer terms than a container has read.

    The container may be busy for minutes, but must send heartbeats.
    """

    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        self._topic = topic
        self._reader = PartitionReader(connection, topic)

    def newest_term(self, offset_from: int) -> TermPut | None:
        """The newest term recorded at `offset_from` or later.

        Returns None if there is none, or no broker answers, or this user may not read the stream.
        """
        newest: TermPut | None = None
        numbering = BEGINNING
        try:
            for record in self._reader.read_to_end(offset_from, _POLL_DEADLINE_S):
                numbering, position = place(record, numbering)
                if record.key != b"term" or isinstance(position, Foreign):
                    continue
                if isinstance(term := fact_of(record, position, topic=self._topic), TermPut):
                    newest = term
        except (TemporaryError, DeadlineError, MissingTopicError, ConfigError) as error:
            _LOG.debug("looking for the leader: %s", error)
        return newest

    def close(self) -> None:
        self._reader.close()
