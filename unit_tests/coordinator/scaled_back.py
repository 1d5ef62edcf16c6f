"""What a job leaves on its topics that was scaled from 1 to 4 and back: the golden file is made here.

    PYTHONPATH=. python -m unit_tests.coordinator.scaled_back > unit_tests/stream/golden/scaled_1_4_1.jsonl

Two partitions, two processors, a keyed store. Nothing in it is drawn or timed, so it is the same each time.
"""

import json

from samzapy.container.start import positions_of, superseded_keys
from samzapy.model.checkpoint import Checkpoint
from samzapy.model.container import ContainerPhase
from samzapy.stream.codec import decode, encode
from samzapy.stream.log import Write
from samzapy.stream.records import CheckpointPut
from samzapy.testing.builders import a_submission
from samzapy.testing.memory_log import MemoryLog, MemoryTopic
from unit_tests.coordinator.operated import ScaledJob

FACTOR = 4
SETTINGS = {
    "stores_seen_key_serde": "string",
    "stores_seen_msg_serde": "json",
    "local_store_dir": "/data",
}


class CommittingJob(ScaledJob):
    """Its containers write their positions as real ones do, and remove those of other factors."""

    def __init__(self):
        self.checkpoints = MemoryTopic("__samzapy-checkpoint-flights-1")
        super().__init__(**SETTINGS)

    def submission(self):
        return a_submission(config=self.world.config, partition_counts={"kafka.orders": 2})

    def grants(self):
        return [grant for grant in self.state.grants_sorted if not grant.released]

    def positions(self):
        return positions_of(decode(record, topic="t") for record in MemoryLog(self.checkpoints).read())

    def commits(self, *offsets):
        """Each task commits the offset of its bucket, or the one there is; what another factor left is removed."""
        for grant in self.grants():
            writes = [self.checkpoint(grant, start, offsets) for start in grant.starts]
            self.writes(grant.execution_id, writes)
        epochs = {grant.epoch for grant in self.state.grants.values()}
        for name in ("e0", "e1"):
            own = [grant for grant in self.grants() if grant.execution_id == name]
            keys = superseded_keys(own, self.positions(), epochs)
            self.writes(name, [Write(key=key, value=None) for key in keys])
        found = self.positions()
        self.world.checkpoints, self.world.progress = dict(found.checkpoints), dict(found.progress)

    def checkpoint(self, grant, start, offsets):
        key, value = encode(
            CheckpointPut(
                checkpoint=Checkpoint(
                    ssp_kb=start.ssp_kb,
                    offset_next=offsets[start.ssp_kb.bucket % len(offsets)],
                    epoch=grant.epoch,
                    task_name=grant.task_name,
                    execution_id=grant.execution_id,
                )
            )
        )
        return Write(key=key, value=value)

    def writes(self, execution_id, writes):
        if writes:
            log = MemoryLog(self.checkpoints, f"worker-{execution_id}")
            log.take_over()
            log.append_atomically(writes)

    def stops(self):
        """Both containers drain and end."""
        for phase in (ContainerPhase.RUNNING, ContainerPhase.STOPPED):
            self.hears_heartbeats(self.heartbeat(name, state=phase) for name in ("e0", "e1"))


def stopped_job(*, is_scaled):
    """A job that was stopped at factor 1 after it had read to offset 30, scaled to 4 and back in between or not."""
    job = CommittingJob()
    job.settles()
    job.commits(10)
    if is_scaled:
        job.scale(1, FACTOR)
        job.settles()
        # The merged task begins at the smallest of these, and floors stand for the others.
        job.commits(17, 20, 12, 15)
        job.scale(2, 1)
        job.settles()
    job.commits(30)
    job.stops()
    return job


def left_by(job):
    """Both topics as a log cleaner leaves them at last, in the rows of a golden file; without schemas, which have one
    of their own."""
    for name, topic in (("coordinator", job.world.topic), ("checkpoint", job.checkpoints)):
        latest = {record.key: record for record in MemoryLog(topic).read()}
        for record in sorted(latest.values(), key=lambda found: found.offset):
            if record.value is not None and not record.key.startswith(b"schema/"):
                yield {"topic": name, "key": record.key.decode(), "value": record.value.hex()}


if __name__ == "__main__":
    for row in left_by(stopped_job(is_scaled=True)):
        print(json.dumps(row))
