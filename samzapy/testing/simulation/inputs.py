"""The messages of a simulated job: which key stands where, and so in which key bucket of the finest factor.

Nothing but its key bucket is ever looked at of a message, so only that is kept. Which bucket a key falls into says the
product's own rule (`plan.elasticity`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Final

from samzapy.coordinator.starts import Bounds
from samzapy.model.ssp import SystemStreamPartition
from samzapy.plan.elasticity import key_bucket

FACTORS: Final = (1, 2, 4, 8)
FINEST: Final = FACTORS[-1]
_KEYS: Final = tuple(b"key-%d" % number for number in range(16))
_BUCKETS: Final = tuple(key_bucket(key, 0, FINEST) for key in _KEYS)


class Inputs:
    """Every partition there is, from its beginning to its end.

    Attributes:
        bounds: what a broker says of them.
    """

    def __init__(self, random: Random) -> None:
        self.bounds: dict[SystemStreamPartition, Bounds] = {}
        self._random = random
        self._buckets: dict[SystemStreamPartition, list[int]] = {}

    def create(self, ssps: Iterable[SystemStreamPartition]) -> None:
        for ssp in ssps:
            self._buckets[ssp] = []
            self.bounds[ssp] = Bounds(0, 0)

    def write(self, ssp: SystemStreamPartition, count: int) -> None:
        """Messages of random keys, now and then one without a key."""
        buckets = self._buckets[ssp]
        for offset in range(len(buckets), len(buckets) + count):
            luck = self._random.randrange(len(_KEYS) + 1)
            buckets.append(_BUCKETS[luck] if luck < len(_KEYS) else key_bucket(None, offset, FINEST))
        self.bounds[ssp] = Bounds(0, len(buckets))

    def end(self, ssp: SystemStreamPartition) -> int:
        return len(self._buckets[ssp])

    def has(self, ssp: SystemStreamPartition, bucket: int, offset_from: int, offset_to: int) -> bool:
        """Whether a message of a key bucket stands there."""
        return bucket in self._buckets[ssp][offset_from:offset_to]

    def last_of(
        self, ssp: SystemStreamPartition, begins: Mapping[int, int], offset_from: int, offset_to: int
    ) -> int | None:
        """The last message there that is of one of some key buckets, and at or behind where that begins.

        Args:
            begins: by bucket, the first offset that is not done.
        """
        buckets: Sequence[int] = self._buckets[ssp]
        for offset in range(offset_to - 1, offset_from - 1, -1):
            begin = begins.get(buckets[offset])
            if begin is not None and offset >= begin:
                return offset
        return None
