from __future__ import annotations

import pytest

from samzapy.stream.end_txn_guard import ConnectionCounters, TransactionSigns, must_renew


def signs(
    *,
    error_events: int = 0,
    before: ConnectionCounters = ConnectionCounters(disconnects=3),  # noqa: B008
    after: ConnectionCounters = ConnectionCounters(disconnects=3),  # noqa: B008
    end_duration_s: float | None = 0.01,
) -> TransactionSigns:
    return TransactionSigns(
        error_events=error_events,
        counters_before=before,
        counters_after=after,
        end_duration_s=end_duration_s,
    )


def renews(signs: TransactionSigns) -> bool:
    return must_renew(signs, retry_backoff_min_s=0.2)


def test_a_quiet_transaction_keeps_its_producer() -> None:
    assert not renews(signs())


def test_a_quiet_open_transaction_keeps_its_producer() -> None:
    assert not renews(signs(end_duration_s=None))


def test_any_error_event_renews() -> None:
    assert renews(signs(error_events=1))


@pytest.mark.parametrize(
    "after",
    [
        ConnectionCounters(disconnects=4),
        ConnectionCounters(disconnects=3, request_timeouts=1),
        ConnectionCounters(disconnects=3, retries=1),
        # A broker that left the statistics takes its counts along: a change, whatever its sign.
        ConnectionCounters(disconnects=2),
    ],
)
def test_a_change_of_any_counter_renews(after: ConnectionCounters) -> None:
    assert renews(signs(after=after))


def test_an_end_as_slow_as_the_smallest_back_off_may_have_been_sent_twice() -> None:
    assert renews(signs(end_duration_s=0.2))
    assert not renews(signs(end_duration_s=0.199))


def test_counters_from_before_the_transaction_are_no_sign() -> None:
    assert not renews(signs(before=ConnectionCounters(retries=9), after=ConnectionCounters(retries=9)))
