"""The loop on a memory log: a job is handed in, and members come and go.

Containers come and go, and coordinators succeed one another.
"""

from dataclasses import replace

import pytest

from samzapy.config import AcceptedLoss
from samzapy.coordinator.assignment.starts import Bounds
from samzapy.coordinator.replay import replay
from samzapy.coordinator.service import CoordinatorService
from samzapy.errors import (
    BrokerUnavailableError,
    ConfigError,
    FencedError,
    RejectedError,
    TopicIdentityError,
    TopicPolicyError,
    TruncatedTopicError,
    UnknownSchemaError,
)
from samzapy.model.checkpoint import Checkpoint
from samzapy.model.container import ContainerPhase
from samzapy.stream.audit import change_text, history
from samzapy.stream.codec import decode, parse_headers
from samzapy.stream.log import Write
from samzapy.testing.builders import a_config, a_heartbeat, a_submission, an_ssp, an_ssp_kb
from unit_tests.fixtures.coordinator_world import World
from unit_tests.fixtures.golden_rows import next_headers

STARTED, RUNNING, STOPPED = ContainerPhase.STARTED, ContainerPhase.RUNNING, ContainerPhase.STOPPED


def started(world, **kwargs):
    service = world.coordinator(**kwargs)
    service.become_leader()
    service.submit(a_submission(config=world.config))
    return service


def of_two_processors_the_second_stopped(world):
    service = started(world)
    handle(world, service, a_heartbeat(), a_heartbeat("e9", pid=900, processor_id="1"))
    handle(world, service, a_heartbeat("e9", pid=900, processor_id="1", state=STOPPED))
    assert {owner for owner, _ in owners(service).values()} == {"e1", "e9"}
    return service


def handle(world, service, *heartbeats):
    world.queue.extend(heartbeats)
    service.run_once(0)


def naming(*outputs):
    return replace(a_heartbeat(), outputs=frozenset(outputs))


def look_for(world, service, ms, *, meanwhile=()):
    """Look at the stream again and again for that time; `meanwhile` is sent each time."""
    while ms > 0:
        step_ms = min(ms, 1_000)
        world.clock.advance(step_ms)
        ms -= step_ms
        handle(
            world, service, *(replace(heartbeat, received_ms=world.clock.monotonic_ms()) for heartbeat in meanwhile)
        )


def owners(service):
    state = service.status().state
    return {grant.task_name[-1]: (grant.execution_id, grant.epoch) for grant in state.grants_sorted}


def records(world):
    return [decode(record, topic="t") for record in world.log().read()]


def folded(world):
    return replay(world.log().read(), topic="t").state


def test_a_new_stream_begins_with_its_term_its_job_its_format_and_its_schemas():
    world = World()

    world.coordinator().become_leader()

    kinds = [type(record).__name__ for record in records(world)]
    assert kinds[:3] == ["TermPut", "JobIdentityPut", "FormatLevelPut"]
    assert set(kinds[3:]) == {"SchemaPut"}


def test_a_submitted_job_is_planned_when_the_first_processor_joins_and_only_once():
    world = World()
    service = started(world)
    assert service.status().state.generation is None
    handle(world, service, a_heartbeat())
    end = world.topic.end_offset

    service.submit(a_submission(config=world.config))
    service.run_once(0)

    assert world.topic.end_offset == end
    state = service.status().state
    assert [planned.processor_id for planned in state.plan] == ["0"] * 4
    assert state.generation.generation == 1


def test_a_container_registers_with_its_first_heartbeat_and_is_granted_its_tasks():
    world = World()
    service = started(world)

    handle(world, service, a_heartbeat(state=STARTED))

    state = service.status().state
    assert state.containers["e1"].phase is STARTED
    assert owners(service) == {str(partition): ("e1", partition + 1) for partition in range(4)}
    assert [start.offset_next for grant in state.grants_sorted for start in grant.starts] == [0] * 4
    assert world.positions_reads == 1


def test_a_repeated_heartbeat_writes_nothing():
    world = World()
    service = started(world)
    handle(world, service, a_heartbeat())
    end = world.topic.end_offset

    handle(world, service, a_heartbeat(), a_heartbeat())

    assert world.topic.end_offset == end


def test_reading_only_a_transaction_marker_keeps_the_state_object():
    """All that was made of the state stays with it.

    In a job of 10,000 tasks that is most of the work of a round.
    """
    world = World()
    service = started(world)
    handle(world, service, a_heartbeat())
    known = service.status()
    assert known.state.offset_next < world.topic.end_offset

    look_for(world, service, 3_000, meanwhile=[a_heartbeat()])

    assert service.status().state is known.state
    assert known.verified_ms < service.status().verified_ms


def test_the_state_of_a_leader_is_the_fold_of_its_log():
    world = World()
    service = started(world)
    handle(world, service, a_heartbeat())

    state = service.status().state
    assert state == folded(world)
    assert state.generation_offset == folded(world).generation_offset


