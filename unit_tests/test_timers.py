"""Timers of task classes, fired by the code that fires them in a Spark worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from samzapy.errors import ConfigError, TaskError, TaskModuleError
from samzapy.runtime.job_config import load_job
from samzapy.task import load_task_factory
from samzapy.testing.task_kit import InputMessage, TaskRun, run_task

_HEAD = """
import samzapy as sz

texts = sz.Stream("kafka.texts", key=sz.String, value=sz.String)
numbers = sz.Stream("kafka.numbers", key=sz.Long, value=sz.String)
"""
_TASK = """
@sz.task(inputs=[texts], outputs=[texts])
class Task(sz.Task[str, str]):
    count = sz.counter()
    quiet = sz.timer("processing"{resolution})
    late = sz.timer("processing")

    def init(self, context):
        self.begin = self.quiet.now_ms()

    def process(self, message, out):
        result = eval(message.value, {{"self": self, "t": self.begin, "out": out, "key": message.key}})
        if result is not None:
            out.send(texts, str(result), key=message.key)

    @quiet.fires
    def is_quiet(self, timer, out):
        number = self.count.add()
        out.send(texts, f"quiet {{timer.key}} {{timer.tag}} {{timer.time_ms - self.begin}} {{number}}", key=timer.key)

    @late.fires
    def is_late(self, timer, out):
        if timer.tag:
            eval(timer.tag, {{"self": self, "t": self.begin, "out": out}})
        out.send(texts, f"late {{timer.key}} {{timer.time_ms - self.begin}}", key=timer.key)
"""
_PROPERTIES = "job.name=job\nsystems.kafka.bootstrap.servers=localhost:9092\nlocal.store.dir=state\n"
DEAD_LETTERS = {"task.error.policy": "dead-letter", "task.dead.letter.output": "kafka.dead"}


def a_job(tmp_path: Path, text: str = _TASK, *, resolution: str = "", properties: str = "") -> Path:
    path = tmp_path / "job.py"
    path.write_text(_HEAD.lstrip() + (text.format(resolution=resolution) if text is _TASK else text))
    path.with_suffix(".properties").write_text(_PROPERTIES + properties)
    return path


def run_of(
    tmp_path: Path,
    *expressions: str | tuple[str, str],
    advance_ms: int = 0,
    resolution: str = "",
    settings: dict[str, str] | None = None,
) -> TaskRun:
    messages = [one if isinstance(one, tuple) else ("a", one) for one in expressions]
    return run_task(a_job(tmp_path, resolution=resolution), messages, settings=settings, advance_ms=advance_ms)


def sent(run: TaskRun) -> list[str]:
    return [output.value for output in run.sent_to("texts")]


def test_a_timer_fires_at_its_moment_for_its_key_and_not_before(tmp_path: Path) -> None:
    sets = [("b", "self.quiet.set(t + 20)"), ("a", "self.quiet.set(t + 10)")]

    assert [] == sent(run_of(tmp_path, *sets, advance_ms=9))
    assert ["quiet a  10 1"] == sent(run_of(tmp_path, *sets, advance_ms=19))
    assert ["quiet a  10 1", "quiet b  20 1"] == sent(run_of(tmp_path, *sets, advance_ms=20))


def test_setting_a_timer_again_replaces_its_moment(tmp_path: Path) -> None:
    run = run_of(tmp_path, "self.quiet.set(t + 10)", "self.quiet.set(t + 30)", advance_ms=100)

    assert ["quiet a  30 1"] == sent(run)


def test_a_cleared_timer_does_not_fire_and_can_be_asked_for(tmp_path: Path) -> None:
    run = run_of(
        tmp_path,
        "self.quiet.get()",
        "self.quiet.set(t + 10)",
        "self.quiet.get() - t",
        "self.quiet.clear()",
        "self.quiet.clear() or self.quiet.get()",
        advance_ms=100,
    )

    assert ["10"] == sent(run)
    assert {} == run.state("_timers")


def test_tags_distinguish_the_timers_of_a_key(tmp_path: Path) -> None:
    run = run_of(
        tmp_path,
        "self.quiet.set(t + 20, tag='x')",
        "self.quiet.set(t + 10, tag='y')",
        "self.quiet.set(t + 30, tag='z')",
        "self.quiet.clear(tag='z')",
        advance_ms=100,
    )

    assert ["quiet a y 10 1", "quiet a x 20 2"] == sent(run)


def test_timers_of_one_moment_fire_in_the_order_of_key_and_name(tmp_path: Path) -> None:
    run = run_of(
        tmp_path,
        ("b", "self.quiet.set(t + 10)"),
        ("a", "self.quiet.set(t + 10)"),
        ("a", "self.late.set(t + 10)"),
        advance_ms=10,
    )

    assert ["late a 10", "quiet a  10 1", "quiet b  10 1"] == sent(run)


def test_a_moment_that_is_past_fires_after_the_message(tmp_path: Path) -> None:
    assert ["done", "quiet a  -5 1"] == sent(run_of(tmp_path, "self.quiet.set(t - 5) or 'done'"))


def test_a_handler_can_set_and_clear_timers(tmp_path: Path) -> None:
    """The page's first timer clears the second and moves the third."""
    run = run_of(
        tmp_path,
        "self.late.set(t + 10, tag='self.quiet.clear(), self.quiet.set(t + 50, tag=str(3))')",
        "self.quiet.set(t + 10)",
        "self.quiet.set(t + 10, tag='3')",
        advance_ms=10,
    )

    assert ["late a 10"] == sent(run)
    assert 1 == len(run.state("_timers")["a"])


