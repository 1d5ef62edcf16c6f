"""The records of a leader are all taken, after any compaction, and no others."""

from hypothesis import given, settings
from hypothesis import strategies as st

from samzapy.stream.codec import encode, headers
from samzapy.stream.log import LogRecord, Write
from samzapy.stream.numbering import BEGINNING, Foreign, Reading, place
from samzapy.stream.records import ConfigPut, Removed, TermPut
from samzapy.testing.memory_log import MemoryLog, MemoryTopic

KEYS = ("a", "b", "c", "d")


def leader_headers(term, seq):
    return headers(term=term, seq=seq, event="e", cause="c", actor="a")


def record_at(offset, term, seq, record=None):
    key, value = encode(record or ConfigPut(config_key="a", value="1"))
    return LogRecord(offset, 0, key, value, tuple(leader_headers(term, seq).items()))


def a_term(term):
    return TermPut(
        term=term, coordinator_id="c", host="h", boot_id="b", pid=1, process_started_ms=1, url="u", started_at_ms=1
    )


def taken(records, before=BEGINNING):
    """The offsets that are taken for a leader's, and the numbering behind the last."""
    records, offsets = list(records), []
    reading = Reading(before, topic="t")
    taken_records = [
        (item.record.offset, reading.numbering) for item in reading.read(records) if item.foreign is None
    ]
    for record in records:
        before, foreign = place(record, before)
        if not isinstance(foreign, Foreign):
            offsets.append((record.offset, before))
    assert offsets == taken_records, "many at once are distinguished as one by one"
    assert before == reading.numbering
    return [offset for offset, _ in offsets], before


class Life:
    """A topic with records of leaders and others, which knows the writers.

    Leaders continue the numbers of their last read.
    """

    def __init__(self):
        self.topic = MemoryTopic()
        self.log = MemoryLog(self.topic, "leader")
        self.foreign_offsets = set()
        self.restoring = []
        self.take_over()

    def take_over(self):
        self.log.take_over()
        _, self.numbering = taken(self.log.read())
        self.term, self.seq = self.numbering.term + 1, self.numbering.seq_next
        self.append([a_term(self.term)])

    def append(self, facts):
        writes = [
            Write(key=encode(fact)[0], value=encode(fact)[1], headers=leader_headers(self.term, self.seq + number))
            for number, fact in enumerate(facts)
        ]
        self.seq += len(writes)
        self.log.append_atomically(writes)

    def die_in_an_append(self):
        """The records of an aborted transaction take offsets and are never read."""
        self.log.append_and_stop([Write(key=b"config/a", value=b"x", headers=leader_headers(self.term, self.seq))])

    def foreign(self, key, value, foreign_headers):
        stranger = MemoryLog(self.topic, "stranger")
        stranger.take_over()
        before = self.topic.end_offset
        stranger.append_atomically([Write(key=key, value=value, headers=foreign_headers)])
        self.foreign_offsets.update(range(before, self.topic.end_offset))
        # As the leader does, long before compaction may remove the earlier record.
        self.append([ConfigPut(config_key=key.decode().removeprefix("config/"), value="1")])
        self.restoring.append((before, self.topic.end_offset))

    def compact(self, keep_until=None, tombstones_until=0):
        for first, end in self.restoring:
            if keep_until is not None and first < keep_until < end:
                keep_until = first
        if keep_until is not None and any(first >= keep_until for first, _ in self.restoring):
            # A copy of a tombstone that has expired cannot be distinguished from it, and means the same.
            tombstones_until = 0
        self.topic.compact(keep_until=keep_until, tombstones_until=tombstones_until)

    def stale(self, back):
        """Headers that were given out before."""
        return leader_headers(max(1, self.term - back), max(0, self.seq - 1 - back))


def facts():
    puts = st.builds(lambda key: ConfigPut(config_key=key, value="1"), st.sampled_from(KEYS))
    tombstones = st.builds(lambda key: Removed(key=f"config/{key}"), st.sampled_from(KEYS))
    return st.lists(puts | tombstones, min_size=1, max_size=4)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), facts()),
        st.tuples(st.just("append"), facts()),
        st.tuples(st.just("take over")),
        st.tuples(st.just("die")),
        st.tuples(st.just("foreign"), st.sampled_from(KEYS), st.sampled_from([None, b"", b"junk"])),
        st.tuples(st.just("copy"), st.integers(0, 5)),
        st.tuples(st.just("far"), st.integers(50, 10**30), st.integers(50, 10**30)),
        st.tuples(st.just("compact"), st.floats(0, 1), st.floats(0, 1)),
    ),
    max_size=25,
)


