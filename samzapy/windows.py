"""Ticks: the calls of a task's `window`.

```python
@samzapy.task(inputs=[orders], outputs=[totals], window_ms=samzapy.minutes(1))
class PerMinute(samzapy.Task[str, Order]):
    total = samzapy.value(samzapy.Double, default=0.0)

    def process(self, message, out):
        self.total.set(self.total.get() + message.value.amount)

    def window(self, tick: samzapy.Tick, out: samzapy.Output) -> None:
        for key in self.context.keys(self.total):
            out.send(totals, self.total.get(), key=key)
            self.total.clear()
```

Ticks lie at multiples of the interval since 1970, so all tasks of a job have the same ones. Each is done once, with its
outputs and writes. Those that a task missed, because the job was down or a message took long, are done as one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tick:
    """One call of `window`.

    Attributes:
        number: of this tick; greater than that of any tick before. Numbers of ticks that were missed are left out.
        time_ms: the moment of the tick, milliseconds since 1970: `number` times the interval.
    """

    number: int
    time_ms: int
