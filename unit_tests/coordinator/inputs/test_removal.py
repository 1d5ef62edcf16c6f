"""Topics of a pattern that are deleted under a running job, and made again.

Some records are removed, and others kept.
"""

from dataclasses import replace

import pytest

from samzapy.coordinator.assignment.liveness import Liveness, Missed
from samzapy.coordinator.assignment.replanning import replan
from samzapy.coordinator.commands import ReviewInputs, TopicsLooked
from samzapy.coordinator.decide import decide
from samzapy.coordinator.inputs.removal import LOOKS_MISSING
from samzapy.coordinator.lifecycle.submission import submit_job
from samzapy.coordinator.state import INITIAL, committed, evolve, uncommitted
from samzapy.errors import MissingTopicError, TopicIdentityError
from samzapy.inspection.invariants import Invariants
from samzapy.model.checkpoint import Checkpoint
from samzapy.model.container import ContainerPhase
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.topics import changelog_topic
from samzapy.plan.groupers import Groupers
from samzapy.plan.input_patterns import resolve_inputs
from samzapy.stream.codec import decode
from samzapy.stream.records import ConfigPut, RunPut
from samzapy.testing.builders import a_config, a_heartbeat, a_submission, an_ssp
from unit_tests.fixtures.running_job import CLUSTER, FIRST, SETTLE_MS, STATE, Job

PATTERN = "kafka.~orders.*"
TWO = {"orders": 2, "orders-b": 2}
_COUNTS = {f"kafka.{name}": count for name, count in TWO.items()}


def a_job(counts=TWO, **settings):
    settings = {"task_inputs": PATTERN} | settings
    own = ()
    if "stores_seen_msg_serde" in settings:
        name = changelog_topic("flights-1", "seen")
        own = [{"name": name, "topic_id": f"id-of-kafka.{name}", "partition_count": 8}]
    return Job(counts=dict(counts), own_topics=own, **settings)


def delete_topic(job, name="orders_b"):
    """The topic is deleted, and looked for often enough; the job acts on that."""
    for _ in range(LOOKS_MISSING):
        job.looks(**{name: None})
    job.runs()


def make_topic_again(job, count=2, name="orders-b"):
    """A topic of that name is made."""
    job.ids[name] = f"id-{len(job.ids)}"
    job.looks(**{name.replace("-", "_"): count})
    job.runs()


def commits(job, ssp, offset):
    """The container that has `ssp` has committed up to `offset`."""
    kb = SspKeyBucket(an_ssp(ssp), 0, 1)
    (grant,) = [g for g in job.state.grants_sorted if not g.released and kb in {start.ssp_kb for start in g.starts}]
    job.world.checkpoints[kb] = Checkpoint(
        ssp_kb=kb,
        offset_next=offset,
        epoch=grant.epoch,
        task_name=grant.task_name,
        execution_id=grant.execution_id,
    )


def tasks(job):
    return sorted(job.planned())


def check_laws(job):
    invariants = Invariants()
    broken = []
    for record in job.world.log().read():
        broken.append(invariants.check(record.offset, decode(record, topic="t"), True))
    assert [] == [text for text in broken if text]


def test_a_topic_that_is_gone_leaves_the_plan_after_several_looks_and_the_others_run_on():
    job = a_job()
    epochs = {grant.task_name: grant.epoch for grant in job.state.grants_sorted}

    for _ in range(LOOKS_MISSING - 1):
        job.looks(orders_b=None)
        job.runs()
        assert (4, 0) == (len(job.state.plan), job.of("orders-b").gone_at_ms)
    job.looks()
    job.runs()

    assert ["orders.0", "orders.1"] == tasks(job)
    assert "kafka.orders" == job.state.config["task.inputs"]
    standing = {grant.task_name: grant for grant in job.state.grants_sorted}
    assert epochs == {name: grant.epoch for name, grant in standing.items()}, "no other task is granted again"
    assert ["orders-b.0", "orders-b.1"] == sorted(
        name.partition("kafka.")[2] for name, grant in standing.items() if grant.released
    )
    assert ["InputRecorded", "InputGone"] == job.events("input/kafka.orders-b")
    job.looks()
    assert [] == job.codes()
    check_laws(job)


