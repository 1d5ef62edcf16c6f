"""One record of a good history is spoiled, and the right rule reports it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest

from integration_tests.support.ledger import Place, x_of
from integration_tests.support.rules_ledger import (
    Life,
    ReceivedRule,
    Rules,
    Weighted,
    check_copies,
    check_rules,
    rule_of,
    sums_of_weighted,
)

COUNTS = (60, 50)
RULES = Rules(COUNTS)
WHOLE, LEFT, RIGHT = "Partition_0", "Partition_0-0-2", "Partition_0-1-2"
KEY_OF = {WHOLE: "all", LEFT: "l", RIGHT: "r"}
# One task is divided; the parts work by themselves; the one that is behind gives its copy when they are merged, and
# the further rules of the other one are read again; then the merged task changes hands.
LIVES = [
    (WHOLE, 1, WHOLE, (0, 0), (10, 8)),
    (LEFT, 2, WHOLE, (10, 8), (20, 19)),
    (RIGHT, 3, WHOLE, (10, 8), (23, 16)),
    (WHOLE, 4, LEFT, (20, 19), (33, 30)),
    (WHOLE, 5, WHOLE, (33, 30), COUNTS),
]


def read_of(*numbers: int) -> tuple[tuple[int, int], ...]:
    return tuple((n, RULES._hashes[partition][n]) for partition, n in enumerate(numbers))


class History:
    """The rules and answers of the tasks of `LIVES`.

    After each rule comes one message of a key of their own.
    """

    def __init__(self) -> None:
        self.lives = [Life(task, epoch, source, starts) for task, epoch, source, starts, _ in LIVES]
        self.rules_read: list[ReceivedRule] = []
        self.weighted: list[Weighted] = []
        self.in_force = {WHOLE}
        counts, sums, offsets = Counter[str](), Counter[str](), defaultdict[str, int](int)
        for task, _, _, starts, ends in LIVES:
            numbers = list(starts)
            while tuple(numbers) != ends:
                partition = 0 if numbers[0] < ends[0] and (sum(numbers) % 2 or numbers[1] == ends[1]) else 1
                numbers[partition] += 1
                place = Place("heard", partition, offsets["heard"])
                self.rules_read.append(ReceivedRule(place, task, partition, numbers[partition], read_of(*numbers)))
                key = KEY_OF[task]
                counts[key] += 1
                name = f"{counts[key] % 2}/{counts[key] % 20}"
                weight = RULES.weight(name, read_of(*numbers))
                sums[key] += x_of(key, counts[key]) * (1 if weight is None else weight)
                place = Place("sums", 0, offsets["sums"])
                self.weighted.append(
                    Weighted(place, task, key, counts[key], sums[key], read_of(*numbers), name, weight)
                )
                offsets["heard"] += 1
                offsets["sums"] += 1

    def texts(self, counts: Sequence[int] = COUNTS) -> list[str]:
        return [
            str(violation)
            for violation in check_rules(Rules(counts), self.lives, self.in_force, self.rules_read, self.weighted)
        ]

    def rules(self) -> set[str]:
        return {text[5] for text in self.texts()}

    def last_index_of(self, task: str, partition: int, n: int) -> int:
        """The last time that a task read a rule."""
        return max(
            i for i, rule in enumerate(self.rules_read) if (rule.task, rule.partition, rule.n) == (task, partition, n)
        )


@pytest.fixture
def history() -> History:
    return History()


def test_a_good_history_has_no_violation_although_a_merge_repeats_rules(history: History) -> None:
    assert [] == history.texts()
    # The part that was further had read it, and so does the merged task.
    assert [RIGHT, WHOLE] == [rule.task for rule in history.rules_read if (rule.partition, rule.n) == (0, 21)]


@pytest.mark.parametrize("n", [1, 10, 25, 33, 34, 60])
def test_a_missing_rule_is_reported_also_at_the_border_of_two_lives(history: History, n: int) -> None:
    del history.rules_read[history.last_index_of(WHOLE, 0, n)]

    assert {"C"} == history.rules()


@pytest.mark.parametrize("n", [1, 10, 25, 33, 34, 60])
def test_a_doubled_rule_is_reported_also_at_the_border_of_two_lives(history: History, n: int) -> None:
    at = history.last_index_of(WHOLE, 0, n)
    history.rules_read.insert(at, history.rules_read[at])

    assert {"C"} == history.rules()


@pytest.mark.parametrize(("n", "is_right"), [(16, True), (14, False)])
def test_a_life_without_a_successor_may_end_anywhere_but_has_no_gap(history: History, n: int, is_right: bool) -> None:
    del history.rules_read[history.last_index_of(RIGHT, 1, n)]

    assert (set() if is_right else {"C"}) == history.rules()


def test_two_rules_in_the_wrong_order_are_seen(history: History) -> None:
    one, other = history.last_index_of(WHOLE, 1, 40), history.last_index_of(WHOLE, 1, 41)
    history.rules_read[one], history.rules_read[other] = history.rules_read[other], history.rules_read[one]

    assert {"C"} == history.rules()


def test_rules_of_a_task_without_a_grant_are_reported(history: History) -> None:
    history.rules_read.append(history.rules_read[-1]._replace(task="Partition_9"))
    history.weighted.append(history.weighted[-1]._replace(task="Partition_9", key=None))

    assert ["C", "C"] == [text[5] for text in history.texts()]


def test_a_life_that_does_not_begin_where_its_source_ended_is_seen(history: History) -> None:
    # The smallest position of each partition: of no part's copy.
    history.lives[3] = history.lives[3]._replace(starts=(20, 16))

    assert {"C"} == history.rules()


def test_heirs_that_begin_at_two_places_are_seen(history: History) -> None:
    history.lives[2] = history.lives[2]._replace(starts=(9, 8))

    assert any("another heir of the life of Partition_0 under epoch 1 at (10, 8)" in text for text in history.texts())


def test_a_first_life_that_does_not_begin_at_the_beginning_is_seen(history: History) -> None:
    history.lives[0] = history.lives[0]._replace(starts=(3, 0))

    assert any("Partition_0 had no life yet" in text for text in history.texts())


def test_a_copy_that_no_first_rules_come_to_is_seen(history: History) -> None:
    at = history.last_index_of(WHOLE, 0, 40)
    read = history.rules_read[at].read
    history.rules_read[at] = history.rules_read[at]._replace(read=((read[0][0], read[0][1] + 1), read[1]))
    answer = history.weighted[7]
    history.weighted[7] = answer._replace(read=((answer.read[0][0] + 1, answer.read[0][1]), answer.read[1]))

    assert 2 == sum("which no first rules come to" in text for text in history.texts())


def test_a_rule_that_is_counted_under_another_number_is_seen(history: History) -> None:
    at = history.last_index_of(WHOLE, 0, 40)
    history.rules_read[at] = history.rules_read[at]._replace(read=read_of(39, history.rules_read[at].read[1][0]))

    assert {"D"} == history.rules()


@pytest.mark.parametrize("weight", [None, 11])
def test_a_weight_that_does_not_follow_from_the_rules_is_reported(history: History, weight: int | None) -> None:
    at = next(i for i, answer in enumerate(history.weighted) if i > 40 and answer.weight not in (None, 1))
    history.weighted[at] = history.weighted[at]._replace(weight=weight)

    assert {"D"} == history.rules()


def test_a_wrong_weighted_sum_is_seen(history: History) -> None:
    answer = history.weighted[50]
    assert answer.weighted is not None
    history.weighted[50] = answer._replace(weighted=answer.weighted + 1)

    assert {"D"} == history.rules()


def test_a_task_that_unlearns_rules_within_a_life_is_seen(history: History) -> None:
    # The last two answers of one life show the rules in the wrong order; both are right for some first rules.
    one, other = history.weighted[-2], history.weighted[-1]
    name, weight = "0/0", {answer: RULES.weight("0/0", answer.read) for answer in (one, other)}
    history.weighted[-2:] = [
        one._replace(read=other.read, key=None, name=name, weight=weight[other]),
        other._replace(read=one.read, key=None, name=name, weight=weight[one]),
    ]

    assert {"C"} == history.rules()


def test_a_task_that_knows_more_than_its_life_came_to_is_seen(history: History) -> None:
    at = max(i for i, answer in enumerate(history.weighted) if answer.task == LEFT)
    read = read_of(21, 19)
    history.weighted[at] = history.weighted[at]._replace(
        read=read, key=None, name="0/0", weight=RULES.weight("0/0", read)
    )

    assert {"C"} == history.rules()


def test_a_copy_must_hold_the_sum_of_all_rules_and_nothing_else() -> None:
    whole = dict(RULES.entries())
    assert [60, RULES._hashes[0][60]] == whole["0"]
    assert 2 < sum("/" in name for name in whole) < 40

    assert [] == check_copies(RULES, [LEFT, RIGHT], {"the store": {LEFT: whole, RIGHT: whole, WHOLE: {}}})
    some = next(name for name in whole if "/" in name)
    for spoiled in ({**whole, some: 1}, {k: v for k, v in whole.items() if k != some}, {**whole, "0/99": 1}):
        (violation,) = check_copies(RULES, [LEFT, RIGHT], {"the store": {LEFT: whole, RIGHT: spoiled}})
        assert "H" == violation.rule
        assert f"the store of {RIGHT}" in violation.text
    assert len(whole) == len(check_copies(RULES, [LEFT], {"the store": {}}))


def test_rules_are_the_same_each_time_and_some_remove_a_weight() -> None:
    assert rule_of(0, 7) == rule_of(0, 7) != rule_of(1, 7)
    removing = [n for n in range(1, 200) if b'"weight": null' in rule_of(0, n)]
    assert 20 < len(removing) < 60


def test_the_last_weighted_sum_of_each_key_is_its_state(history: History) -> None:
    last = {answer.key: answer.weighted for answer in history.weighted}

    assert last == sums_of_weighted([*history.weighted, history.weighted[0]._replace(key=None, weighted=None)])
