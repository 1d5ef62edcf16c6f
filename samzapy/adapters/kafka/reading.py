"""Read a partition of our topics to its end, also with open transactions.

1. The caller makes sure that every writer whose records matter has released or been fenced.
2. Ask for the high watermark H, the `read_uncommitted` end.
3. Read `read_committed` until a record, or an end of the partition, at an offset >= H is seen.

An end of the partition below H is an open transaction, or a commit whose markers are not written yet: Kafka answers
EndTxn before it writes them. So the reader waits. Two other tests for the end would be wrong: the offset `H - 1` may
be a marker, which no consumer sees, and the consumer's position says nothing about markers.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from types import TracebackType
from typing import Any, NamedTuple, Self

from confluent_kafka import (
    OFFSET_INVALID,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # its stubs forget to export it
from tenacity import Retrying, retry_if_exception_type, wait_random

from samzapy.adapters.kafka.clients import Admin, ErrorEvents, KafkaConnection, make_consumer
from samzapy.adapters.kafka.errors import consumer_recovers, kafka_error, lacks_right, translate
from samzapy.adapters.kafka.message_headers import headers_of
from samzapy.errors import (
    DeadlineError,
    LostRangeError,
    MissingTopicError,
    SamzapyError,
    TemporaryError,
    TruncatedTopicError,
)
from samzapy.stream.log import LogRecord

DEADLINE_S = 60.0
"""Longer than Kafka takes by default to abort the open transaction of a writer that died."""

_ASK_S = 5.0
_LOOK_S = 1.0
_POLL_S = 0.1
_NOT_THERE = (
    KafkaError._NOENT,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)
_APPEARS_WITHIN_S = 3.0
"""A topic that was just created is not known to every broker at once."""
_CATCHES_UP_WITHIN_S = 5.0
"""A leader that was just elected or deposed may know an earlier end for a moment."""

_ASK_AGAIN_S = 0.25
_RECORDS_PER_POLL = 2_000
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client's stubs lack it
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the same

READING: Mapping[str, Any] = {
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    # An offset that is not there is an error, not a reason to start elsewhere (law L9).
    "auto.offset.reset": "error",
    # At the end of a partition the broker answers after this time; we come to see the end, so soon.
    "fetch.wait.max.ms": 20,
    "fetch.error.backoff.ms": 100,
    "fetch.message.max.bytes": 4 * 1024 * 1024,
    "queued.max.messages.kbytes": 32 * 1024,
    "check.crcs": True,
}


class _Progress:
    """The progress of one reading.

    Progress is a record, or an end of the partition beyond the ones before.

    Attributes:
        eof_seen: the furthest end of the partition so far; below the end that is read to it means "not yet".
        has_moved: set for each record, so it is no call.
    """

    def __init__(self, events: ErrorEvents) -> None:
        self.eof_seen = -1
        self._events = events
        self.has_moved = False
        self._mark()

    def see_eof(self, offset: int) -> None:
        if offset > self.eof_seen:
            self.eof_seen = offset
            self.has_moved = True

    def stalled_s(self) -> float:
        """The time without progress. Called after each batch.

        The clock is read after the caller's part, so that a slow caller is not a stalled topic.
        """
        if self.has_moved:
            self._mark()
        return time.monotonic() - self._progress_at

    @property
    def has_lost_brokers(self) -> bool:
        """Whether the stall comes from the brokers.

        Otherwise it comes from an open transaction.
        """
        return self.eof_seen < 0 or self._events.count > self._events_before

    def _mark(self) -> None:
        self.has_moved = False
        self._events_before, self._progress_at = self._events.count, time.monotonic()


class PartitionReader:
    """Reads one partition to its end, repeatedly, over connections that it keeps.

    It serves callers that follow a topic, or read its partitions one after the other. The function `read_to_end` reads
    once.

    Args:
        may_end_earlier: False for a topic that decisions rest on: an end before an earlier one is an error then.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        partition: int = 0,
        *,
        admin: Admin | None = None,
        may_end_earlier: bool = True,
    ) -> None:
        self._may_end_earlier = may_end_earlier
        self._end_seen = 0
        # The offset and the leader epoch of the last record that was read; -1: none, or not known.
        self._last_offset = -1
        self._last_epoch = -1
        self.topic = topic
        self.partition = partition
        self._connection = connection
        self._admin_given = admin
        self._admin = admin
        self._prepared_from: int | None = None
        self._consumer: Consumer | None = None
        self._events = ErrorEvents()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def end_offset(self, deadline_s: float = DEADLINE_S) -> int:
        """The high watermark, open transactions included.

        Raises:
            TruncatedTopicError: it stays before an end that was seen earlier; a broker that lags has time to catch up.
        """
        where = (self.topic, self.partition)
        if self._admin is None:
            self._admin = Admin(self._connection)
        started = time.monotonic()
        while True:
            end = _ask_offsets(self._admin, [where], _LATEST, IsolationLevel.READ_UNCOMMITTED, deadline_s)[where]
            if end >= self._end_seen or self._may_end_earlier:
                self._end_seen = end
                return end
            if time.monotonic() - started > _CATCHES_UP_WITHIN_S:
                raise self._truncated(
                    f"to end at offset {self._end_seen} or later, as it did before", f"it ends at {end}"
                )
            # It may be an old leader that does not know its successor yet.
            _refresh_metadata(self._admin, [where])
            time.sleep(_ASK_AGAIN_S)

    @property
    def end_seen(self) -> int:
        """The end that the partition has reached before; 0 if it is not known."""
        return self._end_seen

    def expect_end(self, offset_end: int) -> None:
        """Remember from another source that the partition has reached this offset."""
        self._end_seen = max(self._end_seen, offset_end)

    def turn_to(self, partition: int) -> None:
        """Read another partition of the topic from now on.

        Prepared records of the one before are dropped. For another topic, use a new reader: librdkafka looks for the
        leaders of an unknown topic once a second.
        """
        self.partition = partition
        self._end_seen = 0
        self._last_offset = self._last_epoch = -1
        self._prepared_from = None

    def prepare(self, offset_from: int) -> None:
        """Let the client fetch ahead from `offset_from`, until a read from there.

        It fetches as much as its buffer holds.
        """
        self._assign(offset_from)
        self._prepared_from = offset_from

    def read_to_end(self, offset_from: int = 0, deadline_s: float = DEADLINE_S) -> Iterator[LogRecord]:
        """All committed records from `offset_from` to the end.

        The end is the high watermark at this call. Only one iterator is valid at a time: the next call takes over the
        connection.

        Args:
            deadline_s: the longest time without a record or other progress.

        Raises:
            DeadlineError: a transaction stayed open for that long.
            BrokerUnavailableError: no broker answered for that long.
            LostRangeError: the topic does not hold `offset_from` any more.
            MissingTopicError: there is no such topic.
            TruncatedTopicError: with `may_end_earlier` False, records that were read before have been replaced.
        """
        offset_end = self.end_offset(deadline_s)
        return self._read(offset_from, offset_end, deadline_s)

    def read_to_end_once(self, offset_from: int = 0, deadline_s: float = DEADLINE_S) -> Iterator[LogRecord]:
        """Like `read_to_end`, and close the connections at the iterator's end.

        They are also closed if the iterator is dropped.
        """
        try:
            records = self.read_to_end(offset_from, deadline_s)
        except BaseException:
            self.close()
            raise

        def closing() -> Iterator[LogRecord]:
            with self:
                yield from records

        return closing()

    def read_stable(self, deadline_s: float = DEADLINE_S, *, offset_from: int = 0) -> Iterator[LogRecord]:
        """All committed records before the first open transaction.

        This is for callers that must not wait.

        Args:
            offset_from: where to begin; later, where the topic begins later.

        Raises: as `read_to_end`.
        """
        return self._read(*self._stable_part(offset_from, deadline_s), deadline_s)

    def take_stable(
        self, offset_from: int, count_max: int, deadline_s: float = DEADLINE_S
    ) -> tuple[Sequence[LogRecord], int]:
        """The first `count_max` records of `read_stable`, and the offset to continue from.

        That offset follows the last of the records. If there are no more records, it also follows the markers of
        transactions, which take offsets too.

        Raises: as `read_to_end`.
        """
        offset_from, offset_end = self._stable_part(offset_from, deadline_s)
        records = list(islice(self._read(offset_from, offset_end, deadline_s), count_max))
        return records, records[-1].offset + 1 if len(records) == count_max else max(offset_from, offset_end)

    def read_part(self, offset_from: int, offset_to: int, deadline_s: float = DEADLINE_S) -> Iterator[LogRecord]:
        """All committed records of `[offset_from, offset_to)`.

        The range must lie below the high watermark.

        Raises: as `read_to_end`.
        """
        return self._read(offset_from, offset_to, deadline_s)

    def close(self) -> None:
        """Close the connections."""
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = None
        self._admin = self._admin_given
        self._prepared_from = None

    def _assign(self, offset_from: int) -> Consumer:
        if self._consumer is None:
            self._consumer = make_consumer(self._connection, READING, self._events)
        self._consumer.assign([TopicPartition(self.topic, self.partition, offset_from)])
        if self._last_epoch >= 0 and offset_from == self._last_offset + 1:
            # A seek first asks the broker for the end of the log in that epoch, which lies before this offset if the
            # log was cut. An assignment with an epoch does not ask: the client then fetches for ever, without an error.
            at = TopicPartition(self.topic, self.partition, offset_from, leader_epoch=self._last_epoch)
            try:
                self._consumer.seek(at)
            except KafkaException as error:
                raise TemporaryError(f"seeking {self.topic}-{self.partition} to {offset_from}: {error}") from error
        return self._consumer

    def _stable_part(self, offset_from: int, deadline_s: float) -> tuple[int, int]:
        """The first offset that exists, and that of the first open transaction.

        Both from `offset_from` on.
        """
        where = (self.topic, self.partition)
        if self._admin is None:
            self._admin = Admin(self._connection)
        stable = end_offsets(self._admin, [where], IsolationLevel.READ_COMMITTED, deadline_s)[where]
        if offset_from >= stable:
            return offset_from, stable
        return max(beginning_offsets(self._admin, [where], deadline_s)[where], offset_from), stable

    def _read(self, offset_from: int, offset_end: int, deadline_s: float) -> Iterator[LogRecord]:
        if offset_from >= offset_end:
            return
        consumer = self._consumer_at(offset_from)
        partition, is_checked = self.partition, not self._may_end_earlier
        progress = _Progress(self._events)
        while True:
            for message in _available(consumer):
                error = message.error()
                if message.partition() != partition and (error is None or message.topic() is not None):
                    continue  # Of the partition before. If its end counted as the end of this one, records would hide.
                if error is None:
                    offset = message.offset()
                    if offset >= offset_end:
                        self._rest(consumer)
                        return
                    if is_checked:
                        self._note(offset, message.leader_epoch())
                    yield record_of(message, offset)
                    progress.has_moved = True
                elif error.code() == KafkaError._PARTITION_EOF:
                    eof = message.offset()
                    if eof >= offset_end:
                        self._rest(consumer)
                        return
                    progress.see_eof(eof)
                else:
                    self._check(error, offset_from)
            self._check_progress(progress, offset_end, deadline_s)

    def _consumer_at(self, offset_from: int) -> Consumer:
        """The consumer, reading from `offset_from` on.

        Records that `prepare` fetched from there are used.
        """
        if self._consumer is not None and self._prepared_from == offset_from:
            consumer = self._consumer
        else:
            consumer = self._assign(offset_from)
        self._prepared_from = None
        return consumer

    def _rest(self, consumer: Consumer) -> None:
        """Fetch nothing until the next read.

        Otherwise an idle reader would ask the broker fifty times a second.
        """
        if consumer is self._consumer and self._prepared_from is None:
            consumer.unassign()

    def _note(self, offset: int, leader_epoch: int | None) -> None:
        """Remember the last record.

        Raises if a later leader has replaced a record that was read before.
        """
        epoch = -1 if leader_epoch is None else leader_epoch
        if offset > self._last_offset:
            self._last_offset = offset
            self._last_epoch = epoch
        elif 0 <= self._last_epoch < epoch:
            raise self._truncated(
                f"to hold offset {offset} from leader epoch {self._last_epoch} or earlier, as it did before",
                f"a record of epoch {epoch} stands there",
            )

    def _truncated(self, expected: str, observed: str) -> TruncatedTopicError:
        return TruncatedTopicError(
            f"wanted {self.topic}-{self.partition} {expected}, found that {observed}: the cluster lost its last "
            "records (an unclean leader election, or a broker that lost its disk); samzapy does not use the remaining "
            'records; see docs/guides/doctor.md, "Topics that became shorter"'
        )

    def _check(self, error: KafkaError, offset_from: int) -> None:
        """Raise, unless the client recovers from the error by itself."""
        # The client has an error code for a truncated log, but reports another one with the reason as text.
        if 0 <= self._last_offset == offset_from - 1 and "log truncation" in error.str():
            raise self._truncated(
                f"to hold the record at offset {self._last_offset} of leader epoch {self._last_epoch}, which was read",
                f"the records of that epoch end before it ({error.str()})",
            )
        failure = lasting(error, f"reading {self.topic}-{self.partition} from offset {offset_from}", self._events)
        if failure is None:
            return
        if isinstance(failure, LostRangeError):
            raise LostRangeError(
                f"wanted {self.topic}-{self.partition} from offset {offset_from}, found that the topic does not "
                f"hold it ({error.str()}): records were deleted that must be kept; see `samzapy doctor`"
            )
        raise failure

    def _check_progress(self, progress: _Progress, offset_end: int, deadline_s: float) -> None:
        """Raise after `deadline_s` without progress.

        Where brokers are lost, the wait of a command counts instead.
        """
        stalled_s = progress.stalled_s()
        if progress.has_lost_brokers:
            wait = self._connection.wait(deadline_s)
            wait.remind(self._connection.bootstrap_servers, lambda: self._events.latest, stalled_s)
            deadline_s = wait.deadline_s
        if stalled_s > deadline_s:
            raise self._stalled(offset_end, progress, deadline_s)

    def _stalled(self, offset_end: int, progress: _Progress, deadline_s: float) -> SamzapyError:
        where = f"{self.topic}-{self.partition}"
        if progress.has_lost_brokers:
            return self._connection.unavailable(
                deadline_s, f"reading {where} up to offset {offset_end}", self._events.latest
            )
        return DeadlineError(
            f"wanted to read {where} up to offset {offset_end}, found an open transaction from offset "
            f"{progress.eof_seen} on for {deadline_s:.0f} s: its writer is slow, or died and is not fenced yet; "
            "see `samzapy doctor`. One that stays for minutes is hanging: docs/guides/kafka-clients.md"
        )


