"""Random scripts of operations on a log, played in memory and on a real broker: both must come to the same.

Not among the steps: a connection that breaks at a commit, whose outcome only the broker knows. That takes a proxy for
each script; `integration_tests/test_a_delayed_end_of_transaction_tears_nothing.py` has one, with the tear itself.

A simulation is worth as much as the log under it. A script is made from a seed and knows no outcome; `play` tells
what became of each step: what was refused, what a reader saw and with which offsets, where it had to wait.

Some are compacted half way. A real broker needs appends of its own for that, nobody knows how many; so what comes
behind is told by its distance from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from samzapy.errors import DeadlineError, FencedError, ProducerError
from samzapy.stream.log import Write
from unit_tests.conformance.log_contract import LogWorld, OpenTransaction, put

IDS = ("ann", "bob", "cid")
BLOCKED_READS_MAX = 1
"""A reader of a real broker waits seconds before it says that it waits in vain."""
COMPACTED_EACH = 3
"""Of so many scripts one is compacted: that takes a real broker seconds, too."""


@dataclass(frozen=True, slots=True)
class Step:
    """`what` is open, commit, abort, fence, compact, or read: `who` is a transactional id, or the number of an opened
    transaction. To read all is to read when nothing is open."""

    what: str
    who: str | int = ""
    writes: tuple[Write, ...] = ()


def a_script(seed: int, length: int = 18) -> tuple[Step, ...]:
    """Steps that make sense and steps that must be refused: ends of what was fenced, or has ended already."""
    random = Random(seed)
    steps: list[Step] = []
    opened = 0
    for number in range(length):
        luck = random.random()
        if luck < 0.4 or not opened:
            keys = random.choices("abcd", k=random.randrange(1, 4))
            values = [None if random.random() < 0.2 else str(number) for _ in keys]
            steps.append(Step("open", random.choice(IDS), tuple(map(put, keys, values))))
            opened += 1
        elif luck < 0.62:
            # Mostly one of the latest, which may still be open.
            steps.append(Step("commit", max(0, opened - random.randrange(1, 4))))
        elif luck < 0.72:
            steps.append(Step("abort", max(0, opened - random.randrange(1, 4))))
        elif luck < 0.82:
            steps.append(Step("fence", random.choice(IDS)))
        else:
            steps.append(Step("read"))
    # In the end everything is over, so that a reader sees all there is; and the cleaner may take all that it can.
    over = [Step("fence", name) for name in IDS]
    if seed % COMPACTED_EACH == 0:
        half = length // 2
        steps[half:half] = [*over, Step("compact"), Step("read all")]
    return (*steps, *over, Step("read all"))


def play(world: LogWorld, script: Sequence[Step]) -> list[str]:
    """What became of each step."""
    opened: list[OpenTransaction | None] = []
    told: list[str] = []
    blocked = 0
    base = 0
    for step in script:
        match step.what:
            case "open":
                opened.append(world.open_transaction(str(step.who), step.writes))
                told.append(f"{step.who} opens")
            case "fence":
                world.fence([str(step.who)])
                told.append(f"{step.who} is fenced")
            case "read" if blocked < BLOCKED_READS_MAX:
                told.append(_read(world, base))
                blocked += told[-1].endswith("waits")
            case "read":
                told.append("not read")
            case "read all":
                told.append(_read(world, base))
            case "compact":
                world.compact()
                base = world.log("reader").end_offset()
                told.append("compacted")
            case _:
                index = int(step.who)
                transaction, opened[index] = opened[index], None
                told.append(f"{index}: {_end(transaction, step.what)}")
    return told


def _end(transaction: OpenTransaction | None, how: str) -> str:
    if transaction is None:
        return "ended before"
    try:
        transaction.commit() if how == "commit" else transaction.abort()
    except (FencedError, ProducerError):
        return f"{how} is refused"
    return how


def _read(world: LogWorld, base: int) -> str:
    """What a reader sees; offsets from `base` on, where the log was compacted, by their distance from there."""

    def place(offset: int) -> str:
        return f"+{offset - base}" if base and offset >= base else str(offset)

    seen: list[str] = []
    try:
        for record in world.log("reader").read():
            seen.append(f"{place(record.offset)}={record.key!r}:{record.value!r}")
    except DeadlineError:
        return f"{' '.join(seen)} and waits"
    return f"{' '.join(seen)} and ends at {place(world.log('reader').end_offset())}"
