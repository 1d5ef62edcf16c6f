"""A container that tails the stream 5 s late, through two quick generations.

The coordinator decides on a memory log. The containers follow it as real ones do (`container.orders`): they release
their former tasks a moment later. Their heartbeats have their offset and their grants.
"""

from dataclasses import dataclass, field

import pytest

from integration_tests.support.coordinator_audit import Audit, Audited
from samzapy.container.orders import Orders, follow
from samzapy.model.container import ContainerPhase
from samzapy.stream.codec import decode
from samzapy.testing.builders import a_config, a_heartbeat, a_submission
from unit_tests.fixtures.coordinator_world import World

LATE_MS = 5_000
STEP_MS = 500
PARTITIONS = 6
LATE = "0"


@dataclass
class Container:
    """One execution: `running` lists its grants that may commit.

    It is about to release the rest of `holds`.
    """

    processor_id: str
    late_ms: int = 0
    phase: object = ContainerPhase.RUNNING
    running: tuple = ()
    holds: tuple = ()
    generations: list = field(default_factory=list)

    def __post_init__(self):
        self.orders = Orders(execution_id=f"e{self.processor_id}")

    def follows(self, world, end_offset):
        """Read up to an offset; begin granted tasks, keep the others until the next step."""
        read = [record for record in world.log().read(self.orders.offset_next) if record.offset < end_offset]
        for record in (decode(record, topic="t") for record in read):
            self.orders = follow(self.orders, [record], self.orders.offset_next)
        self.orders = follow(self.orders, (), max(end_offset, self.orders.offset_next))
        own = self.orders.own_grants()
        self.holds = (*own, *(grant for grant in self.running if grant not in own))
        self.running = own
        if self.orders.generation not in (None, *self.generations[-1:]):
            self.generations.append(self.orders.generation)

    def sends_heartbeat(self, now_ms):
        return a_heartbeat(
            f"e{self.processor_id}",
            processor_id=self.processor_id,
            pid=100 + int(self.processor_id),
            state=self.phase,
            stream_offset=self.orders.offset_next,
            held=[(grant.task_name, grant.epoch) for grant in self.holds],
            received_ms=now_ms,
        )


class Job:
    """A job whose container 0 reads late."""

    def __init__(self):
        config = a_config(job_debounce_time_ms="1000", job_processor_grace_ms="0")
        self.world = World(config=config)
        self.service = self.world.coordinator()
        self.service.become_leader()
        self.service.submit(a_submission(config=config, partition_counts={"kafka.orders": PARTITIONS}))
        self.containers = {}
        # When the stream ended where.
        self.ends = []

    @property
    def state(self):
        return self.service.status().state

    @property
    def late(self):
        return self.containers[LATE]

    @property
    def generation(self):
        return self.state.generation.generation

    def joins(self, processor_id, late_ms=0):
        self.containers[processor_id] = Container(processor_id, late_ms)

    def stops(self, processor_id):
        stopped = self.containers.pop(processor_id)
        stopped.phase, stopped.holds = ContainerPhase.STOPPED, ()
        self.world.queue.append(stopped.sends_heartbeat(self.world.clock.monotonic_ms()))

    def runs_a_round(self, ms):
        for _ in range(ms // STEP_MS):
            self.world.clock.advance(STEP_MS)
            now_ms = self.world.clock.monotonic_ms()
            for container in self.containers.values():
                container.follows(self.world, self.end_at(now_ms - container.late_ms))
                self.world.queue.append(container.sends_heartbeat(now_ms))
            self.service.run_once(0)
            self.ends.append((now_ms, self.world.topic.end_offset))
            self.is_each_bucket_worked_on_once()

    def end_at(self, ms):
        return max((end for at_ms, end in self.ends if at_ms <= ms), default=0)

    def is_each_bucket_worked_on_once(self):
        held = [
            start.ssp_kb
            for container in self.containers.values()
            for grant in container.holds
            for start in grant.starts
        ]
        assert len(held) == len(set(held)), f"two containers hold one of {held}"

    def complaints(self):
        records = (
            Audited(record.offset, record.key, record.value, record.headers) for record in self.world.log().read()
        )
        return Audit().read(records).finish()

    def tasks(self):
        """How many tasks each container works on."""
        return {name: len(container.running) for name, container in self.containers.items()}


@pytest.fixture
def job():
    """Two containers with three tasks each; container 0 reads late from now on."""
    running = Job()
    running.joins(LATE)
    running.joins("1")
    running.runs_a_round(5_000)
    running.late.late_ms = LATE_MS
    assert {LATE: 3, "1": 3} == running.tasks()
    return running


def learns_of_both_at_last(job, before, held_before):
    """Two generations are in force, and the late container knows neither.

    It keeps its tasks until it reads.
    """
    assert (before + 2, before) == (job.generation, job.late.orders.generation)
    assert held_before == job.late.holds
    job.runs_a_round(20_000)
    assert [before, before + 1, before + 2] == job.late.generations[-3:]
    assert [] == job.complaints()


def test_two_joins_within_the_delay_of_a_reader_take_tasks_away_once_it_has_read_of_them(job):
    before, held_before = job.generation, job.late.holds
    job.joins("2")
    job.runs_a_round(2_000)
    job.joins("3")
    job.runs_a_round(2_000)

    learns_of_both_at_last(job, before, held_before)
    assert PARTITIONS == sum(job.tasks().values())
    assert {1, 2} == set(job.tasks().values())
    assert set(job.late.running) < set(held_before), "no grant was written again"


def test_a_task_that_one_generation_takes_away_and_the_next_gives_back_runs_again(job):
    before, held_before = job.generation, job.late.holds
    job.joins("2")
    job.runs_a_round(2_000)
    job.stops("2")
    job.runs_a_round(2_000)

    learns_of_both_at_last(job, before, held_before)
    assert {LATE: 3, "1": 3} == job.tasks()
    assert {grant.task_name for grant in held_before} == {grant.task_name for grant in job.late.running}