def read_to_end(
    connection: KafkaConnection,
    topic: str,
    partition: int = 0,
    offset_from: int = 0,
    deadline_s: float = DEADLINE_S,
) -> Iterator[LogRecord]:
    """Call `PartitionReader.read_to_end_once` on a new reader."""
    return PartitionReader(connection, topic, partition).read_to_end_once(offset_from, deadline_s)


class Stamp(NamedTuple):
    """The time of a record.

    The broker set it on append if `is_append_time`; otherwise the producer did.
    """

    timestamp_ms: int
    is_append_time: bool


def stamps_at(
    connection: KafkaConnection, offsets: Mapping[tuple[str, int], int], deadline_s: float = DEADLINE_S
) -> dict[tuple[str, int], Stamp]:
    """The times of the records at those offsets of `(topic, partition)`.

    The records may be uncommitted. Records that are gone are left out, and so are those that are not read within
    `deadline_s`, which is for all.
    """
    stamps: dict[tuple[str, int], Stamp] = {}
    if not offsets:
        return stamps
    events = ErrorEvents()
    consumer = make_consumer(connection, {**READING, "isolation.level": "read_uncommitted"}, events)
    try:
        consumer.assign([TopicPartition(*place, offset) for place, offset in sorted(offsets.items())])
        waiting = set(offsets)
        give_up_at = time.monotonic() + deadline_s
        while waiting and time.monotonic() < give_up_at:
            for message in _available(consumer):
                place = (message.topic(), message.partition())
                if place not in waiting:
                    continue
                error = message.error()
                if error is None and message.offset() == offsets[place]:
                    kind, timestamp_ms = message.timestamp()
                    stamps[place] = Stamp(timestamp_ms, kind == TIMESTAMP_LOG_APPEND_TIME)
                is_read = error is None or error.code() == KafkaError._PARTITION_EOF
                if is_read or lasting(error, "reading the time of a record", events) is not None:
                    waiting.discard(place)
                    consumer.pause([TopicPartition(*place)])
        return stamps
    finally:
        consumer.close()


