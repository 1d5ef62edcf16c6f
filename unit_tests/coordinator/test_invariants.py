"""The invariants as properties of the core (docs/internals/invariants.md).

Each test is named after its law.
"""

from dataclasses import fields, replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samzapy.container.orders import Orders, follow
from samzapy.coordinator.actions import FenceExecution, ResolveStarts, actions
from samzapy.coordinator.commands import StartsResolved
from samzapy.coordinator.decide import decide
from samzapy.coordinator.grant_values import ContainerGone
from samzapy.coordinator.replay import replay
from samzapy.coordinator.state import INITIAL, Committed, CoordinatorState, Folding, evolve
from samzapy.errors import BrokerUnavailableError, SamzapyError
from samzapy.inspection.invariants import _CHECKS, Invariants
from samzapy.model.container import Container, ContainerPhase, ProcessorLocality, TaskLocality
from samzapy.model.container_end import ContainerEnd
from samzapy.model.grant import BucketStart, Grant
from samzapy.model.launch import Launch, LaunchPhase, LaunchRole
from samzapy.model.placement import StatusCode
from samzapy.model.startpoint import Startpoint
from samzapy.stream import records as r
from samzapy.stream.codec import decode, encode
from samzapy.stream.keys import key_of
from samzapy.stream.log import Write
from samzapy.testing.builders import a_config, a_heartbeat, a_submission, an_ssp_kb
from samzapy.testing.memory_log import MemoryLog, MemoryTopic
from unit_tests.fixtures.coordinator_histories import PROCESSOR_OF, STEPS, Machine, a_term, commands, run
from unit_tests.fixtures.coordinator_world import World

pytestmark = pytest.mark.slow

# --- L1: fold(compact(log)) == fold(log) ---

