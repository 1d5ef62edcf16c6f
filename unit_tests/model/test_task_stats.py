"""Figures of tasks: none is lost on the way, and a sketch blames no wrong key."""

from __future__ import annotations

import json
from collections import Counter
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.model.store_size import StoreSize
from samzapy.model.task_stats import KEYS_KEPT, NO_KEYS, SAMPLED_MAX, KeySketch, TaskStats, key_text
from samzapy.model.time_figures import SeenClock, TimeFigures

KEYS = st.lists(st.one_of(st.none(), st.integers(0, 30).map(lambda number: b"%d" % number)), max_size=80)


@given(st.lists(KEYS, max_size=8))
def test_a_sketch_of_any_chunks_keeps_the_promise_of_misra_and_gries(chunks: list[list[bytes | None]]) -> None:
    sketch = reduce(KeySketch.merged, (KeySketch.of(chunk) for chunk in chunks), NO_KEYS)

    true = Counter(key.decode() for chunk in chunks for key in chunk if key is not None)
    sampled = sum(len(chunk) for chunk in chunks)
    assert sampled == sketch.sampled
    assert len(sketch.counts) <= KEYS_KEPT
    for key, count in true.items():
        assert count - sampled / (KEYS_KEPT + 1) <= sketch.counts.get(key, 0) <= count


def test_keys_of_equal_frequency_have_no_busiest_one() -> None:
    sketch = reduce(KeySketch.merged, [KeySketch.of([b"%d" % number for number in range(100)])] * 20, NO_KEYS)

    assert sketch.busiest() is None or sketch.busiest()[1] < 0.2  # type: ignore[index]


def test_the_busiest_key_is_named_with_its_share() -> None:
    sketch = KeySketch.of([b"a"] * 6 + [b"b"] * 2 + [None] * 2)

    assert ("a", 0.6) == sketch.busiest()
    assert NO_KEYS.busiest() is None


def test_messages_without_a_key_are_no_key_that_comes_often() -> None:
    assert KeySketch(5, {}) == KeySketch.of([None] * 5)


def test_a_sketch_forgets_messages_of_long_ago() -> None:
    sketch = KeySketch.of([b"old"] * SAMPLED_MAX)
    for _ in range(4):
        sketch = sketch.merged(KeySketch.of([b"new"] * SAMPLED_MAX))

    assert "new" == (sketch.busiest() or ("", 0))[0]
    assert sketch.sampled <= SAMPLED_MAX
    assert sum(sketch.counts.values()) <= sketch.sampled


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"N14228", "N14228"),
        ("ä".encode(), "ä"),
        (b"", "0x"),
        (b"\xff\x00", "0xff00"),
        (b"a\nb", "0x610a62"),
        (b"a" * 100 + b"b" * 100, "a" * 30 + "…" + "b" * 30),
    ],
)
def test_a_key_is_shown_as_text_or_as_its_bytes(key: bytes, text: str) -> None:
    assert text == key_text(key)


def test_figures_are_read_back_from_json_unchanged_and_without_zeros() -> None:
    figures = TaskStats(records_in=3, busy_ns=2**50, keys=KeySketch(4, {"a": 3}))

    fields = json.loads(json.dumps(figures.as_json()))

    assert {"recordsIn": 3, "busyNs": 2**50, "keysSampled": 4, "keys": {"a": 3}} == fields
    assert figures == TaskStats.from_json(fields)
    assert {} == TaskStats().as_json()
    assert TaskStats() == TaskStats.from_json({"newer": 1})


def test_the_figures_of_time_are_read_back_from_json_unchanged() -> None:
    time = TimeFigures(
        at_ms=1,
        watermark_ms=-2,
        lag_ms=3,
        held_by="kafka.orders.0:0/1",
        timers_pending=4,
        inputs={"kafka.orders.0:0/1": SeenClock(-(2**62), 5, is_known=False)},
    )
    for figures in (TaskStats(late=1, time=time), TaskStats(time=TimeFigures(at_ms=7))):
        assert figures == TaskStats.from_json(json.loads(json.dumps(figures.as_json())))


def test_the_sizes_of_stores_are_read_back_from_json_unchanged() -> None:
    figures = TaskStats(stores={"sums": StoreSize(bytes_used=4096, entries=0)})

    assert figures == TaskStats.from_json(json.loads(json.dumps(figures.as_json())))


def test_of_several_reports_the_last_sizes_of_stores_that_are_known_count() -> None:
    earlier, later = (TaskStats(stores={"sums": StoreSize(bytes_used=4096, entries=n)}) for n in (5, 3))

    assert later.stores == TaskStats.in_turn([earlier, later, TaskStats()]).stores
    assert {} == TaskStats.total([earlier, later]).stores


def test_of_several_reports_the_latest_watermark_counts() -> None:
    """Reports of several inputs of a task may come in any order."""
    older, newer = (TaskStats(timers_fired=1, time=TimeFigures(at_ms=at_ms, watermark_ms=at_ms)) for at_ms in (5, 6))

    for reports in ((older, newer, TaskStats()), (newer, older)):
        total = TaskStats.in_turn(reports)
        assert (newer.time, 2) == (total.time, total.timers_fired)


@pytest.mark.parametrize(
    "fields",
    [
        {"time": 1},
        {"time": {}},
        {"time": {"atMs": -1, "timersPending": 0}},
        {"time": {"atMs": 1, "timersPending": True}},
        {"time": {"atMs": 1, "timersPending": 0, "lagMs": -1}},
        {"time": {"atMs": 1, "timersPending": 0, "watermarkMs": 2**63}},
        {"time": {"atMs": 1, "timersPending": 0, "heldBy": 1}},
        {"time": {"atMs": 1, "timersPending": 0, "inputs": []}},
        {"time": {"atMs": 1, "timersPending": 0, "inputs": {"a": [1, 2]}}},
        {"stores": [1]},
        {"stores": {"sums": 4096}},
        {"busyNs": -1},
        {"busyNs": True},
        {"busyNs": 1.5},
        {"recordsIn": 2**63},
        {"keys": [1]},
        {"keysSampled": 100, "keys": {str(number): 1 for number in range(KEYS_KEPT + 1)}},
        {"keysSampled": 1, "keys": {"a": 2}},
        {"keysSampled": 1, "keys": {"a": "1"}},
        {"keys": {"a": 0}},
    ],
)
def test_figures_that_cannot_be_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="wanted"):
        TaskStats.from_json(fields)


def test_later_figures_are_added_and_the_disk_usage_is_the_last_one() -> None:
    before = TaskStats(records_in=1, disk_bytes=100, store_identify_ns=7, keys=KeySketch(1, {"a": 1}))

    after = before.followed_by(TaskStats(records_in=2, disk_bytes=50, keys=KeySketch(2, {"a": 2})))

    expected = TaskStats(records_in=3, disk_bytes=50, store_identify_ns=7, keys=KeySketch(3, {"a": 3}))
    assert expected == after
    assert 50 == after.followed_by(TaskStats()).disk_bytes


def test_the_total_of_several_tasks_has_no_key() -> None:
    one = TaskStats(records_in=1, disk_bytes=100, keys=KeySketch(1, {"a": 1}))

    assert TaskStats(records_in=2, disk_bytes=200) == TaskStats.total([one, one])
    assert TaskStats() == TaskStats.total([])
