"""Stateless: eight digits of a value are its cost in microseconds of CPU."""

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