SMALL = st.integers(0, 3)
NAMES = st.sampled_from(["a", "b", "c"])
SSP_KBS = st.sampled_from([an_ssp_kb(f"kafka.orders.{partition}:0/1") for partition in range(3)])
PUTS = st.one_of(
    st.builds(r.SchemaPut, fingerprint=NAMES, schema_json=NAMES),
    st.builds(r.FormatLevelPut, level=SMALL),
    st.builds(r.JobIdentityPut, job_name=NAMES, job_id=NAMES),
    st.builds(
        r.TermPut,
        term=SMALL,
        coordinator_id=NAMES,
        host=NAMES,
        boot_id=NAMES,
        pid=SMALL,
        process_started_ms=SMALL,
        url=NAMES,
        started_at_ms=SMALL,
    ),
    st.builds(r.ConfigPut, config_key=NAMES, value=NAMES),
    st.builds(
        r.InputPut,
        system_stream=SSP_KBS.map(lambda ssp_kb: ssp_kb.ssp.system_stream),
        partition_count=SMALL,
        partition_count_first=SMALL,
        topic_id=NAMES,
        expansions=st.tuples() | st.tuples(st.builds(r.Expansion, partition_count=SMALL, seen_at_ms=SMALL)),
    ),
    st.builds(r.OwnTopicPut, name=NAMES, topic_id=NAMES, partition_count=SMALL),
    st.builds(r.ChangelogPartitionPut, task_name=NAMES, partition=SMALL),
    st.builds(
        r.PlannedTaskPut,
        generation=SMALL,
        task_name=NAMES,
        partition_id=SMALL,
        mode=st.just("active"),
        processor_id=NAMES,
        changelog_partition=SMALL,
        ssp_kbs=st.tuples(SSP_KBS),
    ),
    st.builds(
        r.GenerationPut,
        generation=SMALL,
        factor=st.just(1),
        task_count=SMALL,
        scheme=st.just("max"),
        processor_ids=st.tuples(NAMES),
    ),
    st.builds(
        r.RunPut, run_id=NAMES, ended=st.booleans(), epoch_before=SMALL, finished=st.booleans(), counts_after=SMALL
    ),
    st.builds(r.InputEndPut, ssp=SSP_KBS.map(lambda ssp_kb: ssp_kb.ssp), run_id=NAMES, offset_end=SMALL),
    st.builds(
        r.ContainerPut,
        container=st.builds(
            Container,
            execution_id=NAMES,
            processor_id=NAMES,
            host=NAMES,
            boot_id=NAMES,
            pid=SMALL,
            process_started_ms=SMALL,
            slot_count=SMALL,
            phase=st.sampled_from(ContainerPhase),
            format_level=SMALL,
            reason=NAMES,
        ),
    ),
    st.builds(
        r.LocalityPut,
        locality=st.builds(ProcessorLocality, processor_id=NAMES, host=NAMES, fault_domain=NAMES),
    ),
    st.builds(
        r.TaskLocalityPut,
        locality=st.builds(TaskLocality, task_name=NAMES, processor_id=NAMES, host=NAMES),
    ),
    st.builds(r.EpochPut, epoch=SMALL),
    st.builds(
        r.GrantPut,
        grant=st.builds(
            Grant,
            task_name=NAMES,
            epoch=SMALL,
            execution_id=NAMES,
            generation=SMALL,
            partition_id=SMALL,
            changelog_partition=SMALL,
            starts=st.tuples(st.builds(BucketStart, ssp_kb=SSP_KBS, offset_next=SMALL)),
        ),
    ),
    st.builds(
        r.StartpointPut,
        startpoint=st.builds(Startpoint, ssp_kb=SSP_KBS, offset_next=SMALL, epoch=SMALL, uuid=NAMES),
    ),
    st.builds(r.LossAcceptedPut, ssp_kb=SSP_KBS, offset_from=SMALL, offset_to=SMALL),
    st.builds(
        r.RequestPut,
        uuid=NAMES,
        offset=SMALL,
        place=NAMES,
        action=NAMES,
        deployment_id=NAMES,
        processor_id=NAMES,
        destination_host=NAMES,
        request_expiry_ms=SMALL,
        timestamp_ms=SMALL,
        run_id=NAMES,
        status_code=st.sampled_from(StatusCode),
        response_message=NAMES,
        accepted_at_ms=SMALL,
        decided_at_ms=SMALL,
        restart=SMALL,
        answered=st.booleans(),
    ),
    st.builds(
        r.RequestMemoryPut,
        uuid=NAMES,
        timestamp_ms=SMALL,
        place=NAMES,
        run_id=NAMES,
        status_code=st.sampled_from(StatusCode),
        decided_at_ms=SMALL,
        phase=st.sampled_from(r.MemoryPhase),
        offset=SMALL,
    ),
    st.builds(r.InboxPut, offset_next=SMALL, forgotten_timestamp_ms=SMALL, forgotten_uuid=NAMES),
    st.builds(r.RestartPut, processor_id=NAMES, number=SMALL, uuid=NAMES),
    st.builds(r.PlacedPut, processor_id=NAMES, execution_id=NAMES, uuid=NAMES),
    st.builds(
        r.LaunchPut,
        launch=st.builds(
            Launch,
            execution_id=NAMES,
            processor_id=NAMES,
            role=st.sampled_from(LaunchRole),
            phase=st.sampled_from(LaunchPhase),
            wanted_at_ms=SMALL,
            expires_at_ms=SMALL,
        ),
    ),
    st.builds(r.ContainerCountPut, count=SMALL),
    st.builds(r.StandbyPut, processor_id=NAMES, count=SMALL, uuid=NAMES),
    st.builds(r.SuspendedPut, processor_id=NAMES, execution_id=NAMES, exit_code=SMALL, reason=NAMES),
    st.builds(
        r.ContainerEndPut,
        end=st.builds(ContainerEnd, processor_id=NAMES, execution_id=NAMES, host=NAMES, ended_at_ms=SMALL),
    ),
)
RECORDS = PUTS | PUTS.map(lambda put: r.Removed(key=key_of(put)))
COMPACTIONS = st.lists(st.tuples(st.integers(0, 80), st.integers(0, 80)), max_size=4)


