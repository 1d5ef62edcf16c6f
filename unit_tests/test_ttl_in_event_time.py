"""A time to live in event time: expiry follows from the messages of the key alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samzapy.model.timer_entry import Domain, timer_value
from samzapy.runtime.job_config import load_job
from samzapy.testing.task_kit import InputMessage, TaskRun, run_task

_JOB = """
import samzapy as sz

texts = sz.Stream("kafka.texts", key=sz.String, value=sz.String, disorder_ms=500)
shown = sz.Stream("kafka.shown", key=sz.String, value=sz.Json())

@sz.task(inputs=[texts], outputs=[shown])
class Task(sz.Task[str, str]):
    value = sz.value(sz.Long, default=0, ttl=1000)
    read = sz.value(sz.Long, default=0, ttl=1000, refresh="read")
    map = sz.map(sz.Long, sz.String, ttl=1000)
    list = sz.list(sz.Long, ttl=1000)
    timer = sz.timer("event")

    def process(self, message, out):
        result = eval(message.value, {"self": self})
        out.send(shown, list(result) if hasattr(result, "__next__") else result, key=message.key)

    @timer.fires
    def fired(self, timer, out):
        out.send(shown, ["fired", timer.time_ms - 1_700_000_000_000, self.value.get()], key=timer.key)

    def end_of_stream(self, out):
        for key in self.context.keys(self.value):
            out.send(shown, ["end", self.value.get()], key=key)
