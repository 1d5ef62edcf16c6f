"""Random histories of a coordinator, for the laws: small worlds in which everything meets everything.

`Machine` is the loop without the log: decide, append, evolve, hear. Its offsets have the gaps that transaction
markers leave, so that nothing relies on offsets being counts.
"""

from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import strategies as st

from samzapy.coordinator.actions import (
    FenceExecution,
    ReadEnds,
    ReadLandmarks,
    RemoveMessages,
    WriteResponse,
    actions,
)
from samzapy.coordinator.assignment.grants import counts_after
from samzapy.coordinator.assignment.liveness import Sightings
from samzapy.coordinator.assignment.replanning import replan
from samzapy.coordinator.assignment.starts import Bounds, GrantIndex, PositionsRead, starts_of
from samzapy.coordinator.commands import (
    CollectRequests,
    ContainerGone,
    EndsRead,
    ExecutionFenced,
    Figures,
    Landmarks,
    LandmarksRead,
    MessagesRemoved,
    Position,
    RequestsRead,
    ResponsesWritten,
    ReviewInputs,
    ReviewMembers,
    ReviewRequests,
    StartsResolved,
    StartTerm,
    TaskStarts,
    Tick,
    TopicsLooked,
)
from samzapy.coordinator.decide import decide, observe
from samzapy.coordinator.state import INITIAL, committed, evolve
from samzapy.errors import SamzapyError
from samzapy.model.container import ContainerPhase
from samzapy.model.placement import Action, ContainerPlacementRequestMessage
from samzapy.model.startpoint import StartpointIndex
from samzapy.model.topic_checks import Cluster
from samzapy.plan.input_patterns import resolve_inputs
from samzapy.stream.codec import schema_records
from samzapy.stream.placement import Place, Requested
from samzapy.stream.records import RunPut
from samzapy.testing.builders import a_config, a_heartbeat, a_submission, an_input_topic_found, an_ssp_kb

EXECUTIONS = ("e1", "e2", "e3", "e4")
PROCESSOR_OF = {"e1": "0", "e2": "0", "e3": "1", "e4": "2"}
CONFIGS = (
    a_config(),
    resolve_inputs(a_config(task_inputs="kafka.~orders.*"), ["orders"]),
    a_config(task_inputs="kafka.refunds,kafka.orders"),
    a_config(task_inputs="kafka.orders,kafka.refunds", job_container_lost_ms="20000"),
    # SSPs that change tasks, and tasks of several, as long as the job keeps no state; and a broadcast input.
    a_config(task_inputs="kafka.orders,kafka.refunds", task_partition_scheme="cogroup"),
    a_config(task_partition_scheme="group-by-partition", task_broadcast_inputs="kafka.refunds#0"),
    # Runs that have an end, and begin without what earlier ones left.
    a_config(systems_kafka_samza_offset_end="head", stores_sums_msg_serde="json", local_store_dir="/data"),
)
SCHEMAS = schema_records()[:2]
UUIDS = tuple(f"{number:08x}-0000-4000-8000-000000000000" for number in range(5))


def a_term(term_before):
    return StartTerm(
        term_before=term_before,
        job_name="flights",
        job_id="1",
        coordinator_id="a",
        host="host-a",
        boot_id="boot-a",
        pid=1,
        process_started_ms=1,
        url="http://a:1",
        started_at_ms=7,
        schemas=SCHEMAS,
    )


