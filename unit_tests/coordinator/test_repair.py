"""A leader undoes foreign records: readers know its state, compaction keeps it."""

import pytest

from samzapy.container.orders import Orders, read_on
from samzapy.coordinator import repair
from samzapy.coordinator import replay as replay_module
from samzapy.coordinator.assignment.grants import owners
from samzapy.coordinator.repair import lost_numbers, standing
from samzapy.coordinator.replay import replay
from samzapy.coordinator.state import INITIAL, Committed, evolve, records_of
from samzapy.errors import FencedError
from samzapy.inspection.invariants import Invariants
from samzapy.stream.audit import ForeignEntry, history
from samzapy.stream.codec import encode, parse_headers
from samzapy.stream.examination import examine_coordinator_stream
from samzapy.stream.keys import key_of
from samzapy.stream.log import Write
from samzapy.stream.numbering import VALUE_RESTORED
from samzapy.stream.records import CheckpointPut, EpochPut, ProgressPut, TermPut
from samzapy.testing.builders import a_heartbeat, a_submission
from samzapy.testing.memory_log import MemoryLog
from unit_tests.fixtures.coordinator_world import World
from unit_tests.fixtures.golden_rows import leaders_headers, next_headers
from unit_tests.fixtures.record_examples import EXAMPLES

TOPIC = "__samzapy-coordinator-flights-1"
COORDINATOR_RECORDS = [record for record in EXAMPLES if not isinstance(record, CheckpointPut | ProgressPut)]


@pytest.fixture
def world():
    return World()


@pytest.fixture
def leader(world):
    """It has a job whose tasks e1 runs, and nothing is left to be written."""
    service = world.coordinator()
    service.become_leader()
    service.submit(a_submission(config=world.config))
    rounds(world, service, 4, a_heartbeat("e1"))
    assert {"e1"} == {grant.execution_id for grant in owners(service.status().state).values()}
    return service


def rounds(world, service, count, *heartbeats):
    for _ in range(count):
        world.clock.advance(1_000)
        world.queue.extend(heartbeats)
        service.run_once(0)


def foreign(world, key, value, headers=None):
    stranger = MemoryLog(world.topic, "stranger")
    stranger.take_over()
    return stranger.append_atomically([Write(key=key, value=value, headers=headers or {})]) - 1


def records(world):
    return list(world.log().read())


def a_grant_key(service):
    return next(
        key_of(record).encode() for record in records_of(service.status().state) if "grant/" in key_of(record)
    )


def restored(world):
    """The keys that were written again."""
    parsed = [(record.key, parse_headers(record.headers)) for record in records(world)]
    return [key for key, headers in parsed if headers is not None and headers.event == VALUE_RESTORED]


@pytest.mark.parametrize("record", COORDINATOR_RECORDS, ids=lambda record: type(record).__name__)
def test_the_record_of_a_key_is_known_for_every_kind(record):
    state = evolve(INITIAL, [Committed(1, record)])

    assert record == standing(state, key_of(record).encode())
    assert standing(INITIAL, key_of(record).encode()) is None


@pytest.mark.parametrize(
    "key", [None, b"", b"\xff", b"weather/today", b"plan/01/task/t", b"checkpoint/kafka.a.0:0/1"]
)
def test_an_invalid_key_has_no_record(key):
    assert standing(evolve(INITIAL, [Committed(1, EpochPut(epoch=1))]), key) is None


@pytest.mark.parametrize("value", [None, b"junk", encode(EpochPut(epoch=9))[1]])
def test_a_foreign_record_of_a_living_grant_gives_no_second_owner_and_compaction_keeps_the_grant(
    world, leader, value
):
    key, before = a_grant_key(leader), leader.status().state
    foreign(world, key, value)

    rounds(world, leader, 3, a_heartbeat("e1"), a_heartbeat("e2", pid=200))

    state = leader.status().state
    assert before.grants == state.grants
    assert {"e1"} == {grant.execution_id for grant in owners(state).values()}
    assert [key] == restored(world)
    world.topic.compact()
    assert state == replay(records(world), topic=TOPIC).state
    assert before.grants == replay(records(world), topic=TOPIC).state.grants


