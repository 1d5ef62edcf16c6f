"""A job whose inputs have an end reads them up to where they ended when the run began, and no further."""

from __future__ import annotations

from pathlib import Path

from integration_tests.bad_input.kit import Cluster, Job, WarmSpark, ended, unique
from samzapy.errors import MissingTopicError
from samzapy.model.topics import coordinator_topic
from samzapy.testing.waiting import wait_until


def test_a_run_ends_with_0_at_the_ends_it_began_with_and_the_next_goes_on_from_there(
    cluster: Cluster, spark: WarmSpark, tmp_path: Path
) -> None:
    # Partition 0 ends in a marker of an aborted transaction, 1 in a record, and 2 holds nothing.
    topic = cluster.topic("input", 3)
    cluster.publish_in_transactions(topic, ("commit", [b"slow 8", b"two"]), ("abort", [b"never"]))
    cluster.publish(topic, b"three", partition=1)
    job = Job(
        cluster=cluster,
        directory=tmp_path,
        name=unique("bounded"),
        inputs=(topic,),
        settings={"systems.kafka.samza.offset.end": "head"},
    )
    cluster.make(job.output("answers"))

    with job.running(spark) as process:
        wait_until(lambda: len(ends_fixed(cluster, job)) == 3, 90.0, "the ends to be fixed")
        for partition in range(3):
            cluster.publish(topic, b"late", partition=partition)
        first = ended(process)
    answers = sorted(cluster.values(job.output("answers")))
    second = job.run(spark)

    assert (0, [b"slow 8", b"three", b"two"]) == (first.code, answers), first.told[-6000:]
    assert (0, [b"late"] * 3 + answers) == (second.code, sorted(cluster.values(job.output("answers")))), second.told


def ends_fixed(cluster: Cluster, job: Job) -> list[bytes]:
    try:
        records = cluster.read(coordinator_topic(job.full_name))
    except MissingTopicError:
        return []
    return [record.key for record in records if record.key is not None and record.key.startswith(b"end/")]
