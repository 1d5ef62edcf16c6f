"""Kafka transactions for the coordinator's log and for workers.

A thin class around librdkafka's producer adds three things:

- The guard of `stream.end_txn_guard`: error events, statistics and the duration of each EndTxn show when the next
  transaction needs a new producer. The class never makes one by itself, because the owner of a new epoch must first
  read whether it may still write.
- Few errors. After `begin` every failure is a `FencedError` or a `ProducerError`: the outcome is unknown or nothing,
  and only `abort` and `close` may follow. If this user lacks a right, it is a `ConfigError`, and nothing was committed.
- Back-pressure: `produce` waits while the queue is full.

A record that was not delivered makes `commit` fail before anything is committed, also without a callback per record.
librdkafka promises this, and a test checks it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import ErrorEvents, KafkaConnection, Settings, flush, make_client
from samzapy.adapters.kafka.end_txn_signs import RETRY_BACKOFF_MS, EndTxnSigns
from samzapy.adapters.kafka.errors import kafka_error, lacks_right, translate
from samzapy.adapters.kafka.hanging import WrittenTopics, end_in, places_that_hang
from samzapy.adapters.kafka.write_rights import refuse_without_write_right, without_write_right
from samzapy.config import BATCH_BYTES
from samzapy.container.task.topic_limits import TopicLimits
from samzapy.errors import (
    ConfigError,
    FencedError,
    ProducerError,
    SamzapyError,
    TemporaryError,
    UndeliveredError,
)

TRANSACTION_TIMEOUT_MS = 60_000
"""Kafka's own default. The broker aborts the transaction of an owner that hangs for longer, so this is the longest time
for which an owner can hide the records of others."""

METADATA_REFRESH_MS = 2_000
"""How often a producer asks for the leaders of its partitions; librdkafka's default is 5 minutes."""

_INIT_SLICE_S = 5.0
_CONNECT_S = 0.1
_CLOSE_S = 1.0
_APPEARS_WITHIN_S = 3.0
"""A cluster that creates topics on the first request answers at first that there is none."""

_ASK_AGAIN_S = 0.2
_LIMITS_HOLD_S = 30.0
_FENCE_THREADS = 4
_log = logging.getLogger(__name__)

Headers = Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]]


