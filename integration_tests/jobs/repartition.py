"""The job under test: running sums by key, and by groups of several keys.

The first step is that of `running_sums.py`. It also sends each record on through an intermediate stream, keyed by the
record's group. The second step keeps the running total of each group and answers each record once more.
"""

import os
import time
import zlib

import samzapy

_GROUPS = 97
# Spread over the batch, so that a kill at random hits a transaction that is open more often than not.
_WORK_S = float(os.environ.get("RUNNING_SUMS_WORK_S", "0"))


@samzapy.task
def repartition(envelope, collector, context):
    if _WORK_S:
        time.sleep(_WORK_S)
    fed = envelope.value
    ssp = envelope.ssp
    src, task = f"{ssp.stream}-{ssp.partition}-{envelope.offset}", context.task_name
    headers = {"src": src.encode(), "task": task.encode()}
    if envelope.intermediate == "groups":
        total = _added(context.store("groups"), fed["x"])
        collector.send("regrouped", {**fed, "total": total}, key=envelope.key, headers=headers)
        return
    if envelope.key is None:
        collector.send("without-key", fed, headers=headers)
    else:
        total = _added(context.store("sums"), fed["x"])
        collector.send("sums", {**fed, "sum": total}, key=envelope.key, headers=headers)
    # A key's records go to several groups, and a group's come from several keys and partitions.
    group = f"g{(zlib.crc32((fed['k'] or '').encode()) + fed['n']) % _GROUPS}"
    collector.send(context.intermediate("groups"), {**fed, "fed_at": src, "by": task}, key=group)


def _added(store, x):
    total = (store.get() or 0) + x
    store.put(total)
    return total


if __name__ == "__main__":
    samzapy.run()