def test_a_silent_container_is_fenced_and_its_tasks_continue_from_their_checkpoints():
    world = World()
    service = started(world)
    handle(world, service, a_heartbeat())
    ssp_kb = an_ssp_kb("kafka.orders.0:0/1")
    world.checkpoints[ssp_kb] = Checkpoint(ssp_kb=ssp_kb, offset_next=42, epoch=1, task_name="t", execution_id="e1")
    look_for(world, service, 10_000)
    handle(world, service, a_heartbeat("e2", pid=200, received_ms=world.clock.monotonic_ms()))
    assert {owner for owner, _ in owners(service).values()} == {"e1"}

    look_for(world, service, 10_000)

    assert world.fenced == [f"samzapy/flights-1/e1/{slot}" for slot in (0, 1, "driver")]
    state = service.status().state
    assert state.containers["e1"].phase is ContainerPhase.FENCED
    assert {grant.execution_id for grant in state.grants.values()} == {"e2"}
    assert state.grants["SystemStreamPartition_kafka.orders.0", 5].starts[0].offset_next == 42
    assert state == folded(world)


def test_a_new_leader_expires_no_container_before_it_could_receive_its_heartbeat():
    world = World()
    handle(world, started(world), a_heartbeat(received_ms=world.clock.monotonic_ms()))
    world.clock.advance(60_000)
    successor = world.coordinator("b")
    successor.become_leader()

    look_for(world, successor, 19_999)
    assert successor.status().state.containers["e1"].phase is RUNNING

    look_for(world, successor, 1)
    assert successor.status().state.containers["e1"].phase is ContainerPhase.FENCED


def cannot_look(world, service, log):
    """No broker answers for longer than a container may be silent."""
    asks, log.end_offset = log.end_offset, raising(BrokerUnavailableError("no broker answered"))
    look_for(world, service, 25_000)
    log.end_offset = asks


def is_stopped(world, service, log):
    world.clock.advance(60_000)


def waits_for_the_answer(world, service, log):
    asks = log.end_offset

    def asks_long():
        log.end_offset = asks
        world.clock.advance(25_000)
        return asks()

    log.end_offset = asks_long
    world.clock.advance(1_000)


def is_held_up_by_another(world, service, log):
    """The lost execution has an id that cannot be initialised for a long while."""
    fences = world.fence
    world.fence = lambda ids, outputs: (world.clock.advance(60_000), fences(ids, outputs))
    world.alive = {900: False}
    world.clock.advance(1_000)
    service.run_once(0)


def raising(error):
    def raises():
        raise error

    return raises


@pytest.mark.parametrize("is_away", [cannot_look, is_stopped, waits_for_the_answer, is_held_up_by_another])
def test_a_leader_that_received_no_heartbeats_expires_no_container(is_away):
    world = World()
    log = world.log()
    service = started(world, log=log)
    handle(world, service, a_heartbeat(), a_heartbeat("e9", pid=900, processor_id="1"))

    is_away(world, service, log)
    service.run_once(0)
    look_for(world, service, 19_000)
    assert service.status().state.containers["e1"].phase is RUNNING

    look_for(world, service, 2_000)
    assert service.status().state.containers["e1"].phase is ContainerPhase.FENCED


def test_time_without_heartbeats_does_not_count_as_time_to_release_a_task():
    world = World(config=a_config(job_debounce_time_ms="0", job_release_timeout_ms="30000"))
    service = started(world)
    heartbeats = [a_heartbeat(), a_heartbeat("e2", pid=200, processor_id="1")]
    handle(world, service, heartbeats[0])
    look_for(world, service, 3_000, meanwhile=heartbeats)

    world.clock.advance(60_000)
    service.run_once(0)
    look_for(world, service, 29_000, meanwhile=heartbeats)
    assert service.status().state.containers["e1"].phase is RUNNING

    look_for(world, service, 2_000, meanwhile=heartbeats)
    assert "did not let go" in service.status().state.containers["e1"].reason


def test_a_process_that_has_ended_is_declared_lost_at_once():
    world = World()
    service = started(world)
    handle(world, service, a_heartbeat(), a_heartbeat("e2", pid=200))
    world.alive = {100: False, 200: True}
    world.clock.advance(1_000)

    service.run_once(0)

    assert {owner for owner, _ in owners(service).values()} == {"e2"}


def test_a_container_that_stopped_without_grants_needs_no_fence():
    world = World()
    service = started(world)
    handle(world, service, a_heartbeat())

    handle(world, service, a_heartbeat(state=STOPPED, reason="drained"), a_heartbeat("e2", pid=200))

    assert world.fenced == []
    assert service.status().state.containers["e1"].reason == "drained"
    assert {owner for owner, _ in owners(service).values()} == {"e2"}


