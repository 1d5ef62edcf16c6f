"""Entries with a ttl are removed without messages, on real Kafka and Spark."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from integration_tests.bad_input.kit import (
    STARTS_WITHIN_S,
    Cluster,
    Message,
    WarmSpark,
    driver,
    entry_counts,
    unique,
    write_job,
)
from samzapy.testing.broker import DevBroker
from samzapy.testing.container_broker import ContainerBroker
from samzapy.testing.waiting import wait_until

_JOB = """
import samzapy as sz

orders = sz.Stream("kafka.{orders}", key=sz.String, value=sz.String)
counts = sz.Stream("kafka.{counts}", key=sz.String, value=sz.Json())


@sz.task(inputs=[orders], outputs=[counts])
class Counts(sz.Task[str, str]):
    recent = sz.counter(ttl=sz.seconds(3))
    all = sz.counter()

    def process(self, message, out):
        self.recent.add()
        self.all.add()
        out.send(counts, [self.recent.get(), self.all.get()], key=message.key)


if __name__ == "__main__":
    sz.run()
"""


def test_an_entry_with_a_ttl_is_removed_from_the_changelog_and_the_task_begins_without_it(
    broker: DevBroker | ContainerBroker, spark: WarmSpark, tmp_path: Path
) -> None:
    cluster, job, job_file = Cluster(broker.bootstrap_servers), unique("ttl"), tmp_path / "job.py"
    topics = {name: cluster.topic(name) for name in ("orders", "counts")}
    write_job(job_file, _JOB.format(**topics), job, cluster)

    def order_and_await(count: int) -> None:
        cluster.publish(topics["orders"], Message(key=b"a", value=b"order"))
        wait_until(lambda: len(counts()) == count, STARTS_WITHIN_S, f"{count} counts")

    def counts() -> list[list[int]]:
        return [json.loads(value or b"") for value in cluster.values(topics["counts"])]

    def has_one_entry() -> bool:
        return entry_counts(broker.bootstrap_servers, job) == Counter(all=1)

    with driver(job_file, spark):
        order_and_await(1)
        wait_until(has_one_entry, STARTS_WITHIN_S, "the entry to expire", poll_interval_s=0.5)
        order_and_await(2)

    assert [[1, 1], [1, 2]] == counts()
