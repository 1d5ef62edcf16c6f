"""When the process of a command began.

A person who waits counts from there. On a busy machine Python and the modules take seconds.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import click


def own_start_s() -> float:
    """When this process began, on the monotonic clock.

    It is now where the system does not tell.
    """
    try:
        # Behind the name of the program, which may have blanks: proc(5), field 22.
        ticks = int(Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        age_s = 0.0
    return time.monotonic() - max(0.0, age_s)


def began_s() -> float | None:
    """When the process of the running command began, on the monotonic clock.

    None where the command is not the whole of its process.
    """
    context = click.get_current_context(silent=True)
    known = None if context is None else context.find_root().obj
    return known if isinstance(known, float) else None
