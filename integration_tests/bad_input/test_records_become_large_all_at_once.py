"""Records have been small for long, and then each is large: no more memory than was promised, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

from integration_tests.bad_input.kit import Cluster, Job, WarmSpark, unique

SMALL = [b"%d" % number for number in range(1500)]
# Held by Arrow all at once they would be more than it may hold for two cores.
LARGE = [b"%d " % number + bytes(900_000) for number in range(100)]


def test_records_that_become_large_all_at_once_are_read_in_smaller_pieces(
    cluster: Cluster, spark: WarmSpark, tmp_path: Path
) -> None:
    topic = cluster.topic("input")
    cluster.publish(topic, *SMALL, *LARGE)
    job = Job(
        cluster=cluster,
        directory=tmp_path,
        name=unique("large"),
        inputs=(topic,),
        # The large ones are a micro-batch.
        settings={"systems.kafka.samza.offset.end": "head", "task.batch.offsets.max": "100"},
    )
    cluster.make(job.output("answers"))

    told = job.run(spark)

    assert 0 == told.code, told.told[-6000:]
    assert 1 == told.told.count("found large ones all at once; they are read in smaller pieces"), told.told[-9000:]
    assert SMALL + LARGE == cluster.values(job.output("answers"))
