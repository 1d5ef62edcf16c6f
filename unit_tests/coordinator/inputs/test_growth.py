"""Live partition expansion: records and their order, waits, and refusals."""

from dataclasses import replace

import pytest

from samzapy.coordinator.assignment.liveness import Liveness, Sighting
from samzapy.coordinator.assignment.replanning import replan
from samzapy.coordinator.commands import Figures, ReviewInputs, TopicsLooked
from samzapy.coordinator.decide import decide, observe
from samzapy.coordinator.grant_values import HeldGrant, Position
from samzapy.coordinator.state import evolve, uncommitted
from samzapy.errors import BrokerUnavailableError, ConfigError
from samzapy.model.container import ContainerPhase
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.topics import changelog_topic
from samzapy.plan.groupers import Groupers
from samzapy.plan.input_patterns import resolve_inputs
from samzapy.stream.records import GrantPut, InputPut, PlannedTaskPut
from samzapy.testing.builders import a_config, a_heartbeat, a_submission, an_input_topic_found, an_ssp, an_ssp_kb
from unit_tests.fixtures.coordinator_world import World
from unit_tests.fixtures.running_job import CLUSTER, FIRST, SETTLE_MS, STATE, Job


def test_growth_is_recorded_at_once_and_changes_no_plan():
    job = Job()
    plan = job.state.plan

    job.looks(orders=4)
    job.runs()

    assert plan == job.state.plan
    assert (2, 2) == (job.input.partition_count, job.input.partition_count_first)
    assert [(4, False, ())] == [(one.partition_count, one.settled, one.ends) for one in job.input.expansions]
    assert abs(job.input.expansions[0].seen_at_ms - job.world.clock.wall_ms()) < 60_000
    assert [] == job.world.watermarks_read
    (shown,) = job.status()["expansions"]
    assert ("kafka.orders", 2, 4, "settling") == (
        shown["stream"],
        shown["partitionCount"],
        shown["partitionCountNew"],
        shown["phase"],
    )
    assert [] == job.codes()


def test_a_look_that_does_not_monitor_takes_in_nothing():
    job = Job()

    job.looks(orders=4, is_monitoring=False)

    assert () == job.input.expansions


def test_the_ends_are_read_when_every_producer_has_had_its_time_and_only_of_the_old_partitions():
    job = Job()
    job.world.watermarks = {an_ssp("kafka.orders.0"): 50, an_ssp("kafka.orders.1"): 60}
    job.looks(orders=4)
    job.runs()

    job.receives_heartbeats(SETTLE_MS - 5_000)
    assert [] == job.world.watermarks_read
    job.runs()

    assert [(an_ssp("kafka.orders.0"), an_ssp("kafka.orders.1"))] == job.world.watermarks_read
    assert ((50, 60),) == tuple(one.ends for one in job.input.expansions)


def test_a_new_partition_waits_until_all_old_ones_have_passed_their_ends():
    job = Job(processors=("0", "1"), systems_kafka_samza_offset_default="upcoming")
    job.world.watermarks = {an_ssp("kafka.orders.0"): 150, an_ssp("kafka.orders.1"): 160}
    job.looks(orders=4)
    job.reads(p0=100, p1=160)
    job.runs()
    generation = job.state.generation.generation

    job.runs(ms=SETTLE_MS)
    assert generation == job.state.generation.generation
    (shown,) = job.status()["expansions"]
    assert ("passing", [{"ssp": "kafka.orders.0:0/1", "offsetNext": 100, "offsetEnd": 150}]) == (
        shown["phase"],
        shown["waitsFor"],
    )
    job.reads(p0=149)
    job.runs()
    assert generation == job.state.generation.generation
    job.reads(p0=150)
    job.runs()

    assert generation + 1 == job.state.generation.generation
    assert {f"orders.{n}": [f"orders.{n}"] for n in range(4)} == job.planned()
    # From the first offset, whatever the default is; and no act is left.
    assert {"kafka.orders.2": FIRST, "kafka.orders.3": FIRST}.items() <= job.granted().items()
    assert (4, 2, ()) == (job.input.partition_count, job.input.partition_count_first, job.input.expansions)
    assert [] == job.status()["expansions"]
    steps = ["InputRecorded", "InputExpanded", "ExpansionSettled", "ExpansionEndsRead", "PartitionsAdded"]
    assert steps == job.events()


