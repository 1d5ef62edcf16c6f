"""The timeline: the past in a state, and the differences between two states."""

from dataclasses import replace

import pytest

from samzapy.inspection.page.timeline import EVENTS_MAX, Event, EventKind, with_events
from samzapy.model.container import ContainerPhase
from samzapy.model.finding import Finding
from samzapy.model.placement import StatusCode
from samzapy.model.startpoint import Startpoint
from samzapy.stream.records import Expansion, LossAcceptedPut, SuspendedPut
from samzapy.testing.builders import a_launch, an_ssp_kb
from unit_tests.fixtures.launched_job import a_move
from unit_tests.fixtures.page_job import PageJob
from unit_tests.inspection.page.test_views import a_memory

K = EventKind


@pytest.fixture
def job():
    return PageJob()


def seen(job, change):
    """The kinds and texts of the events that a change of the job makes."""
    before = job.snapshot()
    change()
    return [(event.kind, event.text) for event in with_events((), before, job.snapshot(), 5)]


def test_a_leader_begins_with_the_moments_that_its_state_records(job):
    ((stream, known),) = job.state.inputs.items()
    job.change(
        requests={"u": a_move(StatusCode.ACCEPTED)},
        request_memory={"m": a_memory("m", 7)},
        launches={"l": a_launch("l", wanted_at_ms=3)},
        inputs={stream: replace(known, expansions=(Expansion(partition_count=8, seen_at_ms=5),), gone_at_ms=6)},
    )

    assert [
        (1, K.REQUEST, "place-container of processor 0 was read"),
        (1, K.REQUEST, "place-container of processor 0: ACCEPTED"),
        (3, K.CONTAINER, "A start for processor 0 was decided: host-a, ACTIVE"),
        (5, K.INPUT, "kafka.orders has 8 partitions; 4 are read"),
        (6, K.INPUT, "kafka.orders was deleted"),
        (7, K.REQUEST, "scale: SUCCEEDED"),
        (1_700_000_000_000, K.TERM, "Term 1 began: host-0, process 1"),
    ] == [(event.at_ms, event.kind, event.text) for event in with_events((), None, job.snapshot(), 9)]


def test_nothing_new_adds_no_event(job):
    events = (Event(1, K.TERM, "t"),)

    assert with_events(events, job.snapshot(), job.snapshot(), 9) is events


def test_a_new_term_is_an_event(job):
    term = replace(job.state.term, term=2, host="host-9")

    assert [(K.TERM, "Term 2 began: host-9, process 1")] == seen(job, lambda: job.change(term=term))


def test_a_new_plan_has_the_number_of_tasks_that_it_moves(job):
    planned = {(2, name): replace(item, generation=2) for (_, name), item in job.state.planned_tasks.items()}
    planned[2, "Partition_0"] = replace(planned[2, "Partition_0"], processor_id="1")
    generation = replace(job.state.generation, generation=2)

    assert [(K.GENERATION, "Generation 2: 4 tasks on 2 processors; 1 task moves")] == seen(
        job, lambda: job.change(generation=generation, planned_tasks=planned)
    )


def test_another_factor_is_a_scaling(job):
    generation = replace(job.state.generation, generation=2, factor=4, task_count=16)

    assert (K.SCALING, "Factor 1 became 4: 4 tasks became 16 (generation 2)") == seen(
        job, lambda: job.change(generation=generation)
    )[0]


def test_tasks_that_change_their_container_are_listed_together(job):
    moved = {
        (name, epoch + 10): replace(grant, epoch=epoch + 10, execution_id="e1")
        for (name, epoch), grant in job.state.grants.items()
        if grant.execution_id == "e0"
    }

    text = "From container e0 (processor 0 on host-0) to container e1 (processor 1 on host-1): "
    assert [(K.MOVE, f"{text}Partition_0, Partition_2")] == seen(
        job, lambda: job.change(grants={**job.state.grants, **moved})
    )


def test_a_lost_container_is_a_loss_with_its_reason(job):
    def lose():
        job.change_container("e0", phase=ContainerPhase.LOST, reason="no heartbeat for 20 s")

    assert [(K.LOSS, "container e0 (processor 0 on host-0) is LOST: no heartbeat for 20 s")] == seen(job, lose)
    assert [] == seen(job, lambda: job.change_container("e0", pid=7))


def test_the_begin_and_the_end_of_a_suspension_are_events(job):
    put = SuspendedPut(processor_id="1", execution_id="e1", exit_code=8, reason="bad data")

    assert [(K.LOSS, "Processor 1 is suspended (exit code 8): bad data")] == seen(
        job, lambda: job.change(suspended={"1": put})
    )
    assert [(K.CONTAINER, "Processor 1 is not suspended any more")] == seen(job, lambda: job.change(suspended={}))


def test_each_step_of_a_request_is_an_event_of_its_uuid(job):
    before = job.snapshot()
    job.change(requests={"u": a_move(StatusCode.FAILED)})

    assert ["u"] == [event.subject for event in with_events((), before, job.snapshot(), 5)]
    assert [] == seen(job, lambda: job.change(requests={}, request_memory={"u": a_memory("u", 5)}))
    assert [(K.REQUEST, "scale: SUCCEEDED")] == seen(
        job, lambda: job.change(request_memory={**job.state.request_memory, "v": a_memory("v", 5)})
    )


def test_rewinds_and_ranges_that_are_given_up_name_their_positions(job):
    ssp_kb = an_ssp_kb()
    startpoint = Startpoint(ssp_kb=ssp_kb, offset_next=7, epoch=9, uuid="u")
    loss = LossAcceptedPut(ssp_kb=ssp_kb, offset_from=5, offset_to=9)

    assert [(K.REWIND, "Positions are set: kafka.orders.0:0/1 to 7")] == seen(
        job, lambda: job.change(startpoints={ssp_kb: startpoint})
    )
    assert [(K.LOSS, "kafka.orders.0:0/1: the offsets 5 to 8 are given up")] == seen(
        job, lambda: job.change(accepted_losses={ssp_kb: loss})
    )


def test_inputs_that_grow_or_disappear_are_events(job):
    ((stream, known),) = job.state.inputs.items()
    grown = replace(known, expansions=(Expansion(partition_count=8, seen_at_ms=5),))

    assert [(K.INPUT, "kafka.orders has 8 partitions")] == seen(job, lambda: job.change(inputs={stream: grown}))
    read = replace(known, partition_count=8)
    assert [(K.INPUT, "kafka.orders: 8 partitions are read, 4 before")] == seen(
        job, lambda: job.change(inputs={stream: read})
    )
    assert [(K.INPUT, "kafka.orders was deleted")] == seen(
        job, lambda: job.change(inputs={stream: replace(read, gone_at_ms=9)})
    )


def test_findings_appear_and_are_resolved(job):
    finding = Finding(code="topic-missing", subject="topic a", found="a is not there", remedy="Make it")
    before = job.snapshot()
    job.findings = (finding,)
    with_finding = job.snapshot()

    assert [f"{finding}"] == [event.text for event in with_events((), before, with_finding, 5)]
    assert ["Resolved: topic-missing: a is not there"] == [
        event.text for event in with_events((), with_finding, before, 5)
    ]


def test_the_timeline_is_bounded(job):
    events = tuple(Event(number, K.TERM, "t") for number in range(EVENTS_MAX))
    before = job.snapshot()
    job.change_container("e0", phase=ContainerPhase.LOST)

    newer = with_events(events, before, job.snapshot(), 9)
    assert (EVENTS_MAX, 1, K.LOSS) == (len(newer), newer[0].at_ms, newer[-1].kind)