def test_a_missing_input_is_reported_until_it_is_removed():
    job = a_job()

    job.looks(orders_b=None)

    assert [("input-gone", "kafka.orders-b")] == job.codes()
    assert job.service.is_leader


def test_a_look_that_finds_the_topic_restarts_the_count():
    job = a_job()

    for _ in range(3):
        for _ in range(LOOKS_MISSING - 1):
            job.looks(orders_b=None)
        job.looks(orders_b=2)
    job.runs()

    assert 4 == len(job.state.plan)
    assert 0 == job.of("orders-b").gone_at_ms


def test_a_look_that_does_not_find_the_job_itself_does_not_count():
    job = a_job()

    for number in range(2 * LOOKS_MISSING):
        nothing = dict.fromkeys(["orders", "orders-b", "__samzapy-coordinator-flights-1"])
        job.world.queue.append(TopicsLooked(described=nothing, cluster=CLUSTER, looked_at_ms=number))
        job.receives_heartbeats(1000)

    assert 4 == len(job.state.plan)


def test_a_look_that_did_not_ask_for_the_topic_does_not_count():
    job = a_job()
    for _ in range(LOOKS_MISSING - 1):
        job.looks(orders_b=None)

    for _ in range(2 * LOOKS_MISSING):
        job.topics.pop("orders-b", None)
        job.looks()

    assert 0 == job.of("orders-b").gone_at_ms
    job.looks(orders_b=None)
    assert job.of("orders-b").gone_at_ms


def test_the_same_look_twice_is_one():
    job = a_job()
    job.looks(orders_b=None)
    looked = job.last_look

    for _ in range(2 * LOOKS_MISSING):
        job.world.queue.append(looked)
        job.receives_heartbeats(1000)

    assert 0 == job.of("orders-b").gone_at_ms


def test_a_new_leader_restarts_the_count():
    job = a_job()
    for _ in range(LOOKS_MISSING - 1):
        job.looks(orders_b=None)

    job.fails_over()
    job.looks(orders_b=None)

    assert 0 == job.of("orders-b").gone_at_ms


def test_a_topic_that_is_back_before_the_plan_is_made_stays():
    job = a_job()
    job.world.queue.append(a_heartbeat("e0", processor_id="0", pid=100, state=ContainerPhase.STOPPED))
    job.service.run_once(0)
    for _ in range(LOOKS_MISSING):
        job.looks(orders_b=None)
    assert job.of("orders-b").gone_at_ms and len(job.state.plan) == 4, (
        "nothing is planned while no processor is there"
    )

    job.looks(orders_b=2)

    assert 0 == job.of("orders-b").gone_at_ms


def test_a_named_topic_is_missed_whatever_patterns_match():
    job = a_job(task_inputs=f"kafka.orders-b,{PATTERN}")

    delete_topic(job)

    assert 4 == len(job.state.plan)
    assert [("topic-missing", "topic orders-b")] == job.codes()
    job.ids["orders-b"] = "another"
    with pytest.raises(TopicIdentityError):
        job.looks(orders_b=2)


def test_an_input_with_an_end_is_missed():
    end = {"systems_kafka_streams_orders-b_samza_offset_end": "head"}
    job = a_job(**end)

    delete_topic(job)

    assert 4 == len(job.state.plan)
    assert [("topic-missing", "topic orders-b")] == job.codes()


def test_the_last_input_is_needed():
    job = a_job(counts={"orders": 2})

    delete_topic(job, "orders")
    job.looks()

    assert 2 == len(job.state.plan)
    assert [("input-needed", "kafka.orders")] == job.codes()
    assert "the last input" in job.service.status().findings[0].found
    job.looks(orders=2)
    assert [] == job.codes()
    assert ("", 0) == (job.of("orders").gone_refused, job.of("orders").gone_at_ms)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("scheme", ["max", "all-ssps-to-single-task"])
