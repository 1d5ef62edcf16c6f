"""Prove that a job gives the same results whatever happens to it.

```python
from hypothesis import strategies as st

from samzapy.testing import Message, crash_anywhere

payments = st.builds(Message, key=st.sampled_from("ab"), value=st.fixed_dictionaries({"amount": st.floats(0, 9e3)}))


def test_fraud_is_exactly_once():
    crash_anywhere("fraud.py", payments)
```

Each history sends messages to the job, lets time pass, and disturbs it: workers and containers crash, the factor
changes, the container restarts. Its outputs per key and its state must be those of an undisturbed job of one task per
partition, once all timers in event time have fired, and all entries that expire by it are gone. A history that fails is
made as short as possible, and is shown as a script.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from samzapy.model import clock_entry
from samzapy.testing.job import CRASH_POINTS, DRIVER, TIMER_CRASH_POINTS, MemoryJob, Message

_STEPS: Final = (13, 52)
"""The least and the largest number of steps. Hypothesis makes some 26 of them, with 50 messages."""
_BURST_MAX: Final = 12
_KINDS: Final = ("nothing", *("send",) * 5, "advance", "crash", "driver", "scale", "restart")
"""A history is made shorter by steps that become the first kind."""
_HITS_MAX: Final = 4
_BATCH_MAX: Final = 5
_ADVANCES_S: Final = (0, 1, 60, 1800, 86_400, 2_592_000)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a method of the job."""

    method: str
    arguments: tuple[Any, ...] = ()
    named: tuple[tuple[str, Any], ...] = ()

    @property
    def is_fault(self) -> bool:
        return self.method in ("crash", "scale", "restart")

    def do(self, job: MemoryJob) -> None:
        getattr(job, self.method)(*self.arguments, **dict(self.named))

    def __str__(self) -> str:
        given = [*map(repr, self.arguments), *(f"{name}={value!r}" for name, value in self.named)]
        return f"job.{self.method}({', '.join(given)})"


def crash_anywhere(
    job_file: str | os.PathLike[str],
    messages: st.SearchStrategy[Message],
    *,
    histories: int = 200,
    factors: Sequence[int] = (1, 2, 4),
    partitions: int = 2,
    settings_of_job: Mapping[str, str] | None = None,
) -> None:
    """Compare the job with itself in histories of chance.

    Args:
        messages: strategy of a message.
        histories: how many are tried.
        factors: the factors among which the job is scaled.
        settings_of_job: configuration keys that replace those of the properties file.

    Raises:
        AssertionError: a history has other outputs or another state; shows it as a script.
    """
    path = Path(job_file).absolute()
    world: dict[str, Any] = {"partitions": partitions, "settings": dict(settings_of_job or {})}

    @settings(
        max_examples=histories,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        # To explain a failure takes many more histories than to find it.
        phases=(Phase.generate, Phase.shrink),
    )
    @given(histories_of(messages, factors), st.integers(1, _BATCH_MAX))
    def holds(calls: list[_Call], batch_max: int) -> None:
        wanted = _results(path, [call for call in calls if not call.is_fault], 1000, world)
        actual = _results(path, calls, batch_max, world)
        difference = _difference(wanted, actual)
        if difference:
            # Not an assert statement: pytest rewrites those of a plugin, and would indent the script.
            raise AssertionError(_script(path, calls, batch_max, world, difference))

    holds()


def histories_of(messages: st.SearchStrategy[Message], factors: Sequence[int]) -> st.SearchStrategy[list[_Call]]:
    """The calls of a history."""
    steps = _steps(messages, factors)
    # Hypothesis makes short lists unless it must not, and takes each of several equal strategies once.
    lists = st.lists(st.sampled_from(_KINDS).flatmap(steps.__getitem__), min_size=_STEPS[0], max_size=_STEPS[1])
    return lists.map(lambda made: [call for step in made for call in step])


