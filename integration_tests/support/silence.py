"""The longest time without an output, from the arrivals at a reader.

Pure: unit tests have histories that a run has only by chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple


class Silence(NamedTuple):
    """A time without an output; both in seconds.

    Attributes:
        after_s: how long after the fault it began.
        length_s: how long it was.
    """

    after_s: float
    length_s: float

    def __str__(self) -> str:
        return f"{self.length_s:.1f} s, begun {self.after_s:.1f} s after the fault"


def longest_silence(arrivals_s: Iterable[Sequence[float]], fault_at_s: float, until_s: float) -> Silence:
    """The longest silence of any output partition between the fault and `until_s`.

    What was silent before the fault counts from the fault on, and what is still silent counts until `until_s`.

    Args:
        arrivals_s: of each output partition, in ascending order, by the clock of the two times.
    """
    return max(
        (
            Silence(before_s - fault_at_s, after_s - before_s)
            for arrivals in arrivals_s
            for before_s, after_s in pairwise(
                [fault_at_s, *(at_s for at_s in arrivals if fault_at_s < at_s < until_s), until_s]
            )
        ),
        key=lambda silence: silence.length_s,
    )
