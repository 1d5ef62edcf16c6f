"""`crash_anywhere` finds nothing in right jobs, and finds planted bugs."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from samzapy.container.local_state import restore
from samzapy.testing.histories import crash_anywhere, histories_of
from samzapy.testing.job import MemoryJob, Message

_EXAMPLES = Path(__file__).parents[2] / "examples"
_KEYS = st.sampled_from("abcdefgh")
_AMOUNTS = st.integers(0, 6000).map(lambda amount: {"amount": float(amount)})
_HISTORIES = 10
_JOB = """
import time
import samzapy as sz

numbers = sz.Stream("kafka.numbers", key=sz.String, value=sz.Long)
sums = sz.Stream("kafka.sums", key=sz.String, value=sz.Json())
shared = {{}}

@sz.task(inputs=[numbers], outputs=[sums])
class Sums(sz.Task[str, int]):
    total = sz.value(sz.Long, default=0)
    late = sz.timer("processing")

    def init(self, context):
        self.own = {{}}

    def process(self, message, out):
        {body}

    @late.fires
    def is_late(self, timer, out):
        out.send(sums, ["late", self.total.get()], key=timer.key)
"""
_RIGHT = """self.total.set(self.total.get() + message.value)
        out.send(sums, self.total.get(), key=message.key)
        self.late.set(self.late.now_ms() + 1000)"""
_PLANTED = {
    "state in the instance": """self.own[message.key] = self.own.get(message.key, 0) + message.value
        out.send(sums, self.own[message.key], key=message.key)""",
    "state in the module": """shared[message.key] = shared.get(message.key, 0) + message.value
        out.send(sums, shared[message.key], key=message.key)""",
    "the time of the host": "out.send(sums, time.time_ns(), key=message.key)",
    "the task's name": "out.send(sums, self.context.task_name, key=message.key)",
    "a timer by what the instance has seen": """self.own[message.key] = self.own.get(message.key, 0) + 1
        self.late.set(self.late.now_ms() + 1000 * self.own[message.key])""",
    "a sum before a check": """self.own.setdefault("seen", set())
        if (message.key, message.offset) in self.own["seen"]:
            return
        self.own["seen"].add((message.key, message.value))
        self.total.set(self.total.get() + len(self.own["seen"]))""",
}


# A failure takes a quarter of a minute to become short.
_IN_CI = ("state in the instance", "the time of the host", "the task's name")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def a_job(tmp_path: Path, body: str) -> Path:
    path = tmp_path / "sums.py"
    path.write_text(_JOB.format(body=body))
    path.with_suffix(".properties").write_text(
        "job.name=sums\nsystems.kafka.bootstrap.servers=localhost:1\nlocal.store.dir=/data\n"
    )
    return path


@pytest.mark.parametrize(
    ("name", "values"), [("fraud_timer", _AMOUNTS), ("totals_with_ttl", _AMOUNTS), ("per_minute", st.just(1))]
)
def test_the_examples_give_the_same_results_whatever_happens(name: str, values: st.SearchStrategy[object]) -> None:
    crash_anywhere(_EXAMPLES / f"{name}.py", st.builds(Message, key=_KEYS, value=values), histories=_HISTORIES)


NUMBERS = st.builds(Message, key=st.sampled_from("ab"), value=st.integers(1, 9))


def test_histories_have_many_messages_and_every_fault() -> None:
    histories: list[list[str]] = []

    @settings(max_examples=60, database=None, deadline=None, derandomize=True, phases=(Phase.generate,))
    @given(histories_of(NUMBERS, (1, 2)))
    def make(calls: list[Any]) -> None:
        histories.append([call.method for call in calls])

    make()

    calls = [method for history in histories for method in history]
    assert 40 <= calls.count("send") / len(histories) <= 80
    assert {"send", "advance", "crash", "scale", "restart"} == {*calls}
    assert all(calls.count(fault) >= len(histories) / 4 for fault in ("crash", "scale", "restart"))


def test_a_right_job_passes(tmp_path: Path) -> None:
    crash_anywhere(a_job(tmp_path, _RIGHT), NUMBERS, histories=_HISTORIES)


_EXPIRING = """
import samzapy as sz

numbers = sz.Stream("kafka.numbers", key=sz.String, value=sz.Long, disorder_ms=1000)
sums = sz.Stream("kafka.sums", key=sz.String, value=sz.Json())

@sz.task(inputs=[numbers], outputs=[sums])
class Sums(sz.Task[str, int]):
    total = sz.counter(ttl=sz.minutes(30))
    last = sz.map(sz.Long, sz.Long, ttl=sz.minutes(10), refresh="read")
    over = sz.timer("event")

    def process(self, message, out):
        out.send(sums, [self.total.add(message.value), list(self.last.items())], key=message.key)
        self.last.put(message.value % 3, message.value)
        self.over.set(message.time_ms + sz.minutes(20))

    @over.fires
    def is_over(self, timer, out):
        out.send(sums, ["over", self.total.get(), list(self.last.items())], key=timer.key)
"""


def test_a_job_whose_state_expires_in_event_time_passes(tmp_path: Path) -> None:
    path = a_job(tmp_path, "pass")
    path.write_text(_EXPIRING)

    crash_anywhere(path, NUMBERS, histories=_HISTORIES)


@pytest.mark.parametrize("bug", list(_PLANTED) if os.environ.get("SAMZAPY_HISTORIES") == "full" else _IN_CI)
def test_a_planted_bug_is_detected_and_shown_as_a_script(tmp_path: Path, bug: str) -> None:
    path = a_job(tmp_path, _PLANTED[bug])

    with pytest.raises(AssertionError) as failed:
        crash_anywhere(path, NUMBERS, histories=300)

    text = str(failed.value)
    assert re.search(r"of key '[ab]': wanted .*, as without faults, found", text)
    script = text.partition("in this history:\n\n")[2].partition("Failing test case")[0]
    if bug == "the time of the host":
        return  # The script fails as well, but its text is of another moment.
    names: dict[str, object] = {}
    exec(compile(script, "script", "exec"), names)
    with pytest.raises(AssertionError):
        names["test_this_history"]()  # type: ignore[operator]


def test_a_fault_of_samzapy_s_own_shows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Local state that trusts the checkpoints fires a timer twice."""

    class Forgetful:
        STORE = "none"

    monkeypatch.setattr(restore, "timer_entry", Forgetful)
    with MemoryJob(a_job(tmp_path, _RIGHT)) as job:
        job.send("numbers", 1, key="a")
        job.settle()
        job.crash("after-kafka-commit")
        job.advance(seconds=1)

        assert [1, ["late", 1], ["late", 1]] == [output.value for output in job.read("sums")]