def on_a_topic(batches):
    """A topic that holds `batches`, one transaction each."""
    topic = MemoryTopic()
    log = MemoryLog(topic)
    log.take_over()
    for batch in batches:
        log.append_atomically([Write(key=key, value=value) for key, value in map(encode, batch)])
    return topic


def compacted_fold(topic, compactions):
    for keep_until, tombstones_until in compactions:
        topic.compact(keep_until=keep_until, tombstones_until=tombstones_until)
    return evolve(INITIAL, [(record.offset, decode(record, topic="t")) for record in MemoryLog(topic).read()])


@given(batches=st.lists(st.lists(RECORDS, min_size=1, max_size=6), max_size=12), compactions=COMPACTIONS)
def test_l1_a_compacted_log_folds_to_the_same_state(batches, compactions):
    topic = on_a_topic(batches)

    assert compacted_fold(topic, []) == compacted_fold(topic, compactions)


def placeless(state):
    """Without the offsets on the stream."""
    return replace(state, generation_offset=0, startpoint_offsets={}, placed_offsets={})


@settings(max_examples=50)
@given(steps=STEPS, compactions=COMPACTIONS)
def test_l1_the_records_of_a_coordinator_fold_to_its_state_before_and_after_compaction(steps, compactions):
    machine = run(steps)
    topic = on_a_topic([[item.record] for item in machine.log])

    folded = compacted_fold(topic, compactions)

    # Each record has a transaction of its own here, so only the offsets differ.
    assert placeless(machine.state) == placeless(folded)
    assert folded.startpoints.keys() == folded.startpoint_offsets.keys()
    assert folded.placed.keys() == folded.placed_offsets.keys()


@given(batch=st.lists(RECORDS, max_size=20), cut=st.integers(0, 20))
def test_l1_batches_may_be_folded_together_or_apart(batch, cut):
    items = [Committed(offset, record) for offset, record in enumerate(batch)]

    assert evolve(INITIAL, items) == evolve(evolve(INITIAL, items[:cut]), items[cut:])


@given(batches=st.lists(st.lists(RECORDS, max_size=6), max_size=6))
def test_l1_a_fold_that_copies_nothing_is_the_same_at_each_step(batches):
    folding, state, offset = Folding(), INITIAL, 0

    for batch in batches:
        for record in batch:
            folding.add(offset, record)
            state = evolve(state, [Committed(offset, record)])
            assert folding.state == state
            assert (folding.state.plan, folding.state.grants_sorted) == (state.plan, state.grants_sorted)
            offset += 1
    assert INITIAL == CoordinatorState(), "no fold changed the state that all begin with"


# --- a coordinator writes only what may follow ---


@settings(max_examples=300)
@given(steps=STEPS)
def test_nothing_that_a_coordinator_writes_breaks_a_law(steps):
    invariants = Invariants()

    for item in run(steps).log:
        assert invariants.check(item.offset, item.record, True) == "", item


# --- L2: twice is once ---


@settings(max_examples=300)
@given(steps=STEPS, command=commands())
def test_l2_a_repeated_command_writes_nothing(steps, command):
    machine = run(steps)

    machine.step(command)

    assert () == machine.step(command)


@given(steps=STEPS, index=st.integers(0, 9))
def test_l2_an_action_that_is_answered_twice_writes_nothing_the_second_time(steps, index):
    machine = run(steps)
    due = actions(machine.state)
    if not due:
        return
    answer = machine.answer(due[index % len(due)])

    assert machine.step(answer)
    assert () == machine.step(answer)


# --- L3: actions from state ---


@given(steps=STEPS)
def test_l3_a_returning_leader_repeats_the_launches_before(steps):
    machine = run(steps)
    replayed = evolve(INITIAL, machine.log)

    assert actions(machine.state) == actions(replayed)
    fences = [action for action in actions(machine.state) if isinstance(action, FenceExecution)]
    assert fences == [action for action in actions(replayed) if isinstance(action, FenceExecution)]


