"""Keyed: keeps the last value of each key, and sends its first 28 bytes.

`scripts/bench scale` has the time of sending in these bytes.
"""

import samzapy


@samzapy.task
def keep_last(envelope, collector, context):
    context.store("last").put(envelope.value)
    collector.send("bench-output", envelope.value[:28], key=envelope.key)


if __name__ == "__main__":
    samzapy.run()
