"""A job on a memory log whose containers do as they are told, while its topics grow, come and go."""

from dataclasses import replace

from samzapy.coordinator.commands import Figures, Position, TopicsLooked
from samzapy.inspection.status import status_json
from samzapy.model.ssp import SspKeyBucket, SystemStream
from samzapy.model.topic_checks import Cluster
from samzapy.model.topics import coordinator_spec
from samzapy.plan.input_patterns import resolve_inputs
from samzapy.stream.codec import parse_headers
from samzapy.testing.builders import a_config, a_heartbeat, a_submission, a_topic_found, an_input_topic_found, an_ssp
from unit_tests.coordinator.world import World

CLUSTER = Cluster(bootstrap_servers="b:9092", broker_count=1)
SETTLE_MS = 10_000
STATE = {"stores_seen_msg_serde": "json", "local_store_dir": "/data"}
FIRST = 7
"""What the partitions begin with: retention took what was before."""


class Job:
    """A job that runs in containers that do as they are told: they read what they are granted, as far as is said."""

    def __init__(self, partitions=2, processors=("0",), counts=None, own_topics=(), groupers=None, **properties):
        config = a_config(job_expansion_settle_ms=str(SETTLE_MS), **properties)
        self.topics = counts or {"orders": partitions}
        if config.input_patterns:
            config = resolve_inputs(config, self.topics)
        self.world = World(config=config)
        self.world.bounds = _Bounds()
        self.positions, self.processors = {}, processors
        # By processor and partition, what it still says although it has the partition no more.
        self.stale = {}
        self.submission = a_submission(
            config=config, partition_counts={f"kafka.{name}": count for name, count in self.topics.items()}
        )
        if groupers is not None:
            self.submission = replace(self.submission, groupers=groupers)
        own = tuple(replace(self.submission.own_topics[0], **found) for found in own_topics)
        self.submission = replace(self.submission, own_topics=(*self.submission.own_topics, *own))
        self.ids = {}
        self.service = self.world.coordinator()
        self.service.take_office()
        self.service.submit(self.submission)
        self.runs()

    @property
    def state(self):
        return self.service.status().state

    @property
    def input(self):
        return self.state.inputs[an_ssp().system_stream]

    def of(self, name):
        """The record of an input."""
        return self.state.inputs[SystemStream("kafka", name)]

    def newest(self):
        """The grants under which something is done."""
        newest = {grant.task_name: grant for grant in self.state.grants_sorted}
        return [grant for grant in newest.values() if not grant.released]

    def reads(self, **positions):
        """How far partitions of the first stream are: `reads(p0=100)`."""
        for name, offset in positions.items():
            self.positions[f"kafka.orders.{name[1:]}"] = offset

    def runs(self, ms=0):
        """Time goes by, everybody hears, lets go, starts and says so, until nothing changes."""
        self.world.clock.advance(ms)
        for _ in range(4):
            self.hears(1000)

    def hears(self, ms):
        """Everybody says where it is, `ms` later."""
        self.world.clock.advance(ms)
        for number, processor in enumerate(self.processors):
            self.world.queue.append(self.heartbeat(processor, number))
        self.service.run_once(0)

    def heartbeat(self, processor, number):
        execution = f"e{processor}"
        grants = [grant for grant in self.state.grants_sorted if grant.execution_id == execution]
        planned = {task.task_name: set(task.positions) for task in self.state.plan}
        held = {
            grant.task_name: grant
            for grant in grants
            if not grant.released and {start.ssp_kb for start in grant.starts} == planned.get(grant.task_name)
        }
        positions = {
            start.ssp_kb: Position(self.positions.get(str(start.ssp_kb.ssp), start.offset_next), 1000)
            for grant in held.values()
            for start in grant.starts
        }
        stale = {
            SspKeyBucket(an_ssp(ssp), 0, 1): Position(at, 1000) for ssp, at in self.stale.get(processor, {}).items()
        }
        positions = stale | positions
        return a_heartbeat(
            execution,
            processor_id=processor,
            pid=100 + number,
            stream_offset=self.state.offset_next,
            held=[(name, grant.epoch) for name, grant in held.items()],
            figures=Figures(positions=positions),
            received_ms=self.world.clock.monotonic_ms(),
        )

    def looks(self, is_monitoring=True, **topics):
        """The cluster has the topics so a second later; None: it has no such topic any more."""
        self.world.clock.advance(1000)
        self.topics |= {name.replace("_", "-"): count for name, count in topics.items()}
        own = coordinator_spec("flights-1")
        found = {
            name: None if count is None else an_input_topic_found(name, count, topic_id=self.ids.get(name))
            for name, count in self.topics.items()
        }
        found[own.name] = a_topic_found(own)
        self.world.absent = {name for name, topic in found.items() if topic is None}
        self.last_look = TopicsLooked(
            found=found,
            cluster=CLUSTER,
            topics=frozenset(name for name, topic in found.items() if topic is not None),
            looked_at_ms=self.world.clock.wall_ms(),
            is_monitoring=is_monitoring,
        )
        self.world.queue.append(self.last_look)
        self.service.run_once(0)

    def fails_over(self):
        self.service = self.world.coordinator("b", pid=2)
        self.service.take_office()
        self.service.submit(self.submission)

    def planned(self):
        """The partitions of each task of the plan in force."""
        return {
            task.task_name.rpartition("_")[2].removeprefix("kafka."): [
                str(kb.ssp).removeprefix("kafka.") for kb in task.positions
            ]
            for task in self.state.plan
        }

    def granted(self):
        newest = {grant.task_name: grant for grant in self.state.grants_sorted if not grant.released}
        return {str(start.ssp_kb.ssp): start.offset_next for grant in newest.values() for start in grant.starts}

    def status(self):
        found = self.service.status()
        return status_json("flights-1", found.state, found.seen, 0, "", found.findings)

    def codes(self):
        return [(one.code, one.subject) for one in self.service.status().findings]

    def events(self, key="input/kafka.orders"):
        records = [found for found in self.world.log().read() if (found.key or b"").decode() == key]
        return [parse_headers(found.headers).event for found in records]


class _Bounds(dict):
    first = FIRST

    def get(self, ssp, default=None):
        return replace(default, offset_first=self.first)