def test_a_container_that_stopped_with_grants_is_fenced():
    world = World()
    service = started(world)
    handle(world, service, a_heartbeat())

    handle(world, service, a_heartbeat(state=STOPPED, held=[("t", 1)], reason="killed"))

    assert service.status().state.containers["e1"].phase is ContainerPhase.FENCED
    assert "killed" in service.status().state.containers["e1"].reason


def test_a_lost_container_does_not_return():
    world = World()
    service = started(world)
    handle(world, service, a_heartbeat())
    look_for(world, service, 20_000)
    end = world.topic.end_offset

    handle(world, service, a_heartbeat(received_ms=world.clock.monotonic_ms()))

    assert world.topic.end_offset == end
    assert service.status().state.containers["e1"].phase is ContainerPhase.FENCED


def test_a_heartbeat_of_another_process_under_a_recorded_id_is_ignored():
    world = World()
    service = started(world)
    handle(world, service, a_heartbeat())

    handle(world, service, a_heartbeat(pid=999, state=STOPPED))

    assert service.status().state.containers["e1"].phase is RUNNING


@pytest.mark.parametrize("error", [BrokerUnavailableError("no broker answered"), ConfigError("not authorized")])
def test_a_fence_that_fails_is_tried_again_and_nothing_is_granted_before(error):
    world = World(fencing_error=error)
    service = started(world)
    handle(world, service, a_heartbeat(), a_heartbeat("e2", pid=200))
    world.alive, world.fencing_fails = {100: False}, 1
    world.clock.advance(1_000)

    service.run_once(0)
    assert service.status().state.containers["e1"].phase is ContainerPhase.LOST
    assert {owner for owner, _ in owners(service).values()} == {"e1"}
    assert str(error) in service.status().trouble

    world.clock.advance(1_000)
    service.run_once(0)
    assert {owner for owner, _ in owners(service).values()} == {"e2"}
    assert service.status().trouble == ""


def test_a_fence_looks_at_the_outputs_that_a_lost_host_has_named():
    world = World()
    service = started(world)
    handle(world, service, naming("sums"), replace(naming("totals"), execution_id="e2", pid=200))
    assert [] == world.fenced
    world.alive = {100: False}
    world.clock.advance(1_000)

    service.run_once(0)

    assert {"e1"} == {transactional_id.split("/")[2] for transactional_id in world.fenced}
    assert {"sums", "totals"} == world.outputs_looked_at


def test_a_leader_that_begins_another_term_knows_the_outputs_that_containers_have_named():
    """A broker's restart may end a term and leave a transaction open."""
    world = World()
    log = world.log()
    service = started(world, log=log)
    handle(world, service, naming("sums"))
    log.break_next_append(committed=False)
    world.alive = {100: False}
    world.clock.advance(1_000)

    service.run_once(0)

    assert (2, "FENCED") == (service.status().state.term.term, service.status().state.containers["e1"].phase.value)
    assert {"sums"} == world.outputs_looked_at


def test_a_refused_id_of_a_lost_execution_ends_no_term():
    """Another process initialised the id at the same moment.

    The coordinator stream's own id is another one.
    """
    world = World()
    service = started(world)
    handle(world, service, a_heartbeat(), a_heartbeat("e2", pid=200))
    world.alive, world.fencing_fails, world.fencing_error = {100: False}, 1, FencedError("a newer owner has the id")
    world.clock.advance(1_000)

    service.run_once(0)

    assert (1, "a newer owner has the id") == (service.status().state.term.term, service.status().trouble)
    world.clock.advance(1_000)
    service.run_once(0)
    assert {owner for owner, _ in owners(service).values()} == {"e2"}


def test_a_failed_fence_delays_no_other_execution():
    world = World()
    service = of_two_processors_the_second_stopped(world)
    world.alive, world.fencing_fails = {100: False}, 1
    world.clock.advance(1_000)

    handle(world, service, a_heartbeat("e3", pid=300, processor_id="1"))

    assert service.status().state.containers["e1"].phase is ContainerPhase.LOST
    assert {owner for owner, _ in owners(service).values()} == {"e1", "e3"}


def test_failing_fences_are_tried_in_turn_while_heartbeats_are_answered():
    world = World()
    service = started(world)
    names = [f"e{number}" for number in range(1, 6)]
    handle(world, service, *(a_heartbeat(name, pid=100 + number) for number, name in enumerate(names)))
    tried = []

    def fence(transactional_ids, outputs):
        tried.append(transactional_ids[0].split("/")[2])
        world.clock.advance(3_000)
        if tried[-1] != "e5":
            raise BrokerUnavailableError("no broker answered")

    world.fence = fence
    world.alive = dict.fromkeys(range(100, 105), False)
    for _ in range(5):
        world.clock.advance(1_000)
        began_ms = world.clock.monotonic_ms()
        service.run_once(0)
        # Less than an answer may be old.
        assert world.clock.monotonic_ms() - began_ms <= 3_000

    assert names == tried
    assert ContainerPhase.FENCED is service.status().state.containers["e5"].phase


