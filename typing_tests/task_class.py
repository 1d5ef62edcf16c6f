"""A task class for type checkers: a line with `# wrong` must have an error.

No other line may have one.

In a line with `# wrong (mypy)` mypy alone finds it.
"""

from __future__ import annotations

import samzapy as sz


class Order(sz.Struct):
    item: str
    amount: float


class Roman:
    """A serde of a user's own."""

    def encode(self, value: int) -> bytes:
        return b"I" * value

    def decode(self, raw: bytes) -> int:
        return len(raw)


orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Json(Order))
refunds = sz.Stream("kafka.refunds", key=sz.String, value=sz.Long)
anything = sz.Stream("kafka.anything", key=sz.Bytes, value=sz.Json())
romans = sz.Stream("kafka.romans", key=sz.Uuid, value=Roman())
totals = sz.Stream("kafka.totals", key=sz.String, value=sz.Double)
wrong_name = sz.streams_of  # wrong
wrong_key = sz.Stream("kafka.wrong", key="string", value=sz.Double)  # wrong
wrong_upgrade = sz.Json(Order, upgrade=lambda old: 1)  # wrong (mypy)


@sz.task(inputs=[orders, refunds, anything], outputs=[totals, romans])
class Totals(sz.Task[bytes, object]):
    total = sz.value(sz.Double, default=0.0)
    last = sz.value(sz.Json(Order))
    seen = sz.counter()
    wrong_default = sz.value(sz.Double, default="none")  # wrong
    recent = sz.map(sz.Timestamp, sz.Json(Order))
    by_item = sz.map((sz.String, sz.Long), sz.Double)
    queue = sz.list(sz.Json(Order))
    quiet = sz.timer("processing")
    late = sz.timer("processing", resolution_ms=1000)
    wrong_sub_key = sz.map("long", sz.Double)  # wrong

    @orders.each
    def ordered(self, message: sz.Message[str, Order], out: sz.Output) -> None:
        self.total.set(self.total.get() + message.value.amount)
        self.total.set("1")  # wrong
        self.last.set(message.value)
        self.last.set(message.value.item)  # wrong
        _ = self.last.get().item  # wrong
        previous = self.last.get()
        if previous is not None:
            _ = previous.item
        _ = message.value.price  # wrong
        out.send(totals, self.total.get(), key=message.key)
        out.send(totals, message.value)  # wrong
        out.send(totals, 1.0, key=b"a")  # wrong
        out.send(romans, self.seen.add(2))
        out.send("totals", 1.0)  # wrong
        self.seen.add(0.5)  # wrong
        self.recent.put(message.time_ms, message.value)
        self.recent.put("now", message.value)  # wrong
        self.recent.put(message.time_ms, 1.0)  # wrong
        for time_ms, order in self.recent.items(first=5):
            _ = time_ms + 1, order.item
        _ = self.recent.get(5).item  # wrong
        self.by_item.put((message.value.item, 1), 2.0)
        self.by_item.put((1, message.value.item), 2.0)  # wrong
        self.queue.append(message.value)
        self.queue.append(message.key)  # wrong
        _ = [order.amount for order in self.queue.pop_first(2)]

    @refunds.each
    def refunded(self, message: sz.Message[str, int], out: sz.Output) -> None:
        self.total.set(self.total.get() - message.value)

    @refunds.each  # wrong
    def refunded_otherwise(self, message: sz.Message[str, Order], out: sz.Output) -> None: ...

    def process(self, message: sz.Message[bytes, object], out: sz.Output) -> None:
        self.context.task_name.upper()
        self.quiet.set(self.quiet.now_ms() + 1, tag="a")
        self.quiet.set("soon")  # wrong
        self.quiet.set(1, tag=2)  # wrong

    @quiet.fires
    def is_quiet(self, timer: sz.Firing[str], out: sz.Output) -> None:
        out.send(totals, float(timer.time_ms), key=timer.key)

    @late.fires  # wrong
    def is_late(self, timer: str, out: sz.Output) -> None: ...


@sz.task(inputs=[refunds], outputs=[totals], window_ms=sz.minutes(1))
class PerMinute(sz.Task[str, int]):
    total = sz.value(sz.Double, default=0.0)
    days = sz.map(sz.Timestamp, sz.Double)
    quiet = sz.timer("processing")

    def process(self, message: sz.Message[str, int], out: sz.Output) -> None:
        self.total.set(self.total.get() + message.value)

    def window(self, tick: sz.Tick, out: sz.Output) -> None:
        for key in self.context.keys(self.total):
            out.send(totals, self.total.get() + tick.number, key=key)
        for _ in self.context.keys(self.days):
            self.days.clear()
        _ = self.context.keys("total")  # wrong
        _ = self.context.keys(self.quiet)  # wrong


@sz.task(inputs=[refunds], window_ms="1m")  # wrong
class Wrong(sz.Task[str, int]):
    def window(self, tick: str, out: sz.Output) -> None: ...  # wrong
