"""The checker reports each spoiled record of a good history by the right rule."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from integration_tests.support.ledger import (
    Fed,
    Feed,
    Ledger,
    Output,
    Place,
    Position,
    check_outputs,
    check_positions,
    check_readers,
    check_state,
    describe_violations,
    output_of,
    sums_of,
    value_of,
    x_of,
)

pytestmark = pytest.mark.slow

RECORDS = 25_300
PARTITIONS = 4


class History:
    """A good run of `RECORDS` records: its input, and its output per partition."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.outputs: list[Output] = []
        feed, ends, sums, out_ends = Feed(seed=7), Counter[int](), Counter[str](), Counter[int]()
        for _ in range(RECORDS):
            fed = feed.next()
            partition = 0 if fed.key is None else int(fed.key[1:]) % PARTITIONS
            place = Place("fed", partition, ends[partition])
            ends[partition] += 1
            self.ledger.sent(fed)
            self.ledger.acknowledged(fed, place)
            total = None
            if fed.key is not None:
                sums[fed.key] += x_of(*fed)
                total = sums[fed.key]
            out = PARTITIONS if fed.key is None else int(fed.key[1:]) // 7 % PARTITIONS
            at = Place("sums", out, out_ends[out])
            out_ends[out] += 2  # Markers of transactions lie between.
            self.outputs.append(Output(at, fed.key, fed.n, x_of(*fed), total, place, f"Partition_{partition}"))
        self.outputs.sort(key=lambda output: output.place)

    def copy(self) -> History:
        """One to spoil."""
        made = object.__new__(History)
        made.ledger = Ledger(acked=dict(self.ledger.acked))
        made.outputs = list(self.outputs)
        return made

    def rules(self) -> set[str]:
        return {violation.rule for violation in check_outputs(self.ledger, self.outputs)}

    def index(self, *, n_min: int = 5) -> int:
        """Some record in the middle, of a key that has more before and after it."""
        last = Counter(output.key for output in self.outputs)
        return next(
            index
            for index in range(RECORDS // 2, RECORDS)
            if self.outputs[index].key is not None and n_min < self.outputs[index].n < last[self.outputs[index].key]
        )


@pytest.fixture(scope="module")
def good_history() -> History:
    return History()


@pytest.fixture
def history(good_history: History) -> History:
    return good_history.copy()


def test_a_good_history_has_no_violation(history: History) -> None:
    assert [] == check_outputs(history.ledger, history.outputs)


def test_a_lost_record_is_missed(history: History) -> None:
    lost = history.outputs.pop(history.index())

    violations = check_outputs(history.ledger, history.outputs)

    assert f"{lost.key} number {lost.n}, acknowledged at {lost.src}, never came out: lost" in violations[0].text
    # And every later sum of its key shows it.
    assert {"A", "D"} == {violation.rule for violation in violations}


def test_a_doubled_record_is_seen(history: History) -> None:
    at = history.index()
    doubled = history.outputs[at]
    history.outputs.insert(at + 1, doubled._replace(place=doubled.place._replace(offset=doubled.place.offset + 1)))

    assert {"C", "D"} <= history.rules()


def test_a_record_doubled_much_later_is_seen(history: History) -> None:
    at = history.index()
    last_of_partition = max(o.place for o in history.outputs if o.place[:2] == history.outputs[at].place[:2])
    again = history.outputs[at]._replace(place=last_of_partition._replace(offset=last_of_partition.offset + 2))
    history.outputs = sorted([*history.outputs, again], key=lambda output: output.place)

    assert {"C", "D"} == history.rules()


def test_two_records_of_one_key_in_the_wrong_order_are_seen(history: History) -> None:
    first = history.index()
    key = history.outputs[first].key
    second = next(i for i in range(first + 1, RECORDS) if history.outputs[i].key == key)
    one, other = history.outputs[first], history.outputs[second]
    history.outputs[first] = other._replace(place=one.place)
    history.outputs[second] = one._replace(place=other.place)

    assert {"C", "D"} == history.rules()


def test_a_wrong_sum_is_seen(history: History) -> None:
    at = history.index()
    wrong = history.outputs[at]
    assert wrong.sum is not None
    history.outputs[at] = wrong._replace(sum=wrong.sum + 1)

    violations = check_outputs(history.ledger, history.outputs)

    assert [
        ("D", f"{wrong.key} number {wrong.n} at {wrong.place} has sum={wrong.sum + 1}, right is {wrong.sum}")
    ] == [(violation.rule, violation.text) for violation in violations]


def test_a_phantom_is_seen(history: History) -> None:
    last = history.outputs[-1]
    history.outputs.append(
        last._replace(
            place=last.place._replace(offset=last.place.offset + 2),
            n=last.n + 1,
            x=x_of(last.key, last.n + 1),
            src=last.src._replace(offset=last.src.offset + 1),
        )
    )

    assert {"B"} == history.rules()


def test_an_altered_record_is_seen(history: History) -> None:
    at = history.index()
    history.outputs[at] = history.outputs[at]._replace(x=history.outputs[at].x + 1)

    assert {"B"} == history.rules()


def test_a_record_that_names_another_source_is_seen(history: History) -> None:
    at = history.index()
    source = history.outputs[at].src
    history.outputs[at] = history.outputs[at]._replace(src=source._replace(offset=source.offset - 1))

    assert "B" in history.rules()


def test_a_record_of_another_task_is_seen(history: History) -> None:
    at = history.index()
    history.outputs[at] = history.outputs[at]._replace(task="Partition_99")

    assert {"E"} == history.rules()


def test_a_key_in_two_output_partitions_is_seen(history: History) -> None:
    at = history.index()
    history.outputs[at] = history.outputs[at]._replace(place=Place("sums", 9, 0))

    assert "C" in history.rules()


def test_a_sum_without_a_key_is_seen(history: History) -> None:
    at = next(index for index, output in enumerate(history.outputs) if output.key is None)
    history.outputs[at] = history.outputs[at]._replace(sum=0)

    assert {"D"} == history.rules()


@pytest.mark.parametrize("comes_out", [0, 1])
def test_a_record_that_was_never_acknowledged_may_come_out_once_or_not_at_all(
    history: History, comes_out: int
) -> None:
    at = max(index for index, output in enumerate(history.outputs) if output.key is None)
    in_doubt = Fed(history.outputs[at].key, history.outputs[at].n)
    del history.ledger.acked[in_doubt]
    history.ledger.sent(in_doubt)
    if not comes_out:
        del history.outputs[at]

    assert set() == history.rules()


def test_a_record_in_doubt_may_not_stand_where_another_does(history: History) -> None:
    at = max(index for index, output in enumerate(history.outputs) if output.key is None)
    in_doubt = Fed(history.outputs[at].key, history.outputs[at].n)
    del history.ledger.acked[in_doubt]
    history.ledger.sent(in_doubt)
    history.outputs[at] = history.outputs[at]._replace(src=history.outputs[at - 1].src)

    assert "B" in history.rules()


def test_a_record_that_is_no_output_of_the_job_is_named() -> None:
    place = Place("sums", 0, 7)
    headers = (("src", b"fed-0-3"), ("task", b"Partition_0"))
    value = b'{"k": "k1", "n": 1, "x": 2, "sum": 2}'

    assert Output(place, "k1", 1, 2, 2, Place("fed", 0, 3), "Partition_0") == output_of(place, b"k1", value, headers)
    for key, spoiled, given in [
        (b"k1", b"{", headers),
        (b"k1", None, headers),
        (b"k1", b'{"k": "k1", "x": 2}', headers),
        (b"k1", value, headers[:1]),
        (b"k1", value, (("src", b"fed"), headers[1])),
        (b"k2", value, headers),
        (None, value, headers),
    ]:
        with pytest.raises(ValueError, match="sums-0-7"):
            output_of(place, key, spoiled, given)


def test_a_place_survives_its_text_form_with_any_topic_name() -> None:
    place = Place("a-topic.with_all-9", 3, 14)

    assert place == Place.parse(str(place))


def test_two_readers_of_the_same_agree_and_the_first_difference_is_named() -> None:
    during = {("sums", 0): ["a", "b"], ("sums", 1): ["c"]}

    assert [] == check_readers(during, {**during, ("sums", 2): []})
    (violation,) = check_readers(during, {**during, ("sums", 0): ["a", "x", "b"]})
    assert "during the faults 2 records, afterwards 3; they part at number 1: 'b' and 'x'" in violation.text
    (violation,) = check_readers(during, {("sums", 0): ["a", "b"]})
    assert "they part at number 0: 'c' and the end" in violation.text


POSITIONS = [
    Position(0, "checkpoint", "kafka.fed.0:0/1", 5, 1),
    Position(3, "progress", "kafka.fed.1:0/1", 4, 2),
    Position(5, "checkpoint", "kafka.fed.0:0/1", 9, 1),
    Position(8, "checkpoint", "kafka.fed.0:0/1", 9, 3),
    Position(9, "checkpoint", "kafka.fed.0:0/1", 12, 3),
]
ENDS = {"kafka.fed.0": 12, "kafka.fed.1": 4, "kafka.fed.2": 0}
IN_FORCE = [f"{ssp}:0/1" for ssp in ENDS]


@pytest.mark.parametrize(
    ("spoiled", "rules"),
    [
        ({}, ""),
        ({2: {"offset_next": 4}}, "G"),
        ({4: {"offset_next": 13}}, "G"),
        ({4: {"offset_next": 11}}, "G"),
        ({1: {"offset_next": 3}}, "G"),
        ({2: {"epoch": 0}}, "E"),
        ({4: {"epoch": 2}}, "EG"),
        # A new owner may begin below what the old one came to.
        ({3: {"offset_next": 2}}, ""),
    ],
)
def test_positions_only_go_forward_under_one_owner_and_end_at_the_end(
    spoiled: dict[int, dict[str, int]], rules: str
) -> None:
    positions = [position._replace(**spoiled.get(index, {})) for index, position in enumerate(POSITIONS)]

    assert set(rules) == {violation.rule for violation in check_positions(positions, ENDS, IN_FORCE)}


@pytest.mark.parametrize(
    ("last", "rules"),
    [
        ([("0/2", 12, 4), ("1/2", 12, 5)], ""),
        # A child that did not come to the end, and the parent that goes on beside its children.
        ([("0/2", 12, 4), ("1/2", 11, 5)], "G"),
        ([("0/2", 12, 4), ("1/2", 12, 5), ("0/1", 12, 3)], "E"),
        ([("0/2", 12, 4), ("1/2", 12, 5), ("0/4", 12, 3)], "E"),
        ([("0/2", 12, 5), ("1/2", 12, 4)], ""),
    ],
)
def test_parts_of_a_partition_come_to_its_end_each_and_no_earlier_owner_of_any_writes_again(
    last: list[tuple[str, int, int]], rules: str
) -> None:
    children = [
        Position(10 + number, "checkpoint", f"kafka.fed.0:{part}", offset, epoch)
        for number, (part, offset, epoch) in enumerate(last)
    ]
    in_force = ["kafka.fed.0:0/2", "kafka.fed.0:1/2", *IN_FORCE[1:]]

    assert set(rules) == {violation.rule for violation in check_positions([*POSITIONS, *children], ENDS, in_force)}


def test_state_must_be_the_sums_in_the_changelog_and_in_the_stores(history: History) -> None:
    sums = sums_of(history.ledger.acked)

    assert [] == check_state(sums, sums, sums)
    some = next(iter(sums))
    for spoiled in ({**sums, some: 1}, {k: v for k, v in sums.items() if k != some}, {**sums, "phantom": 1}):
        assert ["H"] == [violation.rule for violation in check_state(sums, spoiled, sums)]
        assert ["H"] == [violation.rule for violation in check_state(sums, sums, spoiled)]


def test_the_same_seed_feeds_the_same_records_with_few_keys_often_and_many_seldom() -> None:
    first, second = Feed(seed=3), Feed(seed=3)
    fed = [first.next() for _ in range(20_000)]

    assert fed == [second.next() for _ in range(20_000)]
    counts = Counter(key for key, _ in fed)
    assert counts["k0"] > 2000
    assert len(counts) > 490
    assert 200 < counts[None] < 800
    assert value_of(Fed(None, 1)).startswith(b'{"k": null, "n": 1, "x": ')


def test_a_report_has_the_count_and_the_first_violations(history: History) -> None:
    del history.outputs[100:110]

    text = describe_violations(check_outputs(history.ledger, history.outputs), count_max=3)

    assert "A: 10" in text.splitlines()[0]
    assert 4 == len(text.splitlines())
    assert "no violation" == describe_violations([])


def test_a_ledger_forgets_its_doubt_when_the_broker_answers() -> None:
    ledger, fed = Ledger(), Fed("k1", 1)
    ledger.sent(fed)

    assert {fed} == replace(ledger).maybe
    ledger.acknowledged(fed, Place("fed", 0, 0))
    assert (set(), {fed: Place("fed", 0, 0)}) == (ledger.maybe, ledger.acked)
