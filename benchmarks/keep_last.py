"""Keyed: the last value of each key is kept in a store with a changelog; its first twenty bytes go out."""

import samzapy


@samzapy.task
def keep_last(envelope, collector, context):
    context.store("last").put(envelope.value)
    collector.send("bench-output", envelope.value[:20], key=envelope.key)


if __name__ == "__main__":
    samzapy.run()
