from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

import samzapy
from samzapy import errors
from samzapy.errors import ExitCode, SamzapyError


def all_errors() -> list[type[SamzapyError]]:
    """Every class of the tree, in every module."""
    for module in pkgutil.walk_packages(samzapy.__path__, "samzapy."):
        importlib.import_module(module.name)
    errors, waiting = [], [SamzapyError]
    while waiting:
        kind = waiting.pop()
        if kind.__module__.startswith("samzapy."):
            errors.append(kind)
        waiting.extend(kind.__subclasses__())
    return sorted(errors, key=lambda kind: kind.__name__)


def drawn() -> dict[str, str | None]:
    """The tree in the docstring of `samzapy.errors`: each name's parent."""
    assert errors.__doc__ is not None
    parents: dict[str, str | None] = {}
    above: dict[int, str] = {}
    for line in errors.__doc__.splitlines():
        if match := re.match(r"^((?:│   |    )*)(?:[├└]── )?([A-Z]\w+Error)\b", line):
            depth = 0 if "──" not in line else len(match[1]) // 4 + 1
            parents[match[2]] = above.get(depth - 1)
            above[depth] = match[2]
    return parents


def test_every_error_is_drawn_in_the_tree_under_its_parent() -> None:
    expected = {kind.__name__: None if kind is SamzapyError else kind.__bases__[0].__name__ for kind in all_errors()}

    assert expected == drawn()


def test_every_error_has_its_meaning_in_its_docstring() -> None:
    assert [] == [kind.__name__ for kind in all_errors() if not kind.__doc__]


@pytest.mark.parametrize("kind", all_errors())
def test_an_error_ends_the_process_with_its_branch_s_exit_code(kind: type[SamzapyError]) -> None:
    """Scripts and schedulers rely on these numbers."""
    branches = [
        (errors.ConfigError, 2),
        (errors.RejectedError, 3),
        (errors.LostContainerError, 4),
        (errors.FencedError, 4),
        (errors.DeadlineError, 5),
        (errors.TemporaryError, 5),
        (errors.TaskError, 7),
        (errors.DataError, 8),
        (SamzapyError, 1),
    ]

    assert next(code for branch, code in branches if issubclass(kind, branch)) == kind.exit_code


def test_exit_codes_never_change() -> None:
    names = {name: code for name, code in vars(ExitCode).items() if name.isupper()}

    assert {
        "OK": 0,
        "FAILED": 1,
        "USAGE": 2,
        "REJECTED": 3,
        "LOST": 4,
        "TIMED_OUT": 5,
        "DEGRADED": 6,
        "TASK_FAILED": 7,
        "BAD_DATA": 8,
    } == names
