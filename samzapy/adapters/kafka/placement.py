"""Read and write the placement topic, for coordinators and operators."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Producer

from samzapy.adapters.kafka.clients import ErrorEvents, KafkaConnection, flush, make_client
from samzapy.adapters.kafka.errors import translate
from samzapy.adapters.kafka.hanging import WrittenTopics
from samzapy.adapters.kafka.reading import PartitionReader, beginning_offsets
from samzapy.adapters.kafka.transactions import TRANSACTION_TIMEOUT_MS, TransactionalProducer, new_owner
from samzapy.errors import DeadlineError, MissingTopicError, ProducerError, SamzapyError, TemporaryError
from samzapy.stream.placement import Requested, Unreadable, read_message

if TYPE_CHECKING:
    from samzapy.coordinator.commands import RequestsRead
    from samzapy.stream.log import LogRecord, Write

_LOG = logging.getLogger(__name__)
_ROUND_S = 0.2
_RECORDS_MAX = 500
_LOST_AFTER_S = 10.0
_IRRELEVANT_MAX = 1000
_IRRELEVANT_S = 30.0
_INBOX_DEADLINE_S = 5.0
_OWN_DEADLINE_S = 5.0
_READ_DEADLINE_S = 15.0
_WRITE_DEADLINE_S = 30.0


class KafkaPlacementWriter:
    """Writes answers under one transactional id (`coordinator.ports.PlacementWriter`).

    Taking over the id fences the leader before, and aborts its open transaction.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._producer: TransactionalProducer | None = None

    def acquire(self) -> bool:
        """See `PlacementWriter.acquire`."""
        if self._producer is not None and not self._producer.must_be_renewed:
            return False
        self.close()
        make = partial(
            TransactionalProducer,
            self._connection,
            self._transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
            written=WrittenTopics(own=[self._topic]),
        )
        self._producer = new_owner(make, _OWN_DEADLINE_S)
        return True

    def write(self, writes: Sequence[Write]) -> int:
        """See `PlacementWriter.write`."""
        producer = self._producer
        if producer is None:
            raise ProducerError(f"wanted the owner of {self._transactional_id!r}, found one that lost it")
        offsets: list[int] = []
        try:
            producer.begin()
            last = len(writes) - 1
            for number, write in enumerate(writes):
                on_offset = offsets.append if number == last else None
                producer.produce(self._topic, write.key, write.value, 0, None, None, on_offset)
            producer.commit()
        except SamzapyError:
            self.close()
            raise
        assert offsets, "committed without a delivery report"
        return offsets[-1] + 1

    def serve(self) -> None:
        """Run the client's callbacks while nothing is written.

        See `TransactionalProducer.serve`.
        """
        if self._producer is not None:
            self._producer.serve()

    def close(self) -> None:
        """Close the connection; the id stays as it is."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()


class KafkaInbox:
    """Reads the placement topic while this process leads.

    It hands the requests over as commands. It has a thread of its own, because a broker that does not answer must not
    keep the coordinator from answering. The coordinator records the position. Requests that were handed over, but are
    not recorded after a while, are handed over again. So a command that is lost with its term loses nothing.

    Args:
        position: the term and the recorded position while this process leads, otherwise None.
        put: takes the command; whether there was room.
        wall_ms: the wall clock.
        refusal: why a request is refused for its signature at a time; empty if it is not.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        *,
        position: Callable[[], tuple[int, int] | None],
        put: Callable[[RequestsRead], bool],
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        refusal: Callable[[LogRecord, int], str] = lambda record, now_ms: "",
    ) -> None:
        self._refusal = refusal
        self._reader = PartitionReader(connection, topic)
        self._position = position
        self._put = put
        self._wall_ms = wall_ms
        self._term: int | None = None
        self._recorded = 0
        self._next = 0
        self._requests: list[Requested | Unreadable] = []
        self._put_at_s: float | None = None
        self._recorded_at_s = 0.0
        self._trouble = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samzapy-inbox", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End after the current read, and wait for that."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=2.0)

    def _run(self) -> None:
        try:
            while not self._ended.wait(_ROUND_S):
                try:
                    self._round()
                    self._trouble = ""
                except (SamzapyError, KafkaException) as error:
                    self._note(error)
                    self._term = None
        finally:
            self._reader.close()

    def _note(self, error: Exception) -> None:
        """Warn of a refusal once; the next round tries again.

        A cluster that is away shows elsewhere.
        """
        is_news = str(error) != self._trouble and not isinstance(error, TemporaryError | DeadlineError)
        _LOG.log(logging.WARNING if is_news else logging.DEBUG, "cannot read requests, will retry: %s", error)
        self._trouble = str(error)

    def _round(self) -> None:
        position = self._position()
        if position is None:
            self._term = None
            self._reader.close()
            return
        term, recorded = position
        now_s = time.monotonic()
        if term != self._term or not self._recorded <= recorded <= self._next:
            self._term, self._requests, self._put_at_s = term, [], None
            self._recorded = self._next = recorded
            self._recorded_at_s = now_s
        elif recorded > self._recorded:
            self._recorded, self._recorded_at_s, self._put_at_s = recorded, now_s, None
            self._requests = [item for item in self._requests if item.offset >= recorded]
        if self._put_at_s is not None:
            if now_s - self._put_at_s < _LOST_AFTER_S:
                return
            self._put_at_s = None
        self._read()
        if self._is_worth_a_command(now_s) and self._put(self._command()):
            self._put_at_s = now_s

    def _read(self) -> None:
        """Read on, up to as many requests as fit into one command."""
        room = _RECORDS_MAX - len(self._requests)
        if room > 0:
            records, self._next = self._reader.take_stable(self._next, room, _INBOX_DEADLINE_S)
            now_ms = self._wall_ms()
            read = (read_message(record, lambda record: self._refusal(record, now_ms)) for record in records)
            self._requests.extend(item for item in read if item is not None)

    def _is_worth_a_command(self, now_s: float) -> bool:
        """Whether there are requests, or the position must advance.

        Own responses alone are not worth a record each, but the position must advance at times.
        """
        behind = self._next - self._recorded
        is_due = behind > _IRRELEVANT_MAX or now_s - self._recorded_at_s > _IRRELEVANT_S
        return bool(self._requests) or (behind > 0 and is_due)

    def _command(self) -> RequestsRead:
        # A command of an operator writes requests and never comes here: it loads no commands of a leader.
        from samzapy.coordinator.commands import RequestsRead

        return RequestsRead(
            offset_from=self._recorded,
            offset_next=self._next,
            requests=tuple(item for item in self._requests if isinstance(item, Requested)),
            unreadable=tuple(item for item in self._requests if isinstance(item, Unreadable)),
            now_ms=self._wall_ms(),
        )


