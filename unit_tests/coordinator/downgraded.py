"""What `samzapy job downgrade --to 0.1.0` makes of a job that was scaled from 1 to 4 and back: the golden file.

    PYTHONPATH=. python -m unit_tests.coordinator.downgraded > unit_tests/stream/golden/downgraded_0_1_0.jsonl

The job is that of `scaled_back`. Nothing in it is drawn or timed, so it is the same each time.
"""

import json
from dataclasses import replace

from samzapy.container.start import positions_of
from samzapy.coordinator.assignment.starts import PositionsRead
from samzapy.coordinator.lifecycle.downgrade import Downgrade, look
from samzapy.stream.codec import decode
from samzapy.testing.memory_log import MemoryLog
from unit_tests.coordinator.scaled_back import left_by, stopped_job


def positions_read(job):
    """What stands on the checkpoint topic of a job of `scaled_back`."""
    found = positions_of(decode(record, topic="t") for record in MemoryLog(job.checkpoints).read())
    return PositionsRead(checkpoints=found.checkpoints, progress=found.progress, bounds={})


def a_term(state):
    """The term of a downgrade, which says where it was done."""
    return replace(state.term, term=state.term.term + 1, coordinator_id="downgrade-1", host="host-b", pid=7)


def given_back(job):
    """The job, written anew for 0.1.0, and its topic as a log cleaner leaves it at last."""
    log = job.world.log()
    log.take_over()
    looked = look(log.read(), job.world.topic.name)
    writer = Downgrade(log, looked, a_term(looked.known.state))
    writer.append()
    job.world.topic.compact(tombstones_until=job.world.topic.end_offset)
    return job


if __name__ == "__main__":
    for row in left_by(given_back(stopped_job(is_scaled=True))):
        print(json.dumps(row))