@dataclass
class Machine:
    """A coordinator without a log; `log` is what it would have written."""

    state: object = INITIAL
    seen: Sightings = field(default_factory=Sightings)
    log: list = field(default_factory=list)
    offset_next: int = 0

    def step(self, command):
        """Decide and evolve; what is refused changes nothing. Returns the records."""
        try:
            records = decide(command, self.state, self.seen).records
        except SamzapyError:
            return ()
        self.commit(records)
        self.seen = observe(command, self.state, self.seen)
        return records

    def commit(self, records):
        batch = committed(records, self.offset_next)
        self.state = evolve(self.state, batch)
        self.log.extend(batch)
        self.offset_next += len(records) + (1 if records else 0)

    def rewind(self, arguments):
        """A request to rewind that is for the run that is on, from its reading to what it leads to at once."""
        if self.state.run is None:
            self.commit([RunPut(run_id="1-0000000a", ended=False, epoch_before=self.state.epoch)])
        offset, uuid = self.state.inbox.offset_next, UUIDS[self.state.inbox.offset_next % len(UUIDS)]
        message = ContainerPlacementRequestMessage(
            uuid=UUID(uuid),
            deployment_id=self.state.run.run_id,
            processor_id="",
            timestamp_ms=offset,
            action=Action.REWIND,
            arguments=arguments,
        )
        requested = Requested(offset=offset, uuid=uuid, place=Place(), message=message)
        self.step(
            RequestsRead(
                offset_from=offset, offset_next=offset + 1, requests=(requested,), unreadable=(), now_ms=offset
            )
        )
        for action in actions(self.state):
            if isinstance(action, ReadLandmarks):
                self.step(self.answer(action, offset))

    def plan_for(self, *processors):
        """Put a plan for these processors in force, whoever is there."""
        self.commit(replan(self.state, processors))

    def perform(self, index, offset_next=0):
        """Do one of the actions that the state asks for, as the service does; None when there is none."""
        wanted = actions(self.state)
        if not wanted:
            return None
        action = wanted[index % len(wanted)]
        self.step(self.answer(action, offset_next))
        return action

    def answer(self, action, offset_next=0):
        if isinstance(action, FenceExecution):
            return ExecutionFenced(action.execution_id, action.attempt)
        if isinstance(action, WriteResponse):
            return ResponsesWritten(((action.uuid, action.status_code),))
        if isinstance(action, RemoveMessages):
            return MessagesRemoved((action.uuid,), self.state.inbox.offset_next)
        if isinstance(action, ReadEnds):
            return EndsRead(
                system_stream=action.system_stream,
                partition_count=action.partition_count,
                ends=tuple(offset_next for _ in action.ssps),
            )
        if isinstance(action, ReadLandmarks):
            landmarks = {ssp: Landmarks(0, 1000, offset_next) for ssp in action.ssps}
            return LandmarksRead(uuid=action.uuid, landmarks=landmarks, now_ms=offset_next)
        planned = next(planned for planned in self.state.plan if planned.task_name == action.task_name)
        ssps = [ssp_kb.ssp for ssp_kb in planned.positions]
        starts = starts_of(
            planned,
            GrantIndex(self.state.grants.values()),
            PositionsRead(checkpoints={}, progress={}, bounds={ssp: Bounds(0, 1000) for ssp in ssps}),
            offset_default_of=dict.fromkeys(ssps, "oldest"),
            accepted_losses=(),
            startpoints=StartpointIndex(self.state.startpoints.values()),
        )
        resolved = TaskStarts(
            task_name=action.task_name,
            execution_id=action.execution_id,
            starts=starts.of_buckets,
            losses=starts.losses,
            epoch_rewound=starts.epoch_rewound,
            changelog_ends=(("sums", self.offset_next),) if counts_after(self.state) else (),
        )
        return StartsResolved(generation=action.generation, epoch_before=self.state.epoch, tasks=(resolved,))


def submissions():
    return st.builds(
        lambda config, orders, refunds: a_submission(
            config=config,
            partition_counts={"kafka.orders": orders, "kafka.refunds": refunds},
        ),
        st.sampled_from(CONFIGS),
        st.integers(1, 3),
        st.integers(1, 2),
    )


def reviews():
    return st.builds(
        ReviewMembers,
        now_ms=st.integers(0, 90_000),
        debounce_ms=st.sampled_from([0, 20_000]),
        grace_ms=st.sampled_from([0, 20_000]),
        run_id_next=st.sampled_from(["1-0000000a", "2-0000000b"]),
    )


def looks():
    """Topics that grow, and one that comes."""
    return st.builds(
        lambda orders, refunds, late: TopicsLooked(
            found={
                name: an_input_topic_found(name, count)
                for name, count in (("orders", orders), ("refunds", refunds), ("orders-late", late))
                if count
            },
            cluster=Cluster(bootstrap_servers="b:9092", broker_count=1),
            topics=frozenset(["orders", "refunds", "orders-late"][: 2 + bool(late)]),
        ),
        st.integers(0, 6),
        st.integers(0, 3),
        st.integers(0, 2),
    )


def inputs_reviewed():
    return st.builds(ReviewInputs, now_ms=st.integers(0, 90_000), settle_ms=st.sampled_from([0, 0, 20_000]))