def test_a_foreign_value_under_an_unused_key_gets_a_tombstone_so_that_compaction_removes_it(world, leader):
    unreadable = b"\xff\xfe"
    for key in (b"config/job.name.of.nobody", unreadable):
        foreign(world, key, b"junk")

    rounds(world, leader, 2)

    assert {b"config/job.name.of.nobody", unreadable} == set(restored(world))
    assert leader.status().state == replay(records(world), topic=TOPIC).state
    world.topic.compact()
    world.topic.compact(tombstones_until=world.topic.end_offset)
    assert not [record for record in records(world) if not record.headers]


@pytest.mark.parametrize("key", [b"grant/x/" + b"1" * 4301, b"plan/" + b"1" * 4301 + b"/task/x"])
def test_a_number_too_long_to_be_read_in_a_foreign_key_ends_no_leader(world, leader, key):
    foreign(world, key, b"x")

    rounds(world, leader, 2)

    assert [key] == restored(world)
    successor = world.coordinator()
    successor.become_leader()
    assert leader.status().state.grants == successor.status().state.grants


@pytest.mark.parametrize("key", [b"checkpoint/kafka.a.0:0/1", b"progress/kafka.a.0:0/1"])
@pytest.mark.parametrize("value", [None, b"junk"])
def test_a_foreign_record_under_the_key_of_a_position_is_left_there(world, leader, key, value):
    """All readers ignore what is under such a key, also a tombstone of the leader's."""
    before = leader.status().state
    foreign(world, key, value)
    end = world.topic.end_offset

    rounds(world, leader, 5)

    assert (end, before) == (world.topic.end_offset, leader.status().state)
    foreign(world, b"config/nobody", b"junk")
    rounds(world, leader, 2)
    assert [b"config/nobody"] == restored(world)
    assert before.term == leader.status().state.term


def test_each_value_is_written_again_once_and_so_many_in_a_round(world, leader, monkeypatch):
    monkeypatch.setattr(repair.restored, "__kwdefaults__", {"count_max": 2})
    key = a_grant_key(leader)
    for number in range(5):
        foreign(world, f"config/{number}".encode(), b"junk")
        foreign(world, key, b"junk")

    counts = []
    for _ in range(5):
        rounds(world, leader, 1)
        counts.append(len(restored(world)))

    assert [2, 4, 6, 6, 6] == counts
    # A record with headers of a leader comes first.
    assert key == restored(world)[0]


def test_a_flood_of_foreign_keys_is_bounded_and_replaced_values_are_restored(world, leader, monkeypatch):
    monkeypatch.setattr(replay_module, "FOREIGN_KEPT_MAX", 5)
    key = a_grant_key(leader)
    foreign(world, key, None)
    for number in range(50):
        foreign(world, f"config/{number}".encode(), b"junk")

    rounds(world, leader, 3)

    assert 5 == len(restored(world))
    assert key == restored(world)[0]
    assert leader.status().state == replay(records(world), topic=TOPIC).state


def test_foreign_records_show_in_status_and_history_and_do_not_stop_the_job(world, leader):
    offset = foreign(world, b"epoch", b"\xc3\x01random")

    rounds(world, leader, 2, a_heartbeat("e1"))

    (finding,) = leader.status().findings
    assert "record-unreadable" == finding.code
    assert f"{TOPIC}-0 at offset {offset}, key 'epoch'" in finding.found
    assert "13 bytes, sha256 " in finding.found
    assert leader.is_leader
    (entry,) = [entry for entry in history(records(world), topic=TOPIC) if isinstance(entry, ForeignEntry)]
    assert offset == entry.offset
    findings = examine_coordinator_stream(records(world), topic=TOPIC, whole_from=0, check=Invariants().check)
    assert ["record-unreadable"] == [finding.code for finding in findings]


