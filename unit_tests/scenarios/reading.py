"""Scenario files: steps of lines, `----`, and what is expected to come out (README.md beside this)."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).parent
RULE = "----"


def scenarios(folder):
    return sorted((HERE / folder).glob("*.txt"))


def check(path: Path, answer: Callable[[Sequence[str]], Sequence[str]]) -> None:
    """Hold the file against `answer`, which is told one step after the other. With REWRITE_SCENARIOS, write it anew."""
    text = path.read_text()
    found = "".join(_answered(text, answer))
    if os.environ.get("REWRITE_SCENARIOS"):
        path.write_text(found)
    else:
        assert text == found


def _answered(text, answer):
    said, expecting = [], False
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if line.strip() == RULE:
            assert said, f"line {number}: {RULE} without a step before it"
            yield line
            yield from (f"{out}\n" for out in answer(said))
            said, expecting = [], True
        elif not line.strip():
            assert not said, f"line {number}: a step that ends without {RULE}"
            expecting = False
            yield line
        elif not expecting:
            if not line.startswith("#"):
                said.append(line.strip())
            yield line
    assert not said, f"the last step ends without {RULE}"
