from __future__ import annotations

import pytest
from opentelemetry.trace import StatusCode

from samzapy.errors import ProducerError, TopicPolicyError
from samzapy.testing.builders import a_config, a_heartbeat, a_submission
from unit_tests.fixtures.coordinator_world import World
from unit_tests.fixtures.operated_job import Job, an_id
from unit_tests.fixtures.traces import Traces, attribute

DECIDE, APPEND = "samzapy.coordinator.decide", "samzapy.coordinator.append"


def led(traces):
    world = World(tracer=traces.tracer)
    service = world.coordinator()
    service.become_leader()
    service.submit(a_submission(config=world.config))
    return world, service


def test_each_decision_with_records_is_a_span_with_its_trigger_and_kinds():
    traces = Traces()
    world, service = led(traces)

    world.queue.append(a_heartbeat())
    service.run_once(0)

    spans = traces.spans(DECIDE)
    assert ["start-term", "submit-job"] == [attribute(span, "samzapy.trigger") for span in spans[:2]]
    assert ("term", "job", "format", "schema") == attribute(spans[0], "samzapy.record.kinds")
    (granted,) = [span for span in spans if attribute(span, "samzapy.trigger") == "starts-resolved"]
    assert {"epoch", "grant"} >= set(attribute(granted, "samzapy.record.kinds"))
    assert ("flights-1", 1, 1) == tuple(
        attribute(granted, f"samzapy.{name}") for name in ("job", "term", "generation")
    )
    assert service.status().state.run.run_id == attribute(granted, "samzapy.run")
    written = sum(attribute(span, "samzapy.record.count") for span in spans)
    assert len(list(world.log().read())) == written


def test_a_command_that_writes_nothing_has_no_span():
    traces = Traces()
    world, service = led(traces)
    world.queue.append(a_heartbeat())
    service.run_once(0)
    before = len(traces.spans(DECIDE))

    world.queue.append(a_heartbeat())
    service.run_once(0)

    assert before == len(traces.spans(DECIDE))


def test_the_write_is_a_child_of_the_first_decision_and_linked_to_the_others():
    traces = Traces()
    world, service = led(traces)

    world.queue.extend([a_heartbeat(), a_heartbeat("e9", pid=900, processor_id="1")])
    service.run_once(0)

    write = next(span for span in traces.spans(APPEND) if span.links)
    first, *others = [
        span
        for span in traces.spans(DECIDE)
        if span.end_time >= write.start_time and span.start_time < write.end_time
    ]
    assert first.context.span_id == write.parent.span_id and first.context.trace_id == write.context.trace_id
    assert [span.context.span_id for span in others] == [link.context.span_id for link in write.links]
    assert ("kafka", world.topic.name) == (
        attribute(write, "messaging.system"),
        attribute(write, "messaging.destination.name"),
    )
    counts = [attribute(span, "samzapy.record.count") for span in (first, *others)]
    assert sum(counts) == attribute(write, "messaging.batch.message_count")


def test_all_spans_of_a_request_are_one_trace_also_of_a_later_leader():
    traces = Traces()
    job = Job(tracer=traces.tracer)
    job.ask(1)
    job.reads()
    job.service = job.leader("b")

    job.receives_heartbeats(e0=1)

    assert "SUCCEEDED" == job.status(1).name
    spans = [span for span in traces.spans(DECIDE) if attribute(span, "samzapy.request.id") == an_id(1)]
    assert {1, 2} == {attribute(span, "samzapy.term") for span in spans}
    assert 1 == len({span.context.trace_id for span in spans})
    events = [event.attributes["samzapy.request.status"] for span in spans for event in span.events]
    assert ["ACCEPTED", "IN_PROGRESS", "SUCCEEDED"] == list(dict.fromkeys(events))
    assert {"restart-query"} == {attribute(span, "samzapy.request.action") for span in spans}


def test_a_decision_about_several_requests_is_linked_to_the_trace_of_each():
    traces = Traces()
    job = Job(tracer=traces.tracer)
    job.ask(1)
    job.ask(2, processor_id="1")

    job.reads()

    both = next(span for span in traces.spans(DECIDE) if len(span.links) == 2)
    assert both.parent is None and 2 == len({link.context.trace_id for link in both.links})
    assert {an_id(1), an_id(2)} == {event.attributes["samzapy.request.id"] for event in both.events}


def test_a_write_that_fails_ends_its_spans_as_errors_without_the_text_of_the_error():
    traces = Traces()
    world = World(tracer=traces.tracer)
    log = world.log()
    service = world.coordinator(log=log)
    service.become_leader()
    service.submit(a_submission(config=world.config))
    log.break_next_append(committed=False)

    world.queue.append(a_heartbeat())
    service.run_once(0)

    failed = [span for name in (APPEND, DECIDE) for span in traces.spans(name) if not span.status.is_ok]
    assert {APPEND, DECIDE} == {span.name for span in failed}
    assert {ProducerError.__name__} == {attribute(span, "error.type") for span in failed}
    assert {(StatusCode.ERROR, None)} == {(span.status.status_code, span.status.description) for span in failed}


def test_decisions_of_a_batch_that_is_refused_are_not_part_of_the_next_write():
    traces = Traces()
    world, service = led(traces)
    world.queue.extend([a_heartbeat(), a_submission(config=a_config(job_name="another"))])
    with pytest.raises(TopicPolicyError):
        service.run_once(0)
    before = len(traces.spans(DECIDE))

    world.queue.append(a_heartbeat())
    service.run_once(0)

    registered = [span for span in traces.spans(DECIDE)[before:] if attribute(span, "samzapy.trigger") == "heartbeat"]
    assert 1 == len(registered), "the decision of the refused batch was not written"
