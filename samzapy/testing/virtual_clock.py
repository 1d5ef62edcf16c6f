"""Time that moves only when told."""

from __future__ import annotations


class VirtualClock:
    """A clock for tests.

    Monotonic and wall time move together unless one of them is made to jump.
    """

    def __init__(self, *, monotonic_ms: int = 1_000_000, wall_ms: int = 1_700_000_000_000) -> None:
        self._monotonic_ms = monotonic_ms
        self._wall_ms = wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def monotonic_ns(self) -> int:
        return self._monotonic_ms * 1_000_000

    def wall_ms(self) -> int:
        return self._wall_ms

    def boot_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        """Let `ms` go by."""
        assert ms >= 0, "time does not run backwards; the wall clock can, see jump_wall"
        self._monotonic_ms += ms
        self._wall_ms += ms

    def jump_wall(self, ms: int) -> None:
        """Set the wall clock forward, or back, as an administrator or NTP does."""
        self._wall_ms += ms
