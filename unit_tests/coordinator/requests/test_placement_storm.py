"""Seed 004's figures: many containers, many more requests, duplicates, clocks that jump, coordinators that die.

In the build it is a small storm. `SAMZAPY_STORM=500x20000x5` makes it one of 500 containers, 20,000 requests and
5 kills of the coordinator.
"""

import os
import random
from collections import Counter
from dataclasses import replace

from samzapy.container.orders import Orders, follow
from samzapy.coordinator.assignment.liveness import is_alive
from samzapy.coordinator.commands import Heartbeat
from samzapy.inspection.invariants import Invariants
from samzapy.model.launch import LaunchPhase, LaunchRole
from samzapy.model.placement import Action
from samzapy.model.standby_progress import StandbyProgress
from samzapy.stream.codec import decode
from samzapy.stream.keys import Namespace, parse_key
from samzapy.stream.records import (
    ContainerPut,
    LaunchPut,
    PlacedPut,
    Removed,
    RequestMemoryPut,
    RequestPut,
)
from unit_tests.fixtures.launched_job import LaunchedJob, Process
from unit_tests.fixtures.operated_job import an_id

CONTAINERS, REQUESTS, KILLS = map(int, os.environ.get("SAMZAPY_STORM", "12x240x3").split("x"))


def concerned(record):
    """The execution that a record is about, and that takes more from it than everybody does."""
    match record:
        case ContainerPut(container=container):
            return container.execution_id
        case LaunchPut(launch=launch):
            return launch.execution_id
        case Removed(key=key):
            parsed = parse_key(key)
            return parsed.parts[0] if parsed.namespace in (Namespace.CONTAINER, Namespace.LAUNCH) else None
    return None


class StormyJob(LaunchedJob):
    """As many hosts as containers, each with a place more; each record of the stream is read once."""

    def __init__(self, luck):
        self.luck = luck
        self.everybody, self.own, self.read_to = Orders(execution_id=""), {}, 0
        hosts = {f"host-{number}": 3 for number in range(CONTAINERS)}
        super().__init__(
            count=CONTAINERS,
            partitions=CONTAINERS,
            slots=hosts,
            job_placement_expiry_ms="100000000",
            stores_sums_msg_serde="json",
            local_store_dir="/data",
        )
        self.settles(8)

    def looks_at_the_stream(self):
        """Once for all: who reads what concerns everybody would hold the same."""
        end = self.world.topic.end_offset
        found = [record for record in self.world.log().read(self.read_to) if record.offset >= self.read_to]
        records = [decode(record, topic="t") for record in found]
        self.everybody = follow(self.everybody, records, end)
        for record in records:
            name = concerned(record)
            if name is not None:
                self.own[name] = follow(self.own.get(name, Orders(execution_id=name)), [record], end)
        self.read_to = end
        self.grants, self.planned, self.tasks, self.here = {}, {}, {}, {}
        for key, grant in self.everybody.grants.items():
            self.grants.setdefault(grant.task_name, {})[key] = grant
            self.tasks.setdefault(grant.execution_id, set()).add(grant.task_name)
        for key, planned in self.everybody.planned.items():
            self.planned.setdefault(planned.task_name, {})[key] = planned
            self.tasks.setdefault(planned.processor_id, set()).add(planned.task_name)
        for execution_id, container in self.everybody.containers.items():
            self.here.setdefault(container.host, {})[execution_id] = container

    def orders(self, name):
        """What a container that reads everything comes to, without what cannot concern it."""
        if self.read_to != self.world.topic.end_offset:
            self.looks_at_the_stream()
        own = self.own.get(name, Orders(execution_id=name))
        process = self.processes[name]
        tasks = self.tasks.get(name, set()) | self.tasks.get(process.launch.processor_id, set())
        return replace(
            self.everybody,
            execution_id=name,
            phase=own.phase,
            reason=own.reason,
            processor_id=own.processor_id,
            launch=own.launch,
            grants={key: grant for task in tasks for key, grant in self.grants.get(task, {}).items()},
            planned={key: planned for task in tasks for key, planned in self.planned.get(task, {}).items()},
            containers=self.here.get(process.host, {}),
        )

    def lives(self, name):
        before = len(self.world.queue)
        super().lives(name)
        if len(self.world.queue) > before and isinstance(self.world.queue[-1], Heartbeat):
            orders = self.orders(name)
            wanted = orders.to_keep_warm()
            if wanted is not None and not orders.own_grants():
                warm = StandbyProgress(tasks=wanted.task_count, level=len(wanted.grants))
                self.world.queue[-1] = replace(self.world.queue[-1], warm=warm)

    def starts(self, launch):
        """As the others do it, without a look at every host."""
        if launch.execution_id in self.processes:
            return
        host = launch.host or self.luck.choice(list(self.slots))
        self.pids += 1
        self.world.alive[self.pids] = True
        self.processes[launch.execution_id] = Process(launch, host, self.pids)
        self.started.append(launch.execution_id)

    def goes_on(self, ms=500):
        super().goes_on(ms)
        self.processes = {
            name: found for name, found in self.processes.items() if not found.is_over or self.is_known(name)
        }

    def is_known(self, name):
        return name in self.state.launches

    def asks(self):
        """All requests: 30 % are duplicates of others, half of them with other content."""
        numbers = list(range(round(REQUESTS * 0.7)))
        numbers += [self.luck.choice(numbers) for _ in range(REQUESTS - len(numbers))]
        self.luck.shuffle(numbers)
        for number in numbers:
            bad = self.luck.random()
            self.ask(
                number,
                Action.PLACE_CONTAINER,
                processor_id=str(self.luck.randrange(CONTAINERS)) if bad > 0.05 else "9999999",
                destination_host=self.luck.choice(["ANY_HOST", "LAST_SEEN", "STANDBY", *list(self.slots)[:50]]),
                timestamp_ms=self.now_ms() + self.luck.randrange(-10_000, 10_000),
                **({"deployment_id": "0-deadbeef"} if bad > 0.95 else {}),
            )
        return set(numbers)

    def unfinished(self):
        return [found for found in self.state.requests.values() if not found.status_code.is_terminal]