class TransactionalProducer:
    """One owner of a transactional id.

    It lives from `take_over` until `close`, an error, or `must_be_renewed`. It must not be used by several threads at
    once.

    Args:
        transaction_timeout_ms: the broker aborts a transaction that is open for longer, and fences us.
        written: where a transaction of the id may hang (`hanging`), which `take_over` ends.
        on_output: called with each topic before the first record goes to it, as far as `partition_count` is asked.
        settings: librdkafka's, for tests; ours win.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        written: WrittenTopics | None = None,
        on_output: Callable[[str], object] = lambda topic: None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.transactional_id = transactional_id
        self._on_output = on_output
        self._written = written
        self._connection = connection
        self._timeout_s = transaction_timeout_ms / 1000
        self._events = ErrorEvents()
        self._signs = EndTxnSigns(self._events)
        self._producer = make_client(
            Producer,
            producer_settings(
                connection,
                transactional_id,
                transaction_timeout_ms,
                {**(settings or {}), "stats_cb": self._signs.on_statistics, "error_cb": self._events.add},
            ),
        )
        # Bound once, because looking them up costs as much as the rest of `produce`.
        self._produce = self._producer.produce
        self._poll = self._producer.poll
        self._is_taken = False
        self._is_open = False
        self._is_broken = False
        self._is_closed = False
        # By topic: its limits, and the time of the question.
        self._topic_limits: dict[str, tuple[TopicLimits | None, float]] = {}

    def take_over(self, deadline_s: float = 30.0, *, ends_hanging: bool = True) -> None:
        """Become the owner.

        The owner before is fenced, and its open transaction is aborted, also where a broker has left it open.

        Args:
            ends_hanging: False where an owner before has just ended what hangs (`new_owner`).

        Raises:
            BrokerUnavailableError: no answer in time; the owner before may be fenced or not.
            TemporaryError: a transaction of the owner before may be open; take over again.
            ConfigError: this user may not use the transactional id, or not write where a transaction hangs.
        """
        assert not self._is_taken, "one producer, one take-over: make a new one"
        doing = f"taking over the transactional id {self.transactional_id!r}"
        started = time.monotonic()
        with suppress(KafkaException):
            # This only opens a connection: without one the client asks for its coordinator half a second later
            # (measured: 57 ms with it, 507 ms without).
            self._producer.cluster_id(_CONNECT_S)

        def initialise() -> None:
            remaining_s = deadline_s - (time.monotonic() - started)
            try:
                self._producer.init_transactions(max(0.1, min(_INIT_SLICE_S, remaining_s)))
            except KafkaException as error:
                self._serve(0)
                raise translate(error, doing) from error

        try:
            Retrying(
                retry=retry_if_exception_type(TemporaryError),
                stop=stop_after_delay(deadline_s),
                wait=wait_random(0.05, 0.2),
                reraise=True,
            )(initialise)
        except TemporaryError as error:
            waited_s = time.monotonic() - started
            raise self._connection.unavailable(waited_s, doing, self._events.latest) from error
        self._is_taken = True
        if ends_hanging and self._written is not None:
            self._end_hanging(self._written)

    def _end_hanging(self, written: WrittenTopics) -> None:
        places = places_that_hang(self._connection, written)
        try:
            end_in(self, places)
        except FencedError:
            # The next owner does the same.
            _log.debug("the transactional id %r was taken over at once", self.transactional_id)
        except ProducerError as error:
            refuse_without_write_right(self._connection, {topic for topic, _ in places})
            raise TemporaryError(
                f"wanted what may hang of the transactional id {self.transactional_id!r} aborted, found {error}"
            ) from error

    @property
    def must_be_renewed(self) -> bool:
        """Whether the next transaction needs a new producer.

        The new one takes over after this one is closed. Ask between transactions, right before `begin`.
        """
        if self._is_closed:
            return True
        self._serve(0)
        return self._is_broken or self._signs.must_renew()

    @property
    def is_broken(self) -> bool:
        """Whether a call has failed, for instance because there is a newer owner."""
        return self._is_broken

    def serve(self) -> None:
        """Run the client's callbacks.

        Never raises, and changes no answer of `must_be_renewed`. Owners that write seldom call it now and then: the
        client keeps its statistics, two a second, until they are read, and they take 50 MB an hour.
        """
        if not self._is_closed:
            self._serve(0)

    def begin(self) -> None:
        """Open a transaction.

        Raises:
            ProducerError: this producer must not begin another one (`must_be_renewed`).
            FencedError: there is a newer owner.
        """
        if not self._is_taken or self.must_be_renewed:
            raise ProducerError(
                f"wanted a usable producer for {self.transactional_id!r}, found one that "
                f"{'must be renewed' if self._is_taken else 'was never taken over'}: close it, make a new one, "
                "take over, and read before the next transaction"
            )
        self._signs.begin()
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise self._broken(error, "beginning") from error
        self._is_open = True

    def produce(
        self,
        topic: str,
        key: bytes | str | None,
        value: bytes | str | None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
        on_offset: Callable[[int], None] | None = None,
    ) -> None:
        """Hand over a record for sending; waits while the queue is full.

        Args:
            partition: None means by murmur2 of the key.
            timestamp_ms: None means now.
            on_offset: gets the record's offset once it is written, at the latest in `flush`. Costs a callback
                per record, so give it only where the offset is needed.

        Raises:
            ProducerError, FencedError: the transaction cannot be committed any more.
        """
        try:
            if headers is None and timestamp_ms is None and on_offset is None:
                if partition is None:
                    self._produce(topic, value, key)
                else:
                    # By position: as an option, the partition made each changelog entry cost a third more.
                    self._produce(topic, value, key, partition)
                return
            self._produce_with(topic, key, value, partition, headers, timestamp_ms, on_offset)
            return
        except BufferError:
            pass
        except KafkaException as error:
            raise self._broken(error, f"producing to {topic}") from error
        self._produce_when_there_is_room(topic, key, value, partition, headers, timestamp_ms, on_offset)

    def partition_count(self, topic: str) -> int | None:
        """How many partitions `topic` has; None if it does not exist after a short wait.

        A record to a topic that does not exist is neither written nor refused, and the error does not name the topic.

        Raises:
            ProducerError: no broker answered.
            ConfigError: this user may not see the topic.
        """
        self._on_output(topic)
        started = time.monotonic()
        while True:
            try:
                metadata = self._producer.list_topics(topic, timeout=self._timeout_s).topics[topic]
            except KafkaException as error:
                raise self._broken(error, f"asking for the partitions of {topic}") from error
            if metadata.error is None and metadata.partitions:
                return len(metadata.partitions)
            if metadata.error is not None and lacks_right(metadata.error):
                raise translate(metadata.error, f"asking for the partitions of {topic}")
            if time.monotonic() - started > _APPEARS_WITHIN_S:
                return None
            time.sleep(_ASK_AGAIN_S)

    def topic_limits(self, topic: str) -> TopicLimits | None:
        """Which records `topic` takes; None when this user may not see a topic's settings.

        The cluster is asked twice a minute at most, because every task of a worker asks on a connection of its own.

        Raises:
            UndeliveredError: no broker answered.
        """
        known = self._topic_limits.get(topic)
        if known is not None and time.monotonic() - known[1] < _LIMITS_HOLD_S:
            return known[0]
        limits: TopicLimits | None = None
        try:
            topics = KafkaAdmin(self._connection).look([topic])
            if topic not in topics:
                return None  # It is just being made.
            limits = TopicLimits.of(topics[topic].settings)
        except ConfigError as error:
            # Once for each producer.
            _log.log(
                logging.DEBUG if known is not None else logging.WARNING,
                "a message that is too large for the topic %s will fail the query and not be a failed message, because "
                "its settings are not known: %s",
                topic,
                error,
            )
        except TemporaryError as error:
            self._is_broken = True
            raise UndeliveredError(str(error)) from error
        self._topic_limits[topic] = limits, time.monotonic()
        return limits

    def flush(self) -> None:
        """Wait until all records are written (`on_offset` is called by then).

        Raises:
            UndeliveredError: they were not in time.
        """
        try:
            left = flush(self._producer, self._timeout_s)
        except KafkaException as error:
            raise self._broken(error, "writing records") from error
        if left:
            self._is_broken = True
            raise UndeliveredError(
                f"wanted all records of {self.transactional_id!r} written within {self._timeout_s:.0f} s, found "
                f"{left} unwritten: abort, make a new producer, read and decide again{self._reported()}"
            )

    def commit(self) -> None:
        """Flush and commit.

        Raises:
            FencedError, ProducerError: nothing was committed if a record was not delivered; otherwise it is
                unknown. Read before anything else.
        """
        # The caller has flushed, as a rule, and to wait for nothing takes a call into the client's threads.
        if len(self._producer):
            self.flush()
        self._end(self._producer.commit_transaction, "committing")

    def abort(self) -> None:
        """End the transaction so that its records stay invisible.

        Raises:
            FencedError, ProducerError: the broker or the next owner will abort it.
        """
        self._end(self._producer.abort_transaction, "aborting")

    def close(self) -> None:
        """Close the connections.

        An open transaction is aborted if that can be done at once. Never raises.
        """
        if self._is_closed:
            return
        self._is_closed = self._is_broken = True
        producer = self._producer
        # Dropped here, so that the client is gone when the local name is.
        del self._producer, self._produce, self._poll
        try:
            # Records under way are waited for: behind the abort they would hang.
            producer.purge(in_flight=False)
            if self._is_open:
                producer.abort_transaction(_CLOSE_S)
            # The client's own `close` aborts without a limit, so only when there is nothing (left) to abort. It warns
            # if the transactional id was never taken.
            if self._is_taken:
                producer.close()
        except (KafkaException, SystemError) as error:
            # It was fenced, or no broker answers. (The client reports some of that as a SystemError.)
            _log.debug("closing the producer of %s: %s", self.transactional_id, error)

    def _end(self, end: Callable[[float], None], doing: str) -> None:
        started = time.monotonic()
        try:
            end(self._timeout_s)
        except KafkaException as error:
            raise self._broken(error, doing) from error
        self._signs.end(time.monotonic() - started)
        self._is_open = False
        # Takes the events that came with the answer, so that `must_be_renewed` sees them.
        self._serve(0)

    def _produce_with(
        self,
        topic: str,
        key: bytes | str | None,
        value: bytes | str | None,
        partition: int | None,
        headers: Headers | None,
        timestamp_ms: int | None,
        on_offset: Callable[[int], None] | None,
    ) -> None:
        options: dict[str, Any] = {}
        if partition is not None:
            options["partition"] = partition
        if headers is not None:
            options["headers"] = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
        if timestamp_ms is not None:
            options["timestamp"] = timestamp_ms
        if on_offset is not None:
            options["on_delivery"] = _offset_reporter(on_offset)
        self._produce(topic, value, key, **options)

    def _produce_when_there_is_room(self, topic: str, *record: Any) -> None:
        """Repeat `produce` until the queue has room.

        A queue that stays full for the transaction's time-out is an error: no record was written in all that time.
        """
        started = time.monotonic()
        while time.monotonic() - started < self._timeout_s:
            self._serve(0.1)
            try:
                self._produce_with(topic, *record)
                return
            except BufferError:
                pass
            except KafkaException as error:
                raise self._broken(error, f"producing to {topic}") from error
        self._is_broken = True
        raise UndeliveredError(
            f"wanted room for a record to {topic}, found the queue of {self.transactional_id!r} full for "
            f"{self._timeout_s:.0f} s: abort, make a new producer, read and decide again{self._reported()}"
        )

    def _broken(self, error: KafkaException, doing: str) -> SamzapyError:
        self._is_broken = True
        self._serve(0)
        where = f"{doing} for the transactional id {self.transactional_id!r}"
        failure = translate(error, where)
        if isinstance(failure, FencedError):
            return failure
        if lacks_right(error):
            # A refused record does not name its topic.
            topics = without_write_right(self._connection, () if self._written is None else self._written.all)
            return translate(error, f"{where}, in a transaction with {', '.join(topics) or 'a refused topic'}")
        if isinstance(failure, UndeliveredError):
            return UndeliveredError(f"{failure}{self._reported()}")
        if isinstance(failure, ConfigError | ProducerError):
            return ProducerError(f"{failure}{self._reported()}")
        # An error that is temporary elsewhere is not retried here, because the owner's memory may be out of date.
        inner, kind = kafka_error(error), UndeliveredError if isinstance(failure, TemporaryError) else ProducerError
        return kind(
            f"{where}: Kafka answered {inner.name()} ({inner.str()}); the outcome is in doubt: make a new "
            f"producer, read and decide again{self._reported()}"
        )

    def _serve(self, wait_s: float) -> int:
        """Run the client's callbacks; how many events there were."""
        try:
            return self._poll(wait_s)
        except KafkaException as error:
            # The client raises a fatal error from here too. The next call raises it as its own.
            self._events.add(kafka_error(error))
            self._is_broken = True
            return 1

    def _reported(self) -> str:
        texts = dict.fromkeys(event.str() for event in self._events.latest[-3:])
        return f" (the client reported: {' | '.join(texts)})" if texts else ""