def test_the_last_input_is_read_again_when_its_topic_is_made_again(scheme, count):
    settings = {"systems_kafka_samza_offset_default": "upcoming", "processor_id": "0"}
    job = a_job(counts={"orders": 2}, task_partition_scheme=scheme, **settings)
    job.positions = {"kafka.orders.0": 90, "kafka.orders.1": 90}
    job.runs()
    delete_topic(job, "orders")
    old = job.newest()

    job.ids["orders"] = "another"
    job.looks(orders=count)
    job.positions = {}
    # The plan is made; its owner has not reported the release.
    job.world.clock.advance(1000)
    job.service.run_once(0)
    assert ("another", "", 0) == (
        job.of("orders").topic_id,
        job.of("orders").gone_refused,
        job.of("orders").gone_at_ms,
    )
    assert set(old) <= set(job.newest()), "no task is granted again while the container may commit for the old topic"
    job.runs()

    assert {f"kafka.orders.{n}": FIRST for n in range(count)} == job.granted()
    assert all(grant.epoch > job.of("orders").epoch_before for grant in job.newest())
    job.looks()
    assert [] == job.codes()
    check_laws(job)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_another_leader_takes_the_last_input_in_again_when_its_topic_is_made_again(is_stopped):
    job = a_job(counts={"orders": 2}, **STATE)
    commits(job, "kafka.orders.0", 90)
    delete_topic(job, "orders")
    if is_stopped:
        job.world.queue.append(a_heartbeat("e0", processor_id="0", pid=100, state=ContainerPhase.STOPPED))
        job.service.run_once(0)

    job.ids["orders"] = "another"
    (orders,) = job.submission.inputs
    job.submission = replace(job.submission, inputs=(replace(orders, topic_id="another"),))
    job.processors = ("1",) if is_stopped else ("0",)
    job.fails_over()
    for _ in range(2 * LOOKS_MISSING):
        job.looks(orders=2)
        job.runs()

    assert {"kafka.orders.0": FIRST, "kafka.orders.1": FIRST} == job.granted()
    assert ("another", []) == (job.of("orders").topic_id, job.codes())
    check_laws(job)


def test_keys_of_the_last_input_find_their_tasks_when_its_topic_is_made_again():
    job = a_job(counts={"orders": 4}, **STATE)
    numbers = {task.task_name: task.changelog_partition for task in job.state.plan}
    delete_topic(job, "orders")

    make_topic_again(job, 8, "orders")

    assert {f"orders.{n}": [f"orders.{n}", f"orders.{n + 4}"] for n in range(4)} == job.planned()
    assert numbers == {task.task_name: task.changelog_partition for task in job.state.plan}
    check_laws(job)


def test_a_topic_that_does_not_fit_the_state_of_the_last_input_is_refused_by_name_once():
    job = a_job(counts={"orders": 4}, **STATE)
    delete_topic(job, "orders")

    make_topic_again(job, 6, "orders")
    records = len(list(job.world.log().read()))
    for _ in range(LOOKS_MISSING):
        job.looks(is_monitoring=False, orders=6)
        job.runs()

    assert records == len(list(job.world.log().read())), "nothing is recorded again and again"
    assert [("input-needed", "kafka.orders")] == job.codes()
    (finding,) = job.service.status().findings
    assert "wanted a multiple of 4 partitions, found 6" in finding.found
    assert "The job reads nothing until" in finding.remedy
    make_topic_again(job, 4, "orders")
    assert {f"kafka.orders.{n}": FIRST for n in range(4)} == job.granted()


def test_a_needed_input_is_left_out_once_another_one_is_there():
    job = a_job(counts={"orders": 2})
    delete_topic(job, "orders")
    records = len(list(job.world.log().read()))
    for _ in range(LOOKS_MISSING):
        job.looks()
        job.runs()
    assert records == len(list(job.world.log().read())), "nothing is recorded again and again"

    job.looks(orders_b=2)
    job.runs()

    assert ["orders-b.0", "orders-b.1"] == tasks(job)
    job.looks()
    assert ([], "kafka.orders-b") == (job.codes(), job.state.config["task.inputs"])
    check_laws(job)


