"""A process that should have ended does, whatever its main thread waits for."""

from __future__ import annotations

import pytest

from samzapy.cli import wiring
from samzapy.cli.signals import DrainRequest
from samzapy.errors import ExitCode
from samzapy.testing.builders import a_config
from samzapy.testing.waiting import wait_until

END_GRACE_S = wiring._END_GRACE_S


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_END_GRACE_S", "_LOST_GRACE_S", "_END_LOOK_S"):
        monkeypatch.setattr(wiring, name, 0.01)


class Process:
    """One whose main thread does nothing."""

    def __init__(self, given_up: str | None = None) -> None:
        self.drain = DrainRequest()
        self.given_up = given_up
        self.done: list[object] = []
        wiring._bound_the_end(
            self.drain, 10, lambda: self.given_up, lambda: self.done.append("workers killed"), self.done.append
        )

    def ends_with(self, code: int) -> bool:
        wait_until(lambda: len(self.done) == 2, 10.0, "the process to end")
        return self.done == ["workers killed", code]


def test_a_process_that_was_given_up_ends_also_if_its_query_does_not_stop() -> None:
    process = Process()

    process.given_up = "term 3 does not count it among the living"

    assert process.ends_with(ExitCode.LOST)


def test_a_process_that_was_drained_ends_also_if_nobody_answers() -> None:
    process = Process()

    process.drain.ask("a test")

    assert process.ends_with(ExitCode.TIMED_OUT)


def test_a_job_that_is_asked_to_stop_is_gone_within_ten_seconds_whatever_its_batch_does() -> None:
    """What stops a job by itself often kills what has not ended by then: Docker does after ten seconds."""
    assert a_config().drain_ms / 1000 + END_GRACE_S < 10.0