@pytest.mark.parametrize("error", [BrokerUnavailableError("no broker answered"), ConfigError("not authorized")])
def test_a_failed_read_of_positions_is_repeated(error):
    world = World(reading_error=error)
    service = started(world)
    world.reading_fails = 1

    handle(world, service, a_heartbeat())
    assert owners(service) == {}
    assert str(error) in service.status().trouble

    world.clock.advance(1_000)
    service.run_once(0)
    assert len(owners(service)) == 4


def test_an_accepted_loss_moves_the_start_and_is_recorded():
    world = World(config=a_config(task_lost_range_accept="kafka.orders.0:0/1@42-60"))
    service = started(world)
    handle(world, service, a_heartbeat())
    ssp_kb = an_ssp_kb("kafka.orders.0:0/1")
    world.checkpoints[ssp_kb] = Checkpoint(ssp_kb=ssp_kb, offset_next=42, epoch=1, task_name="t", execution_id="e1")
    world.bounds[an_ssp()] = Bounds(50, 100)

    handle(world, service, a_heartbeat(state=STOPPED), a_heartbeat("e2", pid=200))

    state = service.status().state
    assert state.grants["SystemStreamPartition_kafka.orders.0", 5].starts[0].offset_next == 50
    loss = state.accepted_losses[ssp_kb]
    assert (loss.offset_from, loss.offset_to) == (42, 50)


def test_any_processor_may_accept_a_loss():
    """The leader was started before anything was lost, and need not be stopped for it."""
    world = World()
    service = started(world)
    handle(world, service, a_heartbeat())
    ssp_kb = an_ssp_kb("kafka.orders.0:0/1")
    world.checkpoints[ssp_kb] = Checkpoint(ssp_kb=ssp_kb, offset_next=42, epoch=1, task_name="t", execution_id="e1")
    world.bounds[an_ssp()] = Bounds(50, 100)
    loss = AcceptedLoss(ssp_kb="kafka.orders.0", offset_from=42, offset_to=50)

    handle(world, service, a_heartbeat(state=STOPPED), a_heartbeat("e2", pid=200, accepted_losses=[loss]))

    state = service.status().state
    assert state.grants["SystemStreamPartition_kafka.orders.0", 5].starts[0].offset_next == 50
    assert ssp_kb in state.accepted_losses
    assert "task.lost.range.accept" not in state.config


def test_the_history_shows_old_and_new_values_of_changed_settings():
    world = World(
        config=a_config(task_hang_timeout_ms="5", job_debounce_time_ms="7", systems_kafka_client_sasl_password="a")
    )
    service = started(world)
    world.config = a_config(task_hang_timeout_ms="6", job_id="1", systems_kafka_client_sasl_password="b")

    service.submit(a_submission(config=world.config, cause="submit-2"))

    entries = [entry for entry in history(world.log().read(), topic="t") if entry.headers.cause == "submit-2"]
    assert [
        ("ConfigChanged", "config/task.hang.timeout.ms", "value 5 -> 6"),
        ("ConfigRemoved", "config/job.debounce.time.ms", "removed (was 7)"),
        ("ConfigSet", "config/job.id", "config_key=job.id value=1"),
    ] == sorted((entry.event, entry.key, change_text(entry)) for entry in entries)


def test_a_recreated_topic_is_refused_and_nothing_is_written():
    world = World()
    service = started(world)
    end = world.topic.end_offset

    for name in ("kafka.orders", "__samzapy-checkpoint-flights-1"):
        with pytest.raises(TopicIdentityError, match=r"deleted and made again.*new job\.id"):
            service.submit(a_submission(topic_ids={name: "another"}))

    assert world.topic.end_offset == end


def test_a_stream_of_another_job_is_refused():
    world = World()
    started(world)
    world.config = a_config(job_name="other")

    with pytest.raises(TopicPolicyError, match=r"job\.name=flights"):
        world.coordinator("b").become_leader()


def test_a_candidate_that_reads_an_unknown_schema_does_not_lead():
    world = World()
    started(world)
    log = world.log()
    log.take_over()
    value = b"\xc3\x01" + b"12345678"
    log.append_atomically([Write(key=b"epoch", value=value, headers=next_headers(log.read()))])
    candidate = world.coordinator("b")

    with pytest.raises(UnknownSchemaError):
        candidate.become_leader()

    assert not candidate.is_leader


def test_only_changed_settings_are_written_and_no_secrets():
    world = World(config=a_config(systems_kafka_client_sasl_password="canary", task_hang_timeout_ms="1"))
    service = started(world)
    end = world.topic.end_offset

    service.submit(a_submission(config=a_config(systems_kafka_client_sasl_password="other canary")))

    assert [type(record).__name__ for record in records(world)][-1] == "Removed"
    assert len(list(world.log().read(end))) == 1
    assert all(b"canary" not in (record.value or b"") for record in world.log().read())