def test_only_the_owner_of_an_old_partition_reports_its_position():
    job = Job(processors=("0", "1", "2"))
    job.stale["2"] = {"kafka.orders.0": 5000}
    job.looks(orders=3)
    job.reads(p0=40, p1=100)
    job.runs(ms=SETTLE_MS)
    job.runs()

    assert 2 == job.input.partition_count
    assert [{"ssp": "kafka.orders.0:0/1", "offsetNext": 40, "offsetEnd": 100}] == job.status()["expansions"][0][
        "waitsFor"
    ]
    job.reads(p0=100)
    job.runs()
    assert 3 == job.input.partition_count


def test_a_position_under_an_earlier_grant_is_ignored():
    job = Job()
    job.looks(orders=3)
    job.runs(ms=SETTLE_MS)
    at_end = {kb: Position(100, 100) for task in job.state.plan for kb in task.positions}
    before = replace(job.heartbeat("0", 0), figures=Figures(positions=at_end))
    regranted = [GrantPut(grant=replace(grant, epoch=grant.epoch + 100)) for grant in job.state.grants_sorted]
    state = evolve(job.state, uncommitted(regranted))

    def is_taken_in(state):
        liveness = observe(before, state, job.service.status().liveness)
        records = decide(ReviewInputs(now_ms=0, settle_ms=0), state, liveness).records
        return any(isinstance(record, PlannedTaskPut) for record in records)

    assert [True, False] == [is_taken_in(job.state), is_taken_in(state)]


@pytest.mark.parametrize("survivors", range(1, 10))
def test_an_expansion_torn_between_its_plan_and_its_last_record_is_completed(survivors):
    job = Job(**STATE)
    job.looks(orders=4)
    job.reads(p0=99, p1=100)
    job.runs(ms=SETTLE_MS)
    job.reads(p0=100)

    job.service._stream.log.tear_next_append(survivors)
    job.runs()

    assert (4, ()) == (job.input.partition_count, job.input.expansions)
    assert {"orders.0": ["orders.0", "orders.2"], "orders.1": ["orders.1", "orders.3"]} == job.planned()
    assert {"kafka.orders.2": FIRST, "kafka.orders.3": FIRST}.items() <= job.granted().items()


def test_a_processor_that_joins_after_a_torn_plan_gets_all_partitions_planned():
    job = Job(**STATE)
    job.looks(orders=4)
    job.reads(p0=99, p1=100)
    job.runs(ms=SETTLE_MS)
    job.reads(p0=100)
    state = job.state
    liveness = observe(job.heartbeat("0", 0), state, job.service.status().liveness)
    *plan, fact = decide(ReviewInputs(now_ms=job.world.clock.monotonic_ms(), settle_ms=0), state, liveness).records
    assert isinstance(fact, InputPut)

    torn = evolve(state, uncommitted(plan))
    records = replan(torn, ("0", "1"))

    planned = {kb.ssp.partition for task in records if isinstance(task, PlannedTaskPut) for kb in task.positions}
    assert {0, 1, 2, 3} == planned