def test_a_new_leader_restores_values_that_were_replaced_without_a_leader(world, leader):
    state = leader.status().state
    key = a_grant_key(leader)
    leader.step_down()
    foreign(world, key, None)

    service = world.coordinator("b")
    service.become_leader()
    rounds(world, service, 1)

    assert state.grants == service.status().state.grants
    assert [key] == restored(world)


def forged(world, key, value):
    """A record that is exactly the leader's next one, by its headers."""
    return foreign(world, key, value, next_headers(records(world)))


def follower(world):
    return read_on(Orders(execution_id="e1"), world.log().read(), world.topic.end_offset, topic=TOPIC)


def test_a_record_with_forged_headers_misleads_readers_until_the_leader_begins_another_term(world, leader):
    before, key = leader.status().state, a_grant_key(leader)
    own = follower(world).own_grants()
    forged(world, key, None)
    assert own[1:] == follower(world).own_grants()

    # The leader writes on before it looks, and readers do not take that.
    world.queue.append(a_heartbeat("e5", pid=500, processor_id="5"))
    leader.run_once(0)
    assert "e5" not in follower(world).containers
    rounds(world, leader, 2, a_heartbeat("e1"))

    state = leader.status().state
    assert before.term.term + 1 == state.term.term
    assert before.grants == state.grants
    assert own == follower(world).own_grants()
    assert "e5" in follower(world).containers
    world.topic.compact()
    assert state == replay(records(world), topic=TOPIC).state
    assert leader.is_leader


def test_a_forged_term_deposes_no_leader(world, leader):
    term = leader.status().state.term
    other = TermPut(
        term=term.term + 1,
        coordinator_id="nobody",
        host="elsewhere",
        boot_id="b",
        pid=1,
        process_started_ms=1,
        url="http://elsewhere:1",
        started_at_ms=1,
    )
    seq = replay(records(world), topic=TOPIC).seq_next
    key, value = encode(other)
    foreign(world, key, value, dict(leaders_headers(seq, term.term + 1)))

    rounds(world, leader, 2, a_heartbeat("e1"))

    assert leader.is_leader
    state = leader.status().state
    assert (term.term + 2, term.url) == (state.term.term, state.term.url)
    assert state.term == follower(world).term


def test_a_successor_that_has_started_a_term_ends_that_of_the_leader(world, leader):
    successor = world.coordinator("b", pid=77)
    world.alive[77] = True
    successor.become_leader()

    with pytest.raises(FencedError):
        rounds(world, leader, 2)

    assert successor.is_leader
    assert not leader.is_leader


def test_a_copy_of_the_whole_stream_changes_nothing(world, leader):
    state = leader.status().state
    stranger = MemoryLog(world.topic, "mirror")
    stranger.take_over()
    writes = [Write(key=record.key, value=record.value, headers=dict(record.headers)) for record in records(world)]
    stranger.append_atomically(writes)

    assert state == replay(records(world), topic=TOPIC).state
    rounds(world, leader, 2, a_heartbeat("e1"))

    assert state.grants == leader.status().state.grants
    assert state.term.term == leader.status().state.term.term
    world.topic.compact()
    assert leader.status().state == replay(records(world), topic=TOPIC).state


def test_numbers_that_compaction_lost_to_a_foreign_record_are_not_given_out_again(world, leader):
    epoch = leader.status().state.epoch
    leader.step_down()
    for key in (b"epoch", b"term"):
        foreign(world, key, b"junk")
    term = leader.status().state.term.term
    world.topic.compact()

    service = world.coordinator("b")
    service.become_leader()

    state = service.status().state
    assert (epoch, term + 1) == (state.epoch, state.term.term)
    assert () == lost_numbers(state)