def new_owner(make: Callable[[], TransactionalProducer], deadline_s: float = 30.0) -> TransactionalProducer:
    """A producer that has taken its id over and may begin.

    The abort of what hung may have been so slow that the next transaction needs a new producer. That one takes over
    without another look, because its abort may be as slow. A producer that was fenced stays as it is: a new one would
    fence the newer owner.

    Raises:
        SamzapyError: as of `take_over`; what was made is closed.
    """
    producer = make()
    try:
        producer.take_over(deadline_s)
        if producer.must_be_renewed and not producer.is_broken:
            producer.close()
            producer = make()
            producer.take_over(deadline_s, ends_hanging=False)
    except BaseException:
        producer.close()
        raise
    return producer


def producer_settings(
    connection: KafkaConnection, transactional_id: str, transaction_timeout_ms: int, more: Mapping[str, Any]
) -> Settings:
    """The settings of a transactional producer.

    The operator's settings win, except for those that exactly-once rests on. The configuration refuses these
    (`config.CLIENT_PROPERTIES_REFUSED`).
    """
    defaults = {
        # No reader waits for a record: the flush before every commit sends at once, and before the commit the record
        # is invisible. With 5 ms, a task that sends little caused a request for every few records.
        "linger.ms": 100,
        # A transaction is several small requests, one after the other. With Nagle's algorithm each of them may wait for
        # the acknowledgement of the one before: 21 ms for a transaction of three records, 4 ms without (measured).
        "socket.nagle.disable": True,
        "batch.size": BATCH_BYTES,
        "batch.num.messages": 50_000,
        "compression.type": "lz4",
        # A producer that learned a partition's leader right after a broker was killed may keep the dead one for the
        # whole transaction (seen: 35 s), unless it refreshes its metadata.
        "topic.metadata.refresh.interval.ms": METADATA_REFRESH_MS,
        # Bounds our memory; a full queue is back-pressure.
        "queue.buffering.max.messages": 100_000,
        "queue.buffering.max.kbytes": 64 * 1024,
    }
    ours = {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": transaction_timeout_ms,
        "enable.idempotence": True,
        "acks": "all",
        # As in Java, so that outputs are co-partitioned with the topics of JVM producers.
        "partitioner": "murmur2_random",
        "retry.backoff.ms": RETRY_BACKOFF_MS,
        "statistics.interval.ms": 500,
    }
    return connection.settings({**more, **ours}, defaults=defaults)


