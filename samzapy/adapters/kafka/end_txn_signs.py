"""The signs that a producer's EndTxn may have been sent twice.

See `stream.end_txn_guard`. They are the client's error events, its statistics, and the duration of the EndTxn alone.
"""

from __future__ import annotations

import re

from samzapy.adapters.kafka.clients import ErrorEvents
from samzapy.stream.end_txn_guard import ConnectionCounters, TransactionSigns, must_renew

RETRY_BACKOFF_MS = 250
"""The back-off that the producers are given; librdkafka's default is 100.

An EndTxn that takes as long as the shortest back-off counts as sent twice. On a busy machine one that was sent once
takes a while (1 to 3 ms when idle, measured), so the back-off is longer.
"""

RETRY_BACKOFF_MIN_S = 0.8 * RETRY_BACKOFF_MS / 1000
"""librdkafka varies each back-off by up to 20 %."""

_COUNTERS = re.compile(r'"(disconnects|req_timeouts|txretries)": ?(\d+)')


class EndTxnSigns:
    """Collects a producer's signs.

    A sign counts from the beginning of a transaction until after its end.
    """

    def __init__(self, events: ErrorEvents) -> None:
        self._events = events
        self._events_before = 0
        self._counters = ConnectionCounters()
        self._counters_before = self._counters
        self._end_duration_s: float | None = None
        self._has_ended_one = False

    def on_statistics(self, text: str) -> None:
        self._counters = parse_counters(text)

    def begin(self) -> None:
        self._events_before = self._events.count
        self._counters_before = self._counters
        self._end_duration_s = None

    def end(self, duration_s: float) -> None:
        self._end_duration_s = duration_s
        self._has_ended_one = True

    def must_renew(self) -> bool:
        """Whether the next transaction needs a new producer."""
        if not self._has_ended_one:
            # Signs from before the first transaction of this epoch cannot be of an EndTxn of this epoch.
            return False
        signs = TransactionSigns(
            error_events=self._events.count - self._events_before,
            counters_before=self._counters_before,
            counters_after=self._counters,
            end_duration_s=self._end_duration_s,
        )
        return must_renew(signs, retry_backoff_min_s=RETRY_BACKOFF_MIN_S)


def parse_counters(statistics: str) -> ConnectionCounters:
    """Sums over all brokers out of librdkafka's statistics.

    A pattern reads them, not a JSON parser, because they are 6 kB twice a second.
    """
    sums = {"disconnects": 0, "req_timeouts": 0, "txretries": 0}
    for name, count in _COUNTERS.findall(statistics):
        sums[name] += int(count)
    return ConnectionCounters(
        disconnects=sums["disconnects"], request_timeouts=sums["req_timeouts"], retries=sums["txretries"]
    )
