"""Count the views of each page per minute of their own time, and send each count once its minute is over."""

import samzapy as sz

MINUTE = sz.minutes(1)

views = sz.Stream("kafka.views", key=sz.String, value=sz.Json(), disorder_ms=sz.seconds(5))
counts = sz.Stream("kafka.counts", key=sz.String, value=sz.Json(dict[str, int]))
late = sz.Stream("kafka.late-views", key=sz.String, value=sz.Json())


@sz.task(inputs=[views], outputs=[counts, late])
class PerMinute(sz.Task[str, object]):
    minutes = sz.map(sz.Timestamp, sz.Long)
    over = sz.timer("event")

    def process(self, message: sz.Message[str, object], out: sz.Output) -> None:
        start = message.time_ms // MINUTE * MINUTE
        if start + MINUTE <= self.over.now_ms():
            out.send(late, message.value, key=message.key)
            return
        self.minutes.put(start, (self.minutes.get(start) or 0) + 1)
        self.over.set(start + MINUTE, tag=str(start))

    @over.fires
    def send(self, timer: sz.Firing[str], out: sz.Output) -> None:
        start = int(timer.tag)
        out.send(counts, {"minute": start, "count": self.minutes.get(start) or 0}, key=timer.key)
        self.minutes.delete(start)


if __name__ == "__main__":
    sz.run()
