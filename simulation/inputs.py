"""The messages of a simulated job: their keys, and so their key buckets.

Buckets are of the finest factor.

Only the key of a message is ever used. The bucket of a key comes from the product's own rule
(`plan.elasticity`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Final

from samzapy.coordinator.assignment.starts import Bounds
from samzapy.model.ssp import SystemStreamPartition
from samzapy.plan.elasticity import key_bucket

FACTORS: Final = (1, 2, 4, 8)
FINEST: Final = FACTORS[-1]
KEYS: Final = tuple(b"key-%d" % number for number in range(16))
BUCKET_OF: Final = {key: key_bucket(key, 0, FINEST) for key in KEYS}


class Inputs:
    """Every partition there is, from its beginning to its end.

    Attributes:
        bounds: their bounds, as a broker gives them.
    """

    def __init__(self, random: Random) -> None:
        self.bounds: dict[SystemStreamPartition, Bounds] = {}
        self._random = random
        self._buckets: dict[SystemStreamPartition, list[int]] = {}
        self._keys: dict[SystemStreamPartition, list[bytes | None]] = {}

    def create(self, ssps: Iterable[SystemStreamPartition]) -> None:
        for ssp in ssps:
            self._buckets[ssp], self._keys[ssp] = [], []
            self.bounds[ssp] = Bounds(0, 0)

    def write(self, ssp: SystemStreamPartition, count: int) -> None:
        """Messages of random keys, now and then one without a key."""
        buckets, keys = self._buckets[ssp], self._keys[ssp]
        for offset in range(len(buckets), len(buckets) + count):
            luck = self._random.randrange(len(KEYS) + 1)
            key = KEYS[luck] if luck < len(KEYS) else None
            keys.append(key)
            buckets.append(key_bucket(None, offset, FINEST) if key is None else BUCKET_OF[key])
        self.bounds[ssp] = Bounds(0, len(buckets))

    def end(self, ssp: SystemStreamPartition) -> int:
        return len(self._buckets[ssp])

    def has(self, ssp: SystemStreamPartition, bucket: int, offset_from: int, offset_to: int) -> bool:
        """Whether a message of a key bucket is there."""
        return bucket in self._buckets[ssp][offset_from:offset_to]

    def messages(
        self, ssp: SystemStreamPartition, begins: Mapping[int, int], offset_from: int, offset_to: int
    ) -> Iterator[bytes | None]:
        """The keys of the messages there, as of `last_of`, in order."""
        buckets, keys = self._buckets[ssp], self._keys[ssp]
        for offset in range(offset_from, offset_to):
            begin = begins.get(buckets[offset])
            if begin is not None and offset >= begin:
                yield keys[offset]

    def last_of(
        self, ssp: SystemStreamPartition, begins: Mapping[int, int], offset_from: int, offset_to: int
    ) -> int | None:
        """The last message of one of some key buckets, at or behind their begin.

        Args:
            begins: by bucket, the first offset that is not done.
        """
        buckets: Sequence[int] = self._buckets[ssp]
        for offset in range(offset_to - 1, offset_from - 1, -1):
            begin = begins.get(buckets[offset])
            if begin is not None and offset >= begin:
                return offset
        return None


def ssps_of(stream: str, partitions: Iterable[int]) -> list[SystemStreamPartition]:
    return [SystemStreamPartition.parse(f"{stream}.{partition}") for partition in partitions]
