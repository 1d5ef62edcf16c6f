"""The members of a plan, its time, and the run that it is of."""

from dataclasses import replace

import pytest

from samzapy.coordinator.assignment.grants import wanted_grants
from samzapy.coordinator.commands import ExecutionFenced, ReviewMembers
from samzapy.coordinator.decide import decide
from samzapy.coordinator.grant_values import ContainerGone
from samzapy.model.container import ContainerPhase
from samzapy.stream.records import Removed, RunPut
from samzapy.testing.builders import a_config, a_heartbeat, a_submission, an_ssp_kb
from unit_tests.fixtures.coordinator_histories import Machine, a_term

RUNNING, STOPPED = ContainerPhase.RUNNING, ContainerPhase.STOPPED
DEBOUNCE_MS, GRACE_MS = 20_000, 30_000


class Job(Machine):
    """A machine whose processors come, go and are reviewed at given times.

    Execution `1b` is of processor `1`.
    """

    @classmethod
    def submitted(cls, partitions=4, config=None):
        job = cls()
        job.step(a_term(0))
        job.step(a_submission(config=config, partition_counts={"kafka.orders": partitions}))
        return job

    def at(self, now_ms, run_id="run-1"):
        self.step(
            ReviewMembers(now_ms=now_ms, debounce_ms=DEBOUNCE_MS, grace_ms=GRACE_MS, run_id_next=f"{run_id}-{now_ms}")
        )
        return self.members

    @property
    def members(self):
        return None if self.state.generation is None else "".join(self.state.generation.processor_ids)

    def comes(self, *executions):
        for execution in executions:
            self.step(a_heartbeat(execution, processor_id=execution[0], pid=ord(execution[0])))

    def stops(self, *executions):
        for execution in executions:
            self.step(a_heartbeat(execution, processor_id=execution[0], pid=ord(execution[0]), state=STOPPED))

    def crashes(self, *executions):
        for execution in executions:
            self.step(ContainerGone(execution, "gone"))
            self.step(ExecutionFenced(execution, 1))

    def fails_over(self):
        self.liveness = type(self.liveness)(listening_since_ms=0)

    def tasks_of(self, processor):
        return {planned.task_name[-1] for planned in self.state.plan if planned.processor_id == processor}


def a_job_of(*executions):
    job = Job.submitted()
    job.comes(*executions)
    job.at(0)
    return job


# --- joining ---


def test_no_plan_is_made_without_a_processor():
    assert Job.submitted().at(99_999) is None


def test_the_first_processor_is_planned_for_at_once():
    job = Job.submitted()
    job.comes("0a")

    assert "0" == job.at(7)


def test_processors_that_join_together_first_are_planned_for_together():
    assert "012" == a_job_of("1a", "0a", "2a").members


def test_a_processor_that_joins_is_planned_after_the_debounce():
    job = a_job_of("0a")
    job.comes("1a")

    assert ["0", "0", "01"] == [job.at(now) for now in (1_000, 20_999, 21_000)]
    assert (2, 2) == (len(job.tasks_of("0")), len(job.tasks_of("1")))


def test_the_window_is_counted_from_the_first_that_joins_and_takes_all_that_came():
    job = a_job_of("0a")
    job.comes("1a")
    job.at(1_000)
    job.comes("2a")
    job.at(15_000)
    job.comes("3a")

    assert ["0123", "0123"] == [job.at(now) for now in (21_000, 60_000)]
    assert 2 == job.state.generation.generation


def test_a_processor_that_keeps_joining_and_leaving_does_not_delay_the_others():
    job = a_job_of("0a")
    job.comes("1a")
    job.at(0)
    for index in range(20):
        job.comes(f"9{index}")
        job.at(1_000 * index)
        job.crashes(f"9{index}")

    assert "01" == job.at(20_000)


