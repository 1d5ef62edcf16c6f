"""Random scripts of log operations: memory and a real broker must give the same.

Not among the steps: a connection that breaks at a commit, whose outcome only the broker knows. That takes a proxy for
each script; `integration_tests/test_a_delayed_end_of_transaction_tears_nothing.py` has one, with the tear itself.

A simulation is worth as much as the log under it. A script is made from a seed and knows no outcome; `play` reports
the outcome of each step: refusals, the records of a reader with their offsets, and its waits.

Some are compacted half way. A real broker needs appends of its own for that, of unknown number; so later
records are reported by their distance from there.
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
"""A reader of a real broker waits for seconds before it reports that it waits in vain."""
COMPACTED_EACH = 3
"""Of so many scripts one is compacted: that takes a real broker seconds, too."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step: open, commit, abort, fence, compact or read.

    `owner` is a transactional id, or the number of an opened transaction. To read all is to read when nothing is open.
    """

    act: str
    owner: str | int = ""
    writes: tuple[Write, ...] = ()


def a_script(seed: int, length: int = 18) -> tuple[Step, ...]:
    """Steps that make sense, and ends of transactions that must be refused.

    Those were fenced or have ended.
    """
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
    """The outcome of each step."""
    opened: list[OpenTransaction | None] = []
    transcript: list[str] = []
    blocked = 0
    base = 0
    for step in script:
        match step.act:
            case "open":
                opened.append(world.open_transaction(str(step.owner), step.writes))
                transcript.append(f"{step.owner} opens")
            case "fence":
                world.fence([str(step.owner)])
                transcript.append(f"{step.owner} is fenced")
            case "read" if blocked < BLOCKED_READS_MAX:
                transcript.append(_read(world, base))
                blocked += transcript[-1].endswith("waits")
            case "read":
                transcript.append("not read")
            case "read all":
                transcript.append(_read(world, base))
            case "compact":
                world.compact()
                base = world.log("reader").end_offset()
                transcript.append("compacted")
            case _:
                index = int(step.owner)
                transaction, opened[index] = opened[index], None
                transcript.append(f"{index}: {_end(transaction, step.act)}")
    return transcript


def _end(transaction: OpenTransaction | None, how: str) -> str:
    if transaction is None:
        return "ended before"
    try:
        transaction.commit() if how == "commit" else transaction.abort()
    except (FencedError, ProducerError):
        return f"{how} is refused"
    return how


def _read(world: LogWorld, base: int) -> str:
    """The records of a reader; offsets from `base` on are distances from it.

    `base` is the place where the log was compacted.
    """

    def place(offset: int) -> str:
        return f"+{offset - base}" if base and offset >= base else str(offset)

    seen: list[str] = []
    try:
        for record in world.log("reader").read():
            seen.append(f"{place(record.offset)}={record.key!r}:{record.value!r}")
    except DeadlineError:
        return f"{' '.join(seen)} and waits"
    return f"{' '.join(seen)} and ends at {place(world.log('reader').end_offset())}"
