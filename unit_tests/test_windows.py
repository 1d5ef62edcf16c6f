"""Windows of task classes, called by the code that calls them in a Spark worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from samzapy.errors import ConfigError, TaskError, TaskModuleError
from samzapy.plan.job_plan import factor_fixed_by
from samzapy.runtime.job_config import load_job
from samzapy.task import load_task_factory
from samzapy.testing.task_kit import InputMessage, TaskRun, run_task

_HEAD = """
import samzapy as sz

texts = sz.Stream("kafka.texts", key=sz.String, value=sz.String)
"""
_TASK = """
@sz.task(inputs=[texts], outputs=[texts], window_ms=1000)
class Task(sz.Task[str, str]):
    total = sz.value(sz.Json(), default=0)
    parts = sz.map(sz.String, sz.String)
    ticks = sz.timer("processing")

    def process(self, message, out):
        self.total.set(self.total.get() + 1)
        self.parts.put(message.value, "")

    @ticks.fires
    def fired(self, timer, out):
        out.send(texts, f"timer {self.total.get()}", key=timer.key)

    def window(self, tick, out):
        assert 1000 * tick.number == tick.time_ms
        for key in self.context.keys(self.total):
            WINDOW
        out.send(texts, str(tick.number), key="tick")
"""
_PROPERTIES = "job.name=job\nsystems.kafka.bootstrap.servers=localhost:9092\nlocal.store.dir=state\n"
DEAD_LETTERS = {"task.error.policy": "dead-letter", "task.dead.letter.output": "kafka.dead"}
SEND_TOTAL = "out.send(texts, str(self.total.get()), key=key); self.total.clear()"


def a_job(tmp_path: Path, text: str = _TASK, *, window: str = SEND_TOTAL, properties: str = "") -> Path:
    path = tmp_path / "job.py"
    path.write_text(_HEAD.lstrip() + text.replace("WINDOW", window))
    path.with_suffix(".properties").write_text(_PROPERTIES + properties)
    return path


def run_of(tmp_path: Path, *messages: InputMessage, window: str = SEND_TOTAL, advance_ms: int = 0) -> TaskRun:
    return run_task(a_job(tmp_path, window=window), messages, advance_ms=advance_ms)


def of(key: str, *, after_ms: int = 0, value: str = "x") -> InputMessage:
    return InputMessage(key=key, value=value, after_ms=after_ms)


def without_ticks(run: TaskRun) -> list[tuple[str, str]]:
    return [(output.key, output.value) for output in run.sent_to("texts") if output.key != "tick"]


def test_a_window_sees_each_key_with_state_and_its_writes_count(tmp_path: Path) -> None:
    run = run_of(tmp_path, of("a"), of("b"), of("a"), of("c", after_ms=1000), advance_ms=2000)

    assert [("a", "2"), ("b", "1"), ("c", "1")] == without_ticks(run)
    assert {} == run.state("total")


def test_ticks_come_once_for_each_interval_with_and_without_messages(tmp_path: Path) -> None:
    run = run_of(tmp_path, of("a"), of("a", after_ms=3000), advance_ms=5000)

    numbers = [int(output.value) for output in run.sent_to("texts") if output.key == "tick"]
    assert list(range(numbers[0], numbers[0] + 8)) == numbers


def test_more_keys_than_a_page_are_seen_once_each(tmp_path: Path) -> None:
    keys = [f"{number:04}" * (1 + number % 3) * (100 if number % 50 == 0 else 1) for number in range(350)]

    run = run_of(tmp_path, *map(of, keys), advance_ms=1000)

    assert sorted(keys) == sorted(key for key, _ in without_ticks(run))


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        # Within one window the walk sees its own writes.
        ("self.total.clear(); list(self.context.keys(self.total))", []),
        ("self.parts.put('y', 'z')", []),
        ("out.send(texts, str([name for name, _ in self.parts.items()]), key=key)", [("a", "['x']"), ("b", "['x']")]),
        # A walk within a walk, and the key of the outer one behind it.
        (
            "out.send(texts, ''.join(sorted(self.context.keys(self.parts))) + str(self.total.get()), key=key)",
            [("a", "ab2"), ("b", "ab1")],
        ),
        # Entries of the outer key go on behind a walk over keys within them.
        (
            "out.send(texts, ''.join(n + str(len(list(self.context.keys(self.total)))) for n, _ in self.parts.items()),"
            " key=key)",
            [("a", "x2"), ("b", "x2")],
        ),
        # Timers and states of the key in hand.
        ("self.ticks.set(0); self.total.set(7)", [("a", "timer 7"), ("b", "timer 7")]),
    ],
)
def test_the_state_and_timers_of_each_key_can_be_used(
    tmp_path: Path, window: str, expected: list[tuple[str, str]]
) -> None:
    run = run_of(tmp_path, of("a"), of("b"), of("a"), window=window, advance_ms=1000)

    assert expected == without_ticks(run)


def test_entries_made_by_a_window_are_walked_over_in_the_same_window(tmp_path: Path) -> None:
    text = _TASK.replace("sz.Json(), default=0)\n", "sz.Json(), default=0)\n    seen = sz.counter()\n", 1)
    window = "self.seen.add()\n        out.send(texts, ''.join(sorted(self.context.keys(self.seen))), key='seen')"

    run = run_task(a_job(tmp_path, text, window=window), [of("a"), of("b")], advance_ms=1000)

    assert [("seen", "ab")] == without_ticks(run)


def test_a_failing_window_leaves_a_dead_letter_and_nothing_else_and_is_not_repeated(tmp_path: Path) -> None:
    window = "self.total.set(5); self.parts.put('y', 'z'); out.send(texts, 'half', key=key); raise ValueError('no')"
    run = run_task(a_job(tmp_path, window=window), [of("a")], settings=DEAD_LETTERS, advance_ms=2000)

    letters = run.sent_to("dead")
    assert ({"a": 1}, {"a": {"x": ""}}) == (run.state("total"), run.state("parts"))
    assert 2 == len(letters) and not run.sent_to("texts")
    headers = dict(letters[0].headers)
    assert [b"Partition 0", b"ValueError: no"] == [headers["task"], headers["error"]]
    numbers = [int(dict(letter.headers)["window"]) for letter in letters]
    assert [numbers[0], numbers[0] + 1] == numbers


def test_a_failing_window_fails_the_job_and_names_the_window(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"task Partition 0 failed at window \d+, of \d+000: ValueError: no"):
        run_of(tmp_path, of("a"), window="raise ValueError('no')", advance_ms=2000)


@pytest.mark.parametrize(
    ("window", "reason"),
    [
        (
            "pass\n        self.total.get()",
            "wanted a message with a key, found a window without one; go through the keys",
        ),
        (
            "pass\n        list(self.context.keys(self.note))",
            r"wanted a state of scope key of the task \(parts, total\)",
        ),
    ],
)
def test_a_wrong_use_in_a_window_is_named(tmp_path: Path, window: str, reason: str) -> None:
    text = _TASK.replace(
        "sz.Json(), default=0)\n", 'sz.Json(), default=0)\n    note = sz.value(sz.Long, scope="task")\n', 1
    )
    with pytest.raises(TaskError, match=reason):
        run_task(a_job(tmp_path, text, window=window), [of("a")], advance_ms=2000)


def test_keys_are_walked_over_in_a_window_only(tmp_path: Path) -> None:
    text = _TASK.replace("self.parts.put", "list(self.context.keys(self.total)); self.parts.put")
    with pytest.raises(TaskError, match="wanted a walk over the keys of total within window, found one elsewhere"):
        run_task(a_job(tmp_path, text), [of("a")])


def test_a_walk_ends_with_its_window(tmp_path: Path) -> None:
    text = _TASK.replace("self.parts.put", "getattr(self, 'kept', None) and next(self.kept); self.parts.put")
    window = "self.kept = self.context.keys(self.total); next(self.kept); break"
    with pytest.raises(TaskError, match="within window, found one elsewhere"):
        run_task(a_job(tmp_path, text, window=window), [of("a"), of("b"), of("c", after_ms=2000)])


def test_entries_of_a_key_end_with_it_in_a_walk_over_keys(tmp_path: Path) -> None:
    window = (
        "[next(kept) for kept in getattr(self, 'kept', ())]; self.kept = [self.parts.items()]; next(self.kept[0])"
    )
    messages = [of(key, value=value) for key in "ab" for value in "xy"]
    with pytest.raises(TaskError, match="wanted the next entry of store parts to be called only while"):
        run_of(tmp_path, *messages, window=window, advance_ms=1000)


def test_a_function_task_and_a_task_without_window_refuse_the_key(tmp_path: Path) -> None:
    text = "@sz.task\ndef task(envelope, collector, context): ...\n"
    path = a_job(tmp_path, text, properties="task.inputs=kafka.texts\ntask.window.ms=1000\n")
    with pytest.raises(ConfigError, match=r"task.window.ms: wanted a task class with a method window"):
        load_job(path, None, [], {})


def test_the_interval_may_be_left_to_the_configuration(tmp_path: Path) -> None:
    path = a_job(tmp_path, _TASK.replace(", window_ms=1000", ""))
    with pytest.raises(
        ConfigError, match=r"task.window.ms: wanted the time between two calls of window \(job.py:5\)"
    ):
        load_job(path, None, [], {})

    config, _ = load_job(path, None, ["task.window.ms=500"], {})

    assert 500 == config.window_ms


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("window_ms=1000", "window_ms=0", "wanted window_ms in whole milliseconds, 1 or more"),
        ("window_ms=1000", "window_ms='1s'", "wanted window_ms in whole milliseconds"),
        (
            "def window(",
            "def windows(",
            r"job.py:5: wanted a method window\(self, tick, out\) for window_ms, found none",
        ),
        ("def window(self, tick, out)", "def window(self, out)", r"wanted Task.window\(self, tick, out\)"),
        ("def window(self", "async def window(self", "wanted a plain function, found Task.window"),
    ],
)
def test_a_wrong_declaration_is_refused(tmp_path: Path, old: str, new: str, reason: str) -> None:
    with pytest.raises(TaskModuleError, match=reason):
        load_task_factory(a_job(tmp_path, _TASK.replace(old, new)))


def test_the_moment_of_the_last_tick_does_not_fix_the_factor(tmp_path: Path) -> None:
    config, _ = load_job(a_job(tmp_path), None, [], {})

    assert {"_timers", "_window", "parts", "total"} == {store.name for store in config.stores}
    assert "" == factor_fixed_by(config)
