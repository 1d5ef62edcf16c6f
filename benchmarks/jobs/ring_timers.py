"""A message sets a timer, which repeats each second and reports its delay."""

from __future__ import annotations

import os
import time

import samzapy as sz

_EVERY_MS = 1000

given = sz.Stream(f"kafka.{os.environ['BENCH_TOPIC']}", key=sz.Bytes, value=sz.Bytes)
fired = sz.Stream(f"kafka.{os.environ['BENCH_OUTPUT']}", key=sz.Bytes, value=sz.Double)


@sz.task(inputs=[given], outputs=[fired])
class Ring(sz.Task[bytes, bytes]):
    ring = sz.timer("processing")

    def process(self, message: sz.Message[bytes, bytes], out: sz.Output) -> None:
        self.ring.set(self.ring.now_ms() + _EVERY_MS)

    @ring.fires
    def rings(self, timer: sz.Firing[bytes], out: sz.Output) -> None:
        out.send(fired, time.time() - timer.time_ms / 1000, key=timer.key)
        self.ring.set(max(timer.time_ms, self.ring.now_ms() - _EVERY_MS) + _EVERY_MS)


if __name__ == "__main__":
    sz.run()
