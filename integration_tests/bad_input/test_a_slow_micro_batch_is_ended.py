"""A micro-batch over its time is ended; its results are neither lost nor repeated."""

from __future__ import annotations

from pathlib import Path

from integration_tests.bad_input.kit import Cluster, Job, WarmSpark, unique

# All of them fit into the first micro-batch, which would take more than 24 s.
SLOW = [f"slow 0.1 {number}".encode() for number in range(240)]


def test_a_micro_batch_longer_than_a_transaction_may_last_is_ended_and_the_next_ones_are_smaller(
    cluster: Cluster, spark: WarmSpark, tmp_path: Path
) -> None:
    topic = cluster.topic("input")
    cluster.publish(topic, *SLOW)
    job = Job(
        cluster=cluster,
        directory=tmp_path,
        name=unique("slow"),
        inputs=(topic,),
        settings={
            "systems.kafka.samza.offset.end": "head",
            "task.batch.offsets.max": "400",
            "task.batch.max.ms": "4000",
            # Its transactions are short, although the micro-batch is long.
            "task.transaction.max.ms": "500",
            "task.transaction.timeout.ms": "15000",
        },
    )
    cluster.make(job.output("answers"))

    outcome = job.run(spark)

    assert 0 == outcome.code, outcome.output[-6000:]
    assert "the query failed" not in outcome.output
    assert "micro-batches of 100 offsets at most instead of 400, because one has run for " in outcome.output
    assert SLOW == cluster.values(job.output("answers"))