def end_offsets(
    cluster: KafkaConnection | Admin,
    topic_partitions: Iterable[tuple[str, int]],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    deadline_s: float = DEADLINE_S,
) -> dict[tuple[str, int], int]:
    """The end of each `(topic, partition)`.

    It is the high watermark, or with READ_COMMITTED the last stable offset.
    """
    return _ask_offsets(_admin(cluster), topic_partitions, _LATEST, isolation, deadline_s)


def beginning_offsets(
    cluster: KafkaConnection | Admin,
    topic_partitions: Iterable[tuple[str, int]],
    deadline_s: float = DEADLINE_S,
) -> dict[tuple[str, int], int]:
    """The first offset that each `(topic, partition)` still holds."""
    return _ask_offsets(
        _admin(cluster),
        topic_partitions,
        _EARLIEST,
        IsolationLevel.READ_UNCOMMITTED,
        deadline_s,
    )


def offsets_at(
    connection: KafkaConnection,
    topic_partitions: Iterable[tuple[str, int]],
    timestamp_ms: int,
    deadline_s: float = DEADLINE_S,
) -> dict[tuple[str, int], int]:
    """The first offset of each `(topic, partition)` from a time on.

    The record has that timestamp or a later one. It is the end if there is no such record.
    """
    wanted = list(topic_partitions)
    admin = Admin(connection)
    # The ends come first: if an end grows meanwhile, only a little more is read.
    ends = _ask_offsets(admin, wanted, _LATEST, IsolationLevel.READ_UNCOMMITTED, deadline_s)
    spec = OffsetSpec.for_timestamp(timestamp_ms)
    offsets = _ask_offsets(admin, wanted, spec, IsolationLevel.READ_UNCOMMITTED, deadline_s)
    return {where: ends[where] if offset < 0 else offset for where, offset in offsets.items()}


