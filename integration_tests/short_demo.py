"""`scripts/demo` on fewer flights, and interrupted at a moment that no busy machine can miss.

Run as a program: `python short_demo.py <flights.csv.zip> <moment> <the demo's own options>`. It gets its Ctrl-C from
itself, behind the first line that tells of `starting` or of messages `processed`, or never.
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
"""With a second act, of a data set of which the others come in while that goes on."""
MOMENTS = {"starting": "Spark starts", "processed": "in [1-9]"}
"""What the line says behind which the interrupt comes. Not each state is told in a line, so it is the line that
counts."""


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