"""
_PROPERTIES = "job.name=job\nsystems.kafka.bootstrap.servers=localhost:9092\nlocal.store.dir=state\n"
_BOUNDED = {"systems.kafka.samza.offset.default": "oldest", "systems.kafka.samza.offset.end": "head"}
_NEVER_QUIET = {"task.event.time.idle.ms": "0"}
_BEGIN_MS = 1_700_000_000_000
_MINUTE_MS = 60_000
_TTL_MS, _STEP_MS, _DISORDER_MS = 1000, 20, 500


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_job(tmp_path_factory.mktemp("job"), _JOB)


def a_job(directory: Path, text: str) -> Path:
    path = directory / "job.py"
    path.write_text(text)
    path.with_suffix(".properties").write_text(_PROPERTIES)
    return path


def at(time_ms: int, expression: str, key: str = "a", after_ms: int = 0) -> InputMessage:
    return InputMessage(key=key, value=expression, timestamp_ms=_BEGIN_MS + time_ms, after_ms=after_ms)


def shown(run: TaskRun, key: str | None = None) -> list[object]:
    return [output.value for output in run.sent_to("shown") if key in (None, output.key)]


def test_an_entry_expires_by_the_time_of_the_messages_and_not_by_that_of_the_host(job: Path) -> None:
    run = run_task(
        job,
        [
            at(0, "self.value.set(7)"),
            at(999, "self.value.get()", after_ms=3_600_000),
            at(1020, "self.value.get()"),
        ],
        settings=_NEVER_QUIET,
    )

    assert [None, 7, 0] == shown(run)


def test_a_message_acts_at_its_own_time_wherever_the_watermark_is(job: Path) -> None:
    """The last message is older than the one before, and not late."""
    run = run_task(job, [at(0, "self.value.set(7)"), at(1200, "self.value.get()"), at(900, "self.value.get()")])

    assert [None, 0, 7] == shown(run)


@pytest.mark.parametrize("clears", ["self.map.clear()", "self.map.delete_range()"])
def test_a_message_that_is_older_than_a_clear_sees_nothing_that_was_there_before_it(job: Path, clears: str) -> None:
    run = run_task(
        job,
        [
            at(0, "self.map.put(1, 'x'), self.list.append(1)"),
            at(1200, f"[{clears}, self.list.clear()]"),
            at(900, "[*self.map.items(), *self.list]"),
            at(1200, "self.map.put(2, 'y'), self.map.put(3, 'z')"),
            at(1200, "self.map.delete_range(2, 2)"),
        ],
    )

    assert [[], 1] == [shown(run)[2], shown(run)[4]]


def test_a_late_message_acts_at_the_watermark_so_that_a_removal_changes_nothing_for_it(job: Path) -> None:
    def run(after_ms: int) -> list[object]:
        return shown(
            run_task(
                job,
                [
                    at(0, "self.value.set(7)"),
                    at(2000, "0", key="b"),
                    at(100, "self.value.get()", after_ms=after_ms),
                    at(100, "self.value.set(8)"),
                    at(2000, "self.value.get()"),
                ],
            ),
            "a",
        )

    # With and without a removal before the late messages.
    assert [None, 0, None, 8] == run(0) == run(1)


def test_an_older_message_that_comes_later_shortens_no_life(job: Path) -> None:
    run = run_task(
        job,
        [
            at(400, "self.value.set(1), self.read.set(1)"),
            at(0, "self.value.set(2), self.read.get()"),
            at(1350, "[self.value.get(), self.read.get()]"),
        ],
    )

    assert [2, 1] == shown(run)[2]


def test_a_read_restarts_the_time_only_on_request(job: Path) -> None:
    run = run_task(
        job,
        [
            at(0, "self.value.set(1), self.read.set(1)"),
            at(600, "[self.value.get(), self.read.get()]"),
            at(1200, "[self.value.get(), self.read.get()]"),
        ],
    )

    assert [[1, 1], [0, 1]] == shown(run)[1:]


def test_the_length_of_a_list_is_that_of_the_values_left_where_a_later_one_expires_first(job: Path) -> None:
    run = run_task(
        job,
        [
            at(400, "self.list.append(1)"),
            at(0, "self.list.append(2)"),
            at(500, "self.list.append(3)"),
            at(1100, "[len(self.list), *self.list]"),
            at(86_400_000, "[len(self.list), *self.list]"),
        ],
    )

    assert [[2, 1, 3], [0]] == shown(run)[3:]


def test_a_timer_finds_the_entries_that_had_not_expired_at_its_moment(job: Path) -> None:
    """The next message is of a day later, so everything is due at once."""
    run = run_task(
        job,
        [
            at(0, f"(self.value.set(7), self.timer.set({_BEGIN_MS} + 900))[0]"),
            at(0, f"(self.value.set(8), self.timer.set({_BEGIN_MS} + 1020))[0]", key="b"),
            at(86_400_000, "self.value.get()", after_ms=1),
        ],
    )

    assert [["fired", 900, 7], ["fired", 1020, 0], 0] == shown(run)[2:]


def test_a_timer_that_is_set_to_a_moment_before_the_watermark_acts_at_the_watermark(job: Path) -> None:
    """Expired entries may be removed."""

    def run(after_ms: int) -> list[object]:
        return shown(
            run_task(
                job,
                [
                    at(0, "self.value.set(7)"),
                    at(2000, "0", key="b"),
                    at(2000, f"self.timer.set({_BEGIN_MS} + 500)", after_ms=after_ms),
                ],
            )
        )

    assert ["fired", 500, 0] == run(0)[-1] == run(1)[-1]


@pytest.mark.parametrize("time_ms", [-1 - _BEGIN_MS, 3_000_000_000_000], ids=["none", "far ahead"])
def test_a_message_without_a_time_that_counts_acts_at_the_watermark(job: Path, time_ms: int) -> None:
    run = run_task(
        job,
        [
            at(0, "self.value.set(7)"),
            at(1000, "0", key="b"),
            at(time_ms, "(self.value.get(), self.value.set(8))[0]"),
            at(1499, "self.value.get()"),
            at(1520, "self.value.get()"),
        ],
    )

    # Written at the watermark of 500.
    assert [7, 8, 0] == shown(run, "a")[1:]


def test_an_entry_that_is_written_without_a_watermark_is_removed_later(job: Path) -> None:
    """Later than in event time, as the host's clock is ahead of it."""
    run = run_task(job, [at(-1 - _BEGIN_MS, "self.value.set(7)"), at(0, "self.value.get()")], advance_ms=10**6)

    assert 7 == shown(run)[1]
    assert {"a": 7} == run.state("value")