class CrashError(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("port", ["fence", "read"])
@pytest.mark.parametrize("done", [False, True])
def test_l3_a_coordinator_that_dies_around_an_action_is_succeeded_by_one_that_asks_again(port, done):
    world = World()
    service = world.coordinator()
    service.become_leader()
    service.submit(a_submission())
    world.queue.append(a_heartbeat())
    service.run_once(0)
    original = getattr(world, port)

    def dies(*arguments):
        if done:
            original(*arguments)
        raise CrashError

    setattr(world, port, dies)
    world.queue.extend([a_heartbeat("e2", pid=200), a_heartbeat(state=ContainerPhase.STOPPED, held=[("t", 1)])])
    with pytest.raises(CrashError):
        service.run_once(0)
    setattr(world, port, original)

    successor = world.coordinator("b", pid=2)
    successor.become_leader()
    successor.run_once(0)

    state = successor.status().state
    assert ContainerPhase.FENCED is state.containers["e1"].phase
    assert {"e2"} == {grant.execution_id for grant in state.grants.values()}
    assert {f"samzapy/flights-1/e1/{slot}" for slot in (0, 1, "driver")} == set(world.fenced)


# --- L5: an append of unknown outcome ends the term ---


@settings(max_examples=100)
@given(breaks=st.lists(st.none() | st.booleans(), max_size=12))
def test_l5_whatever_breaks_the_state_stays_that_of_the_log_and_the_work_is_done(breaks):
    world = World()
    log = world.log()
    service = world.coordinator(log=log)
    service.become_leader()
    service.submit(a_submission())
    commands = [a_heartbeat(), a_heartbeat("e2", pid=200), a_heartbeat(state=ContainerPhase.STOPPED)]
    for index, committed_anyway in enumerate([*breaks, None, None, None]):
        if committed_anyway is not None:
            log.break_next_append(committed=committed_anyway)
        # The next append may be the one that begins a term, and fail too: the caller becomes leader again.
        world.queue.append(commands[min(index, 2)])
        try:
            if not service.is_leader:
                service.become_leader()
            service.run_once(0)
        except SamzapyError:
            continue
        assert service.status().state == replay(world.log().read(), topic="t").state

    # Heartbeats are repeated until they are answered, so those lost with a term are sent again.
    for heartbeat in commands:
        world.queue.append(heartbeat)
        service.run_once(0)
    assert {"e2"} == {grant.execution_id for grant in service.status().state.grants.values()}
    assert 4 == len(service.status().state.grants)


def test_l5_no_office_is_taken_while_no_broker_answers():
    world = World()
    log = world.log()
    service = world.coordinator(log=log)
    service.become_leader()
    log.break_next_append(committed=False)

    def unreachable():
        raise BrokerUnavailableError("no broker answered")

    log.take_over = unreachable
    world.queue.append(a_heartbeat())
    service._config = a_config()
    with pytest.raises(BrokerUnavailableError):
        service.submit(a_submission())

    assert not service.is_leader
    assert not service.status().may_answer(world.clock.monotonic_ms(), 10_000)


# --- L6: one owner ---


class Agent:
    """An honest container: real orders; it begins, releases and reports later.

    `running` are the grants that its workers may commit for, from a start of the query to its end.
    """

    def __init__(self, execution_id):
        self.execution_id = execution_id
        self.orders = Orders(execution_id=execution_id)
        self.running = ()
        self.stopped = False

    @property
    def held(self):
        own = self.orders.own_grants()
        return () if self.stopped else (*own, *(grant for grant in self.running if grant not in own))

    def read(self, log, count):
        portion = [item for item in log if item.offset >= self.orders.offset_next][:count]
        if portion:
            self.orders = follow(self.orders, [item.record for item in portion], portion[-1].offset + 1)

    def start(self):
        if not self.stopped and not self.orders.is_given_up:
            self.running = self.orders.own_grants()

    def stop_query(self):
        """The query has ended: nothing more can be committed for its grants."""
        self.running = ()

    def heartbeat(self, stop):
        if stop:
            self.stopped, self.running = True, ()
        return a_heartbeat(
            self.execution_id,
            processor_id=PROCESSOR_OF[self.execution_id],
            state=ContainerPhase.STOPPED if self.stopped else ContainerPhase.RUNNING,
            stream_offset=self.orders.offset_next,
            held=[(grant.task_name, grant.epoch) for grant in self.held],
        )


AGENT = st.sampled_from(sorted(PROCESSOR_OF))
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), AGENT, st.sampled_from([99, 99, 99, 1, 3])),
        st.tuples(st.just("let go"), AGENT, st.just(0)),
        st.tuples(st.just("start"), AGENT, st.just(0)),
        st.tuples(st.just("heartbeat"), AGENT, st.sampled_from([0, 0, 0, 0, 1])),
        st.tuples(st.just("report"), AGENT, st.just(0)),
        st.tuples(st.just("receive"), AGENT, st.integers(0, 5)),
        st.tuples(st.just("give up"), AGENT, st.just(0)),
        st.tuples(st.just("act"), AGENT, st.integers(0, 9)),
        st.tuples(st.just("grant"), AGENT, st.just(0)),
        st.tuples(st.just("plan"), st.sampled_from([("0",), ("1",), ("0", "1"), ("1", "2")]), st.just(0)),
    ),
    max_size=40,
)
# Every history begins with a job that runs on e1, and three more that wait for a share.
BEGINNING = [
    ("plan", ("0",), 0),
    ("heartbeat", "e1", 0),
    ("grant", "e1", 0),
    ("read", "e1", 99),
    ("start", "e1", 0),
    *(("heartbeat", execution_id, 0) for execution_id in ("e1", "e2", "e3", "e4")),
]


