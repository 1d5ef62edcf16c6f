"""`crash_anywhere` finds nothing in right jobs, and finds planted bugs."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from samzapy.container.local_state import restore
from samzapy.container.task.tail import Tail
from samzapy.testing.histories import Order, _Call, _results, _World, crash_anywhere, histories_of
from samzapy.testing.job import MemoryJob, Message
from samzapy.testing.memory.tail import Pace

FAULTS: Final = ("crash", "scale", "restart", "move", "jump_clock")
_EXAMPLES = Path(__file__).parents[2] / "examples"
_KEYS = st.sampled_from("abcdefgh")
_AMOUNTS = st.integers(0, 6000).map(lambda amount: {"amount": float(amount)})
_HISTORIES = int(os.environ.get("SAMZAPY_HISTORIES_OF_EXAMPLES", "10"))
"""How many histories of a right job are tried."""
_DAY_MS = 86_400_000
_AHEAD_MS = st.one_of(
    st.just(0), st.integers(-180_000, 60_000), st.sampled_from([-_DAY_MS, -3_600_000, 3_600_000, _DAY_MS])
)
"""Messages on time, out of order, late, and further ahead of the clock than a job believes."""
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
    "an output outside of `out`": """with open(__file__ + ".sent", "a") as sent:
            print(message.key, message.value, file=sent)
        self.total.set(self.total.get() + message.value)""",
    "a set's order": """names = {f"{message.key}{number}" for number in range(message.value)}
        out.send(sums, list(names), key=message.key)""",
    "a timer that is not replaced": """self.total.set(self.total.get() + message.value)
        self.late.set(self.late.now_ms() + 1000, tag=self.context.task_name)""",
    "a sum before a check": """self.own.setdefault("seen", set())
        if (message.key, message.offset) in self.own["seen"]:
            return
        self.own["seen"].add((message.key, message.value))
        self.total.set(self.total.get() + len(self.own["seen"]))""",
}


# A failure takes a quarter of a minute to become short.
_IN_CI = (
    "state in the instance",
    "the time of the host",
    "an output outside of `out`",
    "a set's order",
    "a timer that is not replaced",
)
# Their scripts show it only in another process, or at another moment.
_NOT_AGAIN: Final = ("the time of the host", "a set's order")


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
    messages = st.builds(Message, key=_KEYS, value=values, ahead_ms=_AHEAD_MS)

    crash_anywhere(_EXAMPLES / f"{name}.py", messages, histories=_HISTORIES)


NUMBERS = st.builds(Message, key=st.sampled_from("ab"), value=st.integers(1, 9))


def test_histories_have_many_messages_and_every_fault() -> None:
    histories = [[call.method for call in calls] for calls in made_histories(NUMBERS)]

    calls = [method for history in histories for method in history]
    assert 40 <= calls.count("send") / len(histories) <= 80
    assert {"send", "advance", *FAULTS} | {"settle", "rewind"} >= {*calls} >= {"send", "advance", *FAULTS}
    assert all(calls.count(fault) >= len(histories) / 10 for fault in (*FAULTS, "rewind"))


def test_histories_in_event_time_have_messages_of_any_time_or_none_out_of_order() -> None:
    messages = st.builds(Message, key=st.just("a"), value=st.just(1), ahead_ms=_AHEAD_MS)

    in_order = [call for calls in made_histories(messages, (Order.IN_ORDER,)) for call in calls]
    others = [call for calls in made_histories(messages, (Order.OUT_OF_ORDER,)) for call in calls]

    assert {0} == {*aheads_ms(in_order)}
    assert "rewind" not in {call.method for call in in_order}
    assert {True} == {call.is_fault for call in in_order if call.method == "scale"}
    assert {False} == {call.is_fault for call in others if call.method == "scale"}
    assert {-_DAY_MS, 0, _DAY_MS} <= {*aheads_ms(others)}
    assert any(-180_000 < ahead_ms < -60_000 for ahead_ms in aheads_ms(others))


def aheads_ms(calls: list[Any]) -> list[int]:
    return [dict(call.named).get("ahead_ms", 0) for call in calls if call.method == "send"]


def made_histories(messages: st.SearchStrategy[Message], orders: Any = (Order.NO_EVENT_TIME,)) -> list[list[Any]]:
    histories: list[list[Any]] = []

    @settings(max_examples=60, database=None, deadline=None, derandomize=True, phases=(Phase.generate,))
    @given(histories_of(messages, (1, 2), orders))
    def make(calls: list[Any]) -> None:
        histories.append(calls)

    make()
    return histories


def test_late_views_of_the_example_are_reached(tmp_path: Path) -> None:
    """Without its branch for late views, a view opens its minute again."""
    source = (_EXAMPLES / "per_minute.py").read_text()
    path = tmp_path / "per_minute.py"
    path.write_text(source.replace("out.send(late, message.value", "out.send(late, self.context.task_name"))
    path.with_suffix(".properties").write_text((_EXAMPLES / "per_minute.properties").read_text())
    messages = st.builds(Message, key=_KEYS, value=st.just(1), ahead_ms=_AHEAD_MS)

    def late_views(calls: list[Any]) -> int:
        with MemoryJob(path, partitions=1) as job:
            for call in calls:
                if call.method in ("send", "advance"):
                    call.do(job)
            return len(job.read("late-views"))

    assert 10 <= sum(late_views(calls) > 0 for calls in made_histories(messages, (Order.OUT_OF_ORDER,))[:20])


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

    outside = sent_beside(path) if bug == "an output outside of `out`" else None

    with pytest.raises(AssertionError) as failed:
        crash_anywhere(path, NUMBERS, outside=outside)

    text = str(failed.value)
    assert re.search(r"of key '[ab]?': wanted .*, as without faults, found", text)
    script = text.partition("in this history:\n\n")[2].partition("Failing test case")[0]
    if bug in _NOT_AGAIN:
        return
    names: dict[str, object] = {"outside": outside}
    exec(compile(script, "script", "exec"), names)
    with pytest.raises(AssertionError):
        names["test_this_history"]()  # type: ignore[operator]


def test_chance_in_an_output_to_another_partition_is_detected(tmp_path: Path) -> None:
    path = a_job(tmp_path, "out.send(sums, time.time_ns(), key=message.key, partition=1)")

    with pytest.raises(AssertionError, match="read kafka.sums of key"):
        crash_anywhere(path, NUMBERS, histories=4)


_FUNCTION = """
import time
import samzapy as sz

