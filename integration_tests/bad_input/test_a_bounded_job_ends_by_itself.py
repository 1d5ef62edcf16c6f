"""A bounded job reads its inputs up to their end offsets at the start of the run.

Its next run begins without the state of the run before.
"""

from __future__ import annotations

from pathlib import Path

from integration_tests.bad_input.kit import Cluster, Job, Message, WarmSpark, ended, unique
from samzapy.errors import MissingTopicError
from samzapy.model.topics import changelog_topic, checkpoint_topic, coordinator_topic
from samzapy.stream.codec import decode
from samzapy.stream.records import CheckpointPut
from samzapy.testing.waiting import wait_until

COUNTED = (Message(value=b"count", key=b"a"), Message(value=b"count", key=b"b"), Message(value=b"count", key=b"a"))


def test_a_run_exits_0_at_the_end_offsets_of_its_start_and_the_next_run_begins_again(
    cluster: Cluster, spark: WarmSpark, tmp_path: Path
) -> None:
    # Partition 0 ends in a marker of an aborted transaction, 1 in a record, and 2 holds nothing.
    topic = cluster.topic("input", 3)
    cluster.publish_in_transactions(topic, ("commit", [b"slow 8", *COUNTED]), ("abort", [b"never"]))
    cluster.publish(topic, Message(value=b"count", key=b"c"), partition=1)
    job = Job(
        cluster=cluster,
        directory=tmp_path,
        name=unique("bounded"),
        inputs=(topic,),
        settings={"systems.kafka.samza.offset.end": "head", "stores.counts.msg.serde": "bytes"},
    )
    for output in ("answers", "counts"):
        cluster.make(job.output(output))

    with job.running(spark) as process:
        wait_until(lambda: len(ends_fixed(cluster, job)) == 3, 300.0, "the ends to be fixed")
        # After the ends: for the next run. Its key is counted by no other record.
        for partition in range(3):
            cluster.publish(topic, Message(value=b"count", key=b"late"), partition=partition)
        first = ended(process)
    figures = counts(cluster, job)
    assert (0, [(b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"c", b"1")]) == (first.code, figures), first.output[
        -6000:
    ]
    written = {partition: live_keys(cluster, job, partition) for partition in range(3)}
    assert (True, True, False) == tuple(bool(written[partition]) for partition in range(3))
    # Only the first run counts this key: its state must be deleted after the second run.
    cluster.delete_before(topic, cluster.end(topic, 1) - 1, partition=1)

    second = job.run(spark)

    assert 0 == second.code, second.output[-6000:]
    again = sorted([*figures, *figures[:-1], *[(b"late", b"1")] * 3])
    assert again == counts(cluster, job), second.output[-6000:]
    # The key c was of the first run only.
    assert not written[1] <= live_keys(cluster, job, 1)
    epochs = {checkpoint.ssp_kb.ssp.partition: checkpoint.epoch for checkpoint in checkpoints(cluster, job)}
    assert {0, 1, 2} == set(epochs) and min(epochs.values()) > 3


def counts(cluster: Cluster, job: Job) -> list[tuple[bytes | None, bytes | None]]:
    return sorted((record.key, record.value) for record in cluster.read(job.output("counts")))


def live_keys(cluster: Cluster, job: Job, partition: int) -> set[bytes | None]:
    """The keys of the changelog after a compaction."""
    latest = {
        record.key: record.value for record in cluster.read(changelog_topic(job.full_name, "counts"), partition)
    }
    return {key for key, value in latest.items() if value is not None}


def checkpoints(cluster: Cluster, job: Job) -> list[CheckpointPut]:
    topic = checkpoint_topic(job.full_name)
    records = [decode(record, topic=topic) for record in cluster.read(topic)]
    return [record.checkpoint for record in records if isinstance(record, CheckpointPut)]


def ends_fixed(cluster: Cluster, job: Job) -> list[bytes]:
    try:
        records = cluster.read(coordinator_topic(job.full_name))
    except MissingTopicError:
        return []
    return [record.key for record in records if record.key is not None and record.key.startswith(b"end/")]
