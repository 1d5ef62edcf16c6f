"""The job under test: keeps two inputs' last values by key, and sends their join.

Each task sends the messages of the broadcast input to an output of its own.
"""

import os
import time

import samzapy

# The job is slow while there is this file, so that a kill hits a transaction that is open.
_SLOW_WHILE = os.environ.get("JOINED_SLOW_WHILE", "")
_WORK_S = 0.05


@samzapy.task
def joined(envelope, collector, context):
    if _SLOW_WHILE and os.path.exists(_SLOW_WHILE):
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