def _admin(cluster: KafkaConnection | Admin) -> Admin:
    """The given `Admin`, or a new one, which costs threads and a connection."""
    return cluster if isinstance(cluster, Admin) else Admin(cluster)


def _ask_offsets(
    admin: Admin,
    topic_partitions: Iterable[tuple[str, int]],
    spec: OffsetSpec,
    isolation: IsolationLevel,
    deadline_s: float,
) -> dict[tuple[str, int], int]:
    wanted = sorted(set(topic_partitions))
    if not wanted:
        return {}
    topics = ", ".join(sorted({topic for topic, _ in wanted}))
    doing = f"asking for offsets of {topics}"
    wait, started = admin.connection.wait(deadline_s), time.monotonic()

    # The client sometimes holds a request about a new topic back for more than 3 s (measured: 1 of 60), and answers a
    # second request at once. So the first time-outs are short; the later ones give a slow cluster time.
    timeouts_s = chain((0.7, 1.5, 1.5, 1.5, 3.0), repeat(_ASK_S))

    def ask() -> dict[tuple[str, int], int]:
        try:
            futures = admin.client.list_offsets(
                {TopicPartition(topic, partition): spec for topic, partition in wanted},
                isolation_level=isolation,
                request_timeout=wait.try_s(next(timeouts_s)),
            )
            offsets = {(at.topic, at.partition): future.result().offset for at, future in futures.items()}
        except KafkaException as error:
            cause = kafka_error(error)
            admin.note(cause)
            are_there = _refresh_metadata(admin, wanted, wait.try_s(_LOOK_S))
            if cause.code() not in _NOT_THERE:
                raise translate(cause, doing) from error
            # A broker that was killed knows its topics before it leads them again.
            if are_there or time.monotonic() - started < min(_APPEARS_WITHIN_S, deadline_s / 2):
                raise TemporaryError(doing) from error
            raise MissingTopicError(
                f"wanted the offsets of {topics} at {admin.connection.bootstrap_servers}, found that one of "
                f"these topics or partitions is not there ({cause.str()}); create it, or correct its name in the "
                "configuration"
            ) from error
        if OFFSET_INVALID in offsets.values():
            # The leader that the client knows is gone: it answers without an error and without an offset. As an end,
            # this answer would make a topic look empty. The client keeps the broker until its metadata are refreshed.
            _refresh_metadata(admin, wanted, wait.try_s(_LOOK_S))
            raise TemporaryError(f"{doing}: the client answered without one")
        return offsets

    try:
        with wait:
            return Retrying(
                retry=retry_if_exception_type(TemporaryError),
                stop=lambda _: wait.is_over,
                wait=wait_random(0.05, 0.2),
                before_sleep=lambda _: wait.remind(admin.connection.bootstrap_servers, admin.reported),
                reraise=True,
            )(ask)
    except TemporaryError as error:
        raise admin.unavailable(wait.waited_s, doing) from error


