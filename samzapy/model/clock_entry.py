"""The entry that keeps how far event time has come in a task.

It belongs to the task (`stream.changelog.task_entry_key`), has no name, and its value is JSON. A task also takes the
entries of the tasks that had its keys before: `container.task.clocks.inherited` makes its first clocks of them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from samzapy.model.serde import SerdeError

STORE: Final = "_clocks"
"""The name of the store."""
KIND: Final = "clock"
"""Its kind, `stores._clocks.kind`.

Its scope is `bucket`: an entry belongs to a key bucket, and so to each task that has a part of it.
"""


class InputClock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The clock of one input of a task.

    Attributes:
        clock_ms: the event time up to which the input is complete, milliseconds since 1970. None: it has had no
            message, and everything in it was read, so it holds nothing back.
        is_known: whether `clock_ms` counts at once. If not, it counts once everything in the input was read and there
            was no message: after a rewind, or where a part of a merged task has had no message yet.
        offset_next: the position that belongs to it. A start before it is a rewind, and the clock is unknown then.
        quiet_since_ms: since when it has had no message for the task, on the host's clock since its boot.
        message_at_ms: when its last message was handled, milliseconds since 1970; for operators.
    """

    clock_ms: int | None
    offset_next: int
    quiet_since_ms: int
    is_known: bool = True
    message_at_ms: int | None = None


class PartWatermark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The watermark of a bucket that was ahead of the others at a merge."""

    bucket: int
    factor: int
    watermark_ms: int


class ClockEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The clocks of a task, as committed with its messages and timers.

    Attributes:
        epoch, execution_id: of the grant under which it was written.
        boot_ms, wall_ms: when it was written, on the host's clock since its boot, and in milliseconds since 1970.
        watermark_ms: no message is expected to be older; None while an input is not known.
        inputs: by SSP; those of which nothing is known are missing.
        has_ended: whether all inputs were read to their ends in this run, and `end_of_stream` was called.
        before_end_ms: the watermark before the inputs ended; None while they have not, or while there was none.
        parts: messages of these buckets are late by these larger watermarks, until the task's own has passed them.
    """

    epoch: int
    execution_id: str
    boot_ms: int
    wall_ms: int
    watermark_ms: int | None
    inputs: dict[str, InputClock]
    parts: tuple[PartWatermark, ...] = ()
    has_ended: bool = False
    before_end_ms: int | None = None


_DECODER: Final = msgspec.json.Decoder(ClockEntry)
_ENCODE: Final = msgspec.json.Encoder().encode


def encoded(entry: ClockEntry) -> bytes:
    """The bytes of an entry."""
    return _ENCODE(entry)


def decoded(raw: bytes) -> ClockEntry:
    """The inverse of `encoded`. Raises SerdeError for other bytes."""
    try:
        return _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SerdeError(
            f"store {STORE}: wanted the clocks of a task, found {raw[:60]!r}: {str(error)[:200]}"
        ) from error
