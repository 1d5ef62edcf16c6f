"""How much of a history is whole: of a topic, and of files of it."""

from __future__ import annotations

import pytest

from samzapy.model.topics import coordinator_spec
from samzapy.stream.horizon import CLOCK_MARGIN_MS, Extent, compaction_lag_ms, extent_of_topic, horizon_ms, joined
from samzapy.testing.builders import a_topic_found

DAY_MS = 24 * 60 * 60 * 1000


def from_to(whole_from: int, offset_end: int) -> Extent:
    return Extent(whole_from=whole_from, offset_end=offset_end, known_until_ms=offset_end)


def test_a_file_is_whole_for_records_younger_than_the_lag_with_an_hour_for_the_clocks() -> None:
    spec = coordinator_spec("flights-1")

    assert 7 * DAY_MS == compaction_lag_ms(a_topic_found(spec))
    assert 0 == compaction_lag_ms(a_topic_found(spec, settings={"min.compaction.lag.ms": ""}))
    assert DAY_MS + CLOCK_MARGIN_MS == horizon_ms(8 * DAY_MS, 7 * DAY_MS)


def test_the_moment_before_the_first_whole_record_is_whole() -> None:
    extent = extent_of_topic(offset_first=0, offset_of_horizon=7, offset_end=9, now_ms=5)

    assert [False, True, True] == [extent.is_whole_before(offset) for offset in (6, 7, None)]


def test_a_topic_that_lost_its_beginning_has_no_whole_moment() -> None:
    extent = extent_of_topic(offset_first=1, offset_of_horizon=1, offset_end=9, now_ms=5)

    assert not extent.is_whole_before(8)
    assert not extent.is_whole_before(None)


@pytest.mark.parametrize(
    ("extents", "whole_from"),
    [
        ([from_to(3, 10)], 3),
        ([from_to(0, 10), from_to(8, 20)], 0),
        ([from_to(8, 20), from_to(0, 10)], 0),
        ([from_to(0, 8), from_to(8, 20)], 0),
        ([from_to(0, 7), from_to(8, 20)], 8),
        ([from_to(0, 10), from_to(8, 20), from_to(25, 30)], 25),
        ([from_to(0, 10), from_to(8, 20), from_to(15, 30)], 0),
        ([from_to(5, 10), from_to(0, 30)], 0),
    ],
)
def test_overlapping_files_are_whole_together(extents: list[Extent], whole_from: int) -> None:
    joined_extent = joined(extents)

    assert (whole_from, max(extent.offset_end for extent in extents)) == (
        joined_extent.whole_from,
        joined_extent.offset_end,
    )
    assert joined_extent.known_until_ms == joined_extent.offset_end
