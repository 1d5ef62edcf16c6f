"""Random histories of a coordinator, for the laws: small worlds in which everything meets everything.

`Machine` is the loop without the log: decide, append, evolve, hear. Its offsets have the gaps that transaction
markers leave, so that nothing relies on offsets being counts.
"""

from dataclasses import dataclass, field

from hypothesis import strategies as st

from samzapy.coordinator.actions import FenceExecution, actions
from samzapy.coordinator.commands import (
    ContainerGone,
    ExecutionFenced,
    ReviewMembers,
    StartsResolved,
    StartTerm,
    Tick,
)
from samzapy.coordinator.decide import decide, observe
from samzapy.coordinator.grants import Bounds, PositionsRead, starts_of
from samzapy.coordinator.liveness import Sightings
from samzapy.coordinator.planning import replan
from samzapy.coordinator.state import INITIAL, committed, evolve
from samzapy.errors import SamzapyError
from samzapy.model.container import ContainerPhase
from samzapy.stream.codec import schema_records
from samzapy.testing.builders import a_config, a_heartbeat, a_submission

EXECUTIONS = ("e1", "e2", "e3", "e4")
PROCESSOR_OF = {"e1": "0", "e2": "0", "e3": "1", "e4": "2"}
CONFIGS = (
    a_config(),
    a_config(task_inputs="kafka.refunds,kafka.orders"),
    a_config(task_inputs="kafka.orders,kafka.refunds", job_container_lost_ms="20000"),
    # SSPs that change tasks, and tasks of several, as long as the job keeps no state; and a broadcast input.
    a_config(task_inputs="kafka.orders,kafka.refunds", task_partition_scheme="cogroup"),
    a_config(task_partition_scheme="group-by-partition", task_broadcast_inputs="kafka.refunds#0"),
)
SCHEMAS = schema_records()[:2]


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
        planned = next(planned for planned in self.state.plan if planned.task_name == action.task_name)
        ssps = [ssp_kb.ssp for ssp_kb in planned.positions]
        starts, losses = starts_of(
            planned,
            self.state.grants_sorted,
            PositionsRead(checkpoints={}, progress={}, bounds={ssp: Bounds(0, 1000) for ssp in ssps}),
            offset_default_of=dict.fromkeys(ssps, "oldest"),
            accepted_losses=(),
        )
        return StartsResolved(
            task_name=action.task_name,
            generation=action.generation,
            execution_id=action.execution_id,
            epoch_before=self.state.epoch,
            starts=starts,
            losses=losses,
        )


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


def heartbeats():
    def made(execution_id, state, stream_offset, held, received_ms, pid):
        return a_heartbeat(
            execution_id,
            processor_id=PROCESSOR_OF[execution_id],
            state=state,
            stream_offset=stream_offset,
            held=held,
            received_ms=received_ms,
            pid=pid,
        )

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
    )


def commands():
    """Anything that can be said to a coordinator, sensible or not."""
    return st.one_of(
        submissions(),
        heartbeats(),
        heartbeats(),
        reviews(),
        st.builds(Tick, now_ms=st.integers(0, 90_000), lost_ms=st.just(15_000)),
        st.builds(ContainerGone, st.sampled_from(EXECUTIONS), st.just("gone")),
        st.builds(ExecutionFenced, st.sampled_from(EXECUTIONS), st.integers(1, 3)),
        st.builds(a_term, st.integers(0, 3)),
    )


STEPS = st.lists(st.integers(0, 5) | commands(), max_size=25)
"""A number performs one of the actions that are asked for."""


def run(steps):
    """A machine that has lived through its first submission and `steps`."""
    machine = Machine()
    machine.step(a_term(0))
    machine.step(a_submission(config=CONFIGS[0], partition_counts={"kafka.orders": 2}))
    machine.plan_for("0")
    for step in steps:
        if isinstance(step, int):
            machine.perform(step)
        else:
            machine.step(step)
    return machine
