"""Scenario files: steps of lines, `----`, and the expected output.

See README.md beside this file.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).parent
RULE = "----"


def scenarios(folder):
    return sorted((HERE / folder).glob("*.txt"))


def check(path: Path, answer: Callable[[Sequence[str]], Sequence[str]]) -> None:
    """Hold the file against `answer`, which gets one step after another.

    With REWRITE_SCENARIOS, write the file again.
    """
    text = path.read_text()
    with_answers = "".join(_with_answers(text, answer))
    if os.environ.get("REWRITE_SCENARIOS"):
        path.write_text(with_answers)
    else:
        assert text == with_answers


def _with_answers(text, answer):
    lines, expecting = [], False
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if line.strip() == RULE:
            assert lines, f"line {number}: {RULE} without a step before it"
            yield line
            yield from (f"{out}\n" for out in answer(lines))
            lines, expecting = [], True
        elif not line.strip():
            assert not lines, f"line {number}: a step that ends without {RULE}"
            expecting = False
            yield line
        elif not expecting:
            if not line.startswith("#"):
                lines.append(line.strip())
            yield line
    assert not lines, f"the last step ends without {RULE}"