def test_a_new_plan_replaces_the_records_of_the_old_one():
    world = World()
    service = started(world)
    handle(world, service, a_heartbeat())

    handle(world, service, a_heartbeat("e2", processor_id="1", pid=200))
    world.clock.advance(20_000)
    now_ms = world.clock.monotonic_ms()
    handle(
        world,
        service,
        a_heartbeat(received_ms=now_ms),
        a_heartbeat("e2", processor_id="1", pid=200, received_ms=now_ms),
    )

    state = service.status().state
    assert {generation for generation, _ in state.planned_tasks} == {2}
    assert ("0", "1") == state.generation.processor_ids
    assert state == folded(world)


def test_headers_have_the_term_and_a_gapless_sequence():
    world = World()
    handle(world, started(world), a_heartbeat())
    world.coordinator("b").become_leader()

    parsed = [parse_headers(record.headers) for record in world.log().read()]

    assert [header.seq for header in parsed] == list(range(len(parsed)))
    assert {header.term for header in parsed} == {1, 2}
    assert parsed[-1].term == 2


def test_headers_have_the_event_its_cause_and_its_actor():
    world = World()
    service = started(world)
    handle(world, service, a_heartbeat(state=STARTED))
    handle(world, service, a_heartbeat())
    handle(world, service, a_heartbeat(state=STOPPED))
    service.submit(a_submission(config=a_config(job_container_heartbeat_ms="500")))

    parsed = [parse_headers(record.headers) for record in world.log().read()]

    events = [header.event for header in parsed]
    assert ["TermStarted", "JobCreated", "FormatLevelSet"] == events[:3]
    assert ["ContainerStarted"] == [header.event for header in parsed if header.actor == "container e1"][:1]
    assert events.index("ContainerStarted") < events.index("TaskGranted") < events.index("ContainerBeganRunning")
    assert "ConfigSet" == events[-1]
    assert {"submit-1"} == {header.cause for header in parsed if header.actor == "operator"}


@pytest.mark.parametrize("committed", [True, False])
def test_an_append_of_unknown_outcome_ends_the_term_and_is_decided_again(committed):
    world = World()
    log = world.log()
    service = started(world, log=log)

    log.break_next_append(committed=committed)
    handle(world, service, a_heartbeat())

    state = service.status().state
    assert state.term.term == 2
    assert state.containers["e1"].phase is RUNNING
    assert len(owners(service)) == 4
    assert state == folded(world)


@pytest.mark.parametrize("committed", [True, False])
def test_a_submission_of_unknown_outcome_that_expects_a_generation_is_no_refusal(committed):
    world = World()
    log = world.log()
    service = started(world, log=log)
    handle(world, service, a_heartbeat())
    handle(world, service, a_heartbeat(state=ContainerPhase.STOPPED))
    generation = service.status().state.generation_number
    changed = a_submission(config=a_config(task_partition_scheme="group-by-partition"))

    log.break_next_append(committed=committed)
    service.submit(replace(changed, expected_generation=generation))

    state = service.status().state
    assert ("group-by-partition", generation + 1) == (state.config["task.partition.scheme"], state.generation_number)
    assert state == folded(world)


def test_a_leader_that_timed_out_leads_again():
    world = World()
    service = started(world)
    world.log().take_over()

    handle(world, service, a_heartbeat())

    assert service.status().state.term.term == 2
    assert service.is_leader


def test_a_replaced_leader_steps_down_and_answers_no_heartbeat():
    world = World()
    old = started(world)
    new = world.coordinator("b", pid=2)
    new.become_leader()
    end = world.topic.end_offset
    assert old.status().may_answer(world.clock.monotonic_ms(), 10_000)

    with pytest.raises(FencedError, match="term 2 of b"):
        handle(world, old, a_heartbeat())

    assert not old.is_leader
    assert not old.status().may_answer(world.clock.monotonic_ms(), 10_000)
    assert world.topic.end_offset == end
    new.run_once(0)
    assert new.is_leader


def test_a_replaced_leader_notices_without_a_write_of_its_own():
    world = World()
    old = started(world)
    world.coordinator("b", pid=2).become_leader()
    world.clock.advance(1_000)

    with pytest.raises(FencedError):
        old.run_once(0)


def test_a_topic_that_is_missing_is_trouble_of_the_round_however_long_the_round_takes():
    world = World()
    world.absent = {"orders"}
    service = started(world)
    read = world.read

    def slow_from_here(ssps, changelogs=()):
        monotonic_ms = world.clock.monotonic_ms

        def later():
            world.clock.advance(3_000)
            return monotonic_ms()

        world.clock.monotonic_ms = later
        return read(ssps, changelogs)

    world.read = slow_from_here
    handle(world, service, a_heartbeat())

    assert "kafka.orders.0, which is not there" in service._performer.trouble


def committed_under(world, epoch):
    """A container has committed under a grant of this epoch."""
    ssp_kb = an_ssp_kb("kafka.orders.0:0/1")
    world.checkpoints[ssp_kb] = Checkpoint(
        ssp_kb=ssp_kb, offset_next=42, epoch=epoch, task_name=TASK_0, execution_id="e1"
    )