def test_the_next_review_completes_a_torn_replacement():
    job = a_job(counts={"orders": 2}, **STATE)
    delete_topic(job, "orders")
    state, review = job.state, ReviewInputs(now_ms=0, settle_ms=0)
    missing = {job.of("orders").system_stream: Missed(LOOKS_MISSING, 1, "another", 4)}
    liveness = Liveness(missing=missing)
    records = decide(review, state, liveness).records
    whole = evolve(state, uncommitted(records))
    assert 4 == sum(len(task.ssp_kbs) for task in whole.plan)

    for torn in range(len(records)):
        part = evolve(state, uncommitted(records[:torn]))
        # A leader plans for its members before it looks at topics.
        assert part.generation is not None and replan(part, part.generation.processor_ids) is not None
        mended = evolve(part, uncommitted(decide(review, part, liveness).records))
        assert (whole.config, whole.inputs) == (mended.config, mended.inputs), torn
        assert [task.ssp_kbs for task in whole.plan] == [task.ssp_kbs for task in mended.plan], torn
        assert part.generation_number < mended.generation_number, "starts of the plan before are of the old topic"
        assert () == decide(review, mended, liveness).records, torn


def test_a_deleted_topic_makes_no_job_a_bounded_one():
    end = {"systems_kafka_streams_refunds_samza_offset_end": "head"}
    job = a_job(counts={"orders": 1, "refunds": 1}, task_inputs=f"kafka.refunds,{PATTERN}", **end)

    delete_topic(job, "orders")

    assert 2 == len(job.state.plan)
    assert "has an end" in job.of("orders").gone_refused


def test_tasks_that_have_other_inputs_keep_those_and_continue_at_their_positions():
    job = a_job(task_partition_scheme="group-by-partition", **STATE)
    commits(job, "kafka.orders.0", 50)

    delete_topic(job)

    assert {"0": ["orders.0"], "1": ["orders.1"]} == job.planned()
    granted = {start.ssp_kb.ssp: start.offset_next for grant in job.newest() for start in grant.starts}
    assert {an_ssp("kafka.orders.0"): 50, an_ssp("kafka.orders.1"): FIRST} == granted
    check_laws(job)


def test_starts_are_resolved_for_tasks_whose_topics_exist():
    job = a_job(processors=())
    job.looks(orders_b=None)
    job.processors = ("0",)
    job.world.queue.append(a_heartbeat("e0", processor_id="0", pid=100))
    job.service.run_once(0)
    reads = job.world.positions_reads

    job.runs()

    assert {"kafka.orders.0", "kafka.orders.1"} == job.granted().keys()
    assert "2 tasks wait for kafka.orders-b.0, which is not there, or has no leader" in job.service.status().trouble
    assert job.world.positions_reads - reads <= 2, "they are not asked for without end"
    delete_topic(job)
    assert "" == job.service.status().trouble


def test_a_topic_that_is_made_again_is_read_from_its_first_offset_whatever_was_read_before():
    job = a_job(systems_kafka_samza_offset_default="upcoming")
    commits(job, "kafka.orders-b.0", 90)
    delete_topic(job)

    make_topic_again(job)

    assert {"orders.0", "orders.1", "orders-b.0", "orders-b.1"} == job.planned().keys()
    assert {"kafka.orders-b.0": FIRST, "kafka.orders-b.1": FIRST}.items() <= job.granted().items()
    (grant,) = [grant for grant in job.newest() if grant.task_name.endswith("orders-b.0")]
    assert grant.epoch_rewound == job.of("orders-b").epoch_before + 1, "local state may be ahead of it"
    job.looks()
    assert [] == job.codes()
    check_laws(job)


