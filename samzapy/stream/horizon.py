"""How much of a stream's history is whole. Pure.

Compaction removes a record only when a later one of its key is older than `min.compaction.lag.ms`. So from the first
younger record, the *audit horizon*, the history is complete: it has every record since, and the value that each key had
when it began. In front of it only the compacted rest is left: the latest value of each key as of then, without the
values in between and without removed keys.

A downgrade (`coordinator.lifecycle.downgrade`) has the topic compacted at once. So before the last record that one
wrote nothing is known to be whole, however young it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from samzapy.model.topic_checks import TopicFound
from samzapy.stream.log import LogRecord

CLOCK_MARGIN_MS = 60 * 60 * 1000
"""The broker's clock may be ahead of ours."""

DOWNGRADE_CAUSE: Final = "downgrade"
"""With this word the cause begins of all that a downgrade writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Which part of a topic's history a source holds.

    Attributes:
        whole_from: the offset from which on every record is there.
        offset_end: the offset after the last one that was asked for.
        known_until_ms: it tells of every moment up to this one (wall clock).
    """

    whole_from: int
    offset_end: int
    known_until_ms: int

    def is_whole_before(self, offset: int | None) -> bool:
        """Whether the state just before the record at `offset` is known completely.

        None is the end.
        """
        return (self.offset_end if offset is None else offset) >= self.whole_from


def compaction_lag_ms(topic: TopicFound) -> int:
    """For how long the topic leaves every record alone; 0 where that is not told."""
    text = topic.settings.get("min.compaction.lag.ms", "")
    return int(text) if text.isdigit() else 0


def horizon_ms(now_ms: int, compaction_lag_ms: int) -> int:
    """Compaction has taken nothing that was appended after this."""
    return now_ms - compaction_lag_ms + CLOCK_MARGIN_MS


def is_of_downgrade(record: LogRecord) -> bool:
    """Whether a downgrade wrote the record."""
    return any(
        name == "cause" and value is not None and value.startswith(DOWNGRADE_CAUSE.encode())
        for name, value in record.headers
    )


def offset_after_downgrade(records: Iterable[LogRecord]) -> int:
    """The offset after the last record that a downgrade wrote; 0 where none did."""
    offset = 0
    for record in records:
        if is_of_downgrade(record):
            offset = record.offset + 1
    return offset


def extent_of_topic(*, offset_first: int, offset_of_horizon: int, offset_end: int, now_ms: int) -> Extent:
    """The extent of a topic's history.

    Args:
        offset_first: where the topic begins. A compacted one begins at 0 for ever, so another number means that
            records were deleted, and then nothing of it is known to be whole.
        offset_of_horizon: of the first record that is younger than the horizon; the end where there is none.
    """
    return Extent(
        whole_from=offset_end + 1 if offset_first > 0 else offset_of_horizon,
        offset_end=offset_end,
        known_until_ms=now_ms,
    )


def joined(extents: Sequence[Extent]) -> Extent:
    """The extent of several sources of one topic together.

    Each source that reaches the whole part of the next makes it longer.
    """
    assert extents, "nothing to join"
    newest, *older = sorted(extents, key=lambda extent: extent.offset_end, reverse=True)
    whole_from = newest.whole_from
    for extent in older:
        if extent.offset_end >= whole_from:
            whole_from = min(whole_from, extent.whole_from)
    return Extent(
        whole_from=whole_from,
        offset_end=newest.offset_end,
        known_until_ms=max(extent.known_until_ms for extent in extents),
    )
