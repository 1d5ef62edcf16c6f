"""Obeys its messages: the first part of a value is an order, for many tests.

Without an order, or after it, the job answers with the unchanged message. The answer's headers have
the message's place, its headers, and the type of its decoded value. Outputs carry the job's name.
"""

import os
import signal
import sys
import time

import samzapy


@samzapy.task
def by_order(envelope, collector, context):
    order, _, rest = (envelope.value_bytes or b"").partition(b" ")
    job = context.config["job.name"]
    match order:
        case b"pass":
            collector.send(
                f"passed-{job}",
                envelope.value,
                key=envelope.key,
                headers=envelope.headers,
                timestamp_ms=envelope.timestamp_ms,
            )
            return
        case b"raise":
            raise ValueError("the message asked for it")
        case b"exit":
            sys.exit("the message asked for it")
        case b"die":
            os._exit(9)
        case b"segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        case b"kill":
            # As the kernel does where memory is short.
            os.kill(os.getpid(), signal.SIGKILL)
        case b"slow":
            time.sleep(float(rest.split()[0]))
        case b"count" if "stores.counts.msg.serde" in context.config:
            store = context.store("counts")
            count = int(store.get() or b"0") + 1
            store.put(b"%d" % count)
            collector.send(f"counts-{job}", b"%d" % count, key=envelope.key_bytes)
        case b"too-large":
            collector.send(f"answers-{job}", bytes(3_000_000), key=envelope.key_bytes)
        case b"too-large-there":
            collector.send(f"small-{job}", bytes(1_000_000), key=envelope.key_bytes)
        case b"elsewhere":
            collector.send(
                f"elsewhere-{job}",
                b"at a place and a time of its own",
                key=b"its own key",
                partition=2,
                headers={"first": b"1", "empty": b""},
                timestamp_ms=1_234_567_890_123,
            )
    collector.send(
        f"answers-{job}",
        envelope.value_bytes,
        key=envelope.key_bytes,
        headers={
            "src": f"{envelope.ssp}@{envelope.offset}".encode(),
            "headers": repr(envelope.headers).encode(),
            "type": type(envelope.value).__name__.encode(),
        },
        timestamp_ms=envelope.timestamp_ms,
    )


if __name__ == "__main__":
    samzapy.run()
