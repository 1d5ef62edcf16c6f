"""Messages have the same effects in one transaction as in one each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from samzapy.container.task.owners import task_entries
from samzapy.container.task.work_plan import InputRecord, Rows
from samzapy.model.clock_entry import STORE, decoded
from samzapy.model.ssp import SspKeyBucket
from unit_tests.container.task.test_many_timers import OneTask
from unit_tests.fixtures.container_worlds import SSP_KB

_SSP_KBS = (SSP_KB, SspKeyBucket.parse("kafka.refunds.0:0/1"))
_JOB = """
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Bytes, disorder_ms=1000)
refunds = sz.Stream("kafka.refunds", key=sz.String, value=sz.Bytes)
fired = sz.Stream("kafka.fired", key=sz.String, value=sz.Json())

@sz.task(inputs=[orders, refunds], outputs=[fired])
class Task(sz.Task[str, bytes]):
    over = sz.timer("event")
    seen = sz.counter(ttl=2000)

    def process(self, message, out):
        action, moment_ms = message.value.decode(), message.time_ms
        out.send(fired, [moment_ms, self.over.now_ms(), self.seen.add()], key=message.key)
        if action == "set":
            self.over.set(moment_ms + 500)
        elif action == "past":
            self.over.set(max(0, moment_ms - 5000), tag="past")

    @over.fires
    def is_over(self, timer, out):
        out.send(fired, [timer.tag, timer.time_ms, self.over.now_ms()], key=timer.key)
"""
_BEGIN_MS = 100_000
_AHEAD_MS = 10**7
"""Further ahead of the host's clock than a message may be that moves a clock."""


class Fed(NamedTuple):
    """A message, as a test draws it.

    Attributes:
        time_ms: its event time, behind `_BEGIN_MS`.
        action: of the handler.
    """

    route: int
    key: str
    time_ms: int
    action: str


_FEEDS = st.lists(
    st.builds(
        Fed,
        st.sampled_from([0, 0, 0, 1]),
        st.sampled_from("ab"),
        st.integers(0, 30).map(lambda step: 100 * step) | st.sampled_from([-_BEGIN_MS - 1, _AHEAD_MS]),
        st.sampled_from(["", "", "set", "past"]),
    ),
    min_size=1,
    max_size=14,
)


def _chunks(feed: Sequence[Fed]) -> Sequence[Rows]:
    chunks, offsets = [], [0, 0]
    for route, run in groupby(feed, key=lambda fed: fed.route):
        records = []
        for fed in run:
            ssp = _SSP_KBS[route].ssp
            key, value, timestamp_ms = fed.key.encode(), fed.action.encode(), _BEGIN_MS + fed.time_ms
            records.append(InputRecord(ssp.stream, 0, offsets[route], key, value, timestamp_ms, ()))
            offsets[route] += 1
        chunks.append(Rows.of(route, records, 60.0))
    return chunks


def _single(rows: Rows) -> Sequence[Rows]:
    return [
        Rows(rows.route, [offset], [key], [value], [timestamp_ms], None)
        for offset, key, value, timestamp_ms in zip(
            rows.offsets, rows.keys, rows.values, rows.timestamps_ms, strict=True
        )
    ]


def _effects(directory: Path, works: Sequence[Sequence[Rows]]) -> object:
    """The outputs of a task that handles these rows, its counts and its clocks."""
    directory.mkdir()
    task = OneTask(directory, _JOB, "task.event.time.ahead.max.ms=100000", ssp_kbs=_SSP_KBS)
    task.wall_ms = _BEGIN_MS
    late = ahead = 0
    for chunks in works:
        measured = task._run(chunks, lambda: False).measured
        assert measured is not None
        late, ahead = late + measured.late, ahead + measured.ahead
    local = task.environment.begin()
    clocks = [
        (entry.watermark_ms, {ssp: (clock.clock_ms, clock.offset_next) for ssp, clock in entry.inputs.items()})
        for entry in map(decoded, task_entries(local, STORE).values())
    ]
    local.abort()
    task.environment.close()
    return task.fired(), late, ahead, clocks


def _feed(*messages: tuple[int, int] | tuple[int, int, str]) -> list[Fed]:
    return [Fed(route, "a", time_ms, *action, *[""] * (1 - len(action))) for route, time_ms, *action in messages]


@settings(max_examples=60, deadline=None)
# The last message is late; it was not before the one before it.
@example(_feed((1, 3000), (0, 1000), (0, 1000), (0, 2500), (0, 1)), 9)
# The last message is late all the time.
@example(_feed((1, 3000), (0, 2500), (0, 2500), (0, 2500), (0, 100)), 9)
# A timer that is set for the past is due before a message that moves no clock.
@example(_feed((1, 3000), (0, 1000), (0, 1000), (0, 900, "past"), (0, 900)), 9)
@example(_feed((1, 3000), (0, 1000), (0, 900, "past"), (0, 900)), 9)
# A message of the other input moves its clock. One of the first input would not.
@example(_feed((1, 0), (0, 3000), (0, 3000), (1, 2500)), 9)
# The messages of the second transaction move no clock.
@example(_feed((0, 3000), (0, 3000), (1, 1000), (0, 3000)), 1)
# A message without an event time acts at no moment.
@example([*_feed((0, 1000), (0, 1000)), Fed(0, "b", -_BEGIN_MS - 1, ""), Fed(0, "b", 1000, "")], 9)
@example(_feed((1, 3000), (0, 1000), (0, 1000), (0, 1500)), 9)
@given(_FEEDS, st.integers(1, 9))
def test_messages_have_the_same_effects_in_one_transaction_as_in_one_each(
    feed: list[Fed], chunks_per_transaction: int
) -> None:
    chunks = _chunks(feed)
    works = [
        chunks[first : first + chunks_per_transaction] for first in range(0, len(chunks), chunks_per_transaction)
    ]
    with TemporaryDirectory() as directory:
        together = _effects(Path(directory, "together"), works)
        alone = _effects(Path(directory, "alone"), [[rows] for chunk in chunks for rows in _single(chunk)])
    assert alone == together
