"""A worker that stops (SIGSTOP) at a crash point, and later reports its outcome.

Armed by SAMZAPY_TEST=1 and SAMZAPY_TEST_STAND_STILL="<point>@<hit>=<file>": the first worker that comes there so often
does so, once. The file gets its pid before it stops; beside it, `<file>.outcome` gets `committed`, or the name of the
error.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

_hits: Counter[str] = Counter()
_stopped: list[Path] = []


def install(text: str) -> None:
    """Arm it in this process."""
    from samzapy.adapters.host.crash_points import ArmedCrashPoints

    matched = re.fullmatch(r"([a-z-]+)@(\d+)=(.+)", text)
    assert matched is not None, text
    point, at_hit, file = matched.group(1), int(matched.group(2)), Path(matched.group(3))
    if getattr(ArmedCrashPoints.hit, "is_armed", False):
        return
    hit = ArmedCrashPoints.hit

    def hit_or_stop(self: Any, name: str) -> None:
        hit(self, name)
        _hits[name] += 1
        if name == point and _hits[name] >= at_hit:
            _stop_once(file)

    hit_or_stop.is_armed = True  # type: ignore[attr-defined]
    ArmedCrashPoints.hit = hit_or_stop
    _report_outcome()


def _stop_once(file: Path) -> None:
    try:
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return
    os.write(descriptor, str(os.getpid()).encode())
    os.close(descriptor)
    _stopped.append(file)
    os.kill(os.getpid(), signal.SIGSTOP)


def _report_outcome() -> None:
    from samzapy.runtime import worker_process

    # From before it takes its slot until it has released it.
    work = worker_process._WorkerProcess
    run = work.run

    def run_and_report(self: Any, *arguments: Any) -> Any:
        outcome = "committed"
        try:
            return run(self, *arguments)
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            if _stopped:
                Path(f"{_stopped.pop()}.outcome").write_text(outcome)

    work.run = run_and_report  # type: ignore[method-assign]
