"""A job that was scaled to 4 and back goes back to release 0.1.0, or is refused."""

from dataclasses import replace

import pytest

from samzapy.coordinator.assignment.starts import PositionsRead
from samzapy.coordinator.lifecycle.downgrade import (
    CAUSE,
    HURRIED,
    Downgrade,
    difference,
    hosts_with_state,
    look,
    refusals,
    settings_before,
    settings_without,
)
from samzapy.coordinator.replay import replay
from samzapy.coordinator.state import evolve, uncommitted
from samzapy.errors import ProducerError
from samzapy.inspection.invariants import Invariants
from samzapy.model.container import ContainerPhase
from samzapy.model.grant import BucketStart, ChangelogStart
from samzapy.model.placement import Action, StatusCode
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.startpoint import Startpoint
from samzapy.model.topics import coordinator_spec
from samzapy.stream.codec import decode, parse_headers
from samzapy.stream.examination import faults_of_coordinator_stream
from samzapy.stream.horizon import offset_after_downgrade
from samzapy.stream.log import Write
from samzapy.stream.records import (
    ConfigPut,
    ContainerCountPut,
    ContainerPut,
    Expansion,
    FactorPut,
    FormatLevelPut,
    GrantPut,
    OwnTopicPut,
    RequestPut,
    RunPut,
    StartpointPut,
)
from samzapy.stream.release_0_1_0 import FINGERPRINTS, SCHEMAS, can_read, first_unread
from samzapy.testing.builders import a_config, a_heartbeat, a_submission, an_ssp, an_ssp_kb
from samzapy.testing.memory_log import MemoryLog
from samzapy.testing.memory_placement import read_inbox
from unit_tests.fixtures.coordinator_world import World
from unit_tests.fixtures.downgraded_job import a_term, given_back, positions_read
from unit_tests.fixtures.golden_rows import PARTITIONS, TASKS, golden_rows, log_of, next_headers
from unit_tests.fixtures.operated_job import an_id
from unit_tests.fixtures.scaled_back_job import SETTINGS, CommittingJob, left_by, stopped_job

ROWS = golden_rows("downgraded_0_1_0")
BEFORE = golden_rows("scaled_1_4_1")


def state_of(rows):
    return replay(log_of(rows, "coordinator"), topic="t").state


def read_of(rows):
    checkpoints = [decode(record, topic="t").checkpoint for record in log_of(rows, "checkpoint")]
    return PositionsRead(
        checkpoints={checkpoint.ssp_kb: checkpoint for checkpoint in checkpoints}, progress={}, bounds={}
    )


def a_writer(job):
    log = job.world.log()
    log.take_over()
    looked = look(log.read(), "t")
    return log, Downgrade(log, looked, a_term(looked.known.state))


# --- results ---


def test_a_downgrade_writes_the_golden_file():
    assert ROWS == list(left_by(given_back(stopped_job(is_scaled=True))))


def test_release_0_1_0_reads_every_record_of_it():
    theirs = {
        decode(record, topic="t").fingerprint
        for record in log_of(golden_rows("release_0_1_0"), "coordinator")
        if record.key.startswith(b"schema/")
    }
    used = {row["value"][4:20] for row in ROWS}

    assert used <= theirs
    assert first_unread(log_of(ROWS, "coordinator")) is None
    assert all(map(can_read, log_of(ROWS, "checkpoint")))
    assert first_unread(log_of(BEFORE, "coordinator")) is not None


def test_a_downgrade_keeps_the_state_of_the_job_without_passed_floors():
    before, after = state_of(BEFORE), state_of(ROWS)

    def without_floors(grant):
        return replace(grant, starts=tuple(replace(start, floors=()) for start in grant.starts))

    assert [without_floors(grant) for grant in before.grants_sorted] == list(after.grants_sorted)
    assert any(start.floors for grant in before.grants_sorted for start in grant.starts)
    for part in (
        "plan",
        "config",
        "inputs",
        "own_topics",
        "changelog_partitions",
        "epoch",
        "containers",
        "localities",
    ):
        assert getattr(before, part) == getattr(after, part), part
    # 0.1.0 does not name the members: each had tasks.
    assert replace(before.generation, processor_ids=()) == after.generation
    assert before.term.term + 1 == after.term.term


