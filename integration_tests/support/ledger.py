"""The exact checker: names each lost, doubled, unordered, wrong or false record.

Theory. Each fed record proves itself: it carries its key, the key's counter n = 1, 2, 3, ... and a hash of both. The
ledger remembers where the broker put it. The job under test answers each record once, with the running sum of its
key and with the place it read. Offsets give the order of everything, so nothing has to be searched for: each rule is
one pass over the outputs.

The rules keep the letters of the reliability reference: A completeness, B no phantom, C exactly once and in order,
D state, E ownership, G positions, H changelog and local stores, R two readers. (I, the coordinator's log, is
`integration_tests.support.coordinator_audit`; J and K ask the broker and the machine, so tests check them.)

Pure: the checks take values, so a test can spoil one record of a good history and see which rule fails.
"""

from __future__ import annotations

import json
import random
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import xxhash

from integration_tests.support.coordinator_audit import Bucket

X_MAX = 10_007

Key = str | None
"""A message's key; the messages without one count as one more key."""


class Place(NamedTuple):
    """The place of a record; the job under test puts its text into `src`.

    The text is `topic-partition-offset`.
    """

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """Raises ValueError for anything else."""
        topic, partition, offset = text.rsplit("-", 2)
        return cls(topic, int(partition), int(offset))


class Fed(NamedTuple):
    """A record that was fed in: number `n` of its key."""

    key: Key
    n: int


class Output(NamedTuple):
    """A record of the job under test. `sum` is None for messages without a key."""

    place: Place
    key: Key
    n: int
    x: int
    sum: int | None
    src: Place
    task: str


class Position(NamedTuple):
    """The record at offset `at` of the checkpoint topic: checkpoint or progress."""

    at: int
    kind: str
    ssp_kb: str
    offset_next: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that does not hold, by its letter, and the contradiction."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"rule {self.rule}: {self.text}"


def x_of(key: Key, n: int) -> int:
    """The `x` of record `n` of `key`: a hash of both, so that an altered record shows."""
    return zlib.crc32(f"{key}/{n}".encode()) % X_MAX


def value_of(fed: Fed) -> bytes:
    """The value that is fed in, JSON."""
    return json.dumps({"k": fed.key, "n": fed.n, "x": x_of(*fed)}).encode()


class Feed:
    """The next records: `key_count` keys with cubic skew, and some without a key.

    The same seed gives the same sequence.
    """

    def __init__(self, seed: int, *, key_count: int = 500, without_key_share: float = 0.02) -> None:
        self._random = random.Random(seed)  # a test must be able to repeat it
        self._key_count = key_count
        self._without_key_share = without_key_share
        self._counts: Counter[Key] = Counter()

    def next(self) -> Fed:
        """The next record of a key drawn by the skew."""
        if self._random.random() < self._without_key_share:
            return self.next_of(None)
        return self.next_of(f"k{int(self._key_count * self._random.random() ** 3)}")

    def next_of(self, key: Key) -> Fed:
        """The next record of this very key."""
        self._counts[key] += 1
        return Fed(key, self._counts[key])


@dataclass(slots=True)
class Ledger:
    """The records that were fed in, as the broker acknowledged them.

    Attributes:
        acked: acknowledged records and their places; each must come out exactly once.
        maybe: sent and never acknowledged; each may come out once or not at all.
    """

    acked: dict[Fed, Place] = field(default_factory=dict)
    maybe: set[Fed] = field(default_factory=set)

    def sent(self, fed: Fed) -> None:
        self.maybe.add(fed)

    def acknowledged(self, fed: Fed, place: Place) -> None:
        self.maybe.discard(fed)
        self.acked[fed] = place


