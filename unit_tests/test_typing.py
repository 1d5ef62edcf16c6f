"""Type checkers find a wrong type in a job file, and nothing in a right one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mypy import api

_ROOT = Path(__file__).parents[1]
_DIRECTORY = _ROOT / "typing_tests"
_FILES = sorted(_DIRECTORY.glob("*.py"))


def wrong_lines(path: Path, marks: tuple[str, ...]) -> set[int]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, start=1) if line.endswith(marks)}


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_mypy_finds_each_wrong_line_and_no_other(path: Path) -> None:
    report, problem, _ = api.run(["--config-file", str(_ROOT / "setup.cfg"), "--no-error-summary", str(path)])

    assert "" == problem
    assert wrong_lines(path, ("# wrong", "# wrong (mypy)")) == {
        int(number) for number in re.findall(rf"^[^:\n]*{path.name}:(\d+): error:", report, re.MULTILINE)
    }, report


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_pyright_finds_each_wrong_line_and_no_other(tmp_path: Path, path: Path) -> None:
    """Strict types, as many editors show them.

    basedpyright is pyright with its program in the wheel.
    """
    (tmp_path / "pyrightconfig.json").write_text(
        json.dumps({"include": [path.name], "typeCheckingMode": "strict", "extraPaths": [str(_ROOT)]})
    )
    (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")

    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    output = json.loads(ran.stdout)["generalDiagnostics"]
    lines = {item["range"]["start"]["line"] + 1 for item in output if item["severity"] == "error"}
    assert wrong_lines(path, ("# wrong",)) == lines, output