def test_the_first_grants_of_a_topic_made_again_hold_through_a_failover():
    job = a_job()
    delete_topic(job)
    make_topic_again(job)
    commits(job, "kafka.orders-b.0", 33)
    before = job.state

    job.fails_over()
    job.runs()

    assert before.grants == job.state.grants
    assert before.inputs == job.state.inputs


def test_a_topic_that_was_made_again_between_two_looks_is_removed_and_added():
    job = a_job()
    commits(job, "kafka.orders-b.0", 90)

    job.ids["orders-b"] = "another"
    for _ in range(LOOKS_MISSING):
        assert 4 == len(job.state.plan)
        job.looks()
    job.runs()
    assert ["orders.0", "orders.1"] == tasks(job)
    job.looks()
    job.runs()

    assert 4 == len(job.state.plan)
    assert FIRST == job.granted()["kafka.orders-b.0"]
    assert "another" == job.of("orders-b").topic_id
    check_laws(job)


def test_a_recreated_topic_waits_while_a_container_may_commit_for_the_old_one():
    job = a_job()
    for _ in range(LOOKS_MISSING):
        job.looks(orders_b=None)
    # The plan without it is made; its owner has not reported the release.
    job.world.clock.advance(1000)
    job.service.run_once(0)
    assert ["orders.0", "orders.1"] == tasks(job)

    job.ids["orders-b"] = "another"
    job.looks(orders_b=2)
    assert "id-of-kafka.orders-b" == job.of("orders-b").topic_id
    job.runs()
    job.looks()
    job.runs()

    assert FIRST == job.granted()["kafka.orders-b.0"]
    check_laws(job)


def test_a_topic_that_reappears_is_read_from_its_last_position():
    job = a_job(systems_kafka_samza_offset_default="upcoming")
    commits(job, "kafka.orders-b.0", 190)
    delete_topic(job)

    job.looks(orders_b=2)
    job.runs()

    assert 4 == len(job.state.plan)
    assert 190 == job.granted()["kafka.orders-b.0"]
    check_laws(job)


def expanded(job, count):
    job.looks(orders_b=count)
    job.positions |= {f"kafka.orders-b.{n}": 100 for n in range(count)}
    job.runs(ms=SETTLE_MS)
    job.runs()
    assert count == job.of("orders-b").partition_count


def test_keys_of_an_input_that_had_grown_find_their_tasks_when_its_topic_is_made_again():
    job = a_job(**STATE)
    expanded(job, 4)
    home = {"orders-b.0": ["orders-b.0", "orders-b.2"], "orders-b.1": ["orders-b.1", "orders-b.3"]}
    assert home.items() <= job.planned().items()
    numbers = {task.task_name: task.changelog_partition for task in job.state.plan}

    delete_topic(job)
    assert ["orders.0", "orders.1"] == tasks(job)
    job.looks(orders=2)
    job.runs()
    make_topic_again(job, 4)

    assert home.items() <= job.planned().items()
    assert numbers == {task.task_name: task.changelog_partition for task in job.state.plan}
    assert {f"kafka.orders-b.{n}": FIRST for n in range(4)}.items() <= job.granted().items()
    # And once more, with other partitions than before.
    delete_topic(job)
    make_topic_again(job, 2)
    assert {"orders-b.0": ["orders-b.0"], "orders-b.1": ["orders-b.1"]}.items() <= job.planned().items()
    check_laws(job)


def test_a_topic_that_is_made_again_with_partitions_that_its_keys_state_does_not_fit_is_refused_by_name():
    job = a_job(**STATE)
    delete_topic(job)

    make_topic_again(job, 3)
    job.looks()

    assert ["orders.0", "orders.1"] == tasks(job)
    assert [("input-expansion-refused", "kafka.orders-b")] == job.codes()
    assert "wanted a multiple of 2 partitions, found 3" in job.service.status().findings[0].found


def test_without_state_a_topic_that_is_made_again_may_have_any_partitions():
    job = a_job()
    delete_topic(job)

    make_topic_again(job, 3)

    assert 5 == len(job.state.plan)


