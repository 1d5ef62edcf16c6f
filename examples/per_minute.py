"""Count the views of each page per minute of the clock, and send each count once its minute is over."""

import samzapy as sz

MINUTE = sz.minutes(1)

views = sz.Stream("kafka.views", key=sz.String, value=sz.Json())
counts = sz.Stream("kafka.counts", key=sz.String, value=sz.Json(dict[str, int]))


@sz.task(inputs=[views], outputs=[counts])
class PerMinute(sz.Task[str, object]):
    minutes = sz.map(sz.Timestamp, sz.Long)
    over = sz.timer("processing")

    def process(self, message: sz.Message[str, object], out: sz.Output) -> None:
        start = self.over.now_ms() // MINUTE * MINUTE
        self.minutes.put(start, (self.minutes.get(start) or 0) + 1)
        self.over.set(start + MINUTE, tag=str(start))

    @over.fires
    def send(self, timer: sz.Firing[str], out: sz.Output) -> None:
        start = int(timer.tag)
        out.send(counts, {"minute": start, "count": self.minutes.get(start) or 0}, key=timer.key)
        self.minutes.delete(start)


if __name__ == "__main__":
    sz.run()
