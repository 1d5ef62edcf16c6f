"""Report accounts that spend much in a short time. An account that is quiet for half an hour starts anew."""

import samzapy as sz


class Payment(sz.Struct):
    amount: float


payments = sz.Stream("kafka.payments", key=sz.String, value=sz.Json(Payment))
alerts = sz.Stream("kafka.alerts", key=sz.String, value=sz.Double)


@sz.task(inputs=[payments], outputs=[alerts])
class Fraud(sz.Task[str, Payment]):
    spent = sz.value(sz.Double, default=0.0)
    quiet = sz.timer("processing", resolution_ms=sz.seconds(1))

    def process(self, message: sz.Message[str, Payment], out: sz.Output) -> None:
        before, now = self.spent.get(), self.spent.get() + message.value.amount
        self.spent.set(now)
        self.quiet.set(self.quiet.now_ms() + sz.minutes(30))
        if before < 10_000 <= now:
            out.send(alerts, now, key=message.key)

    @quiet.fires
    def start_anew(self, timer: sz.Firing[str], out: sz.Output) -> None:
        self.spent.clear()


if __name__ == "__main__":
    sz.run()