@sz.task
def pass_on(envelope, collector, context):
    {body}
"""


def a_function(tmp_path: Path, body: str) -> Path:
    path = a_job(tmp_path, "pass")
    path.write_text(_FUNCTION.format(body=body))
    with path.with_suffix(".properties").open("a") as properties:
        properties.write(
            "task.inputs=kafka.numbers\nsystems.kafka.samza.key.serde=string\nsystems.kafka.samza.msg.serde=long\n"
        )
    return path


def test_chance_in_an_output_of_a_function_task_is_detected(tmp_path: Path) -> None:
    path = a_function(tmp_path, 'collector.send("sums", time.time_ns(), key=envelope.key)')

    with pytest.raises(AssertionError, match="read kafka.sums of key"):
        crash_anywhere(path, NUMBERS, histories=4)


_LETTERS: Final = {"task.error.policy": "dead-letter", "task.dead.letter.output": "kafka.failed"}


def test_a_message_that_fails_by_chance_is_detected_in_the_dead_letters(tmp_path: Path) -> None:
    fails = """self.own[message.key] = self.own.get(message.key, 0) + 1
        if self.own[message.key] % 3 == 0:
            raise ValueError("the third one of this instance")"""

    with pytest.raises(AssertionError, match="dead letters of key b'[ab]'") as failed:
        crash_anywhere(a_job(tmp_path, fails), NUMBERS, histories=50, settings_of_job=_LETTERS)

    script = str(failed.value).partition("in this history:\n\n")[2].partition("Failing test case")[0]
    names: dict[str, Any] = {}
    exec(compile(script, "script", "exec"), names)
    with pytest.raises(AssertionError):
        names["test_this_history"]()


def test_dead_letters_that_name_their_task_are_no_difference(tmp_path: Path) -> None:
    fails = """if message.value % 2:
            raise ValueError(f"{self.context.task_name} at {time.time_ns()}")
        self.late.set(self.late.now_ms() + 1000)"""
    path = a_job(tmp_path, fails)
    timers = path.read_text().replace('out.send(sums, ["late", self.total.get()], key=timer.key)', "raise ValueError")
    path.write_text(f"{timers}\n    def window(self, tick, out):\n        raise ValueError\n")
    settings_of_job = {**_LETTERS, "task.window.ms": str(10 * _DAY_MS)}

    crash_anywhere(path, NUMBERS, histories=_HISTORIES, settings_of_job=settings_of_job)

    with MemoryJob(path, factor=2, settings=settings_of_job) as job:
        job.send("numbers", 1, key="a")
        job.send("numbers", 2, key="a")
        job.advance(days=21)

        assert [b"a", b"a"] == [letter.key for letter in job.dead_letters()]
        assert len(job.read("failed")) > 2


def test_windows_and_broadcast_state_are_no_difference_after_a_change_of_the_factor(tmp_path: Path) -> None:
    path = a_job(tmp_path, "pass")
    text = path.read_text().replace("outputs=[sums]", "outputs=[sums], broadcast=[rules]")
    text = text.replace("shared = {}", 'rules = sz.Stream("kafka.rules", key=sz.String, value=sz.Long)')
    text = text.replace("    late =", '    rule = sz.value(sz.Long, scope="broadcast")\n    late =', 1)
    text += """
    @rules.each
    def changed(self, message, out):
        self.rule.set(message.value)
"""
    path.write_text(f"{text}\n    def window(self, tick, out):\n        pass\n")
    world = _World(path, 2, {"task.window.ms": str(10 * _DAY_MS)}, None)
    month = _Call("advance", (), (("seconds", 2_592_000),))

    rule = _Call("send", ("rules", 7), (("key", "r"),))
    undisturbed = _results(world, [rule, month], Pace())
    scaled = _results(world, [rule, _Call("scale", (2,)), month], Pace())

    assert undisturbed == scaled


def sent_beside(path: Path) -> Callable[[], list[str]]:
    """Take the lines that a job has put into a file beside it."""
    sent = path.with_name(f"{path.name}.sent")

    def take() -> list[str]:
        lines = sent.read_text().splitlines() if sent.exists() else []
        sent.unlink(missing_ok=True)
        return lines

    return take


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


def test_a_fault_of_tails_shows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A tail that counts records as handled, although it left them, loses them."""
    lost = []
    for looks in range(6):
        with MemoryJob(a_job(tmp_path, _RIGHT), partitions=1) as job, monkeypatch.context() as patch:
            patch.setattr(Tail, "_note_left", lambda *_: None)
            job.pace.batch_max, job.pace.tail_looks = 1, looks
            for number in range(1, 5):
                job.send("numbers", number, key="a")
            lost.append([1, 3, 6, 10] != [output.value for output in job.read("sums")])

    assert lost[0] is False, "there are no tails"
    assert any(lost)
