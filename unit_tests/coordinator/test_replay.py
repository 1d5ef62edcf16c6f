"""From bytes to state: a leader's records are folded or stop the reader.

Other records change nothing.
"""

import pytest

from samzapy.coordinator import replay as replay_module
from samzapy.coordinator.repair import standing
from samzapy.coordinator.replay import NOTHING, check_whole, replay, with_foreign
from samzapy.coordinator.state import INITIAL, Committed, evolve
from samzapy.errors import CorruptRecordError, UnknownSchemaError
from samzapy.model.checkpoint import Checkpoint
from samzapy.stream.codec import encode, headers
from samzapy.stream.log import LogRecord
from samzapy.stream.records import CheckpointPut, ConfigPut, EpochPut, GenerationPut, Removed
from samzapy.testing.builders import an_ssp_kb


def at(offset, record, seq=None, term=1):
    """A leader's record; the number is the offset, unless it is another one."""
    key, value = encode(record)
    record_headers = headers(term=term, seq=offset if seq is None else seq, event="e", cause="c", actor="a")
    return LogRecord(offset=offset, timestamp_ms=0, key=key, value=value, headers=tuple(record_headers.items()))


def foreign(offset, key, value):
    return LogRecord(offset=offset, timestamp_ms=0, key=key, value=value)


def test_records_are_folded_at_their_offsets():
    replayed = replay(
        [
            at(3, EpochPut(epoch=7)),
            at(9, GenerationPut(generation=1, factor=1, task_count=0, scheme="max", processor_ids=())),
        ],
        topic="t",
    )

    assert (7, 9, 10) == (replayed.state.epoch, replayed.state.generation_offset, replayed.state.offset_next)


def test_the_sequence_continues_after_the_highest_remaining_number():
    assert 6 == replay([at(5, EpochPut(epoch=1)), foreign(6, b"epoch", None)], topic="t").seq_next
    assert 0 == replay([], topic="t").seq_next


def test_a_tail_is_folded_into_the_state_before_it():
    before = replay([at(0, EpochPut(epoch=7), seq=4)], topic="t")

    replayed = replay([at(1, Removed(key="epoch"), seq=5)], topic="t", before=before)

    assert (0, 6) == (replayed.state.epoch, replayed.seq_next)
    assert INITIAL == replayed.state
    assert NOTHING == replay([], topic="t")


def test_a_long_stream_is_folded_in_bounded_memory(monkeypatch):
    monkeypatch.setattr(replay_module, "BATCH_RECORDS", 3)
    records = [at(offset, ConfigPut(config_key=f"key-{offset % 4}", value=str(offset))) for offset in range(11)]
    folded = []
    monkeypatch.setattr(
        replay_module, "evolve", lambda state, batch: folded.append(len(batch)) or evolve(state, batch)
    )

    replayed = replay(records, topic="t")

    assert [3, 3, 3, 2] == folded

    assert {f"key-{offset % 4}": str(offset) for offset in range(7, 11)} == replayed.state.config
    assert 11 == replayed.state.offset_next


def test_a_position_on_the_coordinator_stream_is_foreign():
    checkpoint = Checkpoint(ssp_kb=an_ssp_kb(), offset_next=1, epoch=1, task_name="t", execution_id="e")

    replayed = replay([at(8, CheckpointPut(checkpoint=checkpoint))], topic="t")

    assert (INITIAL, 1, 0) == (replayed.state, replayed.foreign_count, replayed.seq_next)


def test_a_foreign_record_changes_no_state_and_its_key_is_remembered_until_a_leader_writes_it():
    before = replay([at(0, EpochPut(epoch=7))], topic="t")

    replayed = replay([foreign(1, b"epoch", None), foreign(2, b"\xff", b"junk")], topic="t", before=before)

    assert before.state == replayed.state
    assert (1, 3, 2) == (replayed.seq_next, replayed.offset_next, replayed.foreign_count)
    assert [b"epoch", b"\xff"] == list(replayed.foreign)
    again = replay([at(3, EpochPut(epoch=8), seq=1)], topic="t", before=replayed)
    assert [b"\xff"] == list(again.foreign)