def test_entries_of_a_quiet_input_are_removed_at_the_next_minute(job: Path) -> None:
    put = [at(0, "self.value.set(1), self.map.put(1, 'a')"), at(500, "self.value.set(2)", key="b")]
    settings_of_job = {"task.event.time.idle.ms": "1000"}
    # The watermark is at the first message, as the newest one is as much newer as the disorder.
    until_ms = _MINUTE_MS - _BEGIN_MS % _MINUTE_MS + 1000

    before = run_task(job, put, advance_ms=until_ms - 1, settings=settings_of_job)
    after = run_task(job, put, advance_ms=until_ms, settings=settings_of_job)

    assert {"a": 1, "b": 2} == before.state("value")
    assert [{}, {}, {}] == [after.state(store) for store in ("value", "map", "_timers")]


def test_the_end_of_the_inputs_lets_no_entry_expire(job: Path) -> None:
    """All timers fire then, however far they were set."""
    run = run_task(
        job,
        [
            at(0, f"(self.value.set(6), self.timer.set({_BEGIN_MS} + 900))[0]"),
            at(1000, f"(self.value.set(7), self.timer.set({_BEGIN_MS} + 5000))[0]", key="b"),
        ],
        settings=_BOUNDED,
    )

    assert [["fired", 900, 6], ["fired", 5000, 0], ["end", 6], ["end", 7]] == shown(run)[2:]
    assert {"a": 6, "b": 7} == run.state("value")


def test_a_task_without_times_of_its_own_expires_by_the_host_also_where_it_knows_the_end(tmp_path: Path) -> None:
    text = _JOB.replace(", disorder_ms=500", "").replace('sz.timer("event")', 'sz.timer("processing")')
    run = run_task(
        a_job(tmp_path, text),
        [
            at(0, "self.value.set(7)"),
            at(5000, "self.value.get()", after_ms=999),
            at(0, "self.value.get()", after_ms=30),
        ],
    )

    assert [7, 0] == shown(run)[1:]


def test_the_clock_of_a_time_to_live_is_configuration(job: Path, tmp_path: Path) -> None:
    config, _ = load_job(job, None, [], {})
    by_host, _ = load_job(
        a_job(tmp_path, _JOB.replace(", disorder_ms=500", "").replace("event", "processing")), None, [], {}
    )

    assert ["event"] == [store.ttl_clock for store in config.stores if store.name == "value"]
    assert ["host"] == [store.ttl_clock for store in by_host.stores if store.name == "value"]


# --- timers that set timers ---

_BEATS = """
import samzapy as sz

texts = sz.Stream("kafka.texts", key=sz.String, value=sz.String)
shown = sz.Stream("kafka.shown", key=sz.String, value=sz.Json())

@sz.task(inputs=[texts], outputs=[shown])
class Task(sz.Task[str, str]):
    map = sz.map(sz.Long, sz.String, ttl=1000)
    beat = sz.timer("event")

    def process(self, message, out):
        out.send(shown, eval(message.value, {"self": self}), key=message.key)

    @beat.fires
    def beats(self, timer, out):
        # The tag: how many beats are left, and how far apart they are.
        left, step_ms = map(int, timer.tag.split())
        items = [number for number, _ in self.map.items()]
        out.send(shown, [timer.time_ms - 1_700_000_000_000, *items], key=timer.key)
        if left:
            self.beat.set(timer.time_ms + step_ms, tag=f"{left - 1} {step_ms}")
"""


@pytest.fixture(scope="module")
def beats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_job(tmp_path_factory.mktemp("beats"), _BEATS)


def beat_at(time_ms: int, left: int = 0, step_ms: int = 0) -> str:
    return f"self.beat.set({_BEGIN_MS + time_ms}, tag='{left} {step_ms}')"


def one_beat(key: str, time_ms: int) -> InputMessage:
    return at(0, f"(self.map.put(1, 'x'), {beat_at(time_ms)})[0]", key)


