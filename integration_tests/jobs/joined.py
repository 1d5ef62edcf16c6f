"""The job under test: keeps two inputs' last values by key, and sends their join.

Each task sends the messages of the broadcast input to an output of its own.
"""

import os
import time

import samzapy

# Spread over the batch, so that a kill hits a transaction that is open.
_WORK_S = float(os.environ.get("JOINED_WORK_S", "0"))


@samzapy.task
def joined(envelope, collector, context):
    time.sleep(_WORK_S)
    source, task = str(envelope.ssp), context.task_name
    if envelope.ssp.stream == "rules":
        collector.send("seen", {"task": task, "ssp": source, "offset": envelope.offset, "rule": envelope.value})
        return
    sides = context.store("sides")
    sides.put({"value": envelope.value, "source": source}, envelope.ssp.stream)
    order, refund = sides.get("orders"), sides.get("refunds")
    if order is not None and refund is not None:
        collector.send("joined", {"task": task, "order": order, "refund": refund}, key=envelope.key)


if __name__ == "__main__":
    samzapy.run()
