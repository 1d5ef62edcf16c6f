"""Keyed: sets a timer of a month, and sends the first 28 bytes.

`scripts/bench scale` has the time of sending in these bytes.
"""

from __future__ import annotations

import os

import samzapy as sz

_MONTH_MS = 30 * 86_400_000

given = sz.Stream(f"kafka.{os.environ['BENCH_TOPIC']}", key=sz.Bytes, value=sz.Bytes)
sent = sz.Stream(f"kafka.{os.environ['BENCH_OUTPUT']}", key=sz.Bytes, value=sz.Bytes)


@sz.task(inputs=[given], outputs=[sent])
class KeepTimers(sz.Task[bytes, bytes]):
    over = sz.timer("processing")

    def process(self, message: sz.Message[bytes, bytes], out: sz.Output) -> None:
        self.over.set(message.timestamp_ms + _MONTH_MS)
        out.send(sent, message.value[:28], key=message.key)

    @over.fires
    def is_over(self, timer: sz.Firing[bytes], out: sz.Output) -> None:
        raise AssertionError("no benchmark takes a month")


if __name__ == "__main__":
    sz.run()
