"""Moments of the coordinator stream for the page (`adapters.web.moments.History`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.coordinator.replay import NOTHING, replay
from samzapy.errors import ConfigError, DeadlineError, RejectedError
from samzapy.inspection.page.moments import Moment
from samzapy.runtime.job_address import JobAddress
from samzapy.runtime.stream_source import StreamSource, check_reached, source_of_topic
from samzapy.stream.log import LogRecord
from samzapy.stream.position import Position, Reading

RECORDS_MAX: Final = 500_000
READ_S: Final = 20.0
_RECORDS_BETWEEN_RESTS: Final = 20
_REST_S: Final = 0.0002


class KafkaHistory:
    """Reads moments from the coordinator topic, each time from its beginning."""

    def __init__(self, connection: KafkaConnection, job: str) -> None:
        self._address = JobAddress(job=job, connection=connection)

    def moments(self, at: Sequence[Position | None]) -> Sequence[Moment]:
        """See `History.moments`."""
        return moments_of(source_of_topic(self._address), at, time.monotonic)


def moments_of(
    source: StreamSource, at: Sequence[Position | None], now_s: Callable[[], float], records_max: int = RECORDS_MAX
) -> Sequence[Moment]:
    """The moments `at`, the earliest first, in one reading; None is the end.

    Raises:
        RejectedError: a moment is not reached yet, or too many records are before it.
        ConfigError: the moments are not in their order.
        DeadlineError: the reading takes too long.
    """
    for position in at:
        check_reached(position, source, "moment")
    reading = Reading(_bounded(source.records(), now_s, records_max))
    replayed, moments = NOTHING, []
    for position in at:
        if position is not None and reading.last is not None and not position.includes(reading.last):
            raise ConfigError(f"wanted the earlier moment first, found {position} after a later one")
        replayed = replay(reading.until(position), topic=source.topic, before=replayed)
        last = reading.last
        moments.append(
            Moment(
                offset=None if last is None else last.offset,
                at_ms=None if last is None else last.timestamp_ms,
                offset_later=None if reading.next is None else reading.next.offset,
                state=replayed.state,
                is_whole=source.is_whole(reading),
            )
        )
    return moments


def _bounded(records: Iterator[LogRecord], now_s: Callable[[], float], records_max: int) -> Iterator[LogRecord]:
    """`records`, up to the limits of a page; other threads run in between."""
    deadline_s = now_s() + READ_S
    for number, record in enumerate(records):
        if number >= records_max:
            raise RejectedError(
                f"wanted a moment within the first {records_max:,} records, found more before it; use `samzapy stream "
                "state` and `samzapy stream diff`"
            )
        if number % _RECORDS_BETWEEN_RESTS == 0:
            # A thread that computes keeps Python's lock for 5 ms at a time, and heartbeats need it.
            time.sleep(_REST_S)
            if now_s() > deadline_s:
                raise DeadlineError(
                    f"wanted the moment within {READ_S:.0f} s, found {number:,} records read by then; use `samzapy "
                    "stream state` and `samzapy stream diff`"
                )
        yield record
