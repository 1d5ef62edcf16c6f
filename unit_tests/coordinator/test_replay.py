"""From bytes to state: nothing is skipped, and what is not ours stops the reader by name."""

import pytest

from samzapy.coordinator import replay as replay_module
from samzapy.coordinator.replay import NOTHING, check_whole, replay
from samzapy.coordinator.state import INITIAL, Committed, evolve
from samzapy.errors import CorruptRecordError, UnknownSchemaError
from samzapy.model.checkpoint import Checkpoint
from samzapy.stream.codec import encode, headers
from samzapy.stream.log import LogRecord
from samzapy.stream.records import CheckpointPut, ConfigPut, EpochPut, GenerationPut, Removed
from samzapy.testing.builders import an_ssp_kb


def at(offset, record, seq=None):
    key, value = encode(record)
    said = headers(term=1, seq=seq, event="e", cause="c", actor="a") if seq is not None else {}
    return LogRecord(offset=offset, timestamp_ms=0, key=key, value=value, headers=tuple(said.items()))


def test_records_are_folded_at_their_offsets():
    found = replay(
        [
            at(3, EpochPut(epoch=7)),
            at(9, GenerationPut(generation=1, factor=1, task_count=0, scheme="max", processor_ids=())),
        ],
        topic="t",
    )

    assert (7, 9, 10) == (found.state.epoch, found.state.generation_offset, found.state.offset_next)


def test_the_sequence_goes_on_after_the_highest_number_that_is_left():
    assert 6 == replay([at(0, EpochPut(epoch=1), seq=5), at(1, EpochPut(epoch=2))], topic="t").seq_next
    assert 0 == replay([], topic="t").seq_next


def test_a_tail_is_folded_on_top_of_what_was_read_before():
    before = replay([at(0, EpochPut(epoch=7), seq=4)], topic="t")

    found = replay([at(1, Removed(key="epoch"), seq=5)], topic="t", before=before)

    assert (0, 6) == (found.state.epoch, found.seq_next)
    assert INITIAL == found.state
    assert NOTHING == replay([], topic="t")


def test_a_stream_of_any_length_is_folded_without_being_held(monkeypatch):
    monkeypatch.setattr(replay_module, "BATCH_RECORDS", 3)
    records = [at(offset, ConfigPut(config_key=f"key-{offset % 4}", value=str(offset))) for offset in range(11)]
    folded = []
    monkeypatch.setattr(
        replay_module, "evolve", lambda state, batch: folded.append(len(batch)) or evolve(state, batch)
    )

    found = replay(records, topic="t")

    assert [3, 3, 3, 2] == folded

    assert {f"key-{offset % 4}": str(offset) for offset in range(7, 11)} == found.state.config
    assert 11 == found.state.offset_next


def test_a_position_on_the_coordinator_stream_is_refused_with_its_offset():
    checkpoint = Checkpoint(ssp_kb=an_ssp_kb(), offset_next=1, epoch=1, task_name="t", execution_id="e")

    with pytest.raises(CorruptRecordError, match="t-0 at offset 8.*checkpoint topic"):
        replay([at(8, CheckpointPut(checkpoint=checkpoint))], topic="t")


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (None, b"", CorruptRecordError),
        (b"epoch", b"garbage", CorruptRecordError),
        (b"nonsense/x", None, CorruptRecordError),
        (b"epoch", b"\xc3\x01" + b"\x00" * 9, UnknownSchemaError),
    ],
)
def test_a_record_that_cannot_be_read_stops_the_reader(key, value, error):
    with pytest.raises(error, match="at offset 5"):
        replay([LogRecord(offset=5, timestamp_ms=0, key=key, value=value)], topic="t")


def test_a_plan_in_force_that_lacks_tasks_is_named():
    generation = GenerationPut(generation=2, factor=1, task_count=3, scheme="max", processor_ids=("0",))

    with pytest.raises(CorruptRecordError, match="3 tasks of generation 2, found 0"):
        check_whole(evolve(INITIAL, [Committed(0, generation)]), "t")