def check_one_owner(events):
    """Play `events` with slow and deaf containers: one bucket never has two writers.

    The containers are honest, and repeat themselves.
    """
    machine = Machine()
    machine.step(a_term(0))
    agents = {execution_id: Agent(execution_id) for execution_id in PROCESSOR_OF}
    released, fenced = [], set()
    for kind, holder, number in [*BEGINNING, *events]:
        if kind == "plan":
            machine.step(a_submission(partition_counts={"kafka.orders": 2}))
            machine.plan_for(*holder)
        elif kind == "act":
            action = machine.perform(number)
            if isinstance(action, FenceExecution):
                fenced.add(action.execution_id)
        elif kind == "grant":
            # All that can be granted now, and each owner reads its grant.
            for action in actions(machine.state):
                if isinstance(action, ResolveStarts):
                    machine.step(machine.answer(action))
                    agents[action.execution_id].read(machine.log, 99)
                    agents[action.execution_id].start()
        elif kind == "give up":
            machine.step(ContainerGone(holder, "gone"))
        elif kind == "read":
            agents[holder].read(machine.log, number)
        elif kind == "let go":
            agents[holder].stop_query()
        elif kind == "start":
            agents[holder].start()
        elif kind in ("heartbeat", "report"):
            if kind == "report":
                agents[holder].read(machine.log, 99)
            released.append(agents[holder].heartbeat(stop=bool(number)))
            machine.step(released[-1])
        elif released:
            machine.step(released[number % len(released)])  # An old one arrives late, or again.
        owners = {}
        for agent in agents.values():
            for grant in agent.running if agent.execution_id not in fenced else ():
                owners.setdefault(grant.starts[0].ssp_kb, set()).add(agent.execution_id)
        assert all(len(holders) == 1 for holders in owners.values()), owners
        granted = [grant for grant in machine.state.grants.values() if grant.execution_id not in fenced]
        assert len({grant.epoch for grant in granted}) == len(granted)