def test_a_flood_of_foreign_keys_is_bounded_and_keeps_keys_with_a_value(monkeypatch):
    monkeypatch.setattr(replay_module, "FOREIGN_KEPT_MAX", 3)
    before = replay([at(0, EpochPut(epoch=7))], topic="t")

    flood = [foreign(offset, f"config/{offset}".encode(), b"x") for offset in range(2, 20)]
    replayed = replay([foreign(1, b"epoch", None), *flood], topic="t", before=before)

    assert [b"epoch", b"config/18", b"config/19"] == list(replayed.foreign)
    assert 19 == replayed.foreign_count


def test_a_flood_of_foreign_keys_drops_no_key_whose_value_is_just_being_read(monkeypatch):
    monkeypatch.setattr(replay_module, "FOREIGN_KEPT_MAX", 3)
    values = [at(offset, ConfigPut(config_key=str(offset), value="1")) for offset in range(5)]
    replaced = [foreign(5 + number, f"config/{number}".encode(), b"x") for number in range(5)]
    flood = [foreign(offset, f"config/{offset}".encode(), b"x") for offset in range(10, 30)]

    replayed = replay([*values, *replaced, *flood], topic="t")

    assert [f"config/{number}".encode() for number in range(5)] == list(replayed.foreign)


@pytest.mark.parametrize("is_tail", [False, True])
def test_a_flood_of_foreign_records_on_keys_with_a_value_costs_few_looks_at_them(monkeypatch, is_tail):
    monkeypatch.setattr(replay_module, "FOREIGN_KEPT_MAX", 100)
    looked = []
    monkeypatch.setattr(replay_module, "standing", lambda state, key: looked.append(key) or standing(state, key))
    before = replay([at(offset, ConfigPut(config_key=str(offset), value="1")) for offset in range(500)], topic="t")
    strangers = [foreign(500 + number, f"config/{number}".encode(), b"x") for number in range(500)]

    replayed = replay(strangers, topic="t", before=before)
    if is_tail:
        looked.clear()
        replayed = with_foreign(before, replayed.foreign.values(), 500)

    assert 500 == len(replayed.foreign), "each is written again, or compaction would remove its value"
    assert len(looked) < 5 * 500
    assert 500 == len(replay(strangers, topic="t", before=replayed).foreign)


UNREADABLE = [
    (None, b"", CorruptRecordError),
    (b"epoch", b"garbage", CorruptRecordError),
    (b"\xff\xfe", b"garbage", CorruptRecordError),
    (b"epoch", b"\xc3\x01" + b"\x00" * 9, UnknownSchemaError),
    (b"epoch", encode(EpochPut(epoch=1_000_000))[1][:-1], CorruptRecordError),
]


@pytest.mark.parametrize(("key", "value", "error"), UNREADABLE)
def test_an_unreadable_record_of_a_leader_stops_the_reader_and_names_the_way_out(key, value, error):
    record = at(5, EpochPut(epoch=1))._replace(key=key, value=value)

    with pytest.raises(error, match=r"at offset 5.*term 1, number 5.*upgrade this process.*another job\.id"):
        replay([record], topic="t")


@pytest.mark.parametrize(("key", "value", "error"), UNREADABLE)
def test_the_same_bytes_without_headers_of_a_leader_stop_no_reader(key, value, error):
    replayed = replay([at(0, EpochPut(epoch=7)), foreign(1, key, value)], topic="t")

    assert 7 == replayed.state.epoch
    foreign_record = replayed.foreign[key]
    assert (1, len(key or b"") + len(value)) == (foreign_record.offset, foreign_record.size)
    assert f"{foreign_record.size} bytes, sha256 {foreign_record.digest}" in foreign_record.text("t")


def test_a_tombstone_under_an_invalid_key_only_removes_a_foreign_record():
    tombstone = at(2, EpochPut(epoch=1), seq=1)._replace(key=b"\xff", value=None)

    replayed = replay([at(0, EpochPut(epoch=7)), foreign(1, b"\xff", b"junk"), tombstone], topic="t")

    assert (7, 2, {}) == (replayed.state.epoch, replayed.seq_next, replayed.foreign)


def test_a_current_plan_without_all_its_tasks_is_an_error():
    generation = GenerationPut(generation=2, factor=1, task_count=3, scheme="max", processor_ids=("0",))

    with pytest.raises(CorruptRecordError, match="3 tasks of generation 2, found 0"):
        check_whole(evolve(INITIAL, [Committed(0, generation)]), "t")
