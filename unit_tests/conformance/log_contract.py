"""The rules of each `CompactedLog` (`stream/log.py`), for memory and real brokers.

A subclass gives `world`, a fixture of a `LogWorld` whose topic is new and empty for each test.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import pytest

from samzapy.errors import DeadlineError, FencedError, ProducerError
from samzapy.stream.codec import headers
from samzapy.stream.log import CompactedLog, LogRecord, Write
from samzapy.stream.numbering import BEGINNING, Foreign, place


class OpenTransaction(Protocol):
    """Records that were appended and neither committed nor aborted yet."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...


class LogWorld(Protocol):
    """One topic and the means to trouble it."""

    def log(self, transactional_id: str = "writer") -> CompactedLog:
        """A log on the topic that is not taken over yet.

        It gives up its wait for others' transactions soon.
        """
        ...

    def open_transaction(self, transactional_id: str, writes: Sequence[Write]) -> OpenTransaction:
        """Take `transactional_id` over and append `writes` without an end."""
        ...

    def fence(self, transactional_ids: Sequence[str]) -> None:
        """Initialise the ids, as another process that takes them away."""
        ...

    def compact(self) -> None:
        """Compact as far as possible, tombstones included, and return when it is done."""
        ...


def put(key: str, value: str | None) -> Write:
    return Write(key=key.encode(), value=None if value is None else value.encode())


def _numbered(key: str, seq: int) -> Write:
    """As the leader of a coordinator stream writes it."""
    record_headers = headers(term=1, seq=seq, event="ConfigSet", cause="c", actor="a")
    return Write(key=key.encode(), value=b"1", headers=record_headers)


def pairs(records: Iterable[LogRecord]) -> list[tuple[str, str | None]]:
    return [
        (record.key.decode(), None if record.value is None else record.value.decode())
        for record in records
        if record.key is not None
    ]


def taken(world: LogWorld, transactional_id: str = "writer") -> CompactedLog:
    log = world.log(transactional_id)
    log.take_over()
    return log


