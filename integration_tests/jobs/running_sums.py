"""The job under test: answers each record once, with its key's running sum.

Messages without a key have no state; they go to an output of their own.
"""

import os
import time

import samzapy

if os.environ.get("SAMZAPY_TEST") == "1":
    # This file is loaded in the driver and in each worker, so here is where a test gets into both.
    import mutants
    import standing_still

    if os.environ.get("SAMZAPY_TEST_MUTANT"):
        mutants.install(os.environ["SAMZAPY_TEST_MUTANT"])
    if os.environ.get("SAMZAPY_TEST_STAND_STILL"):
        standing_still.install(os.environ["SAMZAPY_TEST_STAND_STILL"])

# Spread over the batch, so that a kill at random hits a transaction that is open more often than not.
_WORK_S = float(os.environ.get("RUNNING_SUMS_WORK_S", "0"))
# The key of messages that take long, and for how many seconds.
_SLOW_KEY, _, _SLOW_S = os.environ.get("RUNNING_SUMS_SLOW", "").partition("=")
# Behind the names of the outputs, where others use the broker too.
_SUFFIX = os.environ.get("RUNNING_SUMS_SUFFIX", "")


@samzapy.task
def running_sums(envelope, collector, context):
    if _WORK_S:
        time.sleep(_WORK_S)
    fed = envelope.value
    if _SLOW_KEY and envelope.key == _SLOW_KEY:
        time.sleep(float(_SLOW_S))
    ssp = envelope.ssp
    headers = {"src": f"{ssp.stream}-{ssp.partition}-{envelope.offset}".encode(), "task": context.task_name.encode()}
    if envelope.key is None:
        collector.send(f"without-key{_SUFFIX}", fed, headers=headers)
        return
    store = context.store("sums")
    total = (store.get() or 0) + fed["x"]
    store.put(total)
    collector.send(f"sums{_SUFFIX}", {**fed, "sum": total}, key=envelope.key, headers=headers)


if __name__ == "__main__":
    samzapy.run()
