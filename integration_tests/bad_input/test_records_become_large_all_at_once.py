"""Records that suddenly become large need no more memory, and none is lost."""

from __future__ import annotations

from pathlib import Path

from integration_tests.bad_input.kit import Cluster, Job, WarmSpark, unique

SMALL = [b"%d" % number for number in range(1500)]
# Together they are larger than Arrow's buffers for two cores may be.
LARGE = [b"%d " % number + bytes(900_000) for number in range(100)]


def test_records_that_suddenly_become_large_are_read_in_smaller_pieces(
    cluster: Cluster, spark: WarmSpark, tmp_path: Path
) -> None:
    topic = cluster.topic("input")
    cluster.publish(topic, *SMALL, *LARGE)
    job = Job(
        cluster=cluster,
        directory=tmp_path,
        name=unique("large"),
        inputs=(topic,),
        # The large ones are one micro-batch.
        settings={"systems.kafka.samza.offset.end": "head", "task.batch.offsets.max": "100"},
    )
    cluster.make(job.output("answers"))

    outcome = job.run(spark)

    assert 0 == outcome.code, outcome.output[-6000:]
    assert 1 == outcome.output.count("found large ones all at once; they are read in smaller pieces"), outcome.output[
        -9000:
    ]
    assert SMALL + LARGE == cluster.values(job.output("answers"))