def live(steps, *, compacts):
    life = Life()
    for step, *more in steps:
        match step:
            case "append":
                life.append(*more)
            case "take over":
                life.take_over()
            case "die":
                life.die_in_an_append()
                life.take_over()
            case "foreign":
                life.foreign(f"config/{more[0]}".encode(), more[1], {})
            case "copy":
                life.foreign(b"config/a", None, life.stale(more[0]))
            case "far":
                life.foreign(b"config/a", None, leader_headers(*more))
            case "compact" if compacts:
                end = life.topic.end_offset
                life.compact(keep_until=int(more[0] * end), tombstones_until=int(more[1] * end))
    return life


@settings(max_examples=300)
@given(STEPS, st.floats(0, 1))
def test_every_record_of_a_leader_is_taken_and_no_other_one_whatever_compaction_removed(steps, at):
    life = live(steps, compacts=True)
    records = list(life.log.read())
    own = [record.offset for record in records if record.offset not in life.foreign_offsets]

    taken_records, _ = taken(records)

    assert own == taken_records
    # A reader that begins in the middle takes the first leader's record for the beginning.
    rest = own[int(at * len(own)) :]
    assert not rest or rest == taken([record for record in records if record.offset >= rest[0]])[0]


@settings(max_examples=200)
@given(STEPS, st.floats(0, 1))
def test_a_follower_that_read_before_the_stream_was_compacted_takes_the_same(steps, at):
    life = live(steps, compacts=False)
    records = list(life.log.read())
    half = records[: int(at * len(records))]
    _, numbering = taken(half)
    life.compact()
    offset_next = half[-1].offset + 1 if half else 0

    rest = [record for record in life.log.read() if record.offset >= offset_next]
    taken_records, _ = taken(rest, numbering)

    assert [record.offset for record in rest if record.offset not in life.foreign_offsets] == taken_records


def test_a_record_without_the_leaders_headers_is_foreign_and_takes_no_number():
    bare = record_at(1, 1, 1)._replace(headers=(("term", b"1"), ("seq", b"1")))

    offsets, numbering = taken([record_at(0, 1, 0), bare, record_at(2, 1, 1)])

    assert ([0, 2], 2) == (offsets, numbering.seq_next)


def test_numbers_may_be_skipped_only_where_offsets_are_missing():
    start = record_at(0, 1, 0)

    assert [0] == taken([start, record_at(1, 1, 2)])[0]
    assert [0, 2] == taken([start, record_at(2, 1, 2)])[0]
    # A foreign record explains its own offset, and no other one.
    bare = record_at(1, 1, 1)._replace(headers=())
    assert [0] == taken([start, bare, record_at(2, 1, 2)])[0]


def test_a_term_begins_with_its_own_record_unless_that_may_be_compacted():
    start = record_at(0, 1, 0)

    assert [0, 2] == taken([start, record_at(2, 2, 1, a_term(2))])[0]
    assert [0] == taken([start, record_at(2, 2, 1)])[0]
    assert [0] == taken([start, record_at(2, 3, 1, a_term(3)), record_at(3, 3, 2)])[0][:1]
    assert [0, 4] == taken([start, record_at(4, 2, 2)])[0]
    # It has its own number.
    assert [0] == taken([start, record_at(2, 2, 1, a_term(3))])[0]


def test_numbers_are_used_again_only_after_a_tombstone():
    """Compaction took the tombstones at the end before the next leader read."""
    tombstone = record_at(9, 1, 9, Removed(key="config/a"))
    begun = record_at(11, 2, 5, a_term(2))

    assert [9, 11, 12] == taken([tombstone, begun, record_at(12, 2, 6)])[0]
    assert [9] == taken([record_at(9, 1, 9), begun, record_at(12, 2, 6)])[0]


def test_numbers_that_no_program_of_ours_writes_are_no_headers():
    for wrong in (b"-1", b" 1", b"1_0", "\u0661".encode(), b"9" * 5_000, b""):
        record = record_at(0, 1, 0)
        odd = record._replace(
            headers=tuple((name, wrong if name == "seq" else value) for name, value in record.headers)
        )
        assert [] == taken([odd])[0], wrong
