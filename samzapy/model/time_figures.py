"""The event time and the timers of a task, as they are reported.

A worker knows the clocks of the inputs. The driver knows up to when the inputs are covered, so it works out the
watermark of this moment (`container.watermarks`). Only that goes into heartbeats.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

_LONG_MAX: Final = 2**63 - 1
_HELD_BY_LENGTH_MAX: Final = 400


class SeenClock(NamedTuple):
    """The clock of one input, as the last transaction of its task left it.

    Attributes:
        clock_ms: if it is not known, the clock once the input is covered without a message.
        quiet_since_ms: since when the input has had no message, on the host's clock since its boot.
    """

    clock_ms: int
    quiet_since_ms: int
    is_known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeFigures:
    """The event time and the timers of a task at one moment.

    Attributes:
        at_ms: that moment, on the host's clock since its boot.
        watermark_ms: None while there is none, and once the inputs have ended.
        lag_ms: how far the watermark is behind the host's clock; set by the driver.
        held_by: the input that holds the watermark back; empty if none does. Set by the driver.
        timers_pending: timers that are set, and entries that wait for the end of their ttl.
        inputs: by SSPKb, the clocks that may hold the watermark back; from worker to driver only.
    """

    at_ms: int
    watermark_ms: int | None = None
    lag_ms: int | None = None
    held_by: str = ""
    timers_pending: int = 0
    inputs: Mapping[str, SeenClock] = field(default_factory=dict)

    @classmethod
    def newest(cls, times: Collection[TimeFigures | None]) -> TimeFigures | None:
        """The one of the latest moment; None where there is none."""
        return max((time for time in times if time is not None), key=lambda time: time.at_ms, default=None)

    @classmethod
    def worst(cls, times: Collection[TimeFigures | None]) -> TimeFigures | None:
        """That of the task that is furthest behind, with the timers of all tasks."""
        known = [time for time in times if time is not None]
        if not known:
            return None
        slowest = max(known, key=lambda time: -1 if time.lag_ms is None else time.lag_ms)
        return replace(slowest, timers_pending=sum(time.timers_pending for time in known))

    def as_json(self) -> dict[str, object]:
        """The fields that have a value."""
        fields: dict[str, object] = {"atMs": self.at_ms, "timersPending": self.timers_pending}
        if self.watermark_ms is not None:
            fields["watermarkMs"] = self.watermark_ms
        if self.lag_ms is not None:
            fields["lagMs"] = self.lag_ms
        if self.held_by:
            fields["heldBy"] = self.held_by
        if self.inputs:
            fields["inputs"] = {ssp_kb: list(clock) for ssp_kb, clock in self.inputs.items()}
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, object]) -> TimeFigures:
        """The inverse of `as_json`, also for another release.

        Raises:
            ValueError: a field is of another type or out of range.
        """
        held_by, inputs = fields.get("heldBy", ""), fields.get("inputs", {})
        if not isinstance(held_by, str):
            raise _wrong("heldBy", "the text of an SSP", held_by)
        if not isinstance(inputs, dict):
            raise _wrong("inputs", "an object", inputs)
        return cls(
            at_ms=_number(fields, "atMs", 0),
            watermark_ms=_number(fields, "watermarkMs") if "watermarkMs" in fields else None,
            lag_ms=_number(fields, "lagMs", 0) if "lagMs" in fields else None,
            held_by=held_by[:_HELD_BY_LENGTH_MAX].encode(errors="replace").decode(),
            timers_pending=_number(fields, "timersPending", 0),
            inputs={str(ssp_kb): _clock(clock) for ssp_kb, clock in inputs.items()},
        )


def _clock(value: object) -> SeenClock:
    match value:
        case [int(clock_ms), int(quiet_since_ms), bool(is_known)]:
            return SeenClock(clock_ms, quiet_since_ms, is_known)
        case _:
            raise _wrong("each of inputs", "a clock, a moment, and whether it is known", value)


def _number(fields: Mapping[str, object], name: str, least: int = -_LONG_MAX) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _LONG_MAX:
        raise _wrong(name, f"a whole number from {least} to {_LONG_MAX}", value)
    return value


def _wrong(name: str, wanted: str, value: object) -> ValueError:
    return ValueError(f"time.{name}: wanted {wanted}, found {repr(value)[:100]}")
