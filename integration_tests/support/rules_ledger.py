"""The rules of a broadcast input and of a store of scope `broadcast`.

Theory. A rule sets a weight by name, or removes it. All tasks read all rules, from several partitions, each at its own
pace. The state of a task is right if it is the fold of some first rules of each partition; how many, the task writes
into everything that it sends, and a hash over them proves it. A task lives several lives, one for each grant. A life
begins with the copy of its own last life, or of another task's, and reads on where that had come to. So the rules that
tasks hear along a line of such lives are 1, 2, 3, ... without a gap and none twice. Only if no life continues a life,
its end is not known: the documentation leaves that open.

Rules have the letters of `integration_tests.support.ledger`: C order, D state, H changelog and local stores.

Pure, as that is.
"""

from __future__ import annotations

import json
import random
import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from integration_tests.support.ledger import Place, Violation, x_of

WEIGHTS = 20
"""How many names a partition's rules set weights for."""

Read = tuple[tuple[int, int], ...]
"""Of each partition of the rules: how many were read, and the hash over them."""


class ReceivedRule(NamedTuple):
    """A task's record for each rule: its number in its partition, and all rules read."""

    place: Place
    task: str
    partition: int
    n: int
    read: Read


class Weighted(NamedTuple):
    """A task's record for a message: the weight under `name`, and the rules read."""

    place: Place
    task: str
    key: str | None
    n: int
    weighted: int | None
    read: Read
    name: str
    weight: int | None


class Life(NamedTuple):
    """A grant: begins with `source`'s copy, behind `starts[p]` rules of partition p."""

    task: str
    epoch: int
    source: str
    starts: tuple[int, ...]


def rule_of(partition: int, n: int) -> bytes:
    """The value of rule `n`, from 1, of a partition: JSON."""
    chance = random.Random(f"{partition}/{n}")  # a test must be able to repeat it
    weight = None if chance.random() < 0.2 else chance.randint(2, 9)
    return json.dumps({"n": n, "name": f"{partition}/{chance.randrange(WEIGHTS)}", "weight": weight}).encode()


