"""Keyed: the last value of each key is kept in a store with a changelog; its first 28 bytes go out, in which
scripts/bench scale has the time of sending."""

import samzapy


@samzapy.task
def keep_last(envelope, collector, context):
    context.store("last").put(envelope.value)
    collector.send("bench-output", envelope.value[:28], key=envelope.key)


if __name__ == "__main__":
    samzapy.run()
