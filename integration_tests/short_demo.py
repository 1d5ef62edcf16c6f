"""`scripts/demo` on fewer flights, interrupted at a sure moment.

Run as a program: `python short_demo.py <flights.csv.zip> <moment> <the demo's own options>`. It gets its Ctrl-C from
itself, after the first line about `starting` or about messages `processed`, or never.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import zipfile
from itertools import islice
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
FLIGHTS_AT_FIRST, FLIGHTS_PER_S = 20_000, 1_000
"""The flights of a demo with a second act; the others arrive during it."""
MOMENTS = {"starting": "Spark starts", "processed": "in [1-9]"}
"""The text of the line after which the interrupt comes. Not every state has a line."""


def write_short(whole: Path, short: Path, count: int) -> Path:
    """A data set of the first `count` flights; gives its path."""
    with zipfile.ZipFile(whole) as archive, archive.open("flights.csv") as file:
        lines = b"".join(islice(file, count + 1))  # the names of the columns first
    with zipfile.ZipFile(short, "w") as archive:
        archive.writestr("flights.csv", lines)
    return short


def main(path: str, moment: str, *options: str) -> int:
    """Run the demo; gives its exit code."""
    sys.path.insert(0, str(SCRIPTS))
    import demo
    import demo_screen

    demo.data_set = lambda: Path(path)
    demo.FLIGHTS_AT_FIRST, demo.FLIGHTS_PER_S = FLIGHTS_AT_FIRST, FLIGHTS_PER_S
    if moment in MOMENTS:
        line = demo_screen._PlainLines._line
        is_then = re.compile(MOMENTS[moment]).match

        def line_and_interrupt(self: Any, now_s: float, text: str) -> None:
            line(self, now_s, text)
            if is_then(text):
                os.kill(os.getpid(), signal.SIGINT)

        demo_screen._PlainLines._line = line_and_interrupt  # type: ignore[method-assign]
    return demo.main(options)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