def test_a_timer_that_sets_itself_changes_nothing_for_the_timers_of_other_keys(beats: Path) -> None:
    own, other = one_beat("b", 500), at(0, f"(self.map.put(1, 'x'), {beat_at(100, 3, 100)})[0]")
    far, steps = at(5000, "0", "c"), [at(time_ms, "0", "c") for time_ms in range(50, 5000, 100)]

    alone = run_task(beats, [own, far])
    beside = run_task(beats, [other, own, far])
    gradually = run_task(beats, [other, own, *steps, far])

    assert [None, [500, 1]] == shown(alone, "b") == shown(beside, "b") == shown(gradually, "b")
    assert [None, [100, 1], [200, 1], [300, 1], [400, 1]] == shown(beside, "a") == shown(gradually, "a")


def test_a_timer_that_sets_itself_at_the_end_of_the_inputs_lets_no_entry_expire(beats: Path) -> None:
    messages = [at(0, f"(self.map.put(1, 'x'), {beat_at(100, 3, 100)})[0]"), one_beat("b", 500)]

    run = run_task(beats, messages, settings=_BOUNDED)

    assert [[100, 1], [500, 1]] == shown(run)[2:]


# --- times before 1970 ---

_COUNTS_OF_ANY_TIME = """
import samzapy as sz

moments = sz.Stream("kafka.moments", key=sz.String, value=sz.Long, event_time=lambda message: message.value)
shown = sz.Stream("kafka.shown", key=sz.String, value=sz.Long)

@sz.task(inputs=[moments], outputs=[shown])
class Task(sz.Task[str, int]):
    count = sz.counter(ttl=sz.minutes(10))

    def process(self, message, out):
        out.send(shown, self.count.add(), key=message.key)
"""


@pytest.mark.parametrize(
    ("moments", "counts"),
    [
        ((("a", -1000), ("a", -900)), {"a": 1}),
        ((("a", -1000), ("a", -995)), {"a": 2}),
        # Removed before 1970, behind it, and by a clock that passes it.
        ((("a", -1000), ("b", -900)), {"b": 1}),
        ((("a", -1000), ("b", -1)), {"b": 1}),
        ((("a", -1000), ("b", -5), ("c", 20)), {"c": 1}),
        ((("a", -5), ("b", 1)), {"a": 1, "b": 1}),
    ],
)
@pytest.mark.parametrize("idle_ms", [0, 30_000])
def test_entries_of_times_before_1970_expire_as_others_do(
    tmp_path: Path, moments: Sequence[tuple[str, int]], counts: Mapping[str, int], idle_ms: int
) -> None:
    messages = [InputMessage(key=key, value=minute * _MINUTE_MS, after_ms=1) for key, minute in moments]
    path, idle = a_job(tmp_path, _COUNTS_OF_ANY_TIME), {"task.event.time.idle.ms": str(idle_ms)}

    run = run_task(path, messages, advance_ms=1000, settings=idle)

    assert counts == run.state("count")
    assert counts.keys() == run.state("_timers").keys()


def test_entries_of_times_before_1970_are_removed_on_a_quiet_input(tmp_path: Path) -> None:
    messages = [InputMessage(key="a", value=-1000 * _MINUTE_MS)]
    path, idle = a_job(tmp_path, _COUNTS_OF_ANY_TIME), {"task.event.time.idle.ms": "1000"}

    before = run_task(path, messages, advance_ms=10 * _MINUTE_MS, settings=idle)
    after = run_task(path, messages, advance_ms=11 * _MINUTE_MS + 1000, settings=idle)

    assert ({"a": 1}, {}) == (before.state("count"), after.state("count"))


