"""Inputs: system, stream, partition, and the part of a partition that a task owns.

An SSP is a partition of an input. An `SspKeyBucket` (SSPKb) is an SSP narrowed to one key bucket of a
factor; checkpoints, grants and progress are kept per SSPKb. With factor 1 there is one bucket, 0 of 1.
Of a broadcast input every task gets every message, so there is one SSPKb per task: its reader.

Text forms (frozen; they are keys on topics): `kafka.orders.3`, `kafka.orders.3:1/4` and, of a broadcast input,
`kafka.rules.0@Partition_3`. The system ends at the first dot and the partition starts after the last one, so stream
names may hold dots, dashes and underscores. (Samza splits at every dot and cannot read `page.views` back.)

All three are tuples, because most tables of a job are by one of them: those are hashed and compared all the time,
which takes a frozen dataclass five times as long.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, Self

FACTOR_MAX = 256


class _SystemStream(NamedTuple):
    system: str
    stream: str


class SystemStream(_SystemStream):
    """One input or output stream of a system, `kafka.orders`."""

    __slots__ = ()

    def __new__(cls, system: str, stream: str) -> Self:
        if not system or "." in system or not stream:
            raise ValueError(f"wanted a system without dots and a stream, found {system!r} and {stream!r}")
        return super().__new__(cls, system, stream)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `system.stream`; the stream may hold dots. Raises ValueError."""
        system, dot, stream = text.partition(".")
        if not dot:
            raise ValueError(f"wanted system.stream (for instance kafka.orders), found {text!r}")
        return cls(system, stream)

    def __str__(self) -> str:
        return f"{self.system}.{self.stream}"


class SystemStreamPartition(NamedTuple):
    """A partition of a stream, `kafka.orders.3`.

    Ordered by system, stream, partition number.
    """

    system: str
    stream: str
    partition: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `system.stream.partition`. Raises ValueError."""
        head, dot, number = text.rpartition(".")
        if not dot or not is_decimal(number):
            raise ValueError(f"wanted system.stream.partition (for instance kafka.orders.3), found {text!r}")
        named = SystemStream.parse(head)
        return cls(named.system, named.stream, int(number))

    @property
    def system_stream(self) -> SystemStream:
        return _system_stream(self.system, self.stream)

    def __str__(self) -> str:
        return f"{self.system}.{self.stream}.{self.partition}"


class _SspKeyBucket(NamedTuple):
    ssp: SystemStreamPartition
    bucket: int
    factor: int
    reader: str


class SspKeyBucket(_SspKeyBucket):
    """The part of an SSP that has one position and one owner.

    Either one key bucket of it, `kafka.orders.3:1/4` (bucket 1 of 4); or all of it as one task reads it for itself,
    `kafka.rules.0@Partition_3`: a broadcast input, whose position belongs to the task.

    Attributes:
        reader: the task's name; empty where the SSP is not a broadcast one.

    Raises:
        ValueError: `factor` is no power of two up to 256, `bucket` is not in `range(factor)`, or there are both a
            bucket and a reader.
    """

    __slots__ = ()

    def __new__(cls, ssp: SystemStreamPartition, bucket: int = 0, factor: int = 1, reader: str = "") -> Self:
        check_factor(factor)
        if not 0 <= bucket < factor:
            raise ValueError(f"wanted a key bucket in 0..{factor - 1}, found {bucket}")
        if reader and factor != 1:
            raise ValueError(f"wanted all of {ssp} for its reader {reader}, found a factor of {factor}")
        return super().__new__(cls, ssp, bucket, factor, reader)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `kafka.orders.3:1/4` or `kafka.rules.0@task`.

        `kafka.orders.3` is bucket 0 of 1. Raises ValueError.
        """
        # A topic name holds neither colon nor at sign; a task's name may, so the at sign is looked for first.
        ssp, at, reader = text.partition("@")
        if at:
            if not reader:
                raise ValueError(f"wanted ssp@task (for instance kafka.rules.0@Partition_3), found {text!r}")
            return cls(SystemStreamPartition.parse(ssp), reader=reader)
        ssp, colon, rest = text.partition(":")
        if not colon:
            return cls(SystemStreamPartition.parse(ssp))
        bucket, slash, factor = rest.partition("/")
        if not slash or not is_decimal(bucket) or not is_decimal(factor):
            raise ValueError(f"wanted ssp:bucket/factor (for instance kafka.orders.3:1/4), found {text!r}")
        return cls(SystemStreamPartition.parse(ssp), int(bucket), int(factor))

    def overlaps(self, other: SspKeyBucket) -> bool:
        """Whether both are a position of some message.

        The SSP and the reader are the same, and the buckets equal modulo the smaller factor.

        Broadcast positions of two tasks never overlap: a broadcast input has no owner (law L6).
        """
        if self.reader != other.reader or self.ssp != other.ssp:
            return False
        smaller = min(self.factor, other.factor)
        return self.bucket % smaller == other.bucket % smaller

    def part_of(self, offsets: int) -> int:
        """About how many of so many offsets of the partition are this bucket's own.

        It is 0 only if there are none.
        """
        return -(-offsets // self.factor)

    def __str__(self) -> str:
        return f"{self.ssp}@{self.reader}" if self.reader else f"{self.ssp}:{self.bucket}/{self.factor}"


@lru_cache(maxsize=4096)
def _system_stream(system: str, stream: str) -> SystemStream:
    """One shared value for each stream.

    A job has many partitions of few streams, and asks each for its stream all the time.
    """
    return SystemStream(system, stream)


def is_covered(wanted: tuple[int, int], others: Iterable[tuple[int, int]]) -> bool:
    """Whether every key of a bucket falls into one of `others`.

    Each is a `(bucket, factor)` of the same partition.
    """
    bucket, factor = wanted
    pieces = frozenset(others)
    finest = max((factor, *(other_factor for _, other_factor in pieces)))
    return all(
        any(piece % other_factor == other for other, other_factor in pieces)
        for piece in range(bucket, finest, factor)
    )


def check_factor(factor: int) -> None:
    """Raise ValueError unless `factor` is a power of two from 1 to 256."""
    if not 1 <= factor <= FACTOR_MAX or factor & (factor - 1):
        raise ValueError(f"wanted a factor that is a power of two from 1 to {FACTOR_MAX}, found {factor}")


def is_decimal(text: str) -> bool:
    """Whether `text` is ASCII digits without a leading zero.

    So a number has exactly one spelling, and text keys are unique.
    """
    return text.isascii() and text.isdigit() and (text == "0" or not text.startswith("0"))
