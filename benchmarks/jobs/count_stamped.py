"""Keyed: counts each key in a store with a changelog; sends records with counts."""

import samzapy


@samzapy.task
def count_stamped(envelope, collector, context):
    store = context.store("counts")
    seen = store.get()
    count = b"1" if seen is None else b"%d" % (int(seen) + 1)
    store.put(count)
    collector.send("bench-output", envelope.value + count, key=envelope.key)


if __name__ == "__main__":
    samzapy.run()