class PlacementTopic:
    """The placement topic for an operator.

    It has the latest record of each key, and plain writes. Each read continues where the last one ended.
    """

    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._reader = PartitionReader(connection, topic)
        self._offset_next: int | None = None
        self._latest: dict[bytes | None, LogRecord] = {}
        self._events = ErrorEvents()
        self._producer = make_client(
            Producer,
            connection.settings(
                {
                    # A record that is written twice does no harm: its key is a request's. An idempotent client that
                    # may not write fails as a whole, and raises a KafkaError, which is no exception.
                    "enable.idempotence": False,
                    # Keeps the order of records that are sent again.
                    "max.in.flight.requests.per.connection": 1,
                    "acks": "all",
                    "error_cb": self._events.add,
                },
                defaults={"linger.ms": 0},
            ),
        )

    def latest(self) -> Mapping[bytes | None, LogRecord]:
        """The latest record of each key, read to the end.

        Raises:
            MissingTopicError: there is no such topic.
            BrokerUnavailableError, DeadlineError: it could not be read to the end.
        """
        for record in self._reader.read_to_end(self._begun(), _READ_DEADLINE_S):
            self._offset_next = record.offset + 1
            self._latest.pop(record.key, None)
            if record.value is not None:
                self._latest[record.key] = record
        return self._latest

    def write(self, writes: Iterable[Write]) -> None:
        """Write all records, and wait for their acknowledgements.

        Raises:
            MissingTopicError: there is no such topic; none is created.
            DeadlineError: the topic could not be looked up in time.
            ConfigError, DataError: the cluster refuses the records.
            BrokerUnavailableError: not all records are acknowledged.
        """
        # First, because a producer makes a broker that creates topics on demand create one for a mistyped job.
        self._begun()
        refused: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: object) -> None:
            if error is not None:
                refused.append(error)

        doing = f"writing to {self._topic}"
        started_s = time.monotonic()
        for write in writes:
            while True:
                try:
                    self._producer.produce(
                        self._topic,
                        write.value,
                        write.key,
                        partition=0,
                        on_delivery=delivered,
                        headers=dict(write.headers),
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
                except KafkaException as error:
                    raise translate(error, doing) from error
        left = flush(self._producer, _WRITE_DEADLINE_S)
        if refused:
            raise translate(refused[0], doing)
        if left:
            waited_s = time.monotonic() - started_s
            raise self._connection.unavailable(waited_s, doing, self._events.latest)

    def _begun(self) -> int:
        """The offset to read on from."""
        if self._offset_next is None:
            where = (self._topic, 0)
            try:
                self._offset_next = beginning_offsets(self._connection, [where], _READ_DEADLINE_S)[where]
            except MissingTopicError as error:
                raise MissingTopicError(
                    f"wanted the job that has the topic {self._topic}, found no such topic at "
                    f"{self._connection.bootstrap_servers}; correct the job's name or id, or the address"
                ) from error
        return self._offset_next

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()
        flush(self._producer, 1.0)