@pytest.mark.parametrize(("read_to", "partition_count"), [(99, 4), (100, 8)])
def test_after_a_torn_plan_all_partitions_that_have_passed_are_taken_in_at_once(read_to, partition_count):
    job = Job(**STATE)
    job.looks(orders=8)
    job.reads(p0=100, p1=100)
    job.runs(ms=SETTLE_MS)
    job.runs(ms=SETTLE_MS)
    known = job.input
    (later,) = known.expansions
    assert (4, 8, 4) == (known.partition_count, later.partition_count, len(later.ends))
    earlier = replace(later, partition_count=4, ends=(100, 100))
    later = replace(later, ends=(100,) * 4)
    torn = evolve(job.state, uncommitted([replace(known, partition_count=2, expansions=(earlier, later))]))
    positions = {kb: Position(100, 100) for task in torn.plan for kb in task.positions}
    positions[an_ssp_kb("kafka.orders.3:0/1")] = Position(read_to, 100)
    liveness = observe(
        replace(job.heartbeat("0", 0), figures=Figures(positions=positions)), torn, job.service.status().liveness
    )

    command = ReviewInputs(now_ms=job.world.clock.monotonic_ms(), settle_ms=0)
    state = evolve(torn, uncommitted(decide(command, torn, liveness).records))

    assert partition_count == state.inputs[known.system_stream].partition_count
    assert () == tuple(decide(command, state, liveness).records)


def test_a_task_that_gets_no_partition_more_keeps_its_grant():
    job = Job()
    before = dict(job.granted())
    epochs = {grant.task_name: grant.epoch for grant in job.state.grants_sorted}

    job.looks(orders=3)
    job.reads(p0=100, p1=100)
    job.runs(ms=SETTLE_MS)
    job.runs(ms=SETTLE_MS)

    assert 3 == len(job.planned())
    assert epochs.items() <= {grant.task_name: grant.epoch for grant in job.state.grants_sorted}.items()
    assert before.items() <= job.granted().items()


def expand(job, count, **reads):
    """The topic grows, and everything is waited for."""
    job.looks(orders=count)
    job.runs()
    job.reads(**{f"p{n}": 100 for n in range(job.input.partition_count)})
    job.runs(ms=SETTLE_MS)
    job.runs()


def test_with_state_a_new_partition_joins_the_task_that_its_keys_were_in():
    job = Job(**STATE)
    epochs = {grant.task_name: grant.epoch for grant in job.state.grants_sorted}

    expand(job, 4)

    assert {"orders.0": ["orders.0", "orders.2"], "orders.1": ["orders.1", "orders.3"]} == job.planned()
    now = {grant.task_name: grant.epoch for grant in job.state.grants_sorted if not grant.released}
    assert now.keys() == epochs.keys()
    assert all(now[task] > epochs[task] for task in now), "one partition more is a new grant"
    assert {"kafka.orders.2": FIRST, "kafka.orders.3": FIRST}.items() <= job.granted().items()


def test_expansions_that_follow_each_other_are_taken_in_one_after_the_other():
    job = Job(**STATE)
    job.looks(orders=4)
    job.looks(orders=8)
    assert [4, 8] == [one.partition_count for one in job.input.expansions]
    job.reads(p0=100, p1=100)

    job.runs(ms=SETTLE_MS)
    # Both have settled. The ends for the second one are those of all partitions that were there before it.
    assert [2, 4] == [len(ssps) for ssps in job.world.watermarks_read]
    job.runs()
    assert (4, [8]) == (job.input.partition_count, [one.partition_count for one in job.input.expansions])
    job.reads(p2=99, p3=100)
    job.runs()
    assert 4 == job.input.partition_count
    job.reads(p2=100)
    job.runs()

    assert (8, ()) == (job.input.partition_count, job.input.expansions)
    assert {f"orders.{n}": [f"orders.{p}" for p in range(n, 8, 2)] for n in range(2)} == job.planned()


@pytest.mark.parametrize(
    ("before", "count", "steps"),
    [(3, 12, [6, 12]), (3, 24, [6, 12, 24]), (3, 6, [6]), (3, 9, [9]), (4, 12, [12]), (1, 8, [2, 4, 8]), (2, 6, [6])],
)
def test_a_count_that_may_have_been_doubled_twice_between_two_looks_is_taken_in_step_by_step(before, count, steps):
    job = Job(partitions=before)

    job.looks(orders=count)

    assert steps == [one.partition_count for one in job.input.expansions]


