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
from samzapy.runtime.stream_source import Bounded, StreamSource, check_reached, source_of_topic
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
        return moments_of(source_of_topic(self._address, page_limits(time.monotonic, RECORDS_MAX)), at)


def moments_of(source: StreamSource, at: Sequence[Position | None]) -> Sequence[Moment]:
    """The moments `at`, the earliest first, in one reading; None is the end.

    Raises:
        RejectedError: a moment is not reached yet.
        ConfigError: the moments are not in their order.
        RejectedError, DeadlineError: the source has the limits of a page, and the reading passes one.
    """
    for position in at:
        check_reached(position, source, "moment")
    reading = Reading(source.records())
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


def page_limits(now_s: Callable[[], float], records_max: int) -> Bounded:
    """The limits of a page, for all readings of one view.

    Other threads run between the records.

    Raises, while the records are read:
        RejectedError: a reading has more records.
        DeadlineError: the readings take too long.
    """
    deadline_s = now_s() + READ_S

    def bounded(records: Iterator[LogRecord]) -> Iterator[LogRecord]:
        for number, record in enumerate(records):
            if number >= records_max:
                raise RejectedError(
                    f"wanted at most {records_max:,} records to read for a moment, found more; use `samzapy stream "
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

    return bounded