def test_a_leader_that_meets_positions_of_its_successor_steps_down():
    world = World()
    old = started(world)
    read = world.read

    def succeeded_while_reading(ssps, changelogs=()):
        world.read = read
        successor = succeeds(world)
        handle(world, successor, a_heartbeat())
        committed_under(world, max(epoch for _, epoch in owners(successor).values()))
        return read(ssps, changelogs)

    world.read = succeeded_while_reading

    with pytest.raises(FencedError, match="term 2 of b"):
        handle(world, old, a_heartbeat())

    assert not old.is_leader


def test_a_stream_that_lacks_the_grant_of_a_position_is_refused():
    world = World()
    service = started(world)
    committed_under(world, 99)

    with pytest.raises(TruncatedTopicError, match="the grant of epoch 99"):
        handle(world, service, a_heartbeat())


def test_a_leader_takes_over_from_a_newer_term_whose_process_is_gone():
    world = World()
    old = started(world)
    world.coordinator("b", pid=2).become_leader()
    world.alive = {2: False}

    handle(world, old, a_heartbeat())

    assert old.status().state.term.term == 3


def test_a_leader_that_is_replaced_during_a_failed_append_steps_down():
    world = World()
    log = world.log()
    old, new = started(world, log=log), world.coordinator("b", pid=2)
    append = log.append_atomically

    def breaks_meanwhile(writes):
        log.break_next_append(committed=True)
        try:
            return append(writes)
        finally:
            log.append_atomically = append
            new.become_leader()

    log.append_atomically = breaks_meanwhile

    with pytest.raises(FencedError, match="term 2 of b"):
        handle(world, old, a_heartbeat())
    assert folded(world).term.coordinator_id == "b"


def test_one_round_fences_lost_executions_and_serves_the_others():
    world = World()
    service = of_two_processors_the_second_stopped(world)
    world.alive = {100: False}
    world.clock.advance(1_000)

    handle(world, service, a_heartbeat("e2", pid=200), a_heartbeat("e3", pid=300, processor_id="1"))

    assert {owner for owner, _ in owners(service).values()} == {"e2", "e3"}


def test_a_paused_leader_answers_only_after_it_has_read_its_log_again():
    world = World()
    service = started(world)
    world.clock.advance(60_000)

    assert not service.status().may_answer(world.clock.monotonic_ms(), 10_000)
    service.run_once(0)
    assert service.status().may_answer(world.clock.monotonic_ms(), 10_000)


def test_a_short_lease_is_renewed_in_time():
    world = World(config=a_config(job_container_lease_ms="400", job_container_heartbeat_ms="100"))
    service = started(world)

    for _ in range(20):
        world.clock.advance(100)
        service.run_once(0)
        assert service.status().may_answer(world.clock.monotonic_ms() + 200, 400)


# --- a configuration that changed ---

CHANGED = {"job_container_heartbeat_ms": "500"}


def succeeds(world, name="b", pid=2):
    successor = world.coordinator(name, pid=pid)
    successor.become_leader()
    return successor


def config_of(service):
    return service.status().state.config.get("job.container.heartbeat.ms")


def test_a_changed_configuration_applies_when_the_old_process_of_this_host_is_gone():
    world = World()
    handle(world, started(world), a_heartbeat())
    world.alive = {100: False}
    successor = succeeds(world)

    successor.submit(a_submission(config=a_config(**CHANGED)))

    assert config_of(successor) == "500"


def test_a_changed_configuration_is_rejected_by_a_heartbeat_under_the_old_one():
    world = World()
    handle(world, started(world), a_heartbeat())
    successor = succeeds(world)
    successor.submit(a_submission(config=a_config(**CHANGED)))
    successor.run_once(0)

    with pytest.raises(RejectedError, match=r"job\.container\.heartbeat\.ms=500 instead of \(not set\)"):
        handle(world, successor, a_heartbeat(received_ms=world.clock.monotonic_ms()))
    assert folded(world).config.get("job.container.heartbeat.ms") is None


def test_a_changed_configuration_waits_for_silent_containers_without_new_grants():
    world = World()
    first = started(world)
    handle(world, first, a_heartbeat(), a_heartbeat("e9", pid=900, processor_id="1"))
    handle(world, first, a_heartbeat("e9", pid=900, processor_id="1", state=STOPPED))
    successor = succeeds(world)
    successor.submit(a_submission(config=a_config(**CHANGED)))

    own = a_heartbeat("e3", pid=2, boot_id="boot-a", processor_id="1")
    own = replace(own, process_started_ms=1, received_ms=world.clock.monotonic_ms())
    handle(world, successor, own)
    assert config_of(successor) is None
    assert "e3" not in {owner for owner, _ in owners(successor).values()}

    look_for(world, successor, 20_000, meanwhile=[own])
    successor.run_once(0)
    assert config_of(successor) == "500"
    assert "e3" in {owner for owner, _ in owners(successor).values()}


