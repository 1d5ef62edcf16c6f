"""The columns of `samzapy checkpoint list` for each bucket."""

from samzapy.cli.checkpoint import _rows
from samzapy.container.start_rules import Positions
from samzapy.model.checkpoint import Checkpoint, Progress
from samzapy.model.ssp import SspKeyBucket

BUCKET = SspKeyBucket.parse("kafka.orders.0:0/1")


def test_checkpoint_and_progress_are_listed_with_their_epochs() -> None:
    done = Checkpoint(ssp_kb=BUCKET, offset_next=10, epoch=3, execution_id="e1", task_name="Partition_0")
    read = Progress(ssp_kb=BUCKET, offset_next=20, epoch=4, execution_id="e2")

    assert [
        {
            "ssp": "kafka.orders.0:0/1",
            "checkpoint": 10,
            "epoch": 3,
            "task": "Partition_0",
            "execution": "e1",
            "progress": 20,
            "progressEpoch": 4,
            "progressExecution": "e2",
        }
    ] == _rows(Positions(checkpoints={BUCKET: done}, progress={BUCKET: read}))