def test_a_coordinator_that_takes_over_waits_again_but_keeps_the_ends_that_were_read():
    job = Job()
    job.looks(orders=4)
    job.receives_heartbeats(SETTLE_MS - 1_000)
    job.fails_over()

    job.runs()
    assert [False] == [one.settled for one in job.input.expansions], "it cannot know how long the other one waited"
    job.runs(ms=SETTLE_MS)
    assert [(100, 100)] == [one.ends for one in job.input.expansions]
    job.world.watermarks = {an_ssp("kafka.orders.0"): 500, an_ssp("kafka.orders.1"): 500}
    job.fails_over()
    job.reads(p0=100, p1=100)
    job.runs()

    assert 4 == job.input.partition_count


def test_positions_of_a_term_before_are_not_known_to_the_next_leader():
    job = Job()
    job.looks(orders=4)
    job.runs(ms=SETTLE_MS)
    job.runs()
    job.fails_over()

    job.world.clock.advance(2000)
    job.service.run_once(0)

    assert 2 == job.input.partition_count


@pytest.mark.parametrize("error", [BrokerUnavailableError("no broker answered"), ConfigError("not authorized")])
def test_a_broker_that_does_not_answer_or_refuses_puts_the_ends_off(error):
    job = Job()
    job.world.reading_error = error
    job.looks(orders=4)
    job.runs()
    job.world.clock.advance(SETTLE_MS)
    job.world.reading_fails = 1
    job.service.run_once(0)
    assert (str(error), [()]) == (job.service.status().trouble, [one.ends for one in job.input.expansions])

    job.runs()

    assert [(100, 100)] == [one.ends for one in job.input.expansions]


def test_the_wall_clock_shortens_no_settling():
    job = Job()
    job.looks(orders=4)
    job.runs()

    job.world.clock.jump_wall(10 * SETTLE_MS)
    job.runs()

    assert [False] == [one.settled for one in job.input.expansions]


def test_no_partition_is_added_while_no_container_runs():
    job = Job()
    job.looks(orders=4)
    job.reads(p0=100, p1=100)
    job.receives_heartbeats(0)
    job.world.queue.append(a_heartbeat("e0", processor_id="0", pid=100, state=ContainerPhase.STOPPED))
    job.service.run_once(0)
    job.world.clock.advance(SETTLE_MS)

    for _ in range(3):
        job.world.clock.advance(1000)
        job.service.run_once(0)

    assert 2 == job.input.partition_count


def test_an_expansion_that_cannot_be_planned_is_refused_and_the_job_continues():
    job = Job(partitions=4, **STATE)
    plan = job.state.plan

    job.looks(orders=6)
    job.reads(p0=100, p1=100, p2=100, p3=100)
    job.runs(ms=SETTLE_MS)
    job.looks()

    assert plan == job.state.plan
    assert job.service.is_leader
    assert [("input-expansion-refused", "kafka.orders")] == job.codes()
    (finding,) = job.service.status().findings
    assert "wanted a multiple of 4 partitions, found 6" in finding.found
    assert "goes on with 4" in finding.remedy
    assert ["refused"] == [one["phase"] for one in job.status()["expansions"]]
    assert [] == job.world.watermarks_read

    # Two more, and it is a multiple: then both are taken in together.
    job.looks(orders=8)
    job.runs(ms=SETTLE_MS)
    job.runs()
    assert (8, ()) == (job.input.partition_count, job.input.expansions)
    assert ["orders.1", "orders.5"] == job.planned()["orders.1"]
    job.looks()
    assert [] == job.codes()


def test_a_grouper_of_the_job_s_own_is_asked_when_the_expansion_has_settled():
    class Refuses:
        def group(self, previous, ssps):
            if len(ssps) > 2:
                raise ValueError("two are enough")
            return {f"t{ssp.partition}": [ssp] for ssp in ssps}

    world = World(
        config=a_config(job_systemstreampartition_grouper_factory="m:Refuses", job_expansion_settle_ms=str(SETTLE_MS))
    )
    service = world.coordinator()
    service.become_leader()
    submission = a_submission(config=world.config, partition_counts={"kafka.orders": 2})
    service.submit(replace(submission, groupers=Groupers(ssps=Refuses())))
    world.queue.append(a_heartbeat())
    service.run_once(0)
    topic = an_input_topic_found("orders", 4)
    world.queue.append(TopicsLooked(described={"orders": topic}, cluster=CLUSTER))
    service.run_once(0)
    assert [] == [one.code for one in service.status().findings]

    for _ in range(2):
        world.clock.advance(SETTLE_MS)
        world.queue.append(a_heartbeat(received_ms=world.clock.monotonic_ms()))
        service.run_once(0)
    world.queue.append(TopicsLooked(described={"orders": topic}, cluster=CLUSTER))
    service.run_once(0)

    (finding,) = service.status().findings
    assert "two are enough" in finding.found