class GapLog:
    """Let the old coordinator commit one more record after the new one's first step."""

    def __init__(self, log, predecessor):
        self._log, self._predecessor, self._steps = log, predecessor, 0

    def take_over(self):
        self._log.take_over()
        self._between()

    def read(self, offset_from=0):
        records = list(self._log.read(offset_from))
        self._between()
        return iter(records)

    def append_atomically(self, writes):
        return self._log.append_atomically(writes)

    def end_offset(self):
        return self._log.end_offset()

    def _between(self):
        self._steps += 1
        if self._steps == 1:
            self._predecessor()


class ReplaysBeforeItFences(CoordinatorService):
    """The mutant of law L4: reads first, then takes over."""

    def become_leader(self):
        stale = list(self._stream.log.read())
        self._stream.log.take_over()
        log, self._stream.log = self._stream.log, _Replayed(stale, self._stream.log)
        try:
            super().become_leader()
        finally:
            self._stream.log = log


class _Replayed:
    def __init__(self, stale, log):
        self._stale, self._log = stale, log

    def take_over(self):
        pass

    def read(self, offset_from=0):
        return iter(self._stale)

    def append_atomically(self, writes):
        return self._log.append_atomically(writes)

    def end_offset(self):
        return self._log.end_offset()


def succeeds_in_the_gap(service_type):
    """Whether a successor knows the commits of its predecessor during the take-over."""
    world = World()
    old = started(world)

    def append_another_record():
        try:
            old._append_decisions([a_heartbeat()])
        except FencedError:
            return

    new = world.coordinator("b", pid=2, log=GapLog(world.log(), append_another_record), service=service_type)
    new.become_leader()
    return new.status().state == folded(world)


def test_l4_a_successor_knows_everything_its_predecessor_committed():
    assert succeeds_in_the_gap(CoordinatorService)


def test_l4_the_mutant_that_replays_before_it_fences_misses_a_record():
    assert not succeeds_in_the_gap(ReplaysBeforeItFences)


def granted_starts(service):
    newest = service.status().state.grants_sorted[-4:]
    return [start.offset_next for grant in newest for start in grant.starts]


@pytest.mark.parametrize(("reset", "starts"), [("true", [0, 0, 0, 0]), ("false", [30, 0, 0, 0])])
def test_only_a_new_run_begins_a_reset_stream_again(reset, starts):
    world = World(config=a_config(systems_kafka_streams_orders_samza_reset_offset=reset))
    service = started(world)
    handle(world, service, a_heartbeat())
    state = service.status().state
    epoch = next(grant.epoch for grant in state.grants_sorted if grant.task_name.endswith("orders.0"))
    world.checkpoints[an_ssp_kb()] = Checkpoint(
        ssp_kb=an_ssp_kb(), offset_next=30, epoch=epoch, task_name="t", execution_id="e1"
    )

    # A crash continues the run.
    world.alive[100] = False
    world.clock.advance(1_000)
    handle(world, service, a_heartbeat("e2", pid=200))
    assert [30, 0, 0, 0] == granted_starts(service)
    # All stop, and one comes back.
    handle(world, service, a_heartbeat("e2", pid=200, state=STOPPED))
    handle(world, service, a_heartbeat("e3", pid=300))

    assert {"e3"} == {owner for owner, _ in owners(service).values()}
    assert starts == granted_starts(service)


def ends(service):
    return {str(ssp): (end.run_id, end.offset_end) for ssp, end in service.status().state.input_ends.items()}


def test_the_end_of_a_bounded_input_is_recorded_once_per_run():
    world = World(config=a_config(systems_kafka_samza_offset_end="head"))
    service = started(world)
    handle(world, service, a_heartbeat())
    run_id = service.status().state.run.run_id
    assert {f"kafka.orders.{partition}": (run_id, 100) for partition in range(4)} == ends(service)

    # It grows, and the container crashes: the same run, the same end.
    world.bounds.update({an_ssp(f"kafka.orders.{partition}"): Bounds(0, 200) for partition in range(4)})
    world.alive[100] = False
    world.clock.advance(1_000)
    handle(world, service, a_heartbeat("e2", pid=200))
    assert {"e2"} == {owner for owner, _ in owners(service).values()}
    assert {(run_id, 100)} == set(ends(service).values())

    handle(world, service, a_heartbeat("e2", pid=200, state=STOPPED))
    handle(world, service, a_heartbeat("e3", pid=300))
    assert {(service.status().state.run.run_id, 200)} == set(ends(service).values())


def test_an_unbounded_stream_has_no_recorded_end():
    world = World(config=a_config(systems_kafka_streams_orders_samza_offset_default="oldest"))
    service = started(world)
    handle(world, service, a_heartbeat())

    assert {} == ends(service)


# --- a new run of a bounded job ---