class LogContract:
    """The suite. Each test is a sentence of the contract."""

    def test_an_empty_topic_reads_as_nothing_and_ends_at_zero(self, world: LogWorld) -> None:
        log = world.log()

        assert list(log.read()) == []
        assert log.end_offset() == 0

    def test_appended_records_are_read_in_order_with_their_offsets(self, world: LogWorld) -> None:
        log = taken(world)

        log.append_atomically([put("a", "1"), put("b", "2")])
        log.append_atomically([put("a", "3")])

        records = list(log.read())
        assert pairs(records) == [("a", "1"), ("b", "2"), ("a", "3")]
        offsets = [record.offset for record in records]
        assert sorted(set(offsets)) == offsets
        assert offsets[-1] < log.end_offset()

    def test_a_record_of_another_writer_between_two_appends_is_read_in_its_place_and_is_foreign(
        self, world: LogWorld
    ) -> None:
        log = taken(world)
        log.append_atomically([_numbered("config/a", 0)])
        world.open_transaction("another", [put("config/a", None), put("config/b", "x")]).commit()
        log.append_atomically([_numbered("config/c", 1)])

        numbering, own = BEGINNING, []
        for record in log.read():
            numbering, foreign = place(record, numbering)
            own.append((record.key, not isinstance(foreign, Foreign)))

        assert own == [(b"config/a", True), (b"config/a", False), (b"config/b", False), (b"config/c", True)]
        assert numbering.seq_next == 2

    def test_headers_tombstones_and_empty_bytes_are_read_back_as_written(self, world: LogWorld) -> None:
        log = taken(world)
        headers = {"term": b"7", "event": b"", "cause": "grün".encode()}

        log.append_atomically(
            [
                Write(key=b"a", value=b"", headers=headers),
                Write(key=b"", value=b"\x00\xff"),
                Write(key=b"b", value=None, headers={"actor": b"ann"}),
            ]
        )

        assert [
            (b"a", b"", tuple(headers.items())),
            (b"", b"\x00\xff", ()),
            (b"b", None, (("actor", b"ann"),)),
        ] == [(record.key, record.value, record.headers) for record in log.read()]

    def test_append_returns_the_offset_after_its_last_record(self, world: LogWorld) -> None:
        log = taken(world)
        log.append_atomically([put("a", "1")])

        offset_after = log.append_atomically([put("b", "2"), put("c", "3")])

        assert offset_after == [record.offset for record in log.read()][-1] + 1

    def test_reading_from_an_offset_gives_the_record_at_it_and_later_ones(self, world: LogWorld) -> None:
        log = taken(world)
        log.append_atomically([put("a", "1"), put("b", "2"), put("c", "3")])
        offset_of_b = list(log.read())[1].offset

        assert pairs(log.read(offset_of_b)) == [("b", "2"), ("c", "3")]

    def test_reading_from_the_returned_offset_gives_only_later_records(self, world: LogWorld) -> None:
        log = taken(world)
        offset_after = log.append_atomically([put("a", "1")])
        assert list(log.read(offset_after)) == []

        log.append_atomically([put("b", "2")])

        assert pairs(log.read(offset_after)) == [("b", "2")]

    def test_reading_from_the_end_or_past_it_gives_nothing(self, world: LogWorld) -> None:
        log = taken(world)
        log.append_atomically([put("a", "1")])

        assert list(log.read(log.end_offset())) == []
        assert list(log.read(log.end_offset() + 10)) == []

    def test_markers_occupy_offsets_and_the_end_is_behind_the_last_of_them(self, world: LogWorld) -> None:
        """The topic ends in a marker: `high - 1` is no record, and reading must still end."""
        log = taken(world)

        offset_after = log.append_atomically([put("a", "1")])

        assert pairs(log.read()) == [("a", "1")]
        assert log.end_offset() == offset_after + 1

    def test_a_new_owner_fences_the_old_one(self, world: LogWorld) -> None:
        old = taken(world)
        old.append_atomically([put("a", "old")])
        new = taken(world)

        with pytest.raises(FencedError):
            old.append_atomically([put("a", "zombie")])

        new.append_atomically([put("a", "new")])
        assert pairs(new.read()) == [("a", "old"), ("a", "new")]

    def test_the_latest_owner_wins_so_a_fenced_one_can_take_over_again(self, world: LogWorld) -> None:
        first, second = taken(world), taken(world)
        with pytest.raises(FencedError):
            first.append_atomically([put("a", "lost")])

        first.take_over()
        first.append_atomically([put("a", "back")])

        with pytest.raises(FencedError):
            second.append_atomically([put("a", "fenced in turn")])
        assert pairs(second.read()) == [("a", "back")]

    def test_after_an_error_nothing_is_appended_until_the_log_is_taken_over_again(self, world: LogWorld) -> None:
        old = taken(world)
        taken(world)
        with pytest.raises(FencedError):
            old.append_atomically([put("a", "1")])

        with pytest.raises((FencedError, ProducerError)):
            old.append_atomically([put("a", "2")])
        assert list(old.read()) == []

    def test_nothing_is_appended_before_the_log_is_taken_over(self, world: LogWorld) -> None:
        with pytest.raises(ProducerError):
            world.log().append_atomically([put("a", "1")])

    def test_taking_over_twice_is_harmless(self, world: LogWorld) -> None:
        log = taken(world)
        log.take_over()

        log.append_atomically([put("a", "1")])

        assert pairs(log.read()) == [("a", "1")]

    def test_two_owners_of_different_ids_do_not_fence_each_other(self, world: LogWorld) -> None:
        ann, bob = taken(world, "ann"), taken(world, "bob")

        ann.append_atomically([put("a", "1")])
        bob.append_atomically([put("b", "2")])
        ann.append_atomically([put("a", "3")])

        assert pairs(ann.read()) == [("a", "1"), ("b", "2"), ("a", "3")]

    def test_taking_over_aborts_the_open_transaction_of_the_predecessor(self, world: LogWorld) -> None:
        log = taken(world)
        log.append_atomically([put("a", "1")])
        left_open = world.open_transaction("writer", [put("a", "half"), put("b", "half")])

        successor = taken(world)
        successor.append_atomically([put("c", "2")])

        assert pairs(successor.read()) == [("a", "1"), ("c", "2")]
        with pytest.raises((FencedError, ProducerError)):
            left_open.commit()
        assert pairs(successor.read()) == [("a", "1"), ("c", "2")]

    def test_an_aborted_transaction_at_the_end_leaves_only_its_offsets(self, world: LogWorld) -> None:
        log = taken(world)
        offset_after = log.append_atomically([put("a", "1")])

        world.open_transaction("other", [put("b", "2"), put("c", "3")]).abort()

        assert pairs(log.read()) == [("a", "1")]
        assert log.end_offset() == offset_after + 4
        log.append_atomically([put("d", "4")])
        assert pairs(log.read(offset_after)) == [("d", "4")]

    def test_reading_does_not_conclude_while_another_writers_transaction_is_open(self, world: LogWorld) -> None:
        """Its records may still be committed below the end.

        It hides the records that others committed after it.
        """
        log = taken(world)
        log.append_atomically([put("a", "1")])
        blocker = world.open_transaction("other", [put("b", "2")])
        log.append_atomically([put("c", "3")])

        seen = []
        with pytest.raises(DeadlineError, match="open transaction"):
            seen.extend(log.read())
        assert pairs(seen) == [("a", "1")]

        blocker.commit()
        assert pairs(log.read()) == [("a", "1"), ("b", "2"), ("c", "3")]

    def test_an_open_transaction_at_the_very_end_is_waited_for_too(self, world: LogWorld) -> None:
        log = taken(world)
        log.append_atomically([put("a", "1")])
        blocker = world.open_transaction("other", [put("b", "2")])

        with pytest.raises(DeadlineError):
            list(log.read())

        blocker.abort()
        assert pairs(log.read()) == [("a", "1")]

    def test_the_end_counts_the_records_of_open_transactions(self, world: LogWorld) -> None:
        log = taken(world)
        before = log.end_offset()

        # A marker may come later than the answer to the commit; a read to the end has seen it.
        blocker = world.open_transaction("other", [put("b", "2"), put("c", "3")])

        assert log.end_offset() == before + 2
        blocker.abort()
        assert list(log.read()) == []
        assert log.end_offset() == before + 3

    def test_the_end_of_a_read_is_the_end_when_it_was_asked_for(self, world: LogWorld) -> None:
        log = taken(world)
        log.append_atomically([put("a", "1")])
        records = log.read()

        log.append_atomically([put("b", "2")])

        assert pairs(records) == [("a", "1")]

    def test_after_compaction_the_latest_of_each_key_is_left_under_its_offset(self, world: LogWorld) -> None:
        log = taken(world)
        for number in range(3):
            log.append_atomically([put("a", str(number)), put("b", str(number))])
        before = {record.offset: record for record in log.read()}

        world.compact()

        after = list(log.read())
        assert pairs(after) == [("a", "2"), ("b", "2")]
        assert all(before[record.offset].value == record.value for record in after)

    def test_a_topic_of_which_compaction_left_nothing_reads_as_nothing(self, world: LogWorld) -> None:
        log = taken(world)
        log.append_atomically([put("a", "1"), put("b", "2")])
        log.append_atomically([put("a", None), put("b", None)])
        end = log.end_offset()

        world.compact()

        assert list(log.read()) == []
        assert log.end_offset() >= end