def output_of(
    place: Place, key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> Output:
    """Read a record of the job under test.

    Raises:
        ValueError: it is none; says where.
    """
    try:
        fields = json.loads(value or b"")
        texts = {name: (text or b"").decode() for name, text in headers}
        output = Output(
            place=place,
            key=fields["k"],
            n=int(fields["n"]),
            x=int(fields["x"]),
            sum=fields.get("sum"),
            src=Place.parse(texts["src"]),
            task=texts["task"],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{place}: wanted an output of the job under test, found {value!r} ({error!r})") from error
    if (None if key is None else key.decode()) != output.key:
        raise ValueError(f"{place}: wanted the key that the value names, {output.key!r}, found {key!r}")
    return output


def check_outputs(ledger: Ledger, outputs: Sequence[Output]) -> list[Violation]:
    """Rules A to E. `outputs` of each partition in the order of their offsets.

    Nothing about the order between partitions is assumed: a key's records, and those of one input partition that
    went to one output partition, must be in order there.
    """
    return [
        *_complete(ledger, outputs),
        *_no_phantom(ledger, outputs),
        *_in_order(outputs),
        *_sums(outputs),
        *owners_of_places((output.place, output.src, output.key, output.task) for output in outputs),
    ]


def _complete(ledger: Ledger, outputs: Sequence[Output]) -> Iterable[Violation]:
    seen = {Fed(output.key, output.n) for output in outputs}
    for fed, place in ledger.acked.items():
        if fed not in seen:
            yield Violation("A", f"{_name(fed)}, acknowledged at {place}, never came out: lost")


def _no_phantom(ledger: Ledger, outputs: Sequence[Output]) -> Iterable[Violation]:
    maybe_at: dict[Place, Fed] = {}
    taken = set(ledger.acked.values())
    for output in outputs:
        fed = Fed(output.key, output.n)
        if output.x != x_of(*fed):
            yield Violation("B", f"{output.place} names {_name(fed)} with x={output.x}, fed was x={x_of(*fed)}")
        fed_at = ledger.acked.get(fed)
        if fed_at is not None:
            if output.src != fed_at:
                yield Violation("B", f"{output.place} names {_name(fed)} was read at {output.src}; it is at {fed_at}")
        elif fed not in ledger.maybe:
            yield Violation("B", f"{output.place} holds {_name(fed)}, which was never fed: a phantom")
        elif output.src in taken or maybe_at.setdefault(output.src, fed) != fed:
            yield Violation(
                "B", f"{output.place} names {_name(fed)} was read at {output.src}; another record is there"
            )


def _in_order(outputs: Sequence[Output]) -> Iterable[Violation]:
    last: dict[Key, Output] = {}
    last_read: dict[tuple[str, int, str, int, str], Output] = {}
    without_key: set[int] = set()
    for output in outputs:
        before = last.get(output.key)
        if output.key is None:
            # There is no order among these but that of the task which reads them.
            if output.n in without_key:
                yield Violation("C", f"{_name(output)} at {output.place} was there before: doubled")
            without_key.add(output.n)
        elif before is not None and before.place[:2] != output.place[:2]:
            yield Violation(
                "C", f"{_name(output)} at {output.place}, {_name(before)} at {before.place}: two partitions"
            )
        elif before is not None and output.n <= before.n:
            fault = "doubled" if output.n == before.n else "doubled or out of order"
            yield Violation("C", f"{_name(output)} at {output.place} comes after {_name(before)}: {fault}")
        last[output.key] = output
        pair = (*output.src[:2], *output.place[:2], output.task)
        read_before = last_read.get(pair)
        if read_before is not None and output.src.offset <= read_before.src.offset:
            yield Violation("C", f"{output.place} was read at {output.src}, the one before it at {read_before.src}")
        last_read[pair] = output


def _sums(outputs: Sequence[Output]) -> Iterable[Violation]:
    sums: Counter[Key] = Counter()
    for output in outputs:
        if output.key is None:
            if output.sum is not None:
                yield Violation("D", f"{_name(output)} at {output.place} has a sum, {output.sum}, but no key")
            continue
        sums[output.key] += x_of(output.key, output.n)
        if output.sum != sums[output.key]:
            yield Violation(
                "D", f"{_name(output)} at {output.place} has sum={output.sum}, right is {sums[output.key]}"
            )


def owners_of_places(answers: Iterable[tuple[Place, Place, Key, str]]) -> Iterable[Violation]:
    """Rule E: a partition belongs to one task, or its key buckets do; the key decides.

    Args:
        answers: for each its place, the place and the key of its message, and its task.
    """
    owners: dict[tuple[str, int], str] = {}
    for place, src, key, task in answers:
        base, bucket, factor = _task_parts(task)
        owner = owners.setdefault((src.topic, src.partition), base)
        if owner != base:
            yield Violation("E", f"{place} was made by {task}; {src} belongs to {owner}")
        hashed = src.offset if key is None else xxhash.xxh64_intdigest(key.encode(), seed=42)
        if hashed % factor != bucket:
            named = "a record without key" if key is None else key
            yield Violation("E", f"{place} was made by {task}; {named} belongs to another part")


def _task_parts(task_name: str) -> tuple[str, int, int]:
    matched = re.fullmatch(r"(.+?)(?:-(\d+)-(\d+))?", task_name)
    assert matched is not None, task_name
    return matched[1], int(matched[2] or 0), int(matched[3] or 1)


def sums_of(fed: Iterable[Fed]) -> Mapping[str, int]:
    """The state the job must have come to, by key."""
    sums: Counter[str] = Counter()
    for key, n in fed:
        if key is not None:
            sums[key] += x_of(key, n)
    return dict(sums)


def check_readers(
    during: Mapping[tuple[str, int], Sequence[object]], afterwards: Mapping[tuple[str, int], Sequence[object]]
) -> list[Violation]:
    """Rule R: a reader during the test saw the records that are there afterwards."""
    violations = []
    for partition in sorted({*during, *afterwards}):
        early, late = list(during.get(partition, ())), list(afterwards.get(partition, ()))
        if early == late:
            continue
        at = next((i for i, pair in enumerate(zip(early, late, strict=False)) if pair[0] != pair[1]), None)
        at = min(len(early), len(late)) if at is None else at
        texts = [repr(read[at]) if at < len(read) else "the end" for read in (early, late)]
        violations.append(
            Violation(
                "R",
                f"{partition}: read during the faults {len(early)} records, afterwards {len(late)}; they part at "
                f"number {at}: {texts[0]} and {texts[1]}",
            )
        )
    return violations


def check_positions(
    positions: Sequence[Position], ends: Mapping[str, int], in_force: Sequence[str]
) -> list[Violation]:
    """Rules G and E on the checkpoint topic.

    Args:
        positions: the records in order. For each SSPKb and kind the epoch never falls, also not below that of another
            one that shares messages with it, and within an epoch the offset never does.
        ends: per SSP its end, beyond which there is no position.
        in_force: the SSPKbs of the plan in force, of which the larger of checkpoint and progress must have come to
            the end.
    """
    violations: list[Violation] = []
    last: dict[tuple[str, str], Position] = {}
    newest: dict[str, dict[Bucket, int]] = {}
    # The newest owner's position counts, and not that of an older one.
    reached: dict[str, tuple[int, int]] = {}
    for position in positions:
        before = last.get((position.ssp_kb, position.kind))
        place = f"offset {position.at}: {position.kind} {position.ssp_kb} at {position.offset_next}"
        bucket = Bucket.of(position.ssp_kb)
        epochs = newest.setdefault(bucket.ssp, {})
        newer = max((epoch for other, epoch in epochs.items() if other.overlaps(bucket)), default=position.epoch)
        epochs[bucket] = max(position.epoch, epochs.get(bucket, position.epoch))
        if position.epoch < newer:
            violations.append(
                Violation("E", f"{place}, epoch {position.epoch}, comes after epoch {newer}: two owners")
            )
        elif before is not None and position.epoch == before.epoch and position.offset_next < before.offset_next:
            violations.append(Violation("G", f"{place} falls behind {before.offset_next}"))
        if position.offset_next > ends.get(bucket.ssp, -1):
            violations.append(Violation("G", f"{place} lies past the end, {ends.get(bucket.ssp)}"))
        last[position.ssp_kb, position.kind] = position
        reached[position.ssp_kb] = max((position.epoch, position.offset_next), reached.get(position.ssp_kb, (0, 0)))
    for ssp_kb in sorted(in_force):
        _, offset = reached.get(ssp_kb, (0, 0))
        end = ends[Bucket.of(ssp_kb).ssp]
        if offset != end:
            violations.append(Violation("G", f"{ssp_kb} came to {offset} of record, its end is {end}"))
    return violations


def check_state(sums: Mapping[str, int], changelog: Mapping[str, int], stores: Mapping[str, int]) -> list[Violation]:
    """Rule H: the changelog and the local stores both hold the sums, and nothing else."""
    violations = []
    for name, held in (("the changelog", changelog), ("the local store", stores)):
        for key in sorted({*sums, *held}):
            if sums.get(key) != held.get(key):
                violations.append(Violation("H", f"{key}: {name} holds {held.get(key)}, the sum is {sums.get(key)}"))
    return violations


def describe_violations(violations: Sequence[Violation], count_max: int = 20) -> str:
    """Violations as text: how many of each rule, and the first ones."""
    if not violations:
        return "no violation"
    counts = Counter(violation.rule for violation in violations)
    first = "\n".join(f"  {violation}" for violation in violations[:count_max])
    return f"{len(violations)} violations ({', '.join(f'{r}: {n}' for r, n in sorted(counts.items()))})\n{first}"


def _name(record: Fed | Output) -> str:
    return f"{'a record without key' if record.key is None else record.key} number {record.n}"