def test_a_processor_that_left_before_it_was_planned_changes_nothing():
    job = a_job_of("0a")
    job.comes("1a")
    job.at(1_000)
    job.crashes("1a")

    assert "0" == job.at(90_000)
    assert 1 == job.state.generation.generation


def test_a_processor_that_gets_no_task_is_a_member_all_the_same():
    job = Job.submitted(partitions=1)
    job.comes("0a", "1a")

    assert ["01", "01"] == [job.at(0), job.at(99_000)]
    assert 1 == job.state.generation.generation


def test_ids_are_in_the_order_of_their_numbers():
    job = Job.submitted()
    for processor in ("10", "9", "b"):
        job.step(a_heartbeat(f"e{processor}", processor_id=processor))
    job.at(0)

    assert ("9", "b", "10") == job.state.generation.processor_ids


# --- leaving ---


@pytest.mark.parametrize("leaves", [Job.crashes, Job.stops])
def test_an_absent_processor_keeps_its_tasks_for_the_grace_time(leaves):
    job = a_job_of("0a", "1a")
    mine = job.tasks_of("0")
    leaves(job, "0a")

    assert ["01", "01", "1"] == [job.at(now) for now in (5_000, 34_999, 35_000)]
    assert mine < job.tasks_of("1")


@pytest.mark.parametrize("leaves", [Job.crashes, Job.stops])
def test_a_processor_that_returns_within_the_grace_time_continues_its_tasks(leaves):
    job = a_job_of("0a", "1a")
    leaves(job, "0a")
    job.at(5_000)
    job.comes("0b")

    assert "01" == job.at(90_000)
    assert 1 == job.state.generation.generation


@pytest.mark.parametrize("state", [RUNNING, STOPPED])
def test_a_processor_that_cannot_return_loses_its_tasks_at_once(state):
    job = Job.submitted()
    for execution in ("0a", "1a"):
        job.step(
            a_heartbeat(execution, processor_id=execution[0], pid=ord(execution[0]), comes_back=execution != "0a")
        )
    job.at(0)
    if state is STOPPED:
        job.step(a_heartbeat("0a", processor_id="0", pid=ord("0"), comes_back=False, state=state))
    else:
        job.crashes("0a")
    job.fails_over()

    assert "1" == job.at(5_000)
    assert 4 == len(job.tasks_of("1"))


@pytest.mark.parametrize("comes_back", [True, False])
def test_where_a_processor_was_is_forgotten_when_no_other_has_its_id(comes_back):
    job = Job.submitted()
    for execution in ("0a", "1a"):
        job.step(
            a_heartbeat(
                execution,
                processor_id=execution[0],
                pid=ord(execution[0]),
                comes_back=comes_back or execution != "0a",
            )
        )
    job.at(0)
    assert {"0", "1"} == set(job.state.localities)
    job.crashes("0a")

    for now in (5_000, 90_000, 90_001):
        job.at(now)

    assert ({"0", "1"} if comes_back else {"1"}) == set(job.state.localities)
    assert not any(container.processor_id == "0" for container in job.state.containers.values())


def test_each_absence_has_a_grace_of_its_own():
    job = a_job_of("0a", "1a")
    job.crashes("0a")
    job.at(5_000)
    job.comes("0b")
    job.at(20_000)
    job.crashes("0b")

    assert ["01", "01", "1"] == [job.at(now) for now in (21_000, 50_999, 51_000)]


def test_the_last_plan_stays_without_a_processor():
    job = a_job_of("0a", "1a")
    job.stops("0a", "1a")

    assert "01" == job.at(999_000)


def test_a_coordinator_that_takes_over_waits_again():
    job = a_job_of("0a", "1a")
    job.crashes("1a")
    job.at(5_000)
    job.fails_over()

    assert ["01", "01", "0"] == [job.at(now) for now in (34_000, 63_999, 64_000)]


# --- runs ---


def run_of(job):
    return None if job.state.run is None else (job.state.run.run_id, job.state.run.ended)


