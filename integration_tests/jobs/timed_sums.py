"""The job under test: the sums of `running_sums.py`, timers and a window.

A timer fires within some seconds after its record, and counts the timers of its key that have fired.
The window sends for each key the count of records since the last window.
A timer in event time sends for each key the count of records with a time within two seconds.
"""

from __future__ import annotations

import os
import time

import samzapy as sz

_WORK_S = float(os.environ.get("RUNNING_SUMS_WORK_S", "0"))
# Each timer is due within this time after its record.
_LATE_MAX_MS = int(os.environ.get("TIMED_SUMS_LATE_MAX_MS", "3000"))

fed = sz.Stream("kafka.fed", key=sz.String, value=sz.Json())
sums_out = sz.Stream("kafka.sums", key=sz.String, value=sz.Json())
without_key = sz.Stream("kafka.without-key", key=sz.String, value=sz.Json())
counted = sz.Stream("kafka.counted", key=sz.String, value=sz.Json())
fired = sz.Stream("kafka.fired", key=sz.String, value=sz.Json())
per_span = sz.Stream("kafka.per-span", key=sz.String, value=sz.Json())
SPAN_MS = 2000


@sz.task(inputs=[fed], outputs=[sums_out, without_key, fired, counted, per_span], window_ms=2000)
class TimedSums(sz.Task[str, dict]):
    sums = sz.value(sz.Json(), default=0)
    count = sz.value(sz.Json(), default=0)
    since = sz.value(sz.Json(), default=0)
    spans = sz.map(sz.Timestamp, sz.Long)
    late = sz.timer("processing")
    over = sz.timer("event")

    def process(self, message, out):
        if _WORK_S:
            time.sleep(_WORK_S)
        src = f"{message.ssp.stream}-{message.ssp.partition}-{message.offset}"
        headers = {"src": src.encode(), "task": self.context.task_name.encode()}
        if message.key is None:
            out.send(without_key, message.value, headers=headers)
            return
        total = self.sums.get() + message.value["x"]
        self.sums.set(total)
        self.since.set(self.since.get() + 1)
        out.send(sums_out, {**message.value, "sum": total}, key=message.key, headers=headers)
        self.late.set(self.late.now_ms() + 137 * message.value["n"] % _LATE_MAX_MS, tag=src)
        start = message.time_ms // SPAN_MS * SPAN_MS
        if start + SPAN_MS <= self.over.now_ms():
            out.send(per_span, {"late": src, "start": start, "watermark": self.over.now_ms()}, key=message.key)
            return
        self.spans.put(start, (self.spans.get(start) or 0) + 1)
        self.over.set(start + SPAN_MS, tag=str(start))

    @over.fires
    def is_over(self, timer, out):
        start = int(timer.tag)
        out.send(per_span, {"start": start, "count": self.spans.get(start)}, key=timer.key)
        self.spans.delete(start)

    @late.fires
    def is_late(self, timer, out):
        count = self.count.get() + 1
        self.count.set(count)
        late_ms = self.late.now_ms() - timer.time_ms
        out.send(fired, {"src": timer.tag, "count": count, "lateMs": late_ms}, key=timer.key)

    def window(self, tick, out):
        for key in self.context.keys(self.since):
            out.send(counted, {"tick": tick.number, "count": self.since.get()}, key=key)
            self.since.clear()


if __name__ == "__main__":
    sz.run()