STATEFUL_AND_BOUNDED = {
    "systems_kafka_samza_offset_end": "head",
    "stores_sums_msg_serde": "json",
    "local_store_dir": "/data",
}
TASK_0 = "SystemStreamPartition_kafka.orders.0"


def newest(service, task=TASK_0):
    return next(grant for grant in reversed(service.status().state.grants_sorted) if grant.task_name == task)


def after_a_run(world):
    """A job whose only container stopped: orders.0 read to 30, changelog to 7."""
    service = started(world)
    handle(world, service, a_heartbeat())
    first = newest(service)
    assert (0, ()) == (first.counts_after, first.changelog_starts)
    world.checkpoints[an_ssp_kb()] = Checkpoint(
        ssp_kb=an_ssp_kb(), offset_next=30, epoch=first.epoch, task_name=TASK_0, execution_id="e1"
    )
    changelog_ends_at(world, 7)
    handle(world, service, a_heartbeat(state=STOPPED))
    return service


def changelog_ends_at(world, offset):
    world.changelog_ends.update({("sums", partition): offset + partition for partition in range(4)})


def begins(grant):
    return [(start.store, start.offset) for start in grant.changelog_starts]


def test_a_new_run_of_a_bounded_job_ignores_positions_and_state_of_the_last_run():
    world = World(config=a_config(**STATEFUL_AND_BOUNDED))
    service = after_a_run(world)
    epoch_before = service.status().state.epoch

    handle(world, service, a_heartbeat("e2", pid=200))

    assert [0, 0, 0, 0] == granted_starts(service)
    grants = [newest(service, f"{TASK_0[:-1]}{partition}") for partition in range(4)]
    assert [epoch_before] * 4 == [grant.counts_after for grant in grants]
    assert [[("sums", 7)], [("sums", 8)], [("sums", 9)], [("sums", 10)]] == [begins(grant) for grant in grants]


def test_the_first_grant_of_a_run_fixes_the_start_of_its_changelog():
    world = World(config=a_config(**STATEFUL_AND_BOUNDED))
    service = after_a_run(world)
    handle(world, service, a_heartbeat("e2", pid=200))
    first = newest(service)
    world.checkpoints[an_ssp_kb()] = Checkpoint(
        ssp_kb=an_ssp_kb(), offset_next=12, epoch=first.epoch, task_name=TASK_0, execution_id="e2"
    )

    changelog_ends_at(world, 50)
    world.alive[200] = False
    successor = succeeds(world)
    world.clock.advance(1_000)
    handle(world, successor, a_heartbeat("e3", pid=300))

    assert ("e3", 12) == (newest(successor).execution_id, newest(successor).starts[0].offset_next)
    assert (first.counts_after, [("sums", 7)]) == (newest(successor).counts_after, begins(newest(successor)))


def test_a_store_added_during_a_run_begins_at_the_end_of_its_changelog():
    world = World(config=a_config(**STATEFUL_AND_BOUNDED))
    service = after_a_run(world)
    handle(world, service, a_heartbeat("e2", pid=200))

    world.alive[200] = False
    world.clock.advance(1_000)
    service.run_once(0)
    world.config = a_config(**STATEFUL_AND_BOUNDED, stores_more_msg_serde="json")
    world.changelog_ends.update({("more", partition): 3 for partition in range(4)})
    changelog_ends_at(world, 50)
    service.submit(a_submission(config=world.config))
    handle(world, service, a_heartbeat("e3", pid=300))

    assert [("more", 3), ("sums", 7)] == begins(newest(service))


def test_an_unbounded_run_continues_the_bounded_run_before_it_and_no_earlier_one():
    world = World(config=a_config(**STATEFUL_AND_BOUNDED))
    service = after_a_run(world)
    handle(world, service, a_heartbeat("e2", pid=200))
    bounded = newest(service)
    world.checkpoints[an_ssp_kb()] = Checkpoint(
        ssp_kb=an_ssp_kb(), offset_next=12, epoch=bounded.epoch, task_name=TASK_0, execution_id="e2"
    )
    handle(world, service, a_heartbeat("e2", pid=200, state=STOPPED))

    world.config = a_config(stores_sums_msg_serde="json", local_store_dir="/data")
    service.submit(a_submission(config=world.config))
    handle(world, service, a_heartbeat("e3", pid=300))

    assert [12, 0, 0, 0] == granted_starts(service)
    assert (bounded.counts_after, [("sums", 7)]) == (newest(service).counts_after, begins(newest(service)))


@pytest.mark.parametrize("settings", [{}, {"systems_kafka_streams_orders_samza_reset_offset": "true"}])
def test_a_new_run_of_an_unbounded_job_keeps_its_state(settings):
    world = World(config=a_config(stores_sums_msg_serde="json", local_store_dir="/data", **settings))
    service = after_a_run(world)

    handle(world, service, a_heartbeat("e2", pid=200))

    assert (0, []) == (newest(service).counts_after, begins(newest(service)))