class Rules:
    """The first `counts[p]` rules of each partition p, and their fold."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts = tuple(counts)
        self._hashes = [[0] for _ in counts]
        self._weights: dict[str, list[tuple[int, int | None]]] = defaultdict(list)
        for partition, count in enumerate(counts):
            for n in range(1, count + 1):
                value = rule_of(partition, n)
                rule = json.loads(value)
                self._hashes[partition].append(zlib.crc32(value, self._hashes[partition][-1]))
                self._weights[rule["name"]].append((n, rule["weight"]))

    def is_right(self, read: Read) -> bool:
        """Whether it is the fold of some first rules of each partition."""
        return len(read) == len(self.counts) and all(
            n <= count and hashed == hashes[n]
            for (n, hashed), count, hashes in zip(read, self.counts, self._hashes, strict=True)
        )

    def weight(self, name: str, read: Read) -> int | None:
        """The weight under `name` after so many rules."""
        settings = self._weights.get(name, [])
        at = bisect_right(settings, read[int(name.partition("/")[0])][0], key=lambda setting: setting[0])
        return settings[at - 1][1] if at else None

    def entries(self) -> Mapping[str, Any]:
        """The whole copy of a task that has read all rules."""
        entries: dict[str, Any] = {
            str(partition): [count, self._hashes[partition][-1]]
            for partition, count in enumerate(self.counts)
            if count
        }
        settled = {name: settings[-1][1] for name, settings in self._weights.items()}
        return entries | {name: weight for name, weight in settled.items() if weight is not None}


def check_rules(
    rules: Rules,
    lives: Sequence[Life],
    in_force: Iterable[str],
    received: Sequence[ReceivedRule],
    weighted: Sequence[Weighted],
) -> list[Violation]:
    """Rules C and D.

    Args:
        lives: all of them, in the order of their epochs.
        in_force: the tasks whose last lives have come to the end of the rules.
        received, weighted: in each partition in the order of their offsets. The records about one partition of the
            rules are in one partition.
    """
    ends, violations = _ends(rules, lives, set(in_force))
    return [
        *violations,
        *_right(rules, received, weighted),
        *_weighted_sums(weighted),
        *_received_along_lives(lives, ends, received, len(rules.counts)),
        *_never_back(lives, ends, weighted),
    ]


def sums_of_weighted(weighted: Iterable[Weighted]) -> Mapping[str, int]:
    """The last weighted state that the job reported, by key."""
    return {
        answer.key: answer.weighted for answer in weighted if answer.key is not None and answer.weighted is not None
    }


def check_copies(
    rules: Rules, in_force: Iterable[str], copies: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> list[Violation]:
    """Rule H: each task in force has the whole copy.

    Args: copies: by place, then by task.
    """
    wanted = rules.entries()
    violations = []
    for task in sorted(in_force):
        for where, by_task in copies.items():
            held = by_task.get(task, {})
            for name in sorted({*wanted, *held}):
                if held.get(name) != wanted.get(name):
                    text = f"{where} of {task} holds {held.get(name)} under {name}, the rules give {wanted.get(name)}"
                    violations.append(Violation("H", text))
    return violations


def _right(rules: Rules, received: Iterable[ReceivedRule], weighted: Iterable[Weighted]) -> Iterator[Violation]:
    for rule in received:
        if not rules.is_right(rule.read):
            yield Violation("D", f"{rule.place}: {rule.task} knows {rule.read}, which no first rules come to")
        elif rule.read[rule.partition][0] != rule.n:
            number = rule.read[rule.partition]
            yield Violation("D", f"{rule.place}: {rule.task} received rule {rule.n} as number {number}")
    for answer in weighted:
        if not rules.is_right(answer.read):
            yield Violation("D", f"{answer.place}: {answer.task} knows {answer.read}, which no first rules come to")
        elif answer.weight != rules.weight(answer.name, answer.read):
            yield Violation(
                "D",
                f"{answer.place}: {answer.task} found {answer.weight} under {answer.name}, by its rules it is "
                f"{rules.weight(answer.name, answer.read)}",
            )


def _weighted_sums(weighted: Iterable[Weighted]) -> Iterator[Violation]:
    sums: dict[str, int] = defaultdict(int)
    for answer in weighted:
        if answer.key is None:
            continue
        sums[answer.key] += x_of(answer.key, answer.n) * (1 if answer.weight is None else answer.weight)
        if answer.weighted != sums[answer.key]:
            yield Violation(
                "D",
                f"{answer.key} number {answer.n} at {answer.place} has weighted={answer.weighted}, right is "
                f"{sums[answer.key]}",
            )


Ends = Sequence[tuple[int, ...] | None]
"""How many rules of each partition each life read; None if no life continues it."""


def _ends(rules: Rules, lives: Sequence[Life], in_force: set[str]) -> tuple[Ends, Sequence[Violation]]:
    ends: list[tuple[int, ...] | None] = [None] * len(lives)
    violations: list[Violation] = []
    last: dict[str, int] = {}
    for index, life in enumerate(lives):
        before = last.get(life.source)
        if before is None:
            if any(life.starts):
                violations.append(
                    Violation("C", f"{_name(life)} begins at {life.starts}, and {life.source} had no life yet")
                )
        elif ends[before] not in (None, life.starts):
            text = f"{_name(life)} begins at {life.starts}, another heir of {_name(lives[before])} at {ends[before]}"
            violations.append(Violation("C", text))
        else:
            ends[before] = life.starts
        last[life.task] = index
    for task in in_force & last.keys():
        ends[last[task]] = rules.counts
    return ends, violations


def _received_along_lives(
    lives: Sequence[Life], ends: Ends, received: Iterable[ReceivedRule], partition_count: int
) -> Iterator[Violation]:
    numbers: dict[tuple[str, int], list[int]] = defaultdict(list)
    for rule in received:
        numbers[rule.task, rule.partition].append(rule.n)
    for task in sorted({life.task for life in lives} | {task for task, _ in numbers}):
        own = [index for index, life in enumerate(lives) if life.task == task]
        for partition in range(partition_count):
            of_task = numbers[task, partition]
            # Where the lives so far may have ended in the records of the task: some ends are not known.
            reached = {0}
            for index in own:
                end = ends[index]
                reached = _after(
                    of_task, reached, lives[index].starts[partition], None if end is None else end[partition]
                )
                if not reached:
                    yield Violation(
                        "C",
                        f"{task} received {_runs(of_task)} of the rules' partition {partition}; {_name(lives[index])} "
                        f"began behind {lives[index].starts[partition]} and came to "
                        f"{'any' if end is None else end[partition]}",
                    )
                    break
            if reached and len(of_task) not in reached:
                yield Violation(
                    "C", f"{task} received {_runs(of_task)} of partition {partition}: more than its lives"
                )


def _after(numbers: Sequence[int], reached: Iterable[int], start: int, end: int | None) -> set[int]:
    """The ends in `numbers` of a life that hears `start` + 1, ... up to `end`."""
    ends = set()
    for first in reached:
        at, n = first, start
        while end is None or n < end:
            if end is None:
                ends.add(at)
            if at == len(numbers) or numbers[at] != n + 1:
                break
            at, n = at + 1, n + 1
        if n == end:
            ends.add(at)
    return ends


def _never_back(lives: Sequence[Life], ends: Ends, weighted: Iterable[Weighted]) -> Iterator[Violation]:
    """Within a life the knowledge of a task never shrinks and stays within its bounds."""
    own: dict[str, list[int]] = defaultdict(list)
    for index, life in enumerate(lives):
        own[life.task].append(index)
    # For each task and each partition of its answers: its current life, and its latest knowledge.
    at: dict[tuple[str, str, int], tuple[int, tuple[int, ...]]] = {}
    for answer in weighted:
        place = answer.task, *answer.place[:2]
        number, before = at.get(place, (0, ()))
        knows = tuple(n for n, _ in answer.read)
        # The earliest possible life leaves the most open for the answers that follow.
        while number < len(own[answer.task]):
            index = own[answer.task][number]
            end = ends[index]
            least = tuple(map(max, before, lives[index].starts)) if before else lives[index].starts
            if all(map(int.__le__, least, knows)) and (end is None or all(map(int.__le__, knows, end))):
                break
            number, before = number + 1, ()
        else:
            known = at.get(place, (0, ()))[1]
            yield Violation(
                "C", f"{answer.place}: {answer.task} knows {knows} rules, which fits no life behind {known}"
            )
            number, knows = 0, ()
        at[place] = number, knows


def _name(life: Life) -> str:
    return f"the life of {life.task} under epoch {life.epoch}"


def _runs(numbers: Sequence[int]) -> str:
    """`1..7, 3..9` for numbers that go up by one and begin anew."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(f"{first}..{last}" for first, last in runs) or "nothing"
