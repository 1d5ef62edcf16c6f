"""Windows of event time are whole after a downtime and a restore.

`SAMZAPY_LEDGERS=full` makes a downtime of 300 s and a restore of 200 MB; `SAMZAPY_DOWNTIME_S` another downtime.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pytest
from confluent_kafka import Producer

from integration_tests.bad_input.kit import Cluster, WarmSpark, driver, unique, write_job
from integration_tests.sizes import sized
from samzapy.testing.broker import DevBroker
from samzapy.testing.container_broker import ContainerBroker
from samzapy.testing.waiting import wait_until

_JOB = """
import samzapy as sz

WINDOW = 2_000
views = sz.Stream("kafka.{views}", key=sz.String, value=sz.Bytes)
clicks = sz.Stream("kafka.{clicks}", key=sz.String, value=sz.Bytes)
counts = sz.Stream("kafka.{counts}", key=sz.String, value=sz.Json())
late = sz.Stream("kafka.{late}", key=sz.String, value=sz.Json())


@sz.task(inputs=[views, clicks], outputs=[counts, late])
class PerWindow(sz.Task[str, bytes]):
    windows = sz.map(sz.Timestamp, sz.Long)
    ballast = sz.value(sz.Bytes)
    over = sz.timer("event")

    def process(self, message, out):
        if message.value:
            self.ballast.set(message.value)
        start = message.time_ms // WINDOW * WINDOW
        if start + WINDOW <= self.over.now_ms():
            out.send(late, start, key=message.key)
            return
        self.windows.put(start, (self.windows.get(start) or 0) + 1)
        self.over.set(start + WINDOW, tag=str(start))

    @over.fires
    def send(self, timer, out):
        start = int(timer.tag)
        out.send(counts, [start, self.windows.get(start) or 0], key=timer.key)
        self.windows.delete(start)


if __name__ == "__main__":
    sz.run()
"""
_WINDOW_MS = 2000
_KEYS = [f"k{number}" for number in range(6)]
_BALLAST_BYTES = 50_000
_STATE_BYTES = sized(200_000_000, short=2_000_000)
_DOWN_S = float(os.environ.get("SAMZAPY_DOWNTIME_S") or sized(300.0, short=8.0))
_LIVE_S, _BETWEEN_S = 6.0, 0.1
_WITHIN_S = 180.0

Ledger = Counter[tuple[str, int]]


class AJob:
    """The job, its two inputs that one task reads, and a ledger of what they have."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster, self.state = cluster, directory / "state"
        self.topics = {name: cluster.topic(name) for name in ("views", "clicks", "counts", "late")}
        self.file = directory / "job.py"
        text = _JOB.format(**self.topics)
        write_job(self.file, text, unique("windows"), cluster, task_event_time_idle_ms="5000")
        self.sent: Ledger = Counter()
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        self._inputs = cycle(("views", "clicks"))

    @contextmanager
    def running(self, spark: WarmSpark) -> Iterator[None]:
        with driver(self.file, spark) as process:
            yield
            assert process.poll() is None, "the job runs"

    def publish(self, key: str, value: bytes = b"") -> None:
        """A message of now in one of the inputs, acknowledged."""
        at_ms = int(1000 * time.time())
        self._producer.produce(self.topics[next(self._inputs)], value, key.encode(), partition=0, timestamp=at_ms)
        assert 0 == self._producer.flush(30)
        self.sent[key, at_ms // _WINDOW_MS * _WINDOW_MS] += 1

    def publish_for(self, seconds: float, between_s: float = _BETWEEN_S) -> None:
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            self.publish(random.choice(_KEYS))
            time.sleep(min(between_s, left_s))

    def closed(self) -> Ledger:
        """The windows that were sent; each is there once."""
        closed: Ledger = Counter()
        for record in self.cluster.read(self.topics["counts"]):
            start, count = json.loads(record.value or b"")
            at = ((record.key or b"").decode(), start)
            assert at not in closed, "a window is sent once"
            closed[at] = count
        return closed

    def await_all_closed(self) -> float:
        """The seconds until every window was sent."""
        begun_s = time.monotonic()
        wait_until(lambda: len(self.closed()) >= len(self.sent), _WITHIN_S, f"{len(self.sent)} windows")
        return time.monotonic() - begun_s


@pytest.mark.timeout(1800 + _DOWN_S)
def test_windows_are_whole_after_a_downtime_and_the_restore_of_lost_state(
    broker: DevBroker | ContainerBroker, spark: WarmSpark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = AJob(Cluster(broker.bootstrap_servers), tmp_path)
    with job.running(spark):
        for number in range(_STATE_BYTES // _BALLAST_BYTES):
            job.publish(f"b{number}", random.randbytes(_BALLAST_BYTES))
        job.publish_for(_LIVE_S)
        wait_until(job.closed, _WITHIN_S, "the first window to be closed")
    state_bytes = sum(file.stat().st_size for file in job.state.rglob("*") if file.is_file())
    assert state_bytes > _STATE_BYTES

    job.publish_for(_DOWN_S, between_s=max(_BETWEEN_S, _DOWN_S / 3000))
    shutil.rmtree(job.state)
    unread = sum(job.sent.values()) - sum(job.closed().values())
    with job.running(spark):
        job.publish_for(_LIVE_S)
        took_s = job.await_all_closed()

    assert [] == job.cluster.values(job.topics["late"])
    assert job.sent == job.closed()
    with capsys.disabled():
        print(
            f"windows after {_DOWN_S:.0f} s of downtime and {state_bytes / 1e6:.0f} MB of lost state: {len(job.sent)}"
            f" closed once with all of {sum(job.sent.values())} messages ({unread} of them in open windows or unread),"
            f" 0 late, the last {took_s:.1f} s after the last message",
            file=sys.stderr,
            flush=True,
        )