def fence_transactional_ids(
    connection: KafkaConnection,
    transactional_ids: Iterable[str],
    deadline_s: float = 30.0,
    *,
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    written: WrittenTopics | None = None,
    named: Collection[str] = (),
) -> None:
    """Initialise each id, so that its owner can commit nothing any more.

    Repeating it is harmless.

    Args:
        deadline_s: how long to wait for all of them together.
        transaction_timeout_ms: a time-out that the cluster allows; no transaction is opened but to end what hangs.
        written: as of `TransactionalProducer`. What hangs there is ended if that can be done; readers of the topics
            wait for it, and the next owner of an id ends it before it commits. Outputs come last, because one may
            have no leader, or be forbidden to this process.
        named: more outputs.

    Raises:
        BrokerUnavailableError: at least one may not be fenced; fence them again.
    """
    give_up_at_s = time.monotonic() + deadline_s

    producers: list[TransactionalProducer] = []

    def fence(transactional_id: str) -> TransactionalProducer:
        producer = TransactionalProducer(connection, transactional_id, transaction_timeout_ms=transaction_timeout_ms)
        producers.append(producer)
        producer.take_over(max(0.0, give_up_at_s - time.monotonic()))
        return producer

    try:
        with ThreadPoolExecutor(_FENCE_THREADS, thread_name_prefix="fence") as pool:
            # `list` so that the first failure is raised here.
            owners = list(pool.map(fence, transactional_ids))
        if written is not None and owners:
            _end_hanging(connection, owners, fence, written, named)
    finally:
        for producer in producers:
            producer.close()


