"""Read the committed messages of several partitions up to given ends.

This is for display and samples. Decisions rest on `reading` instead, which waits for open transactions and reports a
lost range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, TopicPartition

from samzapy.adapters.kafka.clients import ErrorEvents, KafkaConnection, make_consumer
from samzapy.adapters.kafka.reading import lasting

Place = tuple[str, int]
"""A topic and the number of a partition."""

_POLL_S = 0.1
_MESSAGES_PER_POLL = 2_000


class Scan:
    """Reads partitions from `starts` on.

    It keeps track of the partitions that are not read up to `ends`.

    Args:
        doing: the purpose, for the text of errors: "sampling keys".

    Attributes:
        unread: the partitions that are not read up to their end.
    """

    def __init__(
        self, connection: KafkaConnection, starts: Mapping[Place, int], ends: Mapping[Place, int], doing: str
    ) -> None:
        self.unread = {place for place, start in starts.items() if start < ends[place]}
        self._ends = ends
        self._doing = doing
        self._events = ErrorEvents()
        self._consumer = make_consumer(
            connection,
            {
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                # A partition that ends with a marker counts as read when a fetch returns nothing.
                "fetch.wait.max.ms": 10,
                # Records that retention deletes meanwhile are skipped.
                "auto.offset.reset": "earliest",
            },
            self._events,
        )
        self._consumer.assign([TopicPartition(*place, start) for place, start in sorted(starts.items())])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._consumer.close()

    def poll(self) -> Iterator[tuple[Place, Any]]:
        """The messages that have arrived, each with its place.

        Waits up to a tenth of a second for the first.

        Raises:
            SamzapyError: Kafka refuses to be read. An error that may pass is not raised.
        """
        for message in self._consumer.consume(_MESSAGES_PER_POLL, _POLL_S):
            error, place = message.error(), (str(message.topic()), int(message.partition() or 0))
            if error is None:
                yield place, message
                if (message.offset() or 0) + 1 >= self._ends[place]:
                    self.unread.discard(place)
            elif error.code() == KafkaError._PARTITION_EOF:
                self.unread.discard(place)
            elif (failure := lasting(error, f"{self._doing} from {place[0]}", self._events)) is not None:
                raise failure
