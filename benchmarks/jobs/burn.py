"""Stateless: each record costs as many microseconds of CPU as the first eight digits of its value say."""

import time

import samzapy


@samzapy.task
def burn(envelope, collector, context):
    until_ns = time.thread_time_ns() + 1000 * int(envelope.value[:8])
    while time.thread_time_ns() < until_ns:
        pass
    collector.send("bench-output", envelope.value, key=envelope.key)


if __name__ == "__main__":
    samzapy.run()
