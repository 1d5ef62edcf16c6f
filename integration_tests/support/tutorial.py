"""Runs the blocks of docs/tutorial/first-job.md on a broker of its own."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from samzapy.testing.ports import free_port

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-job.md"
_BLOCK = re.compile(r"(?:^`(?P<file>[\w.]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A code block of the page; `file` is the name under which it is to be written."""

    kind: str
    text: str
    file: str


def blocks() -> list[Block]:
    """All blocks of the page, in order."""
    matches = _BLOCK.finditer(PAGE.read_text(encoding="utf-8"))
    return [Block(match["kind"], match["text"], match["file"] or "") for match in matches]


def first_job(page: Sequence[Block]) -> Sequence[Block]:
    """The blocks up to the one that stops the first job."""
    end = next(number for number, block in enumerate(page) if block.text.startswith("kill %1"))
    return page[: end + 1]


def run_blocks(page: Sequence[Block], directory: Path, programs: Path, within_s: float) -> int:
    """Run the printed blocks, with another port and directory; nothing is installed.

    Asserts that the commands succeed and print what the page says.

    Args:
        directory: an empty one. The broker's is `broker` in it.
        programs: the directory of `samzapy` and `python`; first in PATH.

    Returns:
        How many blocks of output were compared.
    """
    port = str(free_port())
    work = directory / "work"
    work.mkdir()
    script, expected = ["set -e -m"], {}
    for number, block in enumerate(page):
        text = block.text.replace("19092", port)
        if block.file:
            (work / block.file).write_text(text, encoding="utf-8")
        elif block.kind == "bash":
            last = number
            script += [f"exec > {directory}/{number}.out", _commands(text, directory, port)]
        else:
            expected[last] = text.splitlines()
    (directory / "tutorial.sh").write_text("\n".join(script), encoding="utf-8")

    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    ran = subprocess.run(
        ["bash", str(directory / "tutorial.sh")],
        cwd=work,
        env={**environment, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=within_s,
    )

    logs = "\n".join(path.read_text() for path in sorted(work.glob("*.log")))
    assert 0 == ran.returncode, f"{ran.stderr}\n{logs}"
    for number, lines in expected.items():
        printed = (directory / f"{number}.out").read_text()
        assert [] == [line for line in lines if line not in printed], printed
    return len(expected)


def _commands(text: str, directory: Path, port: str) -> str:
    lines = [line for line in text.splitlines() if not line.startswith("pip install")]
    commands = "\n".join(lines)
    commands = commands.replace("samzapy dev up", f"samzapy dev up --port {port}")
    return re.sub(r"samzapy dev (\w+)", rf"samzapy dev \1 --dir {directory}/broker", commands)