def _refresh_metadata(admin: Admin, topic_partitions: Iterable[tuple[str, int]], timeout_s: float = _LOOK_S) -> bool:
    """Make the client read the leaders again.

    Returns whether the partitions exist, with a leader or without. After an error the client goes on with its metadata
    until they expire, after minutes. Meanwhile a restarted broker refuses each request (FENCED_LEADER_EPOCH), and a
    partition that once had no leader still has none.

    Raises:
        ConfigError: this user may not see one of the topics. A question about its offsets does not say so.
    """
    wanted: dict[str, set[int]] = {}
    for topic, partition in topic_partitions:
        wanted.setdefault(topic, set()).add(partition)
    try:
        topics = {topic: admin.client.list_topics(topic, timeout=timeout_s).topics[topic] for topic in wanted}
    except KafkaException:
        # No broker answers, so they may be there.
        return True
    for topic, described in topics.items():
        if described.error is not None and lacks_right(described.error):
            raise translate(described.error, f"looking for the partitions of {topic}")
    return all(partitions <= topics[topic].partitions.keys() for topic, partitions in wanted.items())


def _available(consumer: Consumer) -> list[Any]:
    """The messages that have arrived; waits a little for the first, and not for more."""
    first = consumer.poll(_POLL_S)
    return [] if first is None else [first, *consumer.consume(_RECORDS_PER_POLL, 0)]


def lasting(error: KafkaError, doing: str, events: ErrorEvents) -> SamzapyError | None:
    """A consumer's error as one of ours; None if the client recovers by itself."""
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        # We assign partitions and join no group; librdkafka asks for its coordinator all the same.
        return None
    if consumer_recovers(error):
        events.add(error)
        return None
    return translate(error, doing)


def record_of(message: Any, offset: int) -> LogRecord:
    """A message as a record of a log. Headers that cannot be read make it foreign."""
    return LogRecord(
        offset=offset,
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=headers_of(message),
    )
