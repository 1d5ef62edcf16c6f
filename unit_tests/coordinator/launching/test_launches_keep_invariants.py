"""The laws over random lives of launched containers.

They start, run, end and fail at any time. A launcher's report may be late, of another moment, or missing.
"""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from samzapy.container.orders import Orders, follow
from samzapy.coordinator.assignment.liveness import is_alive
from samzapy.coordinator.commands import LaunchesLooked, ReviewLaunches, ReviewMembers, Tick
from samzapy.coordinator.decide import decide
from samzapy.coordinator.launching.launches import is_over, to_kill, to_start, wanted_processors
from samzapy.coordinator.state import INITIAL, evolve
from samzapy.inspection.invariants import Invariants
from samzapy.model.container import ContainerPhase
from samzapy.model.launch import UP, Launched, LaunchedState, LaunchRole
from samzapy.stream.records import ContainerCountPut, RunPut
from samzapy.testing.builders import a_heartbeat, a_submission
from unit_tests.fixtures.coordinator_histories import CONFIGS, Machine, a_term

RETRIES = 3
WINDOW_MS = 60_000
C = ContainerPhase
WHICH = st.integers(0, 5)


class Cluster(Machine):
    """A coordinator of launched containers; each step has a name and its arguments."""

    def __init__(self, count):
        super().__init__()
        self.now_ms = 1_000
        self.wall_ahead_ms = 1_000_000_000
        self.rounds = 0
        self.step(a_term(0))
        submission = a_submission(config=CONFIGS[0], partition_counts={"kafka.orders": 3})
        self.step(replace(submission, container_count=count))

    def lives(self, steps):
        self.review()
        for name, *about in steps:
            getattr(self, name)(*about)
            self.review()
        return self

    def review(self):
        self.now_ms += 10
        self.rounds += 1
        self.step(Tick(now_ms=self.now_ms, lost_ms=15_000))
        self.step(
            ReviewMembers(now_ms=self.now_ms, debounce_ms=5_000, grace_ms=5_000, run_id_next=f"{self.rounds}-a")
        )
        self.step(self.reviewed())
        for index in range(6):
            self.perform(index)

    def reviewed(self):
        return ReviewLaunches(
            now_ms=self.wall_ms,
            seed=f"s{self.rounds}",
            request_timeout_ms=30_000,
            stop_timeout_ms=5_000,
            retry_count=RETRIES,
            retry_window_ms=WINDOW_MS,
        )

    def launch(self, which):
        names = sorted(self.state.launches)
        return self.state.launches[names[which % len(names)]] if names else None

    @property
    def wall_ms(self):
        return self.now_ms + self.wall_ahead_ms

    def passes(self, ms):
        self.now_ms += ms

    def wall_clock_jumps(self, ms):
        self.wall_ahead_ms += ms

    def sends_heartbeat(self, which, phase, knows_all):
        """An execution reports its state, and obeys its orders."""
        launch = self.launch(which)
        if launch is None:
            return
        records = [item.record for item in self.log]
        orders = follow(Orders(execution_id=launch.execution_id), records, self.offset_next)
        held = [] if phase is C.STOPPED else [(grant.task_name, grant.epoch) for grant in orders.own_grants()]
        self.step(
            a_heartbeat(
                launch.execution_id,
                processor_id=launch.processor_id,
                host=launch.host or f"host-{which}",
                stream_offset=self.offset_next if knows_all else 0,
                held=held,
                state=phase,
                received_ms=self.now_ms,
            )
        )

    def seen_as(self, which, state, exit_code):
        launch = self.launch(which)
        if launch is not None:
            launched = {launch.execution_id: Launched(state=state, host=f"host-{which}", exit_code=exit_code)}
            self.step(LaunchesLooked(launched=launched, now_ms=self.wall_ms, retry_window_ms=WINDOW_MS))

    def scales(self, count):
        self.commit([ContainerCountPut(count=count)])

    def stops(self):
        if self.state.run is not None and not self.state.run.ended:
            self.commit([replace(self.state.run, finished=True)])

    def fails_over(self):
        self.step(a_term(self.state.term.term))


