"""Stateless: each record is looked at, one in a hundred goes out."""

import samzapy


@samzapy.task
def thin(envelope, collector, context):
    if envelope.offset % 100 == 0:
        collector.send("bench-output", envelope.value, key=envelope.key)


if __name__ == "__main__":
    samzapy.run()
