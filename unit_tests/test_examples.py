"""The examples of task classes, with time set by the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from samzapy.testing.task_kit import InputMessage, run_task

_EXAMPLES = Path(__file__).parents[1] / "examples"
_MINUTE, _DAY = 60_000, 86_400_000
_STATEFUL = ("fraud_timer", "totals_with_ttl", "per_minute")


@pytest.mark.parametrize("name", _STATEFUL)
def test_an_example_is_short(name: str) -> None:
    lines = (_EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()

    assert 35 >= sum(bool(line.strip()) for line in lines)


def a_payment(amount: float, after_minutes: int = 0, account: str = "a") -> InputMessage:
    return InputMessage(key=account, value={"amount": amount}, after_ms=after_minutes * _MINUTE)


def test_much_money_within_half_an_hour_is_reported_once() -> None:
    run = run_task(
        _EXAMPLES / "fraud_timer.py",
        [a_payment(6000), a_payment(5000, 29), a_payment(500, 1), a_payment(9000, account="b")],
        advance_ms=40 * _MINUTE,
    )

    assert [("a", 11000.0)] == [(alert.key, alert.value) for alert in run.sent_to("alerts")]
    assert {} == run.state("spent")


def test_an_account_that_was_quiet_starts_from_zero() -> None:
    run = run_task(_EXAMPLES / "fraud_timer.py", [a_payment(6000), a_payment(5000, 31)])

    assert () == run.sent_to("alerts")
    assert {"a": 5000.0} == run.state("spent")


def test_a_total_is_kept_for_thirty_days_after_the_last_order() -> None:
    orders = [
        InputMessage(key="a", value={"amount": 1.0}, timestamp_ms=1_700_000_000_000 + days * _DAY)
        for days in (0, 29, 58, 89)
    ]

    # In no time of the host, as when an old topic is read again.
    run = run_task(_EXAMPLES / "totals_with_ttl.py", orders)

    assert [1, 2, 3, 1] == [total.value.orders for total in run.sent_to("totals")]
    assert {} == run_task(_EXAMPLES / "totals_with_ttl.py", orders, advance_ms=31 * _DAY).state("total")


def a_view(at_ms: int, page: str = "a") -> InputMessage:
    return InputMessage(key=page, value=1, timestamp_ms=1_700_000_040_000 + at_ms)


def test_each_minute_with_views_is_counted_once() -> None:
    views = [a_view(0), a_view(40_000), a_view(63_000), a_view(58_000), a_view(240_000), a_view(60_000)]

    run = run_task(_EXAMPLES / "per_minute.py", views, advance_ms=3 * _MINUTE)

    counts = [(count.value["minute"] - 1_700_000_040_000, count.value["count"]) for count in run.sent_to("counts")]
    assert [(0, 3), (_MINUTE, 1), (4 * _MINUTE, 1)] == counts
    assert 1 == len(run.sent_to("late-views"))
    assert {} == run.state("minutes") == run.state("_timers")