def test_a_refusal_is_looked_at_again_when_the_job_is_handed_in():
    job = Job(partitions=4, **STATE)
    job.looks(orders=6)
    assert job.input.expansions[0].refused

    job.service.submit(job.submission)

    assert [""] == [one.refused for one in job.input.expansions]
    job.runs(ms=SETTLE_MS)
    assert "multiple of 4" in job.input.expansions[0].refused


def test_a_submission_takes_in_nothing_of_a_stream_that_is_read():
    job = Job()
    grown = a_submission(config=job.world.config, partition_counts={"kafka.orders": 4}, cause="submit-2")

    job.service.submit(grown)

    assert (2, 2) == (job.input.partition_count, len(job.state.plan))


def test_a_submission_takes_in_all_of_a_stream_of_which_nothing_was_read_yet():
    world = World()
    service = world.coordinator()
    service.become_leader()
    service.submit(a_submission(partition_counts={"kafka.orders": 2}))

    service.submit(a_submission(partition_counts={"kafka.orders": 4}, cause="submit-2"))

    (put,) = service.status().state.inputs.values()
    assert (4, ()) == (put.partition_count, put.expansions)


def test_every_task_must_have_passed_in_a_broadcast_input_before_it_gets_more_of_it():
    job = Job(counts={"orders": 2, "rules": 1}, task_broadcast_inputs="kafka.rules")
    job.looks(rules=2)
    job.runs(ms=SETTLE_MS)
    (shown,) = job.status()["expansions"]
    readers = [f"kafka.rules.0@SystemStreamPartition_kafka.orders.{n}" for n in range(2)]
    assert readers == [one["ssp"] for one in shown["waitsFor"]]

    job.positions["kafka.rules.0"] = 100
    job.runs()

    assert {f"orders.{n}": [f"orders.{n}", "rules.0", "rules.1"] for n in range(2)} == job.planned()


def test_new_partitions_of_a_broadcast_input_with_named_partitions_are_not_read():
    job = Job(counts={"orders": 2, "rules": 1}, task_broadcast_inputs="kafka.rules#0")
    plan = job.state.plan

    job.looks(rules=2)
    job.runs(ms=SETTLE_MS)

    assert plan == job.state.plan
    assert [2] == [one.partition_count for stream, one in job.state.inputs.items() if stream.stream == "rules"]
    assert [] == job.status()["expansions"]


def test_a_bounded_input_must_only_be_read_to_the_end_of_its_run():
    job = Job(systems_kafka_streams_orders_samza_offset_end="head", task_inputs="kafka.orders,kafka.refunds")
    job.world.watermarks = {an_ssp("kafka.orders.0"): 500, an_ssp("kafka.orders.1"): 500}
    job.looks(orders=4)
    job.runs(ms=SETTLE_MS)
    assert [(500, 500)] == [one.ends for one in job.input.expansions]

    job.reads(p0=100, p1=100)
    job.runs()

    assert 4 == job.input.partition_count