def test_the_checkpoint_topic_is_left_alone():
    assert [row for row in BEFORE if row["topic"] == "checkpoint"] == [
        row for row in ROWS if row["topic"] == "checkpoint"
    ]


def test_the_schemas_on_the_stream_are_those_of_release_0_1_0():
    job = given_back(stopped_job(is_scaled=True))

    state = replay(job.world.log().read(), topic="t").state

    assert state.schemas.keys() == FINGERPRINTS
    assert len(SCHEMAS) == len(state.schemas)


def test_a_second_downgrade_writes_nothing():
    job = given_back(stopped_job(is_scaled=True))

    assert () == difference(look(job.world.log().read(), "t"))


def test_all_records_of_a_downgrade_name_it_and_continue_the_numbering():
    job = stopped_job(is_scaled=True)
    before = list(job.world.log().read())
    _, writer = a_writer(job)

    writer.append()
    writer.roll()

    written = list(job.world.log().read())[len(before) :]
    parsed = [parse_headers(record.headers) for record in written]
    seq_first = 1 + max(parse_headers(record.headers).seq for record in before)
    assert {CAUSE} == {headers.cause for headers in parsed}
    assert list(range(seq_first, seq_first + len(parsed))) == [headers.seq for headers in parsed]
    assert (b"term", b"run", b"term") == (written[0].key, written[1].key, written[-1].key)
    assert written[-1].offset + 1 == offset_after_downgrade([*before, *written])


def test_an_audit_of_the_downgraded_stream_finds_no_fault():
    """The topic's settings promise that no record younger than a week was removed."""
    job = given_back(stopped_job(is_scaled=True))
    records = list(job.world.log().read())

    def faults(whole_from):
        return [
            fault.code
            for fault in faults_of_coordinator_stream(
                records, topic=job.world.topic.name, whole_from=whole_from, check=Invariants().check
            )
        ]

    assert [] == faults(offset_after_downgrade(records))
    assert "stream-gap" in faults(0)


# --- the next run ---


def start_next_run(job):
    """The grants of this release's next run on the same topics, with both processors."""
    world = World(config=a_config(**SETTINGS), topic=job.world.topic, placement=job.world.placement)
    world.checkpoints = dict(positions_read(job).checkpoints)
    service = world.coordinator("next")
    service.become_leader()
    service.submit(a_submission(config=world.config, partition_counts={"kafka.orders": 2}))
    for number in (0, 1):
        world.queue.append(a_heartbeat(f"n{number}", processor_id=str(number), pid=200 + number))
    service.run_once(0)
    return world, service


def check_the_job_continues(service):
    state = service.status().state
    assert (1, 1) == (state.generation.factor, 1 if state.factor is None else state.factor.factor)
    assert [("n0", TASKS[0], 30, ()), ("n1", TASKS[1], 30, ())] == [
        (grant.execution_id, grant.task_name, start.offset_next, start.floors)
        for grant in state.grants_sorted
        if grant.execution_id in ("n0", "n1")
        for start in grant.starts
    ]


def count_of_writes():
    job = stopped_job(is_scaled=True)
    log, writer = a_writer(job)
    end = log.end_offset()
    writer.append()
    return log.end_offset() - end - 1


@pytest.mark.parametrize("survivors", range(1, count_of_writes() + 1))
@pytest.mark.parametrize("is_compacted", [False, True])
def test_this_release_continues_wherever_the_downgrade_was_interrupted(survivors, is_compacted):
    job = stopped_job(is_scaled=True)
    log, writer = a_writer(job)
    log.tear_next_append(survivors)
    with pytest.raises(ProducerError):
        writer.append()
    if is_compacted:
        job.world.topic.compact(tombstones_until=log.end_offset())

    _, service = start_next_run(job)

    check_the_job_continues(service)


@pytest.mark.parametrize("survivors", range(1, count_of_writes() + 1))
def test_a_torn_writing_is_completed(survivors):
    job = stopped_job(is_scaled=True)
    log, writer = a_writer(job)
    log.tear_next_append(survivors)
    with pytest.raises(ProducerError):
        writer.append()

    given_back(job)

    assert first_unread(job.world.log().read()) is None
    # But for the number of the term, which is given out once.
    assert [row for row in ROWS if row["key"] != "term"] == [
        row for row in sorted_as(left_by(job)) if row["key"] != "term"
    ]


