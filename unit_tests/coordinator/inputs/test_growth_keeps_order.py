"""Order per key while a topic grows twice under a backlog.

Producers notice the growth at different times, and no partition waits in vain. The ledger judges the output
(`integration_tests.support.ledger`).
"""

import random
import zlib
from collections import Counter

import pytest

from integration_tests.support.ledger import Fed, Ledger, Output, Place, check_outputs, describe_violations, x_of
from samzapy.coordinator.inputs import growth
from unit_tests.coordinator.inputs.test_growth import SETTLE_MS, STATE, Job, an_ssp

pytestmark = pytest.mark.slow

BACKLOG = 100_000
KEYS = 120
STEP_MS = 1_000
STEPS = 70
BATCH = 1_500


class Producer:
    """Write keys of its own, each to the partition by its own count of partitions.

    That count may be an old one.
    """

    def __init__(self, topic, ledger, keys, notices_after_ms):
        self.topic, self.ledger, self.keys, self.notices_after_ms = topic, ledger, keys, notices_after_ms
        self.count, self.counters = len(topic), Counter()

    def notices(self, now_ms, grown_ms):
        known = [count for at_ms, count in grown_ms if now_ms - at_ms >= self.notices_after_ms]
        self.count = max((self.count, *known))

    def writes(self, luck, records):
        for _ in range(records):
            key = luck.choice(self.keys)
            self.counters[key] += 1
            fed, partition = Fed(key, self.counters[key]), zlib.crc32(key.encode()) % self.count
            self.ledger.acknowledged(fed, Place("orders", partition, len(self.topic[partition])))
            self.topic[partition].append(fed)


class Reader:
    """Work through its grants, a batch per partition at a time, tasks in any order."""

    def __init__(self, job, topic, keeps_state):
        self.job, self.topic, self.keeps_state = job, topic, keeps_state
        self.position, self.sums, self.outputs = {}, {}, []

    def works(self, luck):
        tasks = [task for task in self.job.state.plan if self.is_granted(task)]
        luck.shuffle(tasks)
        for task in tasks:
            for ssp_kb in sorted(task.positions):
                self.reads(task.task_name, ssp_kb.ssp.partition)

    def is_granted(self, task):
        newest = {grant.task_name: grant for grant in self.job.state.grants_sorted if not grant.released}
        grant = newest.get(task.task_name)
        return grant is not None and {start.ssp_kb for start in grant.starts} == set(task.positions)

    def reads(self, task, partition):
        at = self.position.get(partition, 0)
        for offset in range(at, min(at + BATCH, len(self.topic[partition]))):
            key, n = self.topic[partition][offset]
            # With state a key's sum is where the task is that has it.
            home = (task, key) if self.keeps_state else key
            self.sums[home] = self.sums.get(home, 0) + x_of(key, n)
            self.outputs.append(
                Output(
                    place=Place("out", 0, len(self.outputs)),
                    key=key,
                    n=n,
                    x=x_of(key, n),
                    sum=self.sums[home],
                    src=Place("orders", partition, offset),
                    task=task,
                )
            )
            self.position[partition] = offset + 1


def violations(seed=1, backlog=BACKLOG, **properties):
    """The violations after 3 -> 6 -> 12 partitions; the first change had not settled."""
    luck = random.Random(seed)
    ledger, topic = Ledger(), [[] for _ in range(3)]
    keys = [f"k{number}" for number in range(KEYS)]
    producers = [Producer(topic, ledger, keys[::2], 1_000), Producer(topic, ledger, keys[1::2], SETTLE_MS - 1)]
    job = Job(partitions=3, **properties)
    job.world.bounds.first = 0
    reader = Reader(job, topic, bool(properties))
    for producer in producers:
        producer.writes(luck, backlog // 2)
    grown_ms, began_ms = [], job.world.clock.monotonic_ms()

    for step in range(STEPS):
        now_ms = job.world.clock.monotonic_ms()
        for at_step, count in ((1, 6), (4, 12)):
            if step == at_step:
                topic.extend([] for _ in range(count - len(topic)))
                grown_ms.append((now_ms, count))
                job.looks(orders=count)
        for producer in producers:
            producer.notices(now_ms, grown_ms)
            if step < 40:
                producer.writes(luck, 500)
        reader.works(luck)
        job.positions = {f"kafka.orders.{partition}": at for partition, at in reader.position.items()}
        job.world.watermarks = {
            an_ssp(f"kafka.orders.{partition}"): len(records) for partition, records in enumerate(topic)
        }
        job.receives_heartbeats(STEP_MS)

    assert 12 == job.input.partition_count, "it took too long"
    assert all(reader.position.get(partition, 0) == len(records) for partition, records in enumerate(topic))
    assert job.world.clock.monotonic_ms() - began_ms >= STEPS * STEP_MS
    return check_outputs(ledger, reader.outputs)


@pytest.mark.parametrize("properties", [{}, STATE], ids=["without state", "with state"])
def test_order_per_key_holds_for_producers_that_keep_it(properties):
    broken = violations(**properties)

    assert not broken, describe_violations(broken)


@pytest.mark.parametrize("properties", [{}, STATE], ids=["without state", "with state"])
def test_without_the_wait_of_new_partitions_the_ledger_shows_wrong_order(properties, monkeypatch):
    monkeypatch.setattr(growth, "_has_passed", lambda *_: True)

    assert {"C"} <= {violation.rule for violation in violations(backlog=BACKLOG // 2, **properties)}
