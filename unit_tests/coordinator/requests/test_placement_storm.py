"""A storm of placement requests on many containers, with kills of coordinators.

It has duplicates and clocks that jump. CI runs a small storm. `SAMZAPY_STORM=500x20000x5` makes it one of 500
containers, 20,000 requests and 5 kills of the coordinator.
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
    """The execution that a record is about, which takes more from it than others."""
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
    """As many hosts as containers, each with one more place.

    Each record of the stream is read once.
    """

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
        """Once for all: every reader of a record for all executions would hold the same."""
        end = self.world.topic.end_offset
        new_records = [record for record in self.world.log().read(self.read_to) if record.offset >= self.read_to]
        records = [decode(record, topic="t") for record in new_records]
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
        """The orders of a container that reads all records but those of others."""
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
            tasks_to_keep_warm = orders.to_keep_warm()
            if tasks_to_keep_warm is not None and not orders.own_grants():
                warm = StandbyProgress(tasks=tasks_to_keep_warm.task_count, level=len(tasks_to_keep_warm.grants))
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

    def runs_a_round(self, ms=500):
        super().runs_a_round(ms)
        self.processes = {
            name: process for name, process in self.processes.items() if not process.is_over or self.is_known(name)
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
        return [request for request in self.state.requests.values() if not request.status_code.is_terminal]


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
            running = [name for name, process in job.processes.items() if not process.is_over]
            job.ends(luck.choice(running), 137)
        job.runs_a_round()
    job.settles(30)

    assert kills == KILLS
    invariants, ends, placed = Invariants(), Counter(), Counter()
    for log_record in job.world.log().read():
        record = decode(log_record, topic="t")
        assert not (broken := invariants.check(log_record.offset, record, True)), broken
        if isinstance(record, RequestPut) and record.status_code.is_terminal:
            ends[record.uuid, record.status_code] += 1
        if isinstance(record, PlacedPut) and record.uuid:
            placed[record.uuid] += 1
    known = {request.uuid for request in job.state.request_memory.values()}
    assert known == {an_id(number) for number in numbers}
    assert {uuid for uuid, _ in ends} == known
    assert len(ends) == len(known), "a uuid with two ends"
    assert set(placed.values()) <= {1}, "a move that was made twice"
    statuses = Counter(request.status_code.value for request in job.state.request_memory.values())
    assert {"SUCCEEDED", "BAD_REQUEST"} <= statuses.keys()
    # No container is left over, and each one runs.
    up = [
        launch for launch in job.state.launches.values() if launch.phase in (LaunchPhase.WANTED, LaunchPhase.LAUNCHED)
    ]
    assert CONTAINERS == len(up), Counter(launch.role for launch in up)
    assert CONTAINERS == len({launch.processor_id for launch in up})
    assert all(is_alive(job.state, launch.execution_id) for launch in up)
    reserves = [launch for launch in up if launch.role is LaunchRole.RESERVE]
    assert all(job.state.placed[launch.processor_id].execution_id == launch.execution_id for launch in reserves)
    assert CONTAINERS == sum(job.at_work().values())
    assert not [record for record in job.records(RequestMemoryPut) if not record.status_code.is_terminal]
