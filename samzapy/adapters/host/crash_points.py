"""Named crash points, at which a test ends the process with SIGKILL.

They are places between two effects. The code calls `hit(name)` always; nothing happens unless the environment arms it,
and that takes two variables, so that none is ever armed by accident:

    SAMZAPY_TEST=1 SAMZAPY_CRASH_POINTS="after-kafka-commit@3=/path/to/flag"

kills the process at the third hit in it, unless the flag file exists; the file is made first, so it fires once.
Several are separated by `;`. The flag file also proves to the test that the crash has happened.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from samzapy.errors import ConfigError

_VARIABLE = "SAMZAPY_CRASH_POINTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashPoint:
    """End the process at hit number `at_hit` of `name`, once."""

    name: str
    at_hit: int
    flag: Path

    def __str__(self) -> str:
        return f"{self.name}@{self.at_hit}={self.flag}"


def arming(points: Iterable[CrashPoint]) -> Mapping[str, str]:
    """The environment in which a test's processes crash at `points`."""
    return {_VARIABLE: ";".join(map(str, points))}


class ArmedCrashPoints:
    """Crash points of this process (`container.ports.CrashPoints`)."""

    def __init__(self, points: tuple[CrashPoint, ...]) -> None:
        self._points = {point.name: point for point in points}
        self._hits: Counter[str] = Counter()

    def hit(self, name: str) -> None:
        point = self._points.get(name)
        if point is None:
            return
        self._hits[name] += 1
        if self._hits[name] < point.at_hit:
            return
        try:
            # Exclusive: of several processes that arrive, one crashes.
            os.close(os.open(point.flag, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def crash_points(environment: Mapping[str, str]) -> ArmedCrashPoints:
    """The crash points that the environment arms; none outside a test.

    Raises:
        ConfigError: the text is malformed.
    """
    if environment.get("SAMZAPY_TEST") != "1":
        return ArmedCrashPoints(())
    texts = [text for text in environment.get(_VARIABLE, "").split(";") if text]
    return ArmedCrashPoints(tuple(_parse(text) for text in texts))


def _parse(text: str) -> CrashPoint:
    matched = re.fullmatch(r"([a-z-]+)@(\d+)=(.+)", text)
    if matched is None:
        raise ConfigError(f"{_VARIABLE}: wanted name@hit=flag-file, found {text!r}")
    return CrashPoint(name=matched.group(1), at_hit=int(matched.group(2)), flag=Path(matched.group(3)))