def test_the_number_of_shared_tasks_stays_when_the_input_that_determined_it_is_deleted():
    job = a_job(counts={"orders": 4, "orders-b": 2}, task_partition_scheme="cogroup", **STATE)
    assert {"0": ["orders.0", "orders.2", "orders-b.0"], "1": ["orders.1", "orders.3", "orders-b.1"]} == job.planned()

    delete_topic(job)

    assert {"0": ["orders.0", "orders.2"], "1": ["orders.1", "orders.3"]} == job.planned()


def test_a_removal_that_would_move_keyed_state_is_refused_by_name_and_the_job_continues():
    class ByCount:
        def group(self, previous, ssps):
            return {f"t{n % (len(ssps) // 2)}": ssps[n :: len(ssps) // 2] for n in range(len(ssps) // 2)}

    own = Groupers(ssps=ByCount())
    job = a_job(job_systemstreampartition_grouper_factory="own:ByCount", groupers=own, **STATE)
    plan = job.state.plan

    delete_topic(job)
    job.looks()

    assert plan == job.state.plan
    assert job.service.is_leader
    assert [("input-needed", "kafka.orders-b")] == job.codes()
    assert "which holds its state" in job.service.status().findings[0].found
    # The job submitted again is a reason to look again.
    job.service.submit(job.submission)
    assert "" == job.of("orders-b").gone_refused


def test_the_next_review_completes_a_torn_removal():
    job = a_job(**STATE)
    for _ in range(LOOKS_MISSING - 1):
        job.looks(orders_b=None)
    state = job.state
    gone = replace(job.of("orders-b"), gone_at_ms=1)
    state = evolve(state, uncommitted([gone]))
    review = ReviewInputs(now_ms=0, settle_ms=0)
    records = decide(review, state, Liveness()).records
    whole = evolve(state, uncommitted(records))
    assert ["kafka.orders"] == sorted({str(kb.ssp.system_stream) for task in whole.plan for kb in task.ssp_kbs})

    for torn in range(len(records)):
        part = evolve(state, uncommitted(records[:torn]))
        mended = evolve(part, uncommitted(decide(review, part, Liveness()).records))
        assert (whole.config, whole.inputs) == (mended.config, mended.inputs), torn
        assert [task.task_name for task in whole.plan] == [task.task_name for task in mended.plan], torn
        assert () == decide(review, mended, Liveness()).records, torn


def test_an_input_grows_while_another_one_is_deleted():
    job = a_job()
    job.looks(orders=4)
    job.reads(p0=100, p1=100)
    for _ in range(LOOKS_MISSING - 1):
        job.looks(orders_b=None)
    job.world.clock.advance(SETTLE_MS)
    job.looks()
    job.runs()

    assert [f"orders.{n}" for n in range(4)] == tasks(job)
    check_laws(job)


def test_positions_in_an_earlier_topic_of_the_name_do_not_count():
    job = a_job()
    invariants = Invariants()
    for record in job.world.log().read():
        invariants.check(record.offset, decode(record, topic="t"), True)
    known, epoch = job.of("orders-b"), job.state.epoch

    def judged(**changes):
        return invariants.check(job.state.offset_next, replace(known, **changes), True)

    assert "wanted nothing to count of the topic" in judged(topic_id="another", epoch_before=epoch - 1)
    assert "wanted what counts of kafka.orders-b to stay" in judged(epoch_before=epoch)
    assert "" == judged(topic_id="another", epoch_before=epoch)


# --- the job is handed in ---


def handed_in(job, present, cause="submit-2", **topic_ids):
    """A process that comes to lead hands the job in, having found these topics."""
    config = a_config(task_inputs=PATTERN, job_expansion_settle_ms=str(SETTLE_MS))
    ids = {f"kafka.{name}": job.ids.get(name, f"id-of-kafka.{name}") for name in present} | topic_ids
    counts = {f"kafka.{name}": count for name, count in present.items()}
    return a_submission(config=resolve_inputs(config, present), partition_counts=counts, topic_ids=ids, cause=cause)


def test_a_submission_keeps_planned_inputs_that_are_missing():
    job = a_job()
    before = job.state

    job.service.submit(handed_in(job, {"orders": 2}))

    assert (before.plan, before.config, before.inputs) == (job.state.plan, job.state.config, job.state.inputs)
    delete_topic(job)
    assert ["orders.0", "orders.1"] == tasks(job)


def test_a_submission_of_a_stopped_job_keeps_missing_inputs_too():
    job = a_job()
    job.world.queue.append(a_heartbeat("e0", processor_id="0", pid=100, state=ContainerPhase.STOPPED))
    job.service.run_once(0)

    job.service.submit(handed_in(job, {"orders": 2}))

    assert 4 == len(job.state.plan)


def test_a_submission_that_finds_another_topic_under_a_planned_name_is_not_refused():
    job = a_job()

    job.service.submit(handed_in(job, TWO, **{"kafka.orders-b": "another"}))

    assert (4, "id-of-kafka.orders-b") == (len(job.state.plan), job.of("orders-b").topic_id)


def test_a_submission_that_finds_another_topic_under_a_name_that_was_read_once_leaves_it_to_the_looks():
    job = a_job()
    delete_topic(job)
    job.ids["orders-b"] = "another"

    job.service.submit(handed_in(job, TWO))

    assert ["orders.0", "orders.1"] == tasks(job)
    job.looks(orders_b=2)
    job.runs()
    assert FIRST == job.granted()["kafka.orders-b.0"]


def test_a_topic_that_is_back_and_named_is_read_though_no_task_of_it_was_ever_granted():
    job = a_job(processors=())
    delete_topic(job)
    gone = replace(job.of("orders-b"), gone_at_ms=5)
    left_out = [gone, ConfigPut(config_key="task.inputs", value="kafka.orders")]
    state = evolve(job.state, committed(left_out, job.state.offset_next))
    named = a_submission(config=a_config(task_inputs="kafka.orders,kafka.orders-b"), partition_counts=_COUNTS)

    state = evolve(state, committed(submit_job(named, state, Liveness()), state.offset_next))
    state = evolve(state, committed([RunPut(run_id="r", ended=False)], state.offset_next))

    assert (0, "kafka.orders,kafka.orders-b") == (
        state.inputs[gone.system_stream].gone_at_ms,
        state.config["task.inputs"],
    )
    assert () == decide(ReviewInputs(now_ms=1, settle_ms=1), state, Liveness()).records


def test_another_topic_under_the_name_of_an_input_that_is_named_is_refused():
    job = Job(counts={"orders": 2})
    submission = a_submission(
        config=job.world.config, partition_counts={"kafka.orders": 2}, topic_ids={"kafka.orders": "another"}
    )

    with pytest.raises(TopicIdentityError):
        job.service.submit(submission)


def test_before_anything_is_planned_another_topic_of_a_pattern_is_simply_another_one():
    job = a_job()
    first = handed_in(job, {"orders": 2})
    state = evolve(INITIAL, committed(submit_job(first, INITIAL, Liveness()), 0))

    again = submit_job(replace(first, inputs=(replace(first.inputs[0], topic_id="another"),)), state, Liveness())

    assert ["another"] == [record.topic_id for record in again]


def test_a_pattern_that_matches_nothing_is_refused_in_a_job_that_is_new_and_where_nothing_is_left():
    job = a_job()

    with pytest.raises(MissingTopicError, match=r"match kafka\.~orders\.\* as a whole, found none"):
        submit_job(handed_in(job, {}), INITIAL, Liveness())
    job.service.submit(handed_in(job, {}))
    assert 4 == len(job.state.plan)


def test_a_recreated_topic_is_reported_as_a_new_input():
    job = a_job()
    delete_topic(job)
    job.ids["orders-b"] = "another"

    job.looks(is_monitoring=False, orders_b=2)

    assert [("input-unread", "kafka.orders-b")] == job.codes()
    assert "takes it in" in job.service.status().findings[0].remedy
