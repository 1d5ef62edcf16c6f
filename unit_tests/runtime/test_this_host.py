"""Processes of this host, also where `/proc` hides those of other users."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from samzapy.runtime.this_host import Here, HostProcesses

HERE = Here.now()
UNUSED_PID = 2**22 + 1


def is_alive(pid: int, started_ms: int = HERE.process_started_ms) -> bool | None:
    return HostProcesses(HERE.boot_id).is_alive(HERE.boot_id, pid, started_ms)


def test_a_process_is_known_by_its_pid_and_its_start() -> None:
    assert is_alive(HERE.pid)
    assert is_alive(HERE.pid, HERE.process_started_ms + 10_000) is False
    assert is_alive(UNUSED_PID) is False
    # No system has such a pid, and `kill` takes none.
    assert is_alive(2**70) is False


def test_a_process_of_another_boot_is_not_known() -> None:
    assert HostProcesses(HERE.boot_id).is_alive("another", HERE.pid, HERE.process_started_ms) is None


def test_a_process_whose_directory_is_closed_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under `hidepid=1`."""

    def closed(*_: object, **__: object) -> str:
        raise PermissionError("/proc")

    monkeypatch.setattr(Path, "read_text", closed)

    assert is_alive(HERE.pid) is None


def test_a_process_that_is_not_listed_and_takes_no_signal_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under `hidepid=2`.

    Only a signal tells a hidden process from one that has ended.
    """

    def refused(pid: int, number: int) -> None:
        assert 0 == number, "it would do something"
        raise PermissionError(pid)

    monkeypatch.setattr(os, "kill", refused)

    assert is_alive(UNUSED_PID) is None
