"""Calls in a process in which sets have another order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from samzapy.testing.other_process import OtherProcess


@pytest.fixture(scope="module")
def other() -> Iterator[OtherProcess]:
    with OtherProcess() as process:
        yield process


def process_and_order(names: list[str]) -> tuple[int, list[str]]:
    return os.getpid(), list({*names})


def fail_elsewhere(pid: int) -> int:
    print("not in the way of results")
    if os.getpid() != pid:
        raise ValueError("only elsewhere")
    return pid


def test_a_set_has_another_order_there(other: OtherProcess) -> None:
    names = [f"name-{number}" for number in range(50)]

    pid, order = other.begin(process_and_order, names)()

    assert os.getpid() != pid
    assert sorted(names) == sorted(order) and process_and_order(names)[1] != order


def test_a_call_that_fails_there_is_done_here(other: OtherProcess) -> None:
    assert os.getpid() == other.begin(fail_elsewhere, os.getpid())()
    assert os.getpid() != other.begin(process_and_order, [])()[0], "the process goes on"


@pytest.mark.parametrize("function", [lambda: os.getpid(), lambda: test_a_set_has_another_order_there])
def test_a_function_without_a_name_is_called_here(other: OtherProcess, function: Callable[[], Any]) -> None:
    assert function() == other.begin(function)()
