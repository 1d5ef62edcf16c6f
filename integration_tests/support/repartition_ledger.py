"""The rules of a second step by another key.

`integration_tests.support.ledger` judges the first step.

Theory. The first step sends each fed record on under the key of its group, with the place where it read it and the
task that did. The second step answers each of them once, with the running total of its group, and with the place in
the intermediate stream. So every fed record must come out of the second step once (A), with its own fields (B).
The records that one task sent from one partition, and those of one key, must be in order within the group (C). The
totals must be those of the answers before (D), and the answering task must be the owner of the group (E).

Nothing is assumed of the order in which several tasks send to one group.

Rules have the letters of `integration_tests.support.ledger`; pure, as that is.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from integration_tests.support.ledger import Fed, Key, Ledger, Place, Violation, owners_of_places, x_of

GROUPS = 97


class Regrouped(NamedTuple):
    """Record `n` of `key` in the second step: task `by` read it and sent it to `src`."""

    place: Place
    group: str
    key: Key
    n: int
    x: int
    total: int
    fed_at: Place
    by: str
    src: Place
    task: str


def group_of(fed: Fed) -> str:
    """The second key of a fed record: each key visits all groups in turn."""
    return f"g{(zlib.crc32((fed.key or '').encode()) + fed.n) % GROUPS}"


def totals_of(fed: Iterable[Fed]) -> Mapping[str, int]:
    """The state that the second step must have come to, by group."""
    totals: Counter[str] = Counter()
    for record in fed:
        totals[group_of(record)] += x_of(*record)
    return dict(totals)


def regrouped_of(
    place: Place, key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> Regrouped:
    """Read a record of the second step. Raises ValueError: it is none; says where."""
    try:
        fields = json.loads(value or b"")
        texts = {name: (text or b"").decode() for name, text in headers}
        return Regrouped(
            place=place,
            group=(key or b"").decode(),
            key=fields["k"],
            n=int(fields["n"]),
            x=int(fields["x"]),
            total=int(fields["total"]),
            fed_at=Place.parse(fields["fed_at"]),
            by=fields["by"],
            src=Place.parse(texts["src"]),
            task=texts["task"],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{place}: wanted an answer of the second step, found {value!r} ({error!r})") from error


def check_regrouped(ledger: Ledger, answers: Sequence[Regrouped], partition_count_first: int) -> list[Violation]:
    """Rules A to E.

    Args:
        answers: of each partition in the order of their offsets.
        partition_count_first: partitions of the intermediate stream at first; a group keeps its partition modulo it.
    """
    return [
        *_complete(ledger, answers),
        *_no_phantom(ledger, answers),
        *_in_order(answers, partition_count_first),
        *_totals(answers),
        *owners_of_places((answer.place, answer.src, answer.group, answer.task) for answer in answers),
    ]


def _complete(ledger: Ledger, answers: Sequence[Regrouped]) -> Iterator[Violation]:
    seen = {Fed(answer.key, answer.n) for answer in answers}
    for fed, place in ledger.acked.items():
        if fed not in seen:
            yield Violation("A", f"{fed}, acknowledged at {place}, never came out of the second step: lost")


def _no_phantom(ledger: Ledger, answers: Sequence[Regrouped]) -> Iterator[Violation]:
    for answer in answers:
        fed = Fed(answer.key, answer.n)
        fed_at = ledger.acked.get(fed)
        if fed_at is None and fed not in ledger.maybe:
            yield Violation("B", f"{answer.place} holds {fed}, which was never fed: a phantom")
        elif answer.x != x_of(*fed):
            yield Violation("B", f"{answer.place} names {fed} with x={answer.x}, fed was x={x_of(*fed)}")
        elif fed_at is not None and answer.fed_at != fed_at:
            yield Violation("B", f"{answer.place} names {fed} as fed at {answer.fed_at}; it is at {fed_at}")
        if answer.group != group_of(fed):
            yield Violation("B", f"{answer.place} has {fed} in the group {answer.group}, it is of {group_of(fed)}")


def _in_order(answers: Sequence[Regrouped], partition_count_first: int) -> Iterator[Violation]:
    places: dict[str, tuple[int, tuple[str, int]]] = {}
    read: dict[tuple[str, int], Regrouped] = {}
    sent: dict[tuple[str, str, tuple[str, int]], Regrouped] = {}
    of_key: dict[tuple[str, Key], int] = {}
    once: set[Fed] = set()
    for answer in answers:
        fed = Fed(answer.key, answer.n)
        if fed in once:
            yield Violation("C", f"{fed} at {answer.place} came out of the second step before: doubled")
        once.add(fed)
        here = (answer.src.partition % partition_count_first, answer.place[:2])
        if places.setdefault(answer.group, here) != here:
            yield Violation("C", f"{answer.place}: {answer.group} went through {here}, and {places[answer.group]}")
        before = read.get((answer.group, answer.src.partition))
        if before is not None and answer.src.offset <= before.src.offset:
            yield Violation("C", f"{answer.place} was read at {answer.src}, the one before it at {before.src}")
        read[answer.group, answer.src.partition] = answer
        line = (answer.group, answer.by, answer.fed_at[:2])
        before = sent.get(line)
        if before is not None and answer.fed_at.offset <= before.fed_at.offset:
            yield Violation("C", f"{answer.place} was fed at {answer.fed_at}, the one before it at {before.fed_at}")
        sent[line] = answer
        if answer.key is None:
            continue  # There is no order among these but that of the task which reads them.
        if answer.n <= of_key.get((answer.group, answer.key), 0):
            yield Violation("C", f"{fed} at {answer.place} comes after a later one of its key: out of order")
        of_key[answer.group, answer.key] = answer.n


def _totals(answers: Sequence[Regrouped]) -> Iterator[Violation]:
    totals: Counter[str] = Counter()
    for answer in answers:
        totals[answer.group] += x_of(answer.key, answer.n)
        if answer.total != totals[answer.group]:
            yield Violation(
                "D", f"{answer.place} gives {answer.group} {answer.total}, right is {totals[answer.group]}"
            )