def _end_hanging(
    connection: KafkaConnection,
    owners: list[TransactionalProducer],
    fence: Callable[[str], TransactionalProducer],
    written: WrittenTopics,
    named: Collection[str],
) -> None:
    """End what hangs of ids that were just taken over; in outputs last."""
    outputs = frozenset((*written.outputs(), *named)) - written.read - {*written.own}
    try:
        _end_all_in(connection, owners, fence, WrittenTopics(own=written.own))
        if outputs:
            _end_all_in(connection, owners, fence, WrittenTopics(own=(), outputs=lambda: outputs))
    except SamzapyError as error:
        _log.warning("cannot end transactions that may hang of ids that were fenced: %s", error)


def _end_all_in(
    connection: KafkaConnection,
    owners: list[TransactionalProducer],
    fence: Callable[[str], TransactionalProducer],
    written: WrittenTopics,
) -> None:
    places = places_that_hang(connection, written)
    try:
        for number, owner in enumerate(owners if places else ()):
            if owner.must_be_renewed:
                # Its abort in earlier topics was slow.
                owner.close()
                owners[number] = fence(owner.transactional_id)
            end_in(owners[number], places)
    except ProducerError:
        refuse_without_write_right(connection, {topic for topic, _ in places})
        raise


def _offset_reporter(on_offset: Callable[[int], None]) -> Callable[[KafkaError | None, Any], None]:
    def delivered(error: KafkaError | None, message: Any) -> None:
        # An undelivered record is the commit's business.
        if error is None:
            on_offset(message.offset())

    return delivered
