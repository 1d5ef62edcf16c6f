"""mypy finds a wrong type in a job file, and nothing in a right one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

_ROOT = Path(__file__).parents[1]
_DIRECTORY = _ROOT / "typing_tests"


@pytest.mark.parametrize("path", sorted(_DIRECTORY.glob("*.py")), ids=lambda path: path.stem)
def test_mypy_finds_each_wrong_line_and_no_other(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    wrong = {number for number, line in enumerate(lines, start=1) if line.endswith("# wrong")}

    report, problem, _ = api.run(["--config-file", str(_ROOT / "setup.cfg"), "--no-error-summary", str(path)])

    assert "" == problem
    assert wrong == {
        int(number) for number in re.findall(rf"^[^:\n]*{path.name}:(\d+): error:", report, re.MULTILINE)
    }, report
