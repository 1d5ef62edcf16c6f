"""Every block of docs/tutorial/first-job.md, in order, in an empty directory, on a broker of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from samzapy.testing.broker import DevBroker
from samzapy.testing.ports import free_port

PAGE = Path(__file__).parent.parent / "docs" / "tutorial" / "first-job.md"
BLOCK = re.compile(r"(?:^`(?P<file>[\w.]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
BIN = Path(sys.executable).parent


class Block(NamedTuple):
    """A code block of the page; `file` is the name under which it is to be written."""

    kind: str
    text: str
    file: str


def blocks() -> list[Block]:
    found = BLOCK.finditer(PAGE.read_text(encoding="utf-8"))
    return [Block(block["kind"], block["text"], block["file"] or "") for block in found]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    DevBroker(tmp_path / "broker", detached=True).kill()


@pytest.mark.timeout(300)
def test_every_block_of_the_tutorial_does_what_the_page_says(directory: Path) -> None:
    """The page's port and the broker's directory are replaced, and nothing is installed; all else is as printed."""
    port = str(free_port())
    work = directory / "work"
    work.mkdir()
    script, expected = ["set -e -m"], {}
    for number, block in enumerate(blocks()):
        text = block.text.replace("19092", port)
        if block.file:
            (work / block.file).write_text(text, encoding="utf-8")
        elif block.kind == "bash":
            last = number
            script += [f"exec > {directory}/{number}.out", _commands(text, directory, port)]
        else:
            expected[last] = text.splitlines()
    (directory / "tutorial.sh").write_text("\n".join(script), encoding="utf-8")

    ran = subprocess.run(
        ["bash", str(directory / "tutorial.sh")],
        cwd=work,
        env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=280,
    )

    logs = "\n".join(path.read_text() for path in sorted(work.glob("*.log")))
    assert 0 == ran.returncode, f"{ran.stderr}\n{logs}"
    assert 6 == len(expected)
    for number, lines in expected.items():
        printed = (directory / f"{number}.out").read_text()
        assert [] == [line for line in lines if line not in printed], printed


def _commands(text: str, directory: Path, port: str) -> str:
    lines = [line for line in text.splitlines() if not line.startswith("pip install")]
    commands = "\n".join(lines)
    commands = commands.replace("samzapy dev up", f"samzapy dev up --port {port}")
    return re.sub(r"samzapy dev (\w+)", rf"samzapy dev \1 --dir {directory}/broker", commands)
