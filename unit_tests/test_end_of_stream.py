"""The end of bounded inputs, as the code that calls tasks in a worker knows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from samzapy.errors import TaskError, TaskModuleError
from samzapy.task import load_task_factory
from samzapy.testing.task_kit import InputMessage, TaskRun, run_task
from unit_tests.container.task.test_time_figures import AWorker

_TASK = """
import samzapy as sz

numbers = sz.Stream("kafka.numbers", key=sz.String, value=sz.Long)
sums = sz.Stream("kafka.sums", key=sz.String, value=sz.Json())

@sz.task(inputs=[numbers], outputs=[sums])
class Sums(sz.Task[str, int]):
    total = sz.value(sz.Long, default=0)
    over = sz.timer("event")
    late = sz.timer("processing")

    def process(self, message, out):
        self.total.set(self.total.get() + message.value)
        self.over.set(message.time_ms + 60_000)
        self.late.set(self.late.now_ms() + 1000)

    @over.fires
    def fired(self, timer, out):
        out.send(sums, ["timer", timer.time_ms], key=timer.key)
        self.over.set(timer.time_ms + 1)

    @late.fires
    def never(self, timer, out):
        out.send(sums, "too early", key=timer.key)

    def end_of_stream(self, out):
        END
"""
_PROPERTIES = (
    "job.name=sums\nsystems.kafka.bootstrap.servers=localhost:1\nlocal.store.dir=/data\n"
    "systems.kafka.samza.offset.default=oldest\n"
)
BOUNDED = {"systems.kafka.samza.offset.end": "head"}
DEAD_LETTERS = {"task.error.policy": "dead-letter", "task.dead.letter.output": "kafka.dead"}
SEND = "[out.send(sums, [key, self.total.get()], key=key) for key in self.context.keys(self.total)]"


def run_of(
    tmp_path: Path,
    *messages: InputMessage,
    task: str = _TASK,
    end: str = SEND,
    settings: dict[str, str] | None = None,
) -> TaskRun:
    path = tmp_path / "job.py"
    path.write_text(task.replace("END", end))
    path.with_suffix(".properties").write_text(_PROPERTIES)
    return run_task(path, messages, settings=BOUNDED if settings is None else settings)


def a_number(key: str, value: int, at_s: int) -> InputMessage:
    return InputMessage(key=key, value=value, timestamp_ms=1000 * at_s)


def test_at_the_end_all_timers_in_event_time_fire_and_then_end_of_stream_is_called_once(tmp_path: Path) -> None:
    run = run_of(tmp_path, a_number("a", 1, 100), a_number("b", 2, 110), a_number("a", 4, 120))

    assert [["timer", 170_000], ["timer", 180_000], ["a", 5], ["b", 2]] == [out.value for out in run.outputs]


def test_end_of_stream_is_called_also_where_there_was_no_message(tmp_path: Path) -> None:
    run = run_of(tmp_path, end='out.send(sums, "nothing", key="x")')

    assert ["nothing"] == [out.value for out in run.outputs]


def test_inputs_without_an_end_do_not_end(tmp_path: Path) -> None:
    assert () == run_of(tmp_path, a_number("a", 1, 100), settings={}).outputs


def test_the_state_of_a_key_is_refused_outside_of_a_walk(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"end_of_stream.*go through the keys"):
        run_of(tmp_path, a_number("a", 1, 100), end="self.total.get()")


def test_an_error_of_end_of_stream_ends_the_job_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"failed at end_of_stream.*ZeroDivisionError"):
        run_of(tmp_path, a_number("a", 1, 100), end="1 / 0")


def test_an_error_of_end_of_stream_is_a_dead_letter_where_failed_messages_are(tmp_path: Path) -> None:
    run = run_of(tmp_path, a_number("a", 1, 100), end="1 / 0", settings={**BOUNDED, **DEAD_LETTERS})

    (letter,) = run.sent_to("dead")
    assert "end_of_stream" in dict(letter.headers)


@pytest.mark.parametrize("letters", [{}, DEAD_LETTERS], ids=["fail", "dead-letter"])
def test_a_timer_that_is_set_from_the_present_on_does_not_fire_behind_the_end(
    tmp_path: Path, letters: dict[str, str]
) -> None:
    """In the handler of a timer, and in `end_of_stream`."""
    end = (
        "[(self.over.set(self.over.now_ms() + 60_000), out.send(sums, key)) for key in self.context.keys(self.total)]"
    )
    task = _TASK.replace("timer.time_ms + 1)", "self.over.now_ms() + 60_000)")

    run = run_of(tmp_path, a_number("a", 1, 100), task=task, end=end, settings={**BOUNDED, **letters})

    assert [["timer", 160_000], "a"] == [out.value for out in run.outputs]


@pytest.mark.parametrize("moment", ["-1", "0.5", "True"])
def test_a_value_that_is_no_moment_is_refused_also_at_the_end(tmp_path: Path, moment: str) -> None:
    end = f"[self.over.set({moment}) for key in self.context.keys(self.total)]"

    with pytest.raises(TaskError, match=r"timer over: wanted a moment in whole milliseconds since 1970, found"):
        run_of(tmp_path, a_number("a", 1, 100), end=end)


def test_a_method_with_other_arguments_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(_TASK.replace("END", "pass").replace("def end_of_stream(self, out)", "def end_of_stream(self)"))

    with pytest.raises(TaskModuleError, match=r"wanted Sums.end_of_stream\(self, out\)"):
        load_task_factory(path)()


def test_an_error_of_end_of_stream_gives_up_the_local_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = """
    def process(self, message, out): ...

    def end_of_stream(self, out):
        raise ValueError("the end")
"""
    worker = AWorker(tmp_path, body, settings=[f"{key}={value}" for key, value in BOUNDED.items()])
    begin, begun, given_up = worker.state.begin, [], []
    monkeypatch.setattr(worker.state, "begin", lambda: (begun.append(1), begin())[1])
    monkeypatch.setattr(worker.state, "abort", lambda: given_up.append(1))

    worker.runner.covered({0: 2**62})
    (report,) = worker.runner.run([], worker.slot)

    assert "failed at end_of_stream" in report.error
    assert begun and len(begun) == len(given_up)
