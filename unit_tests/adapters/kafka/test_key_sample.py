"""A sample ends when no record comes any more, not while records come."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Self

import pytest

from samzapy.adapters.kafka import key_sample
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.model.ssp import SystemStreamPartition

ORDERS = SystemStreamPartition("kafka", "orders", 0)
END = 10


class SlowScan:
    """Gives one record in each `seconds_each`; none after `given`."""

    def __init__(self, seconds_each: float, given: int = END) -> None:
        self.now_s = 0.0
        self.unread = {("orders", 0)}
        self._seconds_each = seconds_each
        self._left = given
        self._offset = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def poll(self) -> Iterator[tuple[tuple[str, int], Any]]:
        self.now_s += self._seconds_each
        if not self._left:
            return
        self._left -= 1
        offset, self._offset = self._offset, self._offset + 1
        if self._offset == END:
            self.unread.clear()
        yield ("orders", 0), SimpleNamespace(key=lambda: b"k%d" % offset, offset=lambda: offset)


@pytest.mark.parametrize(
    ("scan", "count", "is_whole"),
    [
        pytest.param(SlowScan(1.5), END, True, id="a busy machine that still reads"),
        pytest.param(SlowScan(1.5, given=3), 3, False, id="a broker that gives no more"),
        pytest.param(SlowScan(4.0), 5, False, id="longer than all of it may take"),
    ],
)
def test_a_sample_is_read_while_records_come(
    monkeypatch: pytest.MonkeyPatch, scan: SlowScan, count: int, is_whole: bool
) -> None:
    monkeypatch.setattr(key_sample, "Scan", lambda *_: scan)
    monkeypatch.setattr(key_sample, "Admin", lambda connection: None)
    monkeypatch.setattr(key_sample, "beginning_offsets", lambda *_: {("orders", 0): 0})
    monkeypatch.setattr(key_sample, "end_offsets", lambda *_: {("orders", 0): END})
    monkeypatch.setattr(key_sample, "time", SimpleNamespace(monotonic=lambda: scan.now_s))

    keys, whole = key_sample.sample_keys(
        KafkaConnection(bootstrap_servers="localhost:1"), [ORDERS], 100, wait_s=20.0, quiet_s=5.0
    )

    assert (count, is_whole) == (len(keys[ORDERS]), whole)