def test_moments_are_rounded_up_to_the_resolution(tmp_path: Path) -> None:
    run = run_of(tmp_path, "self.quiet.set(12_001)", "self.quiet.get()", resolution=", resolution_ms=1000")

    assert "13000" == sent(run)[0]


def test_the_last_moment_can_be_set_with_the_coarsest_resolution(tmp_path: Path) -> None:
    run = run_of(
        tmp_path, "self.quiet.set(2**62 - 1)", "self.quiet.get()", resolution=", resolution_ms=10**15", advance_ms=10
    )

    assert [str(-(-(2**62) // 10**15) * 10**15)] == sent(run)


def test_a_timer_that_is_set_to_the_same_moment_writes_nothing(tmp_path: Path) -> None:
    """Its changelog record would be one more in each message."""
    same = "self.quiet.set(t + 10) or self.quiet._reach.in_hand['_timers']._state.bytes_held"

    first, second = map(int, sent(run_of(tmp_path, same, same)))

    assert first == second


def test_many_timers_fire_in_many_pages(tmp_path: Path) -> None:
    run = run_of(tmp_path, "[self.quiet.set(t + 10, tag=str(n)) for n in range(350)] and None", advance_ms=10)

    assert 350 == len(sent(run)) == len(set(sent(run)))


def test_a_failing_handler_fails_the_job_and_names_the_timer(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"failed at timer late of key b?'a', set for \d+: ZeroDivisionError"):
        run_of(tmp_path, "self.late.set(t + 10, tag='1 / 0')", advance_ms=10)


def test_a_failing_handler_leaves_a_dead_letter_and_nothing_else(tmp_path: Path) -> None:
    run = run_of(
        tmp_path,
        "self.late.set(t + 10, tag='out.send(\"kafka.texts\", 1) if 0 else (self.count.add(), 1 / 0)')",
        ("b", "self.late.set(t + 10)"),
        advance_ms=10,
        settings=DEAD_LETTERS,
    )

    assert ["late b 10"] == sent(run)
    assert {} == run.state("count") == run.state("_timers")
    (dead,) = run.sent_to("dead")
    headers = dict(dead.headers)
    assert (b"a", b"late", b"ZeroDivisionError: division by zero") == (dead.key, headers["timer"], headers["error"])


def test_a_timer_that_the_task_no_longer_declares_is_named(tmp_path: Path) -> None:
    """Its entry was set by an earlier form of the task."""
    put = "self.quiet._reach.in_hand['_timers'].put(bytes(12), b'old\\x00')"

    with pytest.raises(TaskError, match=r"wanted a timer that the task declares \(.*late.*\), found old"):
        run_of(tmp_path, put)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("self.quiet.set(1.5)", "timer quiet: wanted a moment in whole milliseconds since 1970, found 1.5"),
        ("self.quiet.set('soon')", "wanted a moment in whole milliseconds since 1970, found 'soon'"),
        ("self.quiet.set(True)", "wanted a moment in whole milliseconds since 1970, found True"),
        ("self.quiet.set(-1)", "wanted a moment in whole milliseconds since 1970, found -1"),
        ("self.quiet.set(2**62)", "wanted a moment in whole milliseconds since 1970"),
        ("self.quiet.set(1, tag=b'x')", "wanted a tag as text without a zero character, found b'x'"),
        ("self.quiet.set(1, tag='x' * 300)", "wanted a sub-key of at most 255 bytes"),
    ],
)
def test_a_wrong_moment_or_tag_fails_the_message(tmp_path: Path, expression: str, reason: str) -> None:
    with pytest.raises(TaskError, match=reason):
        run_of(tmp_path, expression)


@pytest.mark.parametrize("length", [256, 600])
def test_a_long_tag_fails_its_message_also_behind_other_messages(tmp_path: Path, length: int) -> None:
    """The first calls of a chunk are timed, and go another way than those behind them."""
    run = run_of(
        tmp_path,
        "self.quiet.set(t + 10)",
        "self.quiet.set(t + 10)",
        ("b", f"self.quiet.set(t + 10, tag='x' * {length})"),
        ("c", "self.quiet.set(t + 10)"),
        advance_ms=10,
        settings=DEAD_LETTERS,
    )

    assert ["quiet a  10 1", "quiet c  10 1"] == sent(run)
    (dead,) = run.sent_to("dead")
    assert dead.key == b"b" and b"wanted a sub-key of at most 255 bytes" in dict(dead.headers)["error"]


def test_a_message_without_a_key_or_of_a_broadcast_input_sets_no_timer(tmp_path: Path) -> None:
    text = """
rules = sz.Stream("kafka.rules", key=sz.String, value=sz.String)

@sz.task(inputs=[texts], broadcast=[rules])
class Task(sz.Task[str, str]):
    quiet = sz.timer("processing")

    def process(self, message, out):
        self.quiet.set(5)

    @quiet.fires
    def is_quiet(self, timer, out): pass
"""
    job = a_job(tmp_path, text)

    with pytest.raises(TaskError, match="store _timers: wanted a message with a key"):
        run_task(job, [(None, "x")])
    with pytest.raises(TaskError, match="store _timers: wanted a message of an input of the task's own"):
        run_task(job, [InputMessage(key="a", value="x", stream="kafka.rules")])


_CLASS = "@sz.task(inputs=[texts])\nclass T(sz.Task):\n    def process(self, message, out): pass\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sz.timer('wall')", "job.py:5: wanted a timer of the domain 'processing' or 'event', found 'wall'"),
        ("sz.timer('processing', resolution_ms=0)", "wanted resolution_ms of 1 or more, .* found 0"),
        ("sz.timer('event', resolution_ms=10**15 + 1)", "at most 1000000000000000, found 1000000000000001"),
        (f"{_CLASS}    x = sz.timer('processing')", r"wanted a method marked with @x.fires, found none"),
        (
            f"{_CLASS}    x = sz.timer('processing')\n    @x.fires\n    def a(self, timer, out): pass\n"
            "    @x.fires\n    def b(self, timer, out): pass",
            "wanted one method that is called when x fires, found a and b",
        ),
        (
            f"{_CLASS}    x = sz.timer('processing')\n    @x.fires\n    def a(self, timer): pass",
            r"wanted T.a\(self, timer, out\), found",
        ),
        (
            f"{_CLASS}    _x = sz.timer('processing')\n    @_x.fires\n    def a(self, timer, out): pass",
            "wanted a timer whose name does not begin with _, found _x",
        ),
        (
            f"{_CLASS}    x = sz.timer('processing')\n    @x.fires\n    def a(self, timer, out): pass\n".replace(
                "inputs=[texts]", "inputs=[texts, numbers]"
            ),
            "wanted inputs whose keys have one serde, .* found long, string",
        ),
    ],
)
def test_a_wrong_declaration_is_refused_with_its_place(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(TaskModuleError, match=reason):
        load_task_factory(a_job(tmp_path, text))


def test_timers_are_an_ordinary_store_of_the_configuration(tmp_path: Path) -> None:
    config, factory = load_job(a_job(tmp_path), None, [], {})

    (timers,) = [store for store in config.stores if store.name == "_timers"]
    assert ("timer", "key", "bytes") == (timers.kind, timers.scope, timers.key_serde)
    places = {setting.key: setting.place for setting in factory.declared.settings()}
    assert places["stores._timers.kind"].startswith("job.py:")


def test_a_store_of_timers_of_the_properties_alone_is_refused(tmp_path: Path) -> None:
    job = a_job(tmp_path, _CLASS, properties="stores.other.kind=timer\n")

    with pytest.raises(ConfigError, match=r"stores.other.kind: wanted value, found timer"):
        run_task(job, [])


def test_inputs_that_share_timers_meet_in_one_task(tmp_path: Path) -> None:
    text = f"{_CLASS}    x = sz.timer('processing')\n    @x.fires\n    def a(self, timer, out): pass\n"
    others = 'others = sz.Stream("kafka.others", key=sz.String, value=sz.String)\n'
    job = a_job(tmp_path, others + text.replace("inputs=[texts]", "inputs=[texts, others]"))

    assert "cogroup" == load_job(job, None, [], {})[0].partition_scheme


def test_a_timer_is_used_by_an_instance_of_its_task_only(tmp_path: Path) -> None:
    text = f"{_CLASS}    x = sz.timer('processing')\n    @x.fires\n    def a(self, timer, out): pass\nT.x.set(5)\n"

    with pytest.raises(TaskModuleError, match="wanted a use by an instance of its task"):
        load_task_factory(a_job(tmp_path, text))
