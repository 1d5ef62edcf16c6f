"""When a transactional producer must be made anew before its next transaction.

The hole (librdkafka issue 5423): librdkafka ends transactions by the old protocol, in
which an EndTxn names the producer epoch but not the transaction. When the connection breaks during an EndTxn,
the client sends it again on a new one, and the first, delayed somewhere, may arrive while the *next*
transaction of the same epoch is open: half of that becomes visible as committed. Nothing tells the client.

The guard: an EndTxn of an older epoch is refused by the broker. So after any sign that a transaction may have
been ended twice, the next one runs under a new epoch, that is, in a new producer. The signs overlap on
purpose, since each alone has a gap: librdkafka suppresses a repeated identical error event for 30 s,
statistics come late, and a retry that was slow elsewhere shows in the duration only. A false alarm costs one
initialisation (about 0.1 s); a missed sign costs the data. Proven with a proxy that holds frames back.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionCounters:
    """The client's statistics on connections, summed over all brokers.

    The counters only grow.
    """

    disconnects: int = 0
    request_timeouts: int = 0
    retries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSigns:
    """The client's events from `begin` until after the end of a transaction.

    If the question comes later, until then.

    Attributes:
        error_events: the number of the client's error events, of any kind.
        counters_before: as known at `begin`.
        counters_after: as known now.
        end_duration_s: how long commit or abort alone took, everything having been flushed before; None while
            the transaction is open.
    """

    error_events: int
    counters_before: ConnectionCounters
    counters_after: ConnectionCounters
    end_duration_s: float | None


def must_renew(signs: TransactionSigns, *, retry_backoff_min_s: float) -> bool:
    """Whether the next transaction needs a new producer.

    Args:
        retry_backoff_min_s: the shortest time that the client waits before it sends a request again, jitter
            included. An EndTxn that was answered sooner was sent once.
    """
    return (
        signs.error_events > 0
        or signs.counters_after != signs.counters_before
        or (signs.end_duration_s is not None and signs.end_duration_s >= retry_backoff_min_s)
    )