STEP = st.one_of(
    st.tuples(
        st.just("sends_heartbeat"),
        WHICH,
        st.sampled_from([C.STARTED, C.RUNNING, C.RUNNING, C.STOPPED]),
        st.booleans(),
    ),
    st.tuples(st.just("sends_heartbeat"), WHICH, st.just(C.RUNNING), st.just(True)),
    st.tuples(st.just("seen_as"), WHICH, st.sampled_from(LaunchedState), st.sampled_from([None, 0, 7])),
    st.tuples(st.just("passes"), st.sampled_from([100, 6_000, 31_000, 61_000])),
    st.tuples(st.just("wall_clock_jumps"), st.sampled_from([-3_600_000, -20_000, 20_000])),
    st.tuples(st.just("scales"), st.integers(1, 3)),
    st.tuples(st.just("fails_over")),
)
STEPS = st.lists(STEP, max_size=20)


@settings(max_examples=60)
@given(count=st.integers(1, 3), steps=STEPS)
def test_every_record_follows_the_laws(count, steps):
    machine = Cluster(count).lives(steps)

    invariants = Invariants()
    for item in machine.log:
        assert "" == invariants.check(item.offset, item.record, is_whole=True), item.record
    assert evolve(INITIAL, machine.log) == machine.state


@settings(max_examples=60)
@given(count=st.integers(1, 3), steps=STEPS, news=STEP)
def test_l2_a_review_a_second_time_finds_nothing_to_do(count, steps, news):
    machine = Cluster(count).lives(steps)
    name, *about = news
    getattr(machine, name)(*about)
    command = machine.reviewed()

    machine.step(command)

    assert () == decide(command, machine.state, machine.liveness).records


@settings(max_examples=60)
@given(count=st.integers(1, 3), steps=STEPS)
def test_no_processor_has_two_active_executions_that_are_to_be_there_and_each_has_one_in_the_end(count, steps):
    machine = Cluster(count).lives(steps)
    if machine.state.run.finished:
        return
    # A container with the order to stop ends, a late one is killed, and none fails any more.
    for _ in range(8):
        machine.passes(31_000)
        for launch in to_kill(machine.state, machine.wall_ms):
            ended = {launch.execution_id: Launched(state=LaunchedState.ENDED)}
            machine.step(LaunchesLooked(launched=ended, now_ms=machine.wall_ms, retry_window_ms=WINDOW_MS))
        machine.review()
        for which in range(len(machine.state.launches)):
            machine.sends_heartbeat(which, C.RUNNING, True)
        machine.review()

    # For a suspended processor nothing is started.
    expected = frozenset(wanted_processors(machine.state)) - machine.state.suspended.keys()
    if machine.state.run.finished:
        return
    active = [
        launch.processor_id
        for launch in machine.state.launches.values()
        if launch.phase in UP and launch.role is LaunchRole.ACTIVE
    ]
    assert sorted(expected) == sorted(active)
    assert () == to_start(machine.state)
    assert all(
        is_alive(machine.state, launch.execution_id)
        for launch in machine.state.launches.values()
        if launch.phase in UP
    )


@settings(max_examples=60)
@given(count=st.integers(1, 3), steps=STEPS)
def test_a_stopped_job_starts_no_container_and_ends_when_all_are_gone(count, steps):
    machine = Cluster(count).lives(steps)
    machine.stops()
    machine.review()

    assert () == to_start(machine.state)
    for launch in list(machine.state.launches.values()):
        ended = {launch.execution_id: Launched(state=LaunchedState.ENDED, exit_code=0)}
        machine.step(LaunchesLooked(launched=ended, now_ms=machine.wall_ms, retry_window_ms=WINDOW_MS))
    machine.review()
    machine.review()

    runs = [item.record for item in machine.log if isinstance(item.record, RunPut)]
    assert 1 == len({record.run_id for record in runs})
    assert is_over(machine.state)
