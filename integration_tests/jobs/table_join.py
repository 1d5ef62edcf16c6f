"""The job under test: sends each message with the table's current row of its key."""

import os
import time

import samzapy

OUTPUT = os.environ.get("TABLE_JOIN_OUTPUT", "joined")
# Of each row, so that a kill finds a table half read.
WORK_S = float(os.environ.get("TABLE_JOIN_WORK_S", "0"))


@samzapy.task
def join(envelope, collector, context):
    table = context.store("table")
    if envelope.ssp.stream.startswith("ztable"):
        time.sleep(WORK_S)
        table.put(envelope.value)
        return
    answer = {"order": envelope.value, "row": table.get(), "source": f"{envelope.ssp}-{envelope.offset}"}
    collector.send(OUTPUT, answer, key=envelope.key)


if __name__ == "__main__":
    samzapy.run()
