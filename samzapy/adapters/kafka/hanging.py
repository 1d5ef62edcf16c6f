"""Ends transactions that a broker has left open in some partitions.

A broker that restarts may write the end of a transaction to the partitions that have a leader then, and forget the
others (docs/internals/non-obvious.md). The transaction is over for its coordinator, and open in these partitions:
readers of committed records stop in front of it, and the next commit under the same id would commit it too. A record
of the same id that is aborted there ends it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from confluent_kafka import IsolationLevel
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import Admin, KafkaConnection
from samzapy.adapters.kafka.reading import end_offsets
from samzapy.errors import ConfigError, TemporaryError
from samzapy.model.text import some
from samzapy.model.topics import changelog_topic, checkpoint_topic, declared_outputs

if TYPE_CHECKING:
    from samzapy.config import JobConfig
    from samzapy.container.task.ports import Place

_LOG = logging.getLogger(__name__)
_ASK_S: Final = 4.0
_MOVES_WITHIN_S: Final = 0.5
"""A partition whose last stable offset moves within this time has transactions that end."""
_LED_WITHIN_S: Final = 10.0
"""How long a partition may have no leader. In one that has none no hanging transaction can be seen."""
_KEY: Final = b"samzapy-aborted"


def _none() -> Collection[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTopics:
    """The topics to which a transactional id writes.

    Attributes:
        own: samzapy's own topics, which it alone reads.
        outputs: others. A reader of uncommitted records sees a record that is aborted there, so it is written only
            where a transaction does not end within half a second.
        read: the inputs. No record is aborted there.
    """

    own: Collection[str]
    outputs: Callable[[], Collection[str]] = _none
    read: frozenset[str] = frozenset()

    @property
    def all(self) -> frozenset[str]:
        return frozenset((*self.own, *self.outputs()))

    def unknown_of(self, topics: Collection[str]) -> Sequence[str]:
        """Those of `topics` that are not among these, nor inputs; in their order."""
        known = self.all | self.read
        return [topic for topic in topics if topic not in known]


def written_by_workers(config: JobConfig, outputs: Callable[[], Collection[str]] = _none) -> WrittenTopics:
    """The topics to which workers write: own ones, and known outputs.

    Args:
        outputs: topics that the job file does not declare.
    """
    own = [
        checkpoint_topic(config.job),
        *(changelog_topic(config.job, store.name) for store in config.stores),
        *(_topic(item.system_stream) for item in config.intermediates),
    ]
    read, declared = frozenset(_topic(stream) for stream in config.streams_read), declared_outputs(config)
    return WrittenTopics(own=own, outputs=lambda: {*declared, *outputs()} - read, read=read)


def _topic(stream: str) -> str:
    return stream.partition(".")[2]


class OpenProducer(Protocol):
    """A producer that has just taken its id over."""

    def begin(self) -> None: ...
    def produce(self, topic: str, key: bytes | None, value: bytes | None, partition: int | None = None) -> None: ...
    def flush(self) -> None: ...
    def abort(self) -> None: ...


def places_that_hang(connection: KafkaConnection, written: WrittenTopics) -> Sequence[Place]:
    """The partitions in which a transaction is open.

    It hangs, or is of another id. Outputs that this user may not see are left out: no transaction of ours can be
    committed there.

    Raises:
        TemporaryError: a partition has had no leader for ten seconds.
        ConfigError: this user may not see one of samzapy's own topics.
        SamzapyError: no broker answered.
    """
    outputs = frozenset(written.outputs()) - frozenset(written.own)
    topics = KafkaAdmin(connection)
    try:
        places = _led_places(topics, {*written.own, *outputs})
    except ConfigError:
        places = _led_places(topics, {*written.own, *_visible(topics, outputs)})
    # One client for all questions: each would cost threads and a connection.
    admin, begun_s = Admin(connection), time.monotonic()
    stable = _open_places(admin, places)
    hanging = [place for place in stable if place[0] not in outputs]
    others = {place: offset for place, offset in stable.items() if place[0] in outputs}
    if others:
        time.sleep(max(0.0, begun_s + _MOVES_WITHIN_S - time.monotonic()))
        still = _open_places(admin, list(others))
        hanging += [place for place, offset in still.items() if offset == others[place]]
    return hanging


def _visible(admin: KafkaAdmin, outputs: Collection[str]) -> Sequence[str]:
    """Those of `outputs` that this user may see; warns of the others.

    An output is noted for good, and this user may lose the right to it.
    """
    visible = []
    for topic in sorted(outputs):
        try:
            admin.partitions([topic])
        except ConfigError as error:
            _LOG.warning("cannot look for a transaction that hangs in the output %s: %s", topic, error)
        else:
            visible.append(topic)
    return visible


def _led_places(admin: KafkaAdmin, topics: Collection[str]) -> Sequence[Place]:
    """All partitions of the topics that exist, once each has a leader."""

    def look() -> Sequence[Place]:
        led = {
            (topic, partition): is_led
            for topic, partitions in sorted(admin.partitions(topics).items())
            for partition, is_led in sorted(partitions.items())
        }
        if leaderless := [f"{topic}-{partition}" for (topic, partition), is_led in led.items() if not is_led]:
            raise TemporaryError(
                f"wanted a leader for each partition to which a transactional id writes, found none for "
                f"{some(leaderless)}; bring a broker back that has a replica of it. A transaction of the id may hang "
                "there, and the next commit would commit that one too"
            )
        return [*led]

    return Retrying(
        retry=retry_if_exception_type(TemporaryError),
        stop=stop_after_delay(_LED_WITHIN_S),
        wait=wait_random(0.05, 0.2),
        reraise=True,
    )(look)


def end_in(producer: OpenProducer, places: Sequence[Place]) -> None:
    """End what hangs of the producer's id in partitions.

    Transactions of others that are open there are not touched.

    Raises:
        SamzapyError: it may not be done; the producer must be made again.
    """
    if places:
        producer.begin()
        for topic, partition in places:
            producer.produce(topic, _KEY, None, partition)
        producer.flush()
        producer.abort()
        _LOG.debug("ended what hung of a transactional id in %d partitions, if anything did", len(places))


def _open_places(admin: Admin, places: Collection[Place]) -> dict[Place, int]:
    """Where transactions are open: the last stable offsets."""
    ends = end_offsets(admin, places, IsolationLevel.READ_UNCOMMITTED, _ASK_S)
    stable = end_offsets(admin, places, IsolationLevel.READ_COMMITTED, _ASK_S)
    return {place: offset for place, offset in stable.items() if offset < ends[place]}