def sorted_as(rows):
    place = {(row["topic"], row["key"]): number for number, row in enumerate(ROWS)}
    return sorted(rows, key=lambda row: place[row["topic"], row["key"]])


def test_earlier_requests_are_not_done_again():
    job = given_back(stopped_job(is_scaled=True))

    world, service = start_next_run(job)
    world.queue.append(read_inbox(job.world.placement, 0, world.clock.wall_ms()))
    service.run_once(0)

    check_the_job_continues(service)
    state = service.status().state
    requests = [*state.requests.values(), *state.request_memory.values()]
    assert {an_id(1), an_id(2)} == {request.uuid for request in requests}
    assert {StatusCode.BAD_REQUEST} == {request.status_code for request in requests}


# --- refusals ---


def a_request(status_code):
    return RequestPut(
        uuid=an_id(9),
        offset=0,
        place="samzapy-control-v1.text.json",
        action=Action.RESTART_QUERY,
        deployment_id="r",
        processor_id="0",
        destination_host="",
        request_expiry_ms=0,
        timestamp_ms=1,
        run_id="r",
        status_code=status_code,
        response_message="",
        accepted_at_ms=1,
        decided_at_ms=1,
    )


def changed_grant(state, **changes):
    return GrantPut(grant=replace(state.grants_sorted[0], **changes))


def changed_input(state, **changes):
    (put,) = state.inputs.values()
    return replace(put, **changes)


REFUSED = {
    "is recorded as RUNNING": lambda state: ContainerPut(
        container=replace(state.containers["e0"], phase=ContainerPhase.RUNNING)
    ),
    "not fenced yet": lambda state: ContainerPut(
        container=replace(state.containers["e0"], phase=ContainerPhase.LOST)
    ),
    "its coordinator starts its containers": lambda state: ContainerCountPut(count=2),
    "its factor is 4": lambda state: FactorPut(factor=4),
    "its factor is 2": lambda state: replace(state.generation, factor=2),
    "not all passed": lambda state: changed_grant(
        state, starts=(BucketStart(ssp_kb=an_ssp_kb("kafka.orders.0:1/4"), offset_next=0),)
    ),
    "task.partition.scheme=cogroup": lambda state: ConfigPut(config_key="task.partition.scheme", value="cogroup"),
    "stores.seen.scope=task": lambda state: ConfigPut(config_key="stores.seen.scope", value="task"),
    **{
        f"stores.{store}.kind={kind}": lambda state, store=store, kind=kind: ConfigPut(
            config_key=f"stores.{store}.kind", value=kind
        )
        for store, kind in (("_timers", "timer"), ("_clocks", "clock"), ("_window", "window"), ("seen", "map"))
    },
    "task.broadcast.inputs=kafka.rules": lambda state: ConfigPut(
        config_key="task.broadcast.inputs", value="kafka.rules"
    ),
    "task.inputs.patterns=": lambda state: ConfigPut(config_key="task.inputs.patterns", value="kafka.~a.*"),
    "task.intermediate.x.partitions=2": lambda state: ConfigPut(
        config_key="task.intermediate.x.partitions", value="2"
    ),
    "samza.offset.end=newest": lambda state: ConfigPut(config_key="systems.kafka.samza.offset.end", value="newest"),
    "grouper.factory=a:B": lambda state: ConfigPut(
        config_key="job.systemstreampartition.grouper.factory", value="a:B"
    ),
    "planned by cogroup": lambda state: replace(state.generation, scheme="cogroup"),
    "a task for each partition": lambda state: replace(state.plan[0], ssp_kbs=PARTITIONS),
    "it reads broadcast inputs": lambda state: replace(state.plan[0], broadcast_ssps=(an_ssp("kafka.rules.0"),)),
    "which 0.1.0 does not have: SystemStreamPartition": lambda state: changed_grant(
        state, starts=(BucketStart(ssp_kb=SspKeyBucket(an_ssp("kafka.rules.0"), reader=TASKS[0]), offset_next=0),)
    ),
    "wants every input": lambda state: changed_input(state, gone_at_ms=1),
    "every input there ever was": lambda state: changed_input(state, epoch_before=1),
    "was, deleted": lambda state: changed_input(state, period=2),
    "partitions that are not read yet": lambda state: changed_input(
        state, expansions=(Expansion(partition_count=3, seen_at_ms=1),)
    ),
    "one for each partition of the inputs, 2": lambda state: OwnTopicPut(
        name="__samzapy-changelog-flights-1-seen", topic_id="id", partition_count=3
    ),
    "requests to it are not over": lambda state: a_request(StatusCode.IN_PROGRESS),
    "it was rewound": lambda state: StartpointPut(
        startpoint=Startpoint(ssp_kb=PARTITIONS[0], offset_next=5, epoch=99, uuid="u")
    ),
    "have begun anew": lambda state: RunPut(run_id="r", ended=True, counts_after=3),
    "would count what earlier ones left": lambda state: changed_grant(
        state, changelog_starts=(ChangelogStart(store="seen", offset=3),)
    ),
    "at format level 2": lambda state: FormatLevelPut(level=2),
}


