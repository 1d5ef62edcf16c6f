"""Why the watermark of a task is where it is. Pure.

The reasons are the clocks of its inputs, and what is left to read in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from samzapy.model.clock_entry import ClockEntry, InputClock
from samzapy.stream.audit import time_text

_UNKNOWN: Final = InputClock(clock_ms=None, offset_next=0, quiet_since_ms=0, is_known=False)
"""The clock of an input without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputEnd:
    """How far an input was read.

    Attributes:
        offset_next: the position of the task.
        offset_stable: the end of what is committed.
        offset_high: the end, with open transactions and what is behind them.
    """

    offset_next: int
    offset_stable: int
    offset_high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InputTime:
    """The clock of one input.

    Attributes:
        clock_ms: None if it is not known, or holds nothing.
        holds: whether it holds the watermark back.
        why: what it is about the input, for people.
    """

    ssp: str
    clock_ms: int | None
    message_at_ms: int | None
    unread: int
    holds: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeExplanation:
    """The watermark of a task, and its inputs in their order."""

    watermark_ms: int | None
    has_ended: bool
    inputs: tuple[InputTime, ...]

    def as_json(self) -> Mapping[str, object]:
        inputs = [
            {
                "ssp": item.ssp,
                "clockMs": item.clock_ms,
                "lastMessageAtMs": item.message_at_ms,
                "unread": item.unread,
                "holds": item.holds,
                "why": item.why,
            }
            for item in self.inputs
        ]
        return {"watermarkMs": self.watermark_ms, "hasEnded": self.has_ended, "inputs": inputs}

    @property
    def text(self) -> str:
        """One sentence for people."""
        if self.has_ended:
            return "all inputs have ended"
        watermark = (
            "there is no watermark" if self.watermark_ms is None else f"watermark {time_text(self.watermark_ms)}"
        )
        held = [f"{item.ssp} ({item.why})" for item in self.inputs if item.holds]
        return f"{watermark}, held by {', '.join(held)}" if held else watermark


def explain_time(entry: ClockEntry | None, ends: Mapping[str, InputEnd], *, idle_ms: int) -> TimeExplanation:
    """Explain the watermark of a task.

    Args:
        entry: what the task has committed last; None before its first message.
        ends: by input that keeps time.
        idle_ms: of task.event.time.idle.ms.
    """
    clocks = {} if entry is None else entry.inputs
    holding = _holding(clocks, ends)
    return TimeExplanation(
        watermark_ms=None if entry is None or entry.has_ended else entry.watermark_ms,
        has_ended=entry is not None and entry.has_ended,
        inputs=tuple(
            _input_time(ssp, end, clocks.get(ssp, _UNKNOWN), holds=ssp in holding, idle_ms=idle_ms)
            for ssp, end in sorted(ends.items())
        ),
    )


def _holding(clocks: Mapping[str, InputClock], inputs: Iterable[str]) -> Sequence[str]:
    """The inputs that hold the watermark back.

    These are the inputs without a known clock, else those with the least one.
    """
    if unknown := [ssp for ssp in inputs if not clocks.get(ssp, _UNKNOWN).is_known]:
        return unknown
    known = {ssp: clock.clock_ms for ssp, clock in clocks.items() if clock.is_known and clock.clock_ms is not None}
    least_ms = min(known.values(), default=None)
    return [ssp for ssp, clock_ms in known.items() if clock_ms == least_ms]


def _input_time(ssp: str, end: InputEnd, clock: InputClock, *, holds: bool, idle_ms: int) -> InputTime:
    # A clock that is known, and has no time, is that of an input without messages.
    is_silent = clock.is_known and clock.clock_ms is None
    return InputTime(
        ssp=ssp,
        clock_ms=clock.clock_ms if clock.is_known else None,
        message_at_ms=clock.message_at_ms,
        unread=max(0, end.offset_stable - end.offset_next),
        holds=holds,
        why=_why(end, clock.message_at_ms, is_silent=is_silent, idle_ms=idle_ms),
    )


def _why(end: InputEnd, message_at_ms: int | None, *, is_silent: bool, idle_ms: int) -> str:
    since = "no message yet" if message_at_ms is None else f"last message handled at {time_text(message_at_ms)}"
    if end.offset_next < end.offset_stable:
        return f"{end.offset_stable - end.offset_next} offsets are not read; {since}"
    if end.offset_stable < end.offset_high:
        return f"a transaction is open from offset {end.offset_stable} on; {since}"
    if is_silent:
        return "no message yet; it holds nothing back"
    if message_at_ms is None:
        return "read to its end, no message yet; it holds nothing back from the next look on"
    runs = f"its clock runs after {idle_ms} ms without one" if idle_ms else "task.event.time.idle.ms=0 lets it stand"
    return f"read to its end, {since}; {runs}"