def heartbeats():
    def made(execution_id, state, stream_offset, held, received_ms, pid, restart, position):
        return a_heartbeat(
            execution_id,
            processor_id=PROCESSOR_OF[execution_id],
            state=state,
            stream_offset=stream_offset,
            held=held,
            received_ms=received_ms,
            pid=pid,
            restart=restart,
            figures=Figures(positions={ssp_kb: Position(position, 1000) for ssp_kb in ssp_kbs}),
        )

    ssp_kbs = [an_ssp_kb(f"kafka.{stream}.{n}") for stream in ("orders", "refunds") for n in range(6)]
    tasks = [f"SystemStreamPartition_kafka.{stream}.{n}" for stream in ("orders", "refunds") for n in range(3)]
    return st.builds(
        made,
        st.sampled_from(EXECUTIONS),
        st.sampled_from(
            [ContainerPhase.STARTED, ContainerPhase.RUNNING, ContainerPhase.RUNNING, ContainerPhase.STOPPED]
        ),
        st.integers(0, 80),
        st.just([]) | st.lists(st.tuples(st.sampled_from(tasks), st.integers(1, 8)), max_size=3),
        st.integers(0, 60_000),
        st.sampled_from([100, 100, 100, 200]),
        st.integers(0, 2),
        st.sampled_from([-1, 0, 0]),
    )


@st.composite
def _requests(draw, uuid):
    action = draw(st.sampled_from([Action.RESTART_QUERY, Action.REWIND, *Action]))
    arguments = {
        Action.SCALE: st.fixed_dictionaries({"factor": st.sampled_from(["1", "2", "4"])}),
        Action.REWIND: REWINDS,
    }
    return ContainerPlacementRequestMessage(
        uuid=UUID(uuid),
        deployment_id=draw(st.sampled_from(["1-0000000a", "1-0000000a", "2-0000000b"])),
        processor_id="" if action.is_of_job else draw(st.sampled_from(["0", "0", "1", "9"])),
        destination_host="h",
        timestamp_ms=draw(st.integers(0, 3)),
        action=action,
        arguments=draw(arguments.get(action, st.just({}))),
    )


@st.composite
def requests_read(draw):
    """What stands on a placement topic of twelve records, or a part of it, again or for the first time."""
    offsets = draw(st.lists(st.integers(0, 11), max_size=3, unique=True))
    return RequestsRead(
        offset_from=draw(st.sampled_from([0, 0, 0, 3])),
        offset_next=draw(st.integers(1, 12)),
        requests=tuple(
            Requested(
                offset=offset,
                uuid=(uuid := draw(st.sampled_from(UUIDS))),
                place=Place(),
                message=None if draw(st.integers(0, 5)) == 0 else draw(_requests(uuid)),
            )
            for offset in offsets
        ),
        unreadable=(),
        now_ms=draw(st.integers(0, 90_000)),
    )


def requests_reviewed():
    return st.one_of(
        requests_read(),
        requests_read(),
        st.builds(ReviewRequests, now_ms=st.integers(0, 90_000), expiry_ms=st.just(20_000)),
        st.builds(
            CollectRequests, now_ms=st.integers(0, 90_000), retention_ms=st.just(20_000), memory_max=st.integers(0, 2)
        ),
    )


REWINDS = st.fixed_dictionaries(
    {"stream": st.just("kafka.orders"), "to": st.sampled_from(["oldest", "newest", "7", "9ms"])},
    optional={"partition": st.sampled_from(["0", "1"]), "processor": st.just("0")},
)


def commands():
    """Anything that can be said to a coordinator, sensible or not."""
    return st.one_of(
        submissions(),
        heartbeats(),
        heartbeats(),
        requests_reviewed(),
        reviews(),
        looks(),
        inputs_reviewed(),
        st.builds(Tick, now_ms=st.integers(0, 90_000), lost_ms=st.just(15_000)),
        st.builds(ContainerGone, st.sampled_from(EXECUTIONS), st.just("gone")),
        st.builds(ExecutionFenced, st.sampled_from(EXECUTIONS), st.integers(1, 3)),
        st.builds(a_term, st.integers(0, 3)),
    )


STEPS = st.lists(st.integers(0, 5) | commands() | REWINDS, max_size=25)
"""A number performs one of the actions that are asked for; arguments are those of a request to rewind."""


def run(steps):
    """A machine that has lived through its first submission and `steps`."""
    machine = Machine()
    machine.step(a_term(0))
    machine.step(a_submission(config=CONFIGS[0], partition_counts={"kafka.orders": 2}))
    machine.plan_for("0")
    for step in steps:
        if isinstance(step, int):
            machine.perform(step)
        elif isinstance(step, dict):
            machine.rewind(step)
        else:
            machine.step(step)
    return machine
