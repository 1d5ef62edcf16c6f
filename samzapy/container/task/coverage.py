"""How far the inputs were read, in time.

An input is covered up to a moment if everything that stood in it then was read. The ends are *high watermarks*, not the
ends of committed data: an open transaction hides what others have committed behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Final, Generic, TypeVar

KEPT_MS: Final = 120_000
"""How long ends are kept."""

P = TypeVar("P", bound=Hashable)


class Coverage(Generic[P]):
    """The ends of inputs, as they were seen during the last two minutes.

    `P` names an input. Times are milliseconds on the host's clock since its boot.
    """

    def __init__(self) -> None:
        # By input: moments, and the end of then. Of moments with one end only the newest is kept.
        self._ends: dict[P, deque[tuple[int, int]]] = {}

    def note_ends(self, at_ms: int, ends: Mapping[P, int]) -> None:
        """Note the ends of inputs at a moment.

        Args:
            at_ms: before the ends were asked for, and not before that of the last call.
        """
        for place, end in ends.items():
            seen = self._ends.setdefault(place, deque())
            if seen and seen[-1][1] == end:
                seen.pop()
            seen.append((at_ms, end))
            while seen[0][0] < at_ms - KEPT_MS:
                seen.popleft()

    def covered_ms(self, place: P, offset_next: int) -> int | None:
        """The newest moment of which everything lies below `offset_next`.

        None if none is known.
        """
        for at_ms, end in reversed(self._ends.get(place, ())):
            if end <= offset_next:
                return at_ms
        return None
