"""Which input holds the watermark of a task back, and why."""

from __future__ import annotations

from samzapy.inspection.time_explanation import InputEnd, TimeExplanation, explain_time
from samzapy.model.clock_entry import ClockEntry, InputClock

NOON = 1_767_268_800_000
READ = InputEnd(offset_next=9, offset_stable=9, offset_high=9)
ORDERS, RATES = "kafka.orders.0", "kafka.rates.0"


def a_clock(clock_ms: int | None, *, is_known: bool = True, message_at_ms: int | None = NOON) -> InputClock:
    return InputClock(clock_ms, 9, 0, is_known=is_known, message_at_ms=message_at_ms)


def explained(
    orders: InputClock | None, rates: InputClock | None, *, rates_end: InputEnd = READ, idle_ms: int = 30_000
) -> TimeExplanation:
    inputs = {ssp: clock for ssp, clock in {ORDERS: orders, RATES: rates}.items() if clock is not None}
    known = [clock.clock_ms for clock in inputs.values() if clock.is_known and clock.clock_ms is not None]
    watermark_ms = min(known) if len(inputs) == 2 and known else None
    entry = ClockEntry(epoch=1, execution_id="e1", boot_ms=0, wall_ms=0, watermark_ms=watermark_ms, inputs=inputs)
    return explain_time(entry, {ORDERS: READ, RATES: rates_end}, idle_ms=idle_ms)


def test_the_input_with_the_least_clock_holds_the_watermark() -> None:
    explanation = explained(a_clock(NOON), a_clock(NOON - 5000))

    assert NOON - 5000 == explanation.watermark_ms
    assert [False, True] == [item.holds for item in explanation.inputs]
    assert (
        "watermark 2026-01-01T11:59:55.000+00:00, held by kafka.rates.0 (read to its end, last message handled at "
        "2026-01-01T12:00:00.000+00:00; its clock runs after 30000 ms without one)" == explanation.text
    )


def test_an_input_that_lags_is_named_with_its_lag() -> None:
    behind = InputEnd(offset_next=9, offset_stable=50, offset_high=50)

    explanation = explained(a_clock(NOON), a_clock(NOON - 5000), rates_end=behind)

    assert "kafka.rates.0 (41 offsets are not read; last message handled at" in explanation.text
    assert [0, 41] == [item.unread for item in explanation.inputs]


def test_an_open_transaction_is_named_with_its_place() -> None:
    explanation = explained(
        a_clock(NOON), a_clock(NOON - 1), rates_end=InputEnd(offset_next=9, offset_stable=9, offset_high=12)
    )

    assert "a transaction is open from offset 9 on" in explanation.text


def test_an_input_of_which_nothing_is_known_holds_the_watermark() -> None:
    explanation = explained(a_clock(NOON), None)

    assert [False, True] == [item.holds for item in explanation.inputs]
    assert (
        "there is no watermark, held by kafka.rates.0 (read to its end, no message yet; it holds nothing back from"
        in (explanation.text)
    )


def test_an_input_that_is_not_known_after_a_rewind_holds_the_watermark() -> None:
    explanation = explained(a_clock(NOON), a_clock(NOON - 1, is_known=False))

    assert [False, True] == [item.holds for item in explanation.inputs]
    assert [NOON, None] == [item.clock_ms for item in explanation.inputs]


def test_an_input_without_messages_holds_nothing() -> None:
    explanation = explained(a_clock(NOON), a_clock(None, message_at_ms=None))

    assert [True, False] == [item.holds for item in explanation.inputs]
    assert "no message yet; it holds nothing back" == explanation.inputs[1].why


def test_clocks_that_the_configuration_stops_are_shown_so() -> None:
    explanation = explained(a_clock(NOON), a_clock(NOON - 1), idle_ms=0)

    assert "task.event.time.idle.ms=0 lets it stand" in explanation.text


def test_a_task_without_a_message_is_held_by_all_its_inputs() -> None:
    explanation = explain_time(None, {ORDERS: READ, RATES: READ}, idle_ms=1)

    assert explanation.watermark_ms is None and all(item.holds for item in explanation.inputs)


def test_ended_inputs_are_marked() -> None:
    entry = ClockEntry(
        epoch=1, execution_id="e1", boot_ms=0, wall_ms=0, watermark_ms=2**62 - 1, inputs={}, has_ended=True
    )

    explanation = explain_time(entry, {}, idle_ms=1)

    assert "all inputs have ended" == explanation.text
    assert {"watermarkMs": None, "hasEnded": True, "inputs": []} == explanation.as_json()