def test_every_uuid_has_one_end_and_at_most_one_effect():
    luck = random.Random(7)
    job = StormyJob(luck)
    numbers = job.asks()
    job.reads()

    rounds, kills = 0, 0
    while job.unfinished() or not rounds:
        rounds += 1
        assert rounds < 200 + 20 * REQUESTS / CONTAINERS * 3, f"{len(job.unfinished())} requests never end"
        if kills < KILLS and rounds % 7 == 0:
            kills += 1
            job.fails_over(f"b{kills}")
        if rounds % 11 == 0:
            job.world.clock.jump_wall(luck.choice([-3_600_000, -5_000, 5_000, 60_000]))
        if rounds % 13 == 0:
            running = [name for name, found in job.processes.items() if not found.is_over]
            job.ends(luck.choice(running), 137)
        job.goes_on()
    job.settles(30)

    assert kills == KILLS
    invariants, ends, placed = Invariants(), Counter(), Counter()
    for found in job.world.log().read():
        record = decode(found, topic="t")
        assert not (broken := invariants.check(found.offset, record, True)), broken
        if isinstance(record, RequestPut) and record.status_code.is_terminal:
            ends[record.uuid, record.status_code] += 1
        if isinstance(record, PlacedPut) and record.uuid:
            placed[record.uuid] += 1
    known = {found.uuid for found in job.state.request_memory.values()}
    assert known == {an_id(number) for number in numbers}
    assert {uuid for uuid, _ in ends} == known
    assert len(ends) == len(known), "a uuid with two ends"
    assert set(placed.values()) <= {1}, "a move that was made twice"
    statuses = Counter(found.status_code.value for found in job.state.request_memory.values())
    assert {"SUCCEEDED", "BAD_REQUEST"} <= statuses.keys()
    # Nobody is left over, and everybody runs.
    up = [found for found in job.state.launches.values() if found.phase in (LaunchPhase.WANTED, LaunchPhase.LAUNCHED)]
    assert CONTAINERS == len(up), Counter(found.role for found in up)
    assert CONTAINERS == len({found.processor_id for found in up})
    assert all(is_alive(job.state, found.execution_id) for found in up)
    reserves = [found for found in up if found.role is LaunchRole.RESERVE]
    assert all(job.state.placed[found.processor_id].execution_id == found.execution_id for found in reserves)
    assert CONTAINERS == sum(job.at_work().values())
    assert not [record for record in job.records(RequestMemoryPut) if not record.status_code.is_terminal]