def test_a_partition_that_is_cut_into_key_buckets_has_passed_when_all_of_them_have():
    job = Job(partitions=1)
    job.looks(orders=2)
    job.runs(ms=SETTLE_MS)
    ((ssp, end),) = zip([an_ssp("kafka.orders.0")], job.input.expansions[0].ends, strict=True)
    (whole,) = job.state.plan
    buckets = [SspKeyBucket(ssp, bucket, 2) for bucket in range(2)]
    cut = [
        replace(whole, task_name=f"{whole.task_name}-{kb.bucket}-2", ssp_kbs=(kb,), mode="virtual") for kb in buckets
    ]
    removed = {key: task for key, task in job.state.planned_tasks.items() if task != whole}
    (given,) = job.state.grants_sorted
    grants = [
        replace(
            given,
            task_name=task.task_name,
            epoch=given.epoch + number,
            starts=(replace(given.starts[0], ssp_kb=task.ssp_kbs[0]),),
        )
        for number, task in enumerate(cut, 1)
    ]
    held = frozenset(HeldGrant(grant.task_name, grant.epoch) for grant in grants)
    granted = [GrantPut(grant=grant) for grant in grants]
    state = evolve(replace(job.state, planned_tasks=removed), uncommitted([*cut, *granted]))

    def planned(*positions):
        figures = Figures(positions={kb: Position(at, end) for kb, at in zip(buckets, positions, strict=False)})
        sighting = Sighting(at_ms=0, stream_offset=0, held=held, figures=figures)
        liveness = Liveness(last={"e0": sighting})
        records = decide(ReviewInputs(now_ms=0, settle_ms=0), state, liveness).records
        return any(isinstance(record, PlannedTaskPut) for record in records)

    assert [False, False, False, True] == [
        planned(),
        planned(end),
        planned(end, end - 1),
        planned(end, end),
    ]


def test_a_topic_that_a_pattern_matches_is_taken_in_from_its_first_offset():
    job = Job(task_inputs="kafka.~orders.*", systems_kafka_samza_offset_default="upcoming")

    job.looks(orders_late=2, refunds=1)
    job.runs()

    assert {f"orders.{n}" for n in range(2)} | {f"orders-late.{n}" for n in range(2)} == job.planned().keys()
    assert {"kafka.orders-late.0": FIRST, "kafka.orders-late.1": FIRST}.items() <= job.granted().items()
    assert "kafka.orders,kafka.orders-late" == job.state.config["task.inputs"]
    job.looks()
    assert [] == job.codes()
    assert ["InputRecorded", "PartitionsAdded"] == job.events("input/kafka.orders-late")


def test_a_topic_that_came_grows_like_any_other():
    job = Job(task_inputs="kafka.~orders.*")
    job.looks(orders_late=1)
    job.runs()

    job.looks(orders_late=2)
    job.runs(ms=SETTLE_MS)
    assert ["orders-late.0"] == job.planned()["orders-late.0"]
    assert "orders-late.1" not in job.planned()
    job.positions["kafka.orders-late.0"] = 100
    job.runs()

    assert "orders-late.1" in job.planned()


def test_a_topic_that_came_and_that_the_next_submission_finds_too_is_read_from_its_first_offset():
    job = Job(task_inputs="kafka.~orders.*", systems_kafka_samza_offset_default="upcoming")
    unresolved = a_config(
        task_inputs="kafka.~orders.*",
        job_expansion_settle_ms=str(SETTLE_MS),
        systems_kafka_samza_offset_default="upcoming",
    )
    both = resolve_inputs(unresolved, ["orders", "orders-late"])

    job.service.submit(a_submission(config=both, partition_counts={"kafka.orders": 2, "kafka.orders-late": 1}))
    job.runs()

    assert FIRST == job.granted()["kafka.orders-late.0"]


def test_a_topic_that_comes_waits_for_changelog_partitions_that_a_person_adds():
    name = changelog_topic("flights-1", "seen")
    own = [{"name": name, "topic_id": f"id-of-kafka.{name}", "partition_count": 2}]
    job = Job(task_inputs="kafka.~orders.*", own_topics=own, **STATE)

    job.looks(orders_late=1)
    job.runs()
    job.looks()
    assert ("input-expansion-refused", "kafka.orders-late") in job.codes()
    assert {"orders.0", "orders.1"} == job.planned().keys()

    job.topics[name] = 3
    job.looks()
    job.runs()

    assert {"orders.0", "orders.1", "orders-late.0"} == job.planned().keys()
    assert 3 == job.state.own_topics[name].partition_count