def test_a_run_begins_when_the_job_is_handed_in():
    job = Job()
    job.step(a_term(0))
    job.at(1)
    assert run_of(job) is None

    job.step(a_submission())
    job.at(2)
    assert ("run-1-2", False) == run_of(job)


@pytest.mark.parametrize(
    "happens",
    [
        lambda job: job.fails_over(),
        lambda job: job.crashes("0a"),
        lambda job: job.crashes("0a", "1a"),
        lambda job: job.stops("0a"),
        lambda job: (job.crashes("0a"), job.comes("0b")),
        lambda job: (job.crashes("0a", "1a"), job.comes("7a")),
        lambda job: (job.stops("0a"), job.crashes("1a"), job.comes("0b")),
        lambda job: job.comes("2a"),
        lambda job: job.step(a_submission(config=a_config(), partition_counts={"kafka.orders": 9})),
    ],
)
def test_a_run_continues_while_a_processor_is_left_or_crashed(happens):
    job = a_job_of("0a", "1a")
    before = run_of(job)
    happens(job)
    job.at(1_000)
    job.at(99_000)

    assert before == run_of(job)


def test_a_run_ends_with_the_last_that_leaves_and_the_next_begins_with_the_first_that_joins():
    job = a_job_of("0a", "1a")
    job.stops("0a")
    assert ("run-1-0", False) == run_of(job)
    job.stops("1a")
    job.at(50_000)
    assert ("run-1-0", True) == run_of(job)

    job.comes("1b")
    job.at(60_000, run_id="run-2")

    assert ("run-2-60000", False) == run_of(job)


def test_in_a_new_run_the_first_processor_finds_its_tasks_and_the_other_tasks_wait():
    job = a_job_of("0a", "1a", "2a")
    job.stops("0a", "1a", "2a")
    job.at(50_000)
    job.comes("1b")

    assert ["012", "012"] == [job.at(now) for now in (60_000, 89_999)]
    job.comes("0b")
    assert "01" == job.at(90_000)


def test_a_new_run_of_other_processors_does_not_wait_for_the_last_members():
    job = a_job_of("0a", "1a")
    job.stops("0a", "1a")
    job.comes("7a")

    assert "7" == job.at(60_000, run_id="run-2")


def test_a_single_processor_is_planned_at_once_and_shares_with_one_that_returns():
    job = a_job_of("0a")
    job.crashes("0a")
    job.comes("7a")
    assert "7" == job.at(60_000)

    job.comes("0b")

    assert ["7", "07"] == [job.at(now) for now in (60_000, 80_000)]


# --- what the coordinator forgets ---


def granted(job):
    while job.perform(0) is not None:
        pass
    return job


def test_executions_that_others_have_succeeded_are_forgotten_and_their_number_stays_bounded():
    job = granted(a_job_of("0a", "1a"))

    for number in range(10):
        gone, comes = f"0{'abcdefghijk'[number]}", f"0{'abcdefghijk'[number + 1]}"
        job.crashes(gone)
        job.at(1_000 * number)
        assert gone in job.state.containers
        job.comes(comes)
        job.at(1_000 * number + 500)
        assert gone in job.state.containers  # Its grants still have the start of its successor.
        granted(job)
        job.at(1_000 * number + 600)

    assert {"0k", "1a"} == set(job.state.containers)


def test_the_last_execution_of_a_member_is_remembered_while_it_may_return():
    job = granted(a_job_of("0a", "1a"))
    job.stops("0a")
    job.at(1_000)
    assert "0a" in job.state.containers

    job.at(31_000)
    granted(job)
    job.at(31_001)

    assert {"1a"} == set(job.state.containers)


def test_a_lost_execution_is_not_forgotten_before_it_is_fenced():
    job = a_job_of("0a", "1a")
    job.step(ContainerGone("0a", "gone"))
    job.comes("0b")
    job.at(1_000)

    assert "0a" in job.state.containers


# --- a run that has an end ---


