"""The running total of each customer. One without an order for thirty days is forgotten, by the time of the orders."""

import samzapy as sz


class Order(sz.Struct):
    amount: float


class Total(sz.Struct):
    orders: int
    amount: float


orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Json(Order), disorder_ms=sz.minutes(5))
totals = sz.Stream("kafka.totals", key=sz.String, value=sz.Json(Total))


@sz.task(inputs=[orders], outputs=[totals])
class Totals(sz.Task[str, Order]):
    total = sz.value(sz.Json(Total), ttl=sz.days(30))

    def process(self, message: sz.Message[str, Order], out: sz.Output) -> None:
        total = self.total.get() or Total(orders=0, amount=0.0)
        total = Total(orders=total.orders + 1, amount=total.amount + message.value.amount)
        self.total.set(total)
        out.send(totals, total, key=message.key)


if __name__ == "__main__":
    sz.run()