@settings(max_examples=1500)
@given(events=EVENTS)
def test_l6_a_bucket_never_has_two_owners_that_can_commit(events):
    check_one_owner(events)


# --- L7: equal state decides equally ---


def turned_round(value):
    """The same mappings in another order of insertion, like a replay after compaction."""
    changed = {}
    for field in fields(value):
        value_of_field = getattr(value, field.name)
        if field.init and isinstance(value_of_field, dict):
            changed[field.name] = dict(reversed(value_of_field.items()))
    return replace(value, **changed)


@settings(max_examples=1000)
@given(steps=STEPS, command=commands())
def test_l7_equal_states_decide_equally_whatever_the_order_of_their_tables(steps, command):
    machine = run(steps)
    state, liveness = turned_round(machine.state), turned_round(machine.liveness)
    assert (machine.state, machine.liveness) == (state, liveness)

    assert decided(command, machine.state, machine.liveness) == decided(command, state, liveness)
    assert actions(machine.state) == actions(state)


def decided(command, state, liveness):
    try:
        return decide(command, state, liveness)
    except SamzapyError as error:
        return type(error), str(error)


def test_l7_of_two_living_executions_the_same_one_is_chosen_in_any_order():
    machine = run([a_heartbeat("e2"), a_heartbeat("e1")])

    def chosen(state):
        return {action.execution_id for action in actions(state) if isinstance(action, ResolveStarts)}

    assert {"e1"} == chosen(machine.state) == chosen(turned_round(machine.state))


def test_a_start_computed_before_another_execution_had_the_task_is_not_used():
    machine = run([a_heartbeat("e1")])
    action = next(action for action in actions(machine.state))
    stale = machine.answer(action)
    assert isinstance(stale, StartsResolved)
    machine.step(stale)
    machine.step(a_heartbeat("e1", state=ContainerPhase.STOPPED))
    machine.step(a_heartbeat("e2"))

    assert () == machine.step(replace(stale, tasks=(replace(stale.tasks[0], execution_id="e2"),)))


LET_GO = [("read", "e1", 99), ("let go", "e1", 0), ("heartbeat", "e1", 0)]


@pytest.mark.parametrize(
    "events",
    [
        # Given back after its release, begun again, and taken away once more before the new grant was given.
        [
            ("plan", ("1",), 0),
            *LET_GO,
            ("plan", ("0",), 0),
            ("read", "e1", 99),
            ("start", "e1", 0),
            ("plan", ("1",), 0),
            ("grant", "e3", 0),
        ],
        # Granted and taken away, and the container has read neither; then it reads on, slowly.
        [
            ("plan", ("1",), 0),
            *LET_GO,
            ("act", "e3", 0),
            ("act", "e3", 0),
            ("plan", ("0",), 0),
            ("heartbeat", "e3", 0),
            ("grant", "e1", 0),
            *([("read", "e3", 1), ("start", "e3", 0)] * 60),
        ],
        # Taken away and read, and the query still runs.
        [("plan", ("1",), 0), ("read", "e1", 99), ("heartbeat", "e1", 0), ("grant", "e3", 0)],
    ],
    ids=["given back", "not read", "not let go"],
)
def test_l6_in_the_histories_that_each_part_of_a_release_is_for(events):
    check_one_owner(events)


# --- the table of checks ---

FREE = {
    r.ConfigPut,
    r.ContainerCountPut,
    r.FactorPut,
    r.JobIdentityPut,
    r.LocalityPut,
    r.LossAcceptedPut,
    r.OwnTopicPut,
    r.SchemaPut,
    r.StandbyPut,
    r.SuspendedPut,
    r.ContainerEndPut,
    r.TaskLocalityPut,
    r.TermPut,
}
"""Records that may change to any value; `stream.numbering` checks the terms."""


def test_each_kind_of_record_has_a_check_or_may_change_freely() -> None:
    assert set(get_args(r.CoordinatorRecord)) - set(_CHECKS) == FREE