class Bounded(Job):
    """Two processors with two tasks each, which hold their grants."""

    @classmethod
    def running(cls):
        job = cls.submitted()
        job.comes("0a", "1a")
        job.at(0)
        for _ in range(4):
            job.perform(0)
        assert 4 == len(job.state.grants)
        return job

    def held(self, execution):
        grants = self.state.grants_sorted
        return [(grant.task_name, grant.epoch) for grant in grants if grant.execution_id == execution]

    def sends_heartbeat(self, execution, *, held=None, finished=True):
        self.step(
            a_heartbeat(
                execution,
                processor_id=execution[0],
                pid=ord(execution[0]),
                held=self.held(execution) if held is None else held,
                finished=finished,
                state=RUNNING,
            )
        )
        self.at(1_000)
        return self.state.run.finished


def test_a_run_is_finished_when_every_task_is_read_to_its_end():
    job = Bounded.running()

    assert [False, False, True] == [
        job.sends_heartbeat("0a"),
        job.sends_heartbeat("1a", finished=False),
        job.sends_heartbeat("1a"),
    ]
    assert not job.state.run.ended
    before = job.state
    job.sends_heartbeat("0a")
    assert before.run == job.state.run


def test_a_review_that_finds_the_run_finished_leaves_nothing_to_do_for_the_next():
    """Law L2: processors that joined or left before a stop are in no plan any more."""
    job = Bounded.running()
    job.comes("2a")
    job.at(0)
    for execution in ("0a", "1a"):
        job.step(
            a_heartbeat(
                execution, processor_id=execution[0], pid=ord(execution[0]), held=job.held(execution), finished=True
            )
        )
    job.crashes("2a")
    job.comes("3a")
    review = ReviewMembers(now_ms=90_000, debounce_ms=DEBOUNCE_MS, grace_ms=GRACE_MS, run_id_next="run-2")

    records = job.step(review)

    assert (True, "01") == (job.state.run.finished, job.members)
    assert {RunPut, Removed} == {type(record) for record in records}
    assert () == job.step(review)


def test_a_run_is_not_finished_while_a_task_has_no_owner():
    job = Bounded.running()
    job.sends_heartbeat("0a")

    assert not job.sends_heartbeat("1a", held=job.held("1a")[:1])
    job.crashes("0a")
    assert not job.sends_heartbeat("1a")


def test_a_run_is_not_finished_before_every_task_of_the_plan_was_granted():
    job = Bounded.running()
    job.sends_heartbeat("0a")
    (key, planned), *_ = job.state.planned_tasks.items()
    grown = replace(planned, ssp_kbs=(*planned.ssp_kbs, an_ssp_kb("kafka.orders.4:0/1")))
    job.state = replace(job.state, planned_tasks=dict(job.state.planned_tasks) | {key: grown})

    assert not job.sends_heartbeat("1a")


def test_a_finished_run_ends_when_all_have_left_and_the_next_is_another():
    job = Bounded.running()
    job.sends_heartbeat("0a")
    job.sends_heartbeat("1a")
    job.stops("0a", "1a")
    assert (True, True) == (job.state.run.finished, job.state.run.ended)

    job.comes("0b")
    job.at(60_000, run_id="run-2")

    assert ("run-2-60000", False, False) == (job.state.run.run_id, job.state.run.finished, job.state.run.ended)


def test_a_finished_run_ends_also_when_the_last_one_is_killed_before_it_has_left():
    """Else a later processor would leave at once, with nothing done, to end it."""
    job = Bounded.running()
    job.sends_heartbeat("0a")
    job.sends_heartbeat("1a")
    job.stops("0a")
    job.step(ContainerGone("1a", "killed"))
    assert (True, False) == (job.state.run.finished, job.state.run.ended)

    job.at(2_000)

    assert (True, True) == (job.state.run.finished, job.state.run.ended)
    job.comes("0b")
    job.at(60_000, run_id="run-2")
    assert ("run-2-60000", False, False) == (job.state.run.run_id, job.state.run.finished, job.state.run.ended)


