"""A job that runs on memory logs, and somebody who asks it things; coordinators succeed one another in between."""

from uuid import UUID

from samzapy.inspection.status import status_json
from samzapy.model.placement import RESPONSE_TYPE, Action, ContainerPlacementRequestMessage, StatusCode
from samzapy.stream.codec import decode
from samzapy.stream.log import Write
from samzapy.stream.placement import Place, decode_message, encode_message, message_key
from samzapy.stream.records import RequestPut
from samzapy.testing.builders import a_config, a_heartbeat, a_submission
from samzapy.testing.memory_log import MemoryLog
from samzapy.testing.memory_placement import read_inbox
from unit_tests.coordinator.world import World

CONTROL = Place(namespace=Action.RESTART_QUERY.namespace)


def an_id(number):
    return f"{number:08x}-0000-4000-8000-000000000000"


class Job:
    """A job that runs on processors 0 and 1, and somebody who asks it things."""

    def __init__(self, **settings):
        self.world = World(config=a_config(**settings))
        self.operator = MemoryLog(self.world.placement, "operator")
        self.operator.take_over()
        self.service = self.leader()
        self.hears()

    def leader(self, name="a"):
        self.log = self.world.log()
        service = self.world.coordinator(name, log=self.log)
        service.take_office()
        service.submit(self.submission())
        return service

    def submission(self):
        return a_submission(config=self.world.config)

    @property
    def state(self):
        return self.service.status().state

    @property
    def run_id(self):
        return self.state.run.run_id

    def now_ms(self):
        return self.world.clock.wall_ms()

    def hears(self, **restarts):
        """A round with heartbeats of both processors; `e0=2`: its query knows the second order to restart."""
        self.hears_heartbeats(
            self.heartbeat(
                name,
                restart=restarts.get(name, 0),
                held=[
                    (grant.task_name, grant.epoch)
                    for grant in (self.state.grants_sorted if self.service.leads else ())
                    if grant.execution_id == name and not grant.released
                ],
            )
            for name in ("e0", "e1")
        )

    def heartbeat(self, name, **more):
        """What the container of a processor says now, that has read the whole stream: `e0` that of processor 0."""
        now = {
            "stream_offset": self.world.topic.end_offset,
            "received_ms": self.world.clock.monotonic_ms(),
        }
        return a_heartbeat(name, processor_id=name[1:], pid=100 + int(name[1:]), **(now | more))

    def hears_heartbeats(self, heartbeats):
        self.world.queue.extend(heartbeats)
        self.service.run_once(0)

    def ask(self, number, action=Action.RESTART_QUERY, *, place=None, **changes):
        message = ContainerPlacementRequestMessage(
            uuid=UUID(an_id(number)),
            **{
                "deployment_id": self.run_id,
                "processor_id": "0",
                "destination_host": "host-b" if action is Action.PLACE_CONTAINER else "",
                "timestamp_ms": self.now_ms(),
                "action": action,
            }
            | changes,
        )
        write = encode_message(message, place or Place(namespace=action.namespace))
        self.put(write.key, write.value)

    def put(self, key, value):
        self.operator.append_atomically([Write(key=key, value=value)])

    def reads(self):
        """A round in which the inbox has been read to its end."""
        self.world.queue.append(read_inbox(self.world.placement, self.state.inbox.offset_next, self.now_ms()))
        self.service.run_once(0)

    def passes(self, ms):
        """Time in which the containers go on saying the same."""
        self.world.clock.advance(ms)
        self.service.run_once(0)

    def latest(self):
        return {record.key: record.value for record in MemoryLog(self.world.placement).read()}

    def answer(self, number, place=CONTROL):
        value = self.latest().get(message_key(an_id(number), RESPONSE_TYPE, place))
        return None if value is None else decode_message(value)

    def status(self, number, place=CONTROL):
        found = self.answer(number, place)
        return None if found is None else found.status_code

    def records(self, kind):
        found = (decode(record, topic="t") for record in self.world.log().read())
        return [record for record in found if isinstance(record, kind)]

    def said_of(self, number):
        """What the log said of a request that was under way, each once."""
        puts = [put for put in self.records(RequestPut) if put.uuid == an_id(number)]
        under_way = [put for put in puts if put.status_code is StatusCode.IN_PROGRESS]
        return list(dict.fromkeys((put.phase, put.response_message) for put in under_way))


class ScaledJob(Job):
    """Processors that take up what they are granted, and let go of what is taken away, as soon as they read it."""

    def settles(self, rounds=6):
        for _ in range(rounds):
            self.hears_of(
                {
                    name: [
                        (grant.task_name, grant.epoch)
                        for grant in self.state.grants_sorted
                        if grant.execution_id == name
                        and not grant.released
                        and (self.state.generation.generation, grant.task_name) in self.state.planned_tasks
                    ]
                    for name in ("e0", "e1")
                }
            )

    def hears_of(self, held, stream_offset=None):
        """A round with heartbeats that list `held`, of when the stream was read up to there; by default all of it."""
        read_to = {} if stream_offset is None else {"stream_offset": stream_offset}
        self.hears_heartbeats(self.heartbeat(name, held=held[name], **read_to) for name in sorted(held))

    def scale(self, number, factor, **arguments):
        arguments = {"factor": str(factor)} | {name: str(value) for name, value in arguments.items()}
        self.ask(number, Action.SCALE, processor_id="", arguments=arguments)
        self.reads()

    def factors(self):
        return {start.ssp_kb.factor for grant in self.state.grants.values() for start in grant.starts}

    def shown(self):
        snapshot = self.service.status()
        return status_json(snapshot.job, snapshot.state, snapshot.seen, self.world.clock.monotonic_ms())

    def plan_texts(self):
        return [(planned.task_name, planned.mode, *map(str, planned.ssp_kbs)) for planned in self.state.plan]
