"""State with a time to live: nothing alive is removed, nothing expired is seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import samzapy as sz
from samzapy.container.task.entry_time import HostExpiry
from samzapy.errors import ConfigError, TaskError, TaskModuleError
from samzapy.model.timer_entry import STORE, Domain, timer_value
from samzapy.runtime.job_config import load_job
from samzapy.task import load_task_factory
from samzapy.testing.task_kit import InputMessage, TaskRun, run_task

_JOB = """
import samzapy as sz

texts = sz.Stream("kafka.texts", key=sz.String, value=sz.String)
shown = sz.Stream("kafka.shown", key=sz.String, value=sz.Json())

@sz.task(inputs=[texts], outputs=[shown])
class Task(sz.Task[str, str]):
    value = sz.value(sz.Long, default=0, ttl=1000)
    read = sz.value(sz.Long, default=0, ttl=1000, refresh="read")
    counter = sz.counter(ttl=1000)
    map = sz.map(sz.Long, sz.String, ttl=1000)
    list = sz.list(sz.String, ttl=1000)
    kept = sz.list(sz.String, ttl=1000, refresh="read")

    def process(self, message, out):
        result = eval(message.value, {"self": self})
        out.send(shown, list(result) if hasattr(result, "__next__") else result, key=message.key)
"""
_PROPERTIES = "job.name=job\nsystems.kafka.bootstrap.servers=localhost:9092\nlocal.store.dir=state\n"
STORES = ("value", "read", "counter", "map", "list", "kept", "_timers")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("job") / "job.py"
    path.write_text(_JOB)
    path.with_suffix(".properties").write_text(_PROPERTIES)
    return path


def at(after_ms: int, expression: str, key: str = "a") -> InputMessage:
    return InputMessage(key=key, value=expression, after_ms=after_ms)


def shown(run: TaskRun) -> list[object]:
    return [output.value for output in run.sent_to("shown")]


def left(run: TaskRun) -> dict[str, object]:
    return {store: state for store in STORES if (state := run.state(store))}


def test_a_value_is_gone_after_its_time_and_its_entry_with_it(job: Path) -> None:
    run = run_task(
        job,
        [at(0, "self.value.set(7)"), at(999, "self.value.get()"), at(30, "self.value.get()")],
    )

    assert [None, 7, 0] == shown(run)
    assert {} == left(run)


def test_a_write_restarts_the_time_and_a_read_does_so_only_on_request(job: Path) -> None:
    run = run_task(
        job,
        [
            at(0, "self.value.set(1), self.read.set(1)"),
            at(600, "self.value.set(2), self.read.get()"),
            at(600, "[self.value.get(), self.read.get()]"),
            at(600, "[self.value.get(), self.read.get()]"),
            at(600, "[self.value.get(), self.read.get()]"),
        ],
    )

    assert [[2, 1], [0, 1], [0, 1]] == shown(run)[2:]


def test_a_counter_begins_at_zero_again(job: Path) -> None:
    run = run_task(job, [at(0, "self.counter.add(5)"), at(500, "self.counter.add()"), at(1100, "self.counter.add()")])

    assert [5, 6, 1] == shown(run)


def test_the_entries_of_a_map_expire_one_by_one(job: Path) -> None:
    run = run_task(
        job,
        [
            at(0, "self.map.put(1, 'a')"),
            at(500, "self.map.put(2, 'b')"),
            at(300, "(self.map.put(1, 'c'), self.map.items())[1]"),
            at(800, "self.map.items()"),
            at(300, "self.map.items()"),
        ],
        advance_ms=2000,
    )

    assert [[[1, "c"], [2, "b"]], [[1, "c"]], []] == shown(run)[2:]
    assert {} == left(run)


def test_the_values_of_a_list_expire_from_the_oldest_on(job: Path) -> None:
    run = run_task(
        job,
        [
            at(0, "self.list.append('a')"),
            at(500, "self.list.append('b')"),
            at(600, "[len(self.list), *self.list]"),
            at(0, "self.list.append('c')"),
            at(0, "(self.list.pop_first(), list(self.list))"),
        ],
        advance_ms=2000,
    )

    assert [1, "b"] == shown(run)[2]
    assert [["b"], ["c"]] == shown(run)[4]
    assert {} == left(run)


@pytest.mark.parametrize(
    ("read", "values"),
    [
        ("next(iter(self.kept)), self.kept.append('c')", ["a", "c"]),
        ("bool(self.kept)", ["a"]),
        ("len(self.kept), self.kept.append('c')", ["a", "b", "c"]),
    ],
)
def test_the_length_of_a_list_is_that_of_the_values_left_where_others_were_read(
    job: Path, read: str, values: list[str]
) -> None:
    run = run_task(
        job,
        [
            at(0, "self.kept.append('a'), self.kept.append('b')"),
            at(700, read),
            at(700, "[len(self.kept), *self.kept]"),
            at(0, "[bool(self.kept), self.kept.pop_first(3), len(self.kept), bool(self.kept)]"),
        ],
        advance_ms=3000,
    )

    assert [[len(values), *values], [True, values, 0, False]] == shown(run)[2:]
    assert {} == left(run)


def test_removed_entries_leave_no_expiry(job: Path) -> None:
    run = run_task(
        job,
        [
            at(0, "self.value.set(7), self.counter.add(), self.map.put(1, 'a'), self.map.put(2, 'a')"),
            at(0, "self.list.append('a'), self.list.append('b'), self.list.append('c')"),
            at(1, "self.value.clear(), self.counter.clear(), self.map.delete(1), self.map.clear()"),
            at(0, "self.list.pop_first(), self.list.clear()"),
        ],
    )

    assert {} == left(run)


def test_writes_within_a_fiftieth_of_the_time_write_the_expiry_once(job: Path) -> None:
    held = "(self.value.set(1), self.value._reach.in_hand['_timers']._state.bytes_held)[1]"

    first, second = shown(run_task(job, [at(0, held), at(0, held)]))

    assert isinstance(first, int) and isinstance(second, int)
    # The second write is that of the value alone.
    assert second - first < first / 2


def test_an_entry_of_before_expires_after_its_first_use(job: Path) -> None:
    """A ttl was given to a state that had none."""
    put = "self.value._reach.in_hand['value'].put(5)"

    run = run_task(
        job,
        [at(0, put), at(5000, "self.value.get()"), at(900, "self.value.get()"), at(200, "self.value.get()")],
    )

    assert [5, 5, 0] == shown(run)[1:]
    assert {} == left(run)


def test_no_entry_expires_once_its_state_has_no_ttl_any_more(tmp_path: Path) -> None:
    """The expiry was set under an earlier form of the task, and is dropped."""
    path = tmp_path / "job.py"
    path.write_text(_JOB.replace("sz.value(sz.Long, default=0, ttl=1000)", "sz.value(sz.Long, default=0)"))
    path.with_suffix(".properties").write_text(_PROPERTIES)
    expiry = f"self.counter._reach.in_hand['_timers'].put({timer_value(Domain.PROCESSING, 5)!r}, b'ttl:value\\x00')"

    run = run_task(path, [at(0, f"self.value.set(7), {expiry}"), at(2000, "self.value.get()")])

    assert 7 == shown(run)[1]
    assert {"value": {"a": 7}} == left(run)


def test_the_keys_of_a_state_expire_each_for_itself(job: Path) -> None:
    run = run_task(
        job,
        [
            at(0, "self.value.set(1)"),
            at(500, "self.value.set(2)", key="b"),
            at(600, "self.value.get()"),
            at(0, "self.value.get()", key="b"),
        ],
    )

    assert [0, 2] == shown(run)[2:]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 300, 979, 980, 1000, 1021]),
            st.sampled_from("ab"),
            st.sampled_from(["put", "get", "items", "delete"]),
            st.integers(1, 3),
        ),
        max_size=14,
    )
)
def test_nothing_alive_is_removed_and_nothing_expired_is_seen(
    job: Path, steps: list[tuple[int, str, str, int]]
) -> None:
    """A dict has the time at which each entry was written; 1/50 of the time is free."""
    texts = {
        "put": "self.map.put({0}, 'x')",
        "get": "self.map.get({0}) is not None",
        "items": "[n for n, _ in self.map.items()]",
        "delete": "self.map.delete({0})",
    }
    run = run_task(job, [at(after, texts[act].format(number), key) for after, key, act, number in steps])

    now_ms, written = 0, dict[tuple[str, int], int]()
    for (after, key, act, number), result in zip(steps, shown(run), strict=True):
        now_ms += after
        alive = {n for (k, n), then in written.items() if k == key and now_ms < then + 1000}
        gone = {n for n in (1, 2, 3) if n not in alive and now_ms >= written.get((key, n), -2000) + 1020}
        if act == "put":
            written[key, number] = now_ms
        elif act == "delete":
            written.pop((key, number), None)
        elif act == "get":
            assert result or number not in alive
            assert not result or number not in gone
        else:
            assert isinstance(result, list)
            assert alive <= set(result) and not gone & set(result)


@pytest.mark.parametrize(
    ("declaration", "reason"),
    [
        ("sz.value(sz.Long, ttl=0)", "wanted ttl in whole milliseconds, 1 or more, .* found 0"),
        ("sz.value(sz.Long, ttl=1.5)", "wanted ttl in whole milliseconds, 1 or more, .* found 1.5"),
        ("sz.counter(ttl='1h')", "wanted ttl in whole milliseconds, 1 or more, .* found '1h'"),
        (
            "sz.counter(ttl=10**15 + 1)",
            "wanted ttl .* 1 or more, at most 1000000000000000, .* found 1000000000000001",
        ),
        ("sz.counter(ttl=1, scope='task')", "wanted ttl for a state of scope key, found scope task"),
        ("sz.counter(ttl=1, refresh='never')", "wanted refresh to be write or read, found 'never'"),
    ],
)
def test_a_wrong_time_to_live_is_refused_with_its_place(tmp_path: Path, declaration: str, reason: str) -> None:
    path = tmp_path / "job.py"
    path.write_text(f"import samzapy as sz\n{declaration}\n")

    with pytest.raises(TaskModuleError, match=f"job.py:2: {reason}"):
        load_task_factory(path)


def test_a_sub_key_that_is_too_long_to_expire_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(_JOB.replace("sz.map(sz.Long, ", "sz.map(sz.String, "))
    path.with_suffix(".properties").write_text(_PROPERTIES)

    with pytest.raises(TaskError, match="at most 150 bytes in a map with ttl, found 151"):
        run_task(path, [("a", "self.map.put('x' * 151, 'y')")])


def test_a_time_to_live_is_configuration_and_not_contradicted(job: Path) -> None:
    config, factory = load_job(job, None, [], {})

    assert "1000" == config.properties["stores.value.ttl.ms"]
    assert "timer" == next(store.kind for store in config.stores if store.name == "_timers")
    assert not factory.declared.timers
    with pytest.raises(ConfigError, match=r"stores.value.ttl.ms: wanted 1000, as job.py:9 declares, found 5"):
        load_job(job, None, ["stores.value.ttl.ms=5"], {})


class _Entries:
    """A store of one key."""

    def __init__(self) -> None:
        self.values: dict[object, object] = {}

    def get(self, name: object = "") -> object:
        return self.values.get(name)

    def put(self, value: object, name: object = "") -> None:
        self.values[name] = value

    def delete(self, name: object = "") -> None:
        self.values.pop(name, None)

    def replace(self, value: object, name: object) -> None:
        self.values[name] = value

    def entries(self, first: object = None, last: object = None, *, reverse: bool = False) -> Iterator[object]:
        return iter(sorted(self.values.items(), reverse=reverse))  # type: ignore[type-var]


def test_an_expired_entry_is_not_seen_before_it_is_removed() -> None:
    """Timers may wait for a while when many are due."""
    now_ms = 5000
    stores = {name: _Entries() for name in ("state", STORE)}

    def bound(state: Any) -> Any:
        state.name = "state"
        stores["state"].values.clear()
        return state.bound(SimpleNamespace(in_hand=stores), HostExpiry(lambda: now_ms))

    value, counter = bound(sz.value(sz.Long, default=0, ttl=1000)), bound(sz.counter(ttl=1000))
    value.set(7)
    now_ms += 1020
    assert 7 == stores["state"].get() and 0 == value.get()
    assert 1 == counter.add()

    numbers = bound(sz.map(sz.Long, sz.String, ttl=1000))
    numbers.put(1, "a")
    now_ms += 500
    numbers.put(2, "b")
    now_ms += 520
    assert 2 == len(stores["state"].values)
    assert (None, "b", [(2, "b")], [(2, "b")]) == (
        numbers.get(1), numbers.get(2), list(numbers.items()), numbers.last(5),
    )  # fmt: skip
    # It lives again, from its first value on.
    numbers.put(1, "c")
    assert "c" == numbers.get(1)

    texts = bound(sz.list(sz.String, ttl=1000))
    texts.append("a")
    now_ms += 1020
    texts.append("b")
    assert 2 == len(stores["state"].values)
    assert (["b"], 1, ["b"]) == (list(texts), len(texts), texts.pop_first(2))