def test_more_entries_than_a_page_are_removed_before_1970_and_behind_it(tmp_path: Path) -> None:
    messages = [InputMessage(key=f"{n}", value=(n - 150) * _MINUTE_MS // 10) for n in range(300)]

    run = run_task(a_job(tmp_path, _COUNTS_OF_ANY_TIME), [*messages, InputMessage(key="z", value=60 * _MINUTE_MS)])

    assert {"z": 1} == run.state("count")


# --- a job that begins to go by event time, or stops to ---


def expiring(domain: Domain, moment_ms: int) -> str:
    """Sets a value whose expiry another form of the task has set."""
    timer = timer_value(domain, moment_ms)
    stores = "self.value._reach.in_hand"
    return f"({stores}['value'].put(5), {stores}['_timers'].put({timer!r}, b'ttl:value\\x00'))[0]"


def test_an_entry_of_the_host_s_clock_follows_event_time_from_its_next_use_on(job: Path) -> None:
    far_ms = 4_000_000_000_000
    run = run_task(
        job,
        [at(0, expiring(Domain.PROCESSING, far_ms)), at(10, "self.value.get()"), at(1100, "self.value.get()")],
    )

    assert [5, 0] == shown(run)[1:]


def test_an_entry_of_the_host_s_clock_that_is_not_used_follows_it(job: Path) -> None:
    # Past for the host, and in the future of the messages.
    put = [at(0, "0"), at(1, expiring(Domain.PROCESSING, _BEGIN_MS + 50_000_000_000))]

    assert 0 == shown(run_task(job, [*put, at(1, "self.value.get()")]))[2]
    assert {} == run_task(job, put, advance_ms=1).state("value")


@pytest.mark.parametrize("moment_ms", [_BEGIN_MS, -1])
def test_an_entry_of_event_time_follows_the_host_s_clock_once_the_task_does(tmp_path: Path, moment_ms: int) -> None:
    path = a_job(
        tmp_path, _JOB.replace(", disorder_ms=500", "").replace('sz.timer("event")', 'sz.timer("processing")')
    )
    put = expiring(Domain.EXPIRY, moment_ms)

    assert 0 == shown(run_task(path, [at(0, put), at(0, "self.value.get()")]))[1]
    assert {} == run_task(path, [at(0, put)], advance_ms=1).state("value")


# --- against a model ---


class Model:
    """The values of one key, by the times of its messages. Nothing is removed."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[str, int]] = {}
        self.values: list[tuple[int, int]] = []

    def alive(self, number: int, time_ms: int) -> bool:
        return number in self.entries and time_ms < self.entries[number][1]

    def do(self, act: str, number: int, time_ms: int) -> object:
        expiry_ms = -(-(_BEGIN_MS + time_ms + _TTL_MS) // _STEP_MS) * _STEP_MS - _BEGIN_MS
        if act in ("append", "length", "pop"):
            return self.do_list(act, number, time_ms, expiry_ms)
        if act == "put":
            self.entries[number] = "x", max(expiry_ms, self.entries[number][1] if number in self.entries else 0)
        elif act == "delete":
            self.entries.pop(number, None)
        elif act == "get":
            return self.alive(number, time_ms)
        else:
            return [number for number in sorted(self.entries) if self.alive(number, time_ms)]
        return None

    def do_list(self, act: str, number: int, time_ms: int, expiry_ms: int) -> object:
        alive = [value for value in self.values if time_ms < value[1]]
        if act == "append":
            self.values.append((number, expiry_ms))
            return None
        if act == "length":
            return [len(alive), *(value for value, _ in alive)]
        if alive:
            self.values.remove(alive[0])
        return [value for value, _ in alive[:1]]


_TEXTS = {
    "put": "self.map.put({0}, 'x')",
    "get": "self.map.get({0}) is not None",
    "items": "[n for n, _ in self.map.items()]",
    "delete": "self.map.delete({0})",
    "append": "self.list.append({0})",
    "length": "[len(self.list), *self.list]",
    "pop": "self.list.pop_first()",
}


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 300, 500, 979, 1000, 1020, 70_000]),
            st.integers(0, _DISORDER_MS),
            st.sampled_from("abc"),
            st.sampled_from(list(_TEXTS)),
            st.integers(1, 3),
            st.sampled_from([0, 0, 1, 5000]),
        ),
        max_size=16,
    )
)
def test_the_results_of_a_key_follow_from_its_own_messages(
    job: Path, steps: list[tuple[int, int, str, str, int, int]]
) -> None:
    """Other keys and the ends of transactions change nothing; no message is late."""
    newest_ms, messages, expected = 10_000, list[InputMessage](), dict[str, list[object]]()
    models = {key: Model() for key in "abc"}
    for ahead_ms, behind_ms, key, act, number, after_ms in steps:
        newest_ms += ahead_ms
        time_ms = newest_ms - behind_ms
        messages.append(at(time_ms, _TEXTS[act].format(number), key, after_ms))
        expected.setdefault(key, []).append(models[key].do(act, number, time_ms))

    together = run_task(job, messages, settings=_NEVER_QUIET)
    by_key = groupby(sorted(messages, key=lambda message: str(message.key)), key=lambda message: str(message.key))
    alone = {key: shown(run_task(job, list(of_key), settings=_NEVER_QUIET)) for key, of_key in by_key}

    assert expected == {key: shown(together, key) for key in expected} == alone


class Beats:
    """The results of one key, with the timers that its timers set.

    Messages come in order. A timer fires before the first message of its moment or a later one.
    """

    def __init__(self) -> None:
        self.shown: list[object] = []
        self._state = Model()
        # By tag: the moment, and the one before which the timer does not act.
        self._timers: dict[str, tuple[int, int]] = {}

    def message(self, time_ms: int, act: str, timer: tuple[int, int, int]) -> None:
        self.fire_until(time_ms)
        self._state.do("put" if act == "put" else "items", 1, time_ms)
        for_ms, left, step_ms = timer
        self._timers[f"{left} {step_ms}"] = time_ms + for_ms, 0
        self.shown.append(None)

    def fire_until(self, time_ms: int) -> None:
        while due := sorted((moment_ms, tag) for tag, (moment_ms, _) in self._timers.items() if moment_ms <= time_ms):
            moment_ms, tag = due[0]
            acts_at_ms = max(self._timers.pop(tag))
            items = self._state.do("items", 0, acts_at_ms)
            assert isinstance(items, list)
            self.shown.append([moment_ms, *items])
            left, step_ms = map(int, tag.split())
            if left:
                self._timers[f"{left - 1} {step_ms}"] = moment_ms + step_ms, acts_at_ms


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 300, 979, 1000, 1020, 70_000]),
            st.sampled_from("abc"),
            st.sampled_from(["put", "put", "nothing"]),
            st.tuples(st.sampled_from([1, 250, 990, 1500]), st.integers(0, 4), st.sampled_from([100, 700, -50])),
            st.sampled_from([0, 0, 1, 5000]),
        ),
        max_size=12,
    )
)
def test_the_timers_of_a_key_that_set_timers_follow_from_its_own_messages(
    beats: Path, steps: list[tuple[int, str, str, tuple[int, int, int], int]]
) -> None:
    """Other keys, jumps of the watermark and the ends of transactions change nothing."""
    time_ms, messages, models = 10_000, list[InputMessage](), {key: Beats() for key in "abc"}
    for ahead_ms, key, act, timer, after_ms in steps:
        time_ms += ahead_ms
        for_ms, left, step_ms = timer
        sets = beat_at(time_ms + for_ms, left, step_ms)
        text = f"(self.map.put(1, 'x'), {sets})[0]" if act == "put" else sets
        messages.append(at(time_ms, text, key, after_ms))
        models[key].message(time_ms, act, timer)
    last = at(time_ms + 1_000_000, "0", "last")
    for model in models.values():
        model.fire_until(time_ms + 1_000_000)

    together = run_task(beats, [*messages, last], settings=_NEVER_QUIET)
    alone = {
        key: run_task(beats, [*(message for message in messages if message.key == key), last], settings=_NEVER_QUIET)
        for key in models
    }

    expected = {key: model.shown for key, model in models.items()}
    assert expected == {key: shown(together, key) for key in models}
    assert expected == {key: shown(run, key) for key, run in alone.items()}