def _steps(
    messages: st.SearchStrategy[Message], factors: Sequence[int]
) -> Mapping[str, st.SearchStrategy[Sequence[_Call]]]:
    """By kind, the calls of a step."""
    sends = messages.map(lambda message: _Call("send", (message.stream, message.value), (("key", message.key),)))
    places = (*CRASH_POINTS, *TIMER_CRASH_POINTS)
    crashes = st.tuples(st.sampled_from(places), st.integers(1, _HITS_MAX)).map(
        lambda crash: _Call("crash", (crash[0],), (("hit", crash[1]),))
    )
    drivers = st.booleans().map(lambda loses: _Call("crash", (DRIVER,), (("loses_disk", loses),)))
    scales = st.sampled_from(factors).map(lambda factor: _Call("scale", (factor,)))
    advances = st.sampled_from(_ADVANCES_S).map(lambda seconds: _Call("advance", (), (("seconds", seconds),)))
    restarts = st.just(_Call("restart"))
    one = {"advance": advances, "crash": crashes, "driver": drivers, "scale": scales, "restart": restarts}
    return {
        "nothing": st.just(()),
        "send": st.lists(sends, min_size=1, max_size=_BURST_MAX),
        **{kind: calls.map(lambda call: (call,)) for kind, calls in one.items()},
    }


def _results(
    path: Path, calls: Sequence[_Call], batch_max: int, world: Mapping[str, Any]
) -> Mapping[str, Mapping[Any, Any]]:
    """By topic and store, the committed messages of each key, and the entries."""
    with MemoryJob(path, **world) as job:
        job.batch_max = batch_max
        for call in calls:
            call.do(job)
        job.fire_event_timers()
        results: dict[str, dict[Any, Any]] = {}
        for stream in job.outputs():
            by_key = results.setdefault(f"read {stream}", {})
            for output in job.read(stream):
                by_key.setdefault(plain(output.key), []).append(plain(output.value))
        for store in sorted({*job.stores()} - {clock_entry.STORE}):
            results[f"state {store}"] = {plain(key): plain(value) for key, value in job.state(store).items()}
        return results


def plain(value: Any) -> Any:
    """A value as builtins, as the scripts of `crash_anywhere` compare it."""
    try:
        return msgspec.to_builtins(value, str_keys=False)
    except TypeError:
        return repr(value)


def _difference(
    wanted: Mapping[str, Mapping[Any, Any]], actual: Mapping[str, Mapping[Any, Any]]
) -> tuple[str, Any, Any, Any] | None:
    """What was read, the key, and the two results of it."""
    for what in sorted({*wanted, *actual}):
        one, other = wanted.get(what, {}), actual.get(what, {})
        for key in sorted({*one, *other}, key=repr):
            if one.get(key) != other.get(key):
                return what, key, one.get(key), other.get(key)
    return None


def _script(
    path: Path,
    calls: Sequence[_Call],
    batch_max: int,
    world: Mapping[str, Any],
    difference: tuple[str, Any, Any, Any],
) -> str:
    """The history as a test that fails in the same way."""
    what, key, wanted, actual = difference
    kind, name = what.split(" ", 1)
    if kind == "read":
        check = f"[plain(output.value) for output in job.read({name!r}) if plain(output.key) == {key!r}]"
    else:
        check = f"{{plain(k): plain(v) for k, v in job.state({name!r}).items()}}.get({key!r})"
    lines = [
        "from samzapy.testing.histories import plain",
        "from samzapy.testing.job import MemoryJob",
        "",
        "",
        "def test_this_history():",
        f"    with MemoryJob({str(path)!r}, **{dict(world)!r}) as job:",
        f"        job.batch_max = {batch_max}",
        *(f"        {call}" for call in calls),
        "",
        f"        # Found: {actual!r}",
        f"        assert {[] if wanted is None and kind == 'read' else wanted!r} == {check}",
    ]
    script = "\n".join(lines)
    headline = f"{what} of key {key!r}: wanted {wanted!r}, as without faults, found {actual!r}, in this history:"
    return f"{headline}\n\n{script}\n"
