"""Keyed: counts each key in a store with a changelog, and sends each new count."""

import samzapy


@samzapy.task
def count_keys(envelope, collector, context):
    store = context.store("counts")
    seen = store.get()
    count = b"1" if seen is None else b"%d" % (int(seen) + 1)
    store.put(count)
    collector.send("bench-output", count, key=envelope.key)


if __name__ == "__main__":
    samzapy.run()