# --- a run that begins without the records of earlier ones ---

BOUNDED = a_config(systems_kafka_samza_offset_end="head")
IN_PART_BOUNDED = a_config(
    task_inputs="kafka.orders,kafka.refunds", systems_kafka_streams_orders_samza_offset_end="head"
)


class Again(Job):
    """A job whose two processors have run, reported their places, and left.

    Execution `0b` comes next.
    """

    @classmethod
    def after_a_run(cls, config=BOUNDED):
        job = cls.submitted(config=config)
        job.comes("0a", "1a")
        job.at(0)
        granted(job)
        for execution in ("0a", "1a"):
            held = [(grant.task_name, grant.epoch) for grant in job.state.grants_sorted]
            job.step(a_heartbeat(execution, processor_id=execution[0], pid=ord(execution[0]), held=held))
        assert job.state.localities and job.state.task_localities
        job.stops("0a", "1a")
        job.comes("0b")
        return job

    @property
    def places(self):
        return (*self.state.localities, *self.state.task_localities)


@pytest.mark.parametrize("config", [a_config(), IN_PART_BOUNDED])
def test_a_run_of_an_unbounded_job_continues_with_all_inputs(config):
    job = Again.after_a_run(config)
    places = job.places

    assert "01" == job.at(50_000, run_id="run-2")
    assert (0, places) == (job.state.run.counts_after, job.places)


def test_a_run_of_a_bounded_job_begins_fresh_and_waits_for_no_member():
    job = Again.after_a_run()
    epoch = job.state.epoch

    assert "0" == job.at(50_000, run_id="run-2")
    assert ("run-2-50000", epoch, ()) == (job.state.run.run_id, job.state.run.counts_after, job.places)
    assert 4 == len(job.tasks_of("0"))


def test_a_fresh_beginning_stays_in_effect_in_later_unbounded_runs():
    job = Again.after_a_run()
    epoch = job.state.epoch
    job.at(50_000)
    job.stops("0b")
    job.step(a_submission(config=a_config()))
    job.comes("0c")
    granted(job)

    job.at(60_000, run_id="run-3")

    assert ("run-3-60000", epoch) == (job.state.run.run_id, job.state.run.counts_after)


def test_the_first_run_has_nothing_to_leave_out():
    job = Job.submitted(config=BOUNDED)
    job.comes("0a")
    job.at(0)

    assert 0 == job.state.run.counts_after


def test_a_crash_continues_the_run_and_its_state():
    job = Again.after_a_run()
    job.at(50_000)
    granted(job)
    before = job.state.run
    job.crashes("0b")
    job.comes("0c")
    job.at(60_000)

    assert before == job.state.run


def test_the_next_review_completes_a_torn_beginning_of_a_run():
    job = Again.after_a_run()
    review = ReviewMembers(now_ms=50_000, debounce_ms=DEBOUNCE_MS, grace_ms=GRACE_MS, run_id_next="run-2")
    records = decide(review, job.state, job.liveness).records
    assert 6 + 1 == next(index for index, record in enumerate(records) if isinstance(record, RunPut)) + 1

    for survivors in range(1, len(records)):
        torn = Again(state=job.state, liveness=job.liveness, offset_next=job.offset_next)
        torn.commit(records[:survivors])
        assert not wanted_grants(torn.state) or torn.state.run.run_id == "run-2"
        torn.step(review)
        # At the latest when the others have had time to come back.
        torn.at(90_000)

        assert ("run-2", job.state.epoch, ()) == (torn.state.run.run_id, torn.state.run.counts_after, torn.places)
        assert "0" == torn.members


def test_between_two_runs_nothing_is_granted():
    job = Again.after_a_run()
    assert job.state.run.ended

    assert () == wanted_grants(job.state)

    job.at(50_000)
    assert 4 == len(wanted_grants(job.state))
