"""How long a command waits for its request's answer, by a clock of the test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID

import pytest

from samzapy.cli.target import requests as module
from samzapy.cli.target.requests import WAIT_S, Asking
from samzapy.errors import DeadlineError, SamzapyError
from samzapy.model.placement import ContainerPlacementResponseMessage, StatusCode
from unit_tests.fixtures.operated_job import an_id

REQUEST_UUID = UUID(an_id(1))


class Topic:
    """The placement topic of a job and its clock: answers are there from their second.

    `texts`: the messages of answers under way, by their second.
    """

    def __init__(self, *answers: tuple[float, StatusCode], texts: Mapping[float, str] | None = None) -> None:
        self.now_s, self.answers, self.texts = 0.0, answers, texts or {}

    def monotonic(self) -> float:
        return self.now_s

    def passes(self, seconds: float) -> None:
        self.now_s += seconds

    sleep = passes

    def read_container_placement_response_message(self, uuid: UUID) -> ContainerPlacementResponseMessage | None:
        there = [message for message in self.answers if message[0] <= self.now_s]
        if not there:
            return None
        at_s, status_code = there[-1]
        return ContainerPlacementResponseMessage(
            uuid=uuid,
            deployment_id="run",
            processor_id="0",
            status_code=status_code,
            timestamp_ms=0,
            response_message=self.texts.get(at_s, "so it is"),
            phase="STARTING" if at_s in self.texts else "",
        )


def waits(
    topic: Topic, monkeypatch: pytest.MonkeyPatch, expiry_s: float | None = None, timeout_s: float = WAIT_S
) -> StatusCode | str:
    """The end, or the error in place of it."""
    monkeypatch.setattr(module, "time", topic)
    expiry = None if expiry_s is None else timedelta(seconds=expiry_s)
    asking = Asking(deployment_id=None, expiry=expiry, wait=True, timeout_s=timeout_s)
    try:
        answer = asking.answer(topic, REQUEST_UUID)  # type: ignore[arg-type]  # all of the store that is used
    except SamzapyError as error:
        return type(error).__name__
    assert answer is not None
    return answer.status_code


def test_an_expired_request_is_reported_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic((3, StatusCode.IN_PROGRESS), (63.5, StatusCode.FAILED))

    assert "SamzapyError" == waits(topic, monkeypatch)


def test_the_wait_includes_the_expiry_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic((1, StatusCode.ACCEPTED), (599, StatusCode.SUCCEEDED))

    assert StatusCode.SUCCEEDED is waits(topic, monkeypatch, expiry_s=600)


def test_the_wait_continues_for_a_request_that_began_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic((1, StatusCode.IN_PROGRESS), (65, StatusCode.SUCCEEDED))

    assert StatusCode.SUCCEEDED is waits(topic, monkeypatch, expiry_s=10)


def test_the_wait_includes_the_time_for_a_release(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic((1, StatusCode.IN_PROGRESS), (140, StatusCode.SUCCEEDED))

    assert StatusCode.SUCCEEDED is waits(topic, monkeypatch, expiry_s=10)


def test_expiry_begins_when_the_request_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic((55, StatusCode.ACCEPTED), (200, StatusCode.SUCCEEDED))

    assert StatusCode.SUCCEEDED is waits(topic, monkeypatch)


def test_each_progress_is_printed_once_on_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {1.0: "1 of 3 containers run", 5.0: "3 of 3 containers run"}
    topic = Topic(*((at_s, StatusCode.IN_PROGRESS) for at_s in texts), (9, StatusCode.SUCCEEDED), texts=texts)

    assert StatusCode.SUCCEEDED is waits(topic, monkeypatch)

    assert [
        str(REQUEST_UUID),
        *(f"STARTING: {text}" for text in texts.values()),
    ] == capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("answers", "timeout_s", "given_up_at_s"),
    [
        ((), WAIT_S, 60),
        (((1, StatusCode.IN_PROGRESS),), WAIT_S, WAIT_S),
        (((1, StatusCode.IN_PROGRESS), (6, StatusCode.SUCCEEDED)), 5, 5),
    ],
)
def test_the_wait_for_an_answer_ends_at_last(
    answers: tuple[tuple[float, StatusCode], ...],
    timeout_s: float,
    given_up_at_s: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = Topic(*answers)

    assert DeadlineError.__name__ == waits(topic, monkeypatch, timeout_s=timeout_s)
    assert given_up_at_s == pytest.approx(topic.now_s, abs=0.5)


@pytest.mark.parametrize(
    ("output", "printed"), [("table", f"{REQUEST_UUID}\n"), ("json", f'{{"uuid": "{REQUEST_UUID}"}}')]
)
def test_without_a_wait_only_the_uuid_is_printed(
    output: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asking = Asking(deployment_id=None, expiry=None, wait=False, output=output)

    answer = asking.answer(Topic(), REQUEST_UUID)  # type: ignore[arg-type]  # all of the store that is used

    assert answer is None
    streams = capsys.readouterr()
    assert "" == streams.err
    assert printed == (json.dumps(json.loads(streams.out)) if output == "json" else streams.out)