def test_a_job_of_one_partition_for_each_task_is_not_refused():
    assert () == refusals(state_of(BEFORE), read_of(BEFORE))
    assert () == refusals(state_of(ROWS), read_of(ROWS))


@pytest.mark.parametrize("text", REFUSED)
def test_features_that_release_0_1_0_lacks_are_refused_with_a_named_reason(text):
    state = state_of(BEFORE)
    changed = evolve(state, uncommitted([REFUSED[text](state)]))

    refused = refusals(changed, read_of(BEFORE))

    assert 1 == len(refused)
    assert text in refused[0]


def test_floors_that_the_positions_have_not_passed_are_refused():
    job = CommittingJob()
    job.settles()
    job.commits(10)
    job.scale(1, 4)
    job.settles()
    job.commits(17, 20, 12, 15)
    job.scale(2, 1)
    job.settles()
    job.commits(19)  # Below the floor of part 1, which had come to 20.
    job.stops()

    (refused,) = refusals(job.state, positions_read(job))

    assert "kafka.orders.0:0/1 (factor 4)" in refused
    assert "factorFinest" in refused


def test_a_closed_request_does_not_prevent_a_downgrade():
    state = evolve(state_of(BEFORE), uncommitted([a_request(StatusCode.SUCCEEDED)]))

    assert () == refusals(state, read_of(BEFORE))


def test_a_startpoint_that_grants_have_taken_up_is_forgotten():
    startpoint = Startpoint(ssp_kb=PARTITIONS[0], offset_next=5, epoch=1, uuid="u")
    state = evolve(state_of(BEFORE), uncommitted([StartpointPut(startpoint=startpoint)]))

    assert () == refusals(state, read_of(BEFORE))


# --- headers, and the topic's settings ---


def test_settings_that_release_0_1_0_refuses_are_listed():
    state = evolve(
        state_of(BEFORE),
        uncommitted(
            [ConfigPut(config_key="job.elasticity.factor", value="4"), ConfigPut(config_key="job.id", value="1")]
        ),
    )

    assert ("job.elasticity.factor",) == settings_without(state)


def test_hosts_that_may_have_local_state_are_listed():
    assert ("host-a",) == hosts_with_state(state_of(BEFORE))
    assert ("host-a",) == hosts_with_state(state_of(ROWS))


def test_the_original_settings_are_restored():
    spec = coordinator_spec("flights-1")
    mine = {**spec.settings, "min.compaction.lag.ms": "99", "segment.ms": "7", "other": "x"}

    assert {
        "min.compaction.lag.ms": "99",
        "delete.retention.ms": spec.settings["delete.retention.ms"],
        "segment.ms": "7",
    } == settings_before(spec, mine)


def test_settings_left_by_a_killed_downgrade_are_not_restored():
    spec = coordinator_spec("flights-1")

    expected = {name: spec.settings[name] for name in ("min.compaction.lag.ms", "delete.retention.ms")}
    assert expected == settings_before(spec, HURRIED)
    assert expected == settings_before(spec, {})


def test_an_existing_tombstone_is_not_written_again_and_its_removal_is_awaited():
    job = given_back(stopped_job(is_scaled=True))
    log = MemoryLog(job.world.topic, "somebody")
    log.take_over()
    log.append_atomically([Write(key=b"factor", value=None, headers=next_headers(log.read()))])

    assert () == difference(look(log.read(), "t"))
    assert b"factor" == first_unread(log.read()).key
