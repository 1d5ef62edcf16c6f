"""One record of a good history is spoiled, and the right rule reports it."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import xxhash

from integration_tests.support.ledger import Fed, Feed, Ledger, Place, x_of
from integration_tests.support.repartition_ledger import (
    Regrouped,
    check_regrouped,
    group_of,
    regrouped_of,
    totals_of,
)

RECORDS = 4_000
PARTITIONS = 3


class History:
    """The outputs of a second step at factor 2, in order, for two tasks' partitions."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.answers: list[Regrouped] = []
        feed, ends, totals = Feed(seed=7, key_count=40), Counter[str](), Counter[str]()
        for number in range(RECORDS):
            fed = feed.next()
            partition = 0 if fed.key is None else int(fed.key[1:]) % PARTITIONS
            fed_at = Place("fed", partition, number)
            self.ledger.sent(fed)
            self.ledger.acknowledged(fed, fed_at)
            group = group_of(fed)
            totals[group] += x_of(*fed)
            home = int(group[1:]) % PARTITIONS
            ends[f"groups{home}"] += 2  # Markers of transactions lie between.
            bucket = xxhash.xxh64_intdigest(group.encode(), seed=42) % 2
            self.answers.append(
                Regrouped(
                    place=Place("regrouped", home, number),
                    group=group,
                    key=fed.key,
                    n=fed.n,
                    x=x_of(*fed),
                    total=totals[group],
                    fed_at=fed_at,
                    by=f"Partition_{partition}",
                    src=Place("groups", home, ends[f"groups{home}"]),
                    task=f"Partition_{home}-{bucket}-2",
                )
            )

    def rules(self) -> set[str]:
        return {violation.rule for violation in check_regrouped(self.ledger, self.answers, PARTITIONS)}

    def spoil(self, at: int, **fields: object) -> None:
        self.answers[at] = self.answers[at]._replace(**fields)


@pytest.fixture
def history() -> History:
    return History()


def test_a_good_history_has_no_violation_and_keys_and_groups_cross(history: History) -> None:
    assert [] == check_regrouped(history.ledger, history.answers, PARTITIONS)
    keys_of, groups_of = Counter[str](), Counter[str | None]()
    for group, key in {(answer.group, answer.key) for answer in history.answers}:
        keys_of[group] += 1
        groups_of[key] += 1
    assert min(keys_of.values()) > 5
    assert max(groups_of.values()) > 50


def test_a_record_that_never_reached_the_second_step_is_lost(history: History) -> None:
    del history.answers[1234]

    # The totals behind it do not fit either: it is not in them.
    assert {"A", "D"} == history.rules()


def test_a_record_that_reached_it_twice_is_doubled(history: History) -> None:
    again = history.answers[1234]
    history.answers.insert(1235, again._replace(src=again.src._replace(offset=again.src.offset + 1)))

    assert {"C", "D"} == history.rules()


def test_two_messages_of_a_group_that_changed_places_are_out_of_order(history: History) -> None:
    one = 100
    other = next(i for i in range(101, RECORDS) if history.answers[i].group == history.answers[one].group)
    history.answers[one], history.answers[other] = history.answers[other], history.answers[one]

    assert "C" in history.rules()


def test_two_messages_that_one_task_sent_in_the_wrong_order_are_reported_although_read_in_sent_order(
    history: History,
) -> None:
    one, other = next(
        (i, j)
        for i in range(RECORDS)
        for j in range(i + 1, RECORDS)
        if history.answers[i].group == history.answers[j].group
        and history.answers[i].key != history.answers[j].key
        and history.answers[i].fed_at.partition == history.answers[j].fed_at.partition
    )
    first, second = history.answers[one], history.answers[other]
    history.answers[one] = second._replace(place=first.place, src=first.src, total=0)
    history.answers[other] = first._replace(place=second.place, src=second.src, total=0)

    texts = [
        str(violation)
        for violation in check_regrouped(history.ledger, history.answers, PARTITIONS)
        if violation.rule == "C"
    ]

    assert any(f"was fed at {first.fed_at}, the one before it at {second.fed_at}" in text for text in texts)


@pytest.mark.parametrize(
    ("fields", "rules"),
    [
        ({"x": -1}, {"B"}),
        ({"n": 9_999_999}, {"A", "B", "D"}),
        ({"fed_at": Place("fed", 9, 77)}, {"B"}),
        ({"group": "g98"}, {"B", "D", "E"}),
        ({"total": -1}, {"D"}),
        ({"src": Place("groups", 10, 1)}, {"C"}),
        ({"place": Place("regrouped", 9, 1)}, {"C"}),
        ({"src": Place("groups", 0, 0)}, {"C"}),
        ({"task": "Partition_9-0-1"}, {"E"}),
    ],
)
def test_one_wrong_answer_breaks_its_rule(history: History, fields: dict[str, object], rules: set[str]) -> None:
    at = next(i for i in range(2000, RECORDS) if history.answers[i].src.partition == 0)
    history.spoil(at, **fields)

    assert rules <= history.rules()


def test_a_message_handled_by_the_other_part_of_the_task_is_reported(history: History) -> None:
    answer = history.answers[2000]
    bucket = int(answer.task.split("-")[1])
    history.spoil(2000, task=answer.task.replace(f"-{bucket}-2", f"-{1 - bucket}-2"))

    assert {"E"} == history.rules()


def test_a_record_in_doubt_may_come_out_or_not(history: History) -> None:
    history.ledger.maybe.add(Fed("k1", 1_000_000))

    assert set() == history.rules()


def test_an_answer_is_read_from_its_record_and_another_record_is_refused(history: History) -> None:
    answer = history.answers[0]
    fields = {"k": answer.key, "n": answer.n, "x": answer.x, "total": answer.total}
    value = json.dumps({**fields, "fed_at": str(answer.fed_at), "by": answer.by}).encode()
    headers = [("src", str(answer.src).encode()), ("task", answer.task.encode())]

    assert answer == regrouped_of(answer.place, answer.group.encode(), value, headers)
    with pytest.raises(ValueError, match="regrouped"):
        regrouped_of(answer.place, answer.group.encode(), b"{}", headers)


def test_the_state_is_the_last_total_of_each_group(history: History) -> None:
    assert {answer.group: answer.total for answer in history.answers} == totals_of(history.ledger.acked)


def test_a_group_may_continue_in_a_partition_that_was_added_for_its_own(history: History) -> None:
    for at in range(2000, RECORDS):
        answer = history.answers[at]
        history.spoil(at, src=answer.src._replace(partition=answer.src.partition + PARTITIONS))

    assert set() == history.rules()
