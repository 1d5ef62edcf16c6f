"""A process in memory: where it crashes, and the order of its effects."""

from __future__ import annotations

from collections import Counter


class Crash(BaseException):
    """The process is gone. Only the test may catch this."""


class CrashAt:
    """Crash points of one process: the `at_hit`-th hit of `name` ends it."""

    def __init__(self, name: str = "", at_hit: int = 1) -> None:
        self._name = name
        self._at_hit = at_hit
        self.hits: Counter[str] = Counter()

    def hit(self, name: str) -> None:
        self.hits[name] += 1
        if name == self._name and self.hits[name] == self._at_hit:
            raise Crash(f"{name}, hit {self._at_hit}")


class Trace(list[str]):
    """The effects of a process, in order."""

    def since(self, effect: str) -> list[str]:
        return list(self[self.index(effect) :])
