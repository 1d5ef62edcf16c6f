"""Stateless: reads each record, and sends one in a hundred."""

import samzapy


@samzapy.task
def thin(envelope, collector, context):
    if envelope.offset % 100 == 0:
        collector.send("bench-output", envelope.value, key=envelope.key)


if __name__ == "__main__":
    samzapy.run()
