"""Prove that a job gives the same results whatever happens to it.

```python
from hypothesis import strategies as st

from samzapy.testing import Message, crash_anywhere

payments = st.builds(Message, key=st.sampled_from("ab"), value=st.fixed_dictionaries({"amount": st.floats(0, 9e3)}))


def test_fraud_is_exactly_once():
    crash_anywhere("fraud.py", payments)
```

Each history sends messages to the job, lets time pass, and disturbs it: workers and containers crash, the factor
changes, the container restarts or moves to another host. Its outputs per key, its dead letters and its state must be
those of an undisturbed job of one task per partition, once all timers in event time have fired, and all entries that
expire by it are gone. Its micro-batches are small, and in most histories a tail follows each of them and ends
somewhere. A history that fails is made as short as possible, and is shown as a script.

Inputs are rewound and the host's clock jumps in both jobs at the same places, because results depend on it. In event
time, which messages are late depends on the other keys of the task, and so on the factor. It does not while messages
come in the order of their time. So histories of such a job are of two kinds: half of them have neither messages out of
order nor rewinds, and in the others both jobs are scaled, at the same places.

The undisturbed job runs in another process, in which sets have another order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from samzapy.model import clock_entry, window_entry
from samzapy.testing.job import CRASH_POINTS, DRIVER, TIMER_CRASH_POINTS, MemoryJob, Message
from samzapy.testing.memory.tail import Pace
from samzapy.testing.other_process import OtherProcess

_STEPS: Final = (8, 40)
"""The least and the largest number of steps. Hypothesis makes some 16 of them, with 50 messages."""
_BURST_MAX: Final = 12
_FAULTS: Final = ("crash", "driver", "scale", "restart", "move", "clock")
_KINDS: Final = ("nothing", *("send",) * 9, "advance", *_FAULTS, "rewind")
"""A history is made shorter by steps that become the first kind."""
_JUMPS_S: Final = (3600, -3600)
_HITS_MAX: Final = 4
_BATCH_MAX: Final = 5
_TAIL_LOOKS_MAX: Final = 12
_ADVANCES_S: Final = (0, 1, 60, 1800, 86_400, 2_592_000)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a method of the job.

    Attributes:
        is_fault: whether an undisturbed job does without it.
    """

    method: str
    arguments: tuple[Any, ...] = ()
    named: tuple[tuple[str, Any], ...] = ()
    is_fault: bool = False

    def do(self, job: MemoryJob) -> None:
        getattr(job, self.method)(*self.arguments, **dict(self.named))

    def __str__(self) -> str:
        given = [*map(repr, self.arguments), *(f"{name}={value!r}" for name, value in self.named)]
        return f"job.{self.method}({', '.join(given)})"


_SETTLE: Final = _Call("settle")
_AT_ONCE: Final = Pace(batch_max=1000)


@dataclass(frozen=True, slots=True)
class _World:
    """The job of all histories, and its surroundings."""

    path: Path
    partitions: int
    settings: Mapping[str, str]
    outside: Callable[[], Any] | None

    def job(self) -> MemoryJob:
        return MemoryJob(self.path, partitions=self.partitions, settings=self.settings)


def crash_anywhere(
    job_file: str | os.PathLike[str],
    messages: st.SearchStrategy[Message],
    *,
    histories: int = 200,
    factors: Sequence[int] = (1, 2, 4),
    partitions: int = 2,
    settings_of_job: Mapping[str, str] | None = None,
    outside: Callable[[], Any] | None = None,
) -> None:
    """Compare the job with itself in histories of chance.

    Args:
        messages: strategy of a message.
        histories: how many are tried.
        factors: the factors among which the job is scaled.
        settings_of_job: configuration keys that replace those of the properties file.
        outside: takes away, and returns, the traces that a job has left elsewhere than in its outputs and its state,
            for instance in a file. They are compared, too. A function of a module.

    Raises:
        AssertionError: a history has other outputs, dead letters or another state; shows it as a script.
    """
    path = Path(job_file).absolute()
    world = _World(path, partitions, dict(settings_of_job or {}), outside)
    with world.job() as job:
        orders = _orders(job)

    @settings(
        max_examples=histories,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        # To explain a failure takes many more histories than to find it.
        phases=(Phase.generate, Phase.shrink),
    )
    @given(histories_of(messages, factors, orders), _paces())
    def holds(calls: list[_Call], pace: Pace) -> None:
        wait = other.begin(_results, world, [call for call in calls if not call.is_fault], _AT_ONCE)
        if outside is not None:
            # Both leave their traces in the same place.
            once = wait()
            wait = lambda: once  # noqa: E731
        try:
            actual = _results(world, calls, pace)
        finally:
            wanted = wait()
        difference = _difference(wanted, actual)
        if difference:
            # Not an assert statement: pytest rewrites those of a plugin, and would indent the script.
            raise AssertionError(_script(world, calls, pace, difference))

    with OtherProcess() as other:
        holds()


def _paces() -> st.SearchStrategy[Pace]:
    # A history that fails is shown without tails if it can be.
    looks = st.just(0) | st.integers(1, _TAIL_LOOKS_MAX)
    return st.builds(Pace, batch_max=st.integers(1, _BATCH_MAX), tail_looks=looks)


class Order(Enum):
    """Whether the results of a job depend on the factor, which they do in event time."""

    NO_EVENT_TIME = "no event time"
    IN_ORDER = "messages in the order of their time"
    OUT_OF_ORDER = "messages of any time, and rewinds"


def _orders(job: MemoryJob) -> Sequence[Order]:
    """The kinds of histories of a job."""
    declared = job.declared
    if not declared.goes_by_event_time:
        return (Order.NO_EVENT_TIME,)
    if any(stream.event_time is not None for stream in declared.inputs):
        # The order is in the values.
        return (Order.OUT_OF_ORDER,)
    return Order.IN_ORDER, Order.OUT_OF_ORDER


def histories_of(
    messages: st.SearchStrategy[Message],
    factors: Sequence[int],
    orders: Sequence[Order] = (Order.NO_EVENT_TIME,),
) -> st.SearchStrategy[list[_Call]]:
    """The calls of a history."""
    return st.sampled_from(orders).flatmap(lambda order: _histories_in(order, messages, factors))


def _histories_in(
    order: Order, messages: st.SearchStrategy[Message], factors: Sequence[int]
) -> st.SearchStrategy[list[_Call]]:
    steps = _steps(messages, factors, order)
    # Hypothesis makes short lists unless it must not, and takes each of several equal strategies once.
    kinds = st.sampled_from([kind for kind in _KINDS if kind in steps])
    lists = st.lists(kinds.flatmap(steps.__getitem__), min_size=_STEPS[0], max_size=_STEPS[1])
    return lists.map(lambda made: [call for step in made for call in step])


def _steps(
    messages: st.SearchStrategy[Message], factors: Sequence[int], order: Order
) -> Mapping[str, st.SearchStrategy[Sequence[_Call]]]:
    """By kind, the calls of a step."""
    is_scaled_alike = order is Order.OUT_OF_ORDER
    sends = messages.map(lambda message: _send(message, order))
    bursts = st.lists(sends, min_size=1, max_size=_BURST_MAX)
    places = (*CRASH_POINTS, *TIMER_CRASH_POINTS)
    crashes = st.tuples(st.sampled_from(places), st.integers(1, _HITS_MAX)).map(
        lambda crash: _Call("crash", (crash[0],), (("hit", crash[1]),), is_fault=True)
    )
    drivers = st.booleans().map(lambda loses: _Call("crash", (DRIVER,), (("loses_disk", loses),), is_fault=True))
    scales = st.sampled_from(factors).map(lambda factor: _Call("scale", (factor,), is_fault=not is_scaled_alike))
    advances = st.sampled_from(_ADVANCES_S).map(lambda seconds: _Call("advance", (), (("seconds", seconds),)))
    rewinds = st.tuples(messages, st.sampled_from(("oldest", "newest"))).map(
        lambda rewind: _Call("rewind", (rewind[0].stream, rewind[1]))
    )
    # Event time goes on as if there was no jump, but a message between the two would have the time of the wrong clock.
    meanwhile = bursts if order is Order.NO_EVENT_TIME else st.just([])
    one = {
        "advance": advances,
        "crash": crashes,
        "driver": drivers,
        "restart": st.just(_Call("restart", is_fault=True)),
        "move": st.just(_Call("move", is_fault=True)),
    }
    steps: dict[str, st.SearchStrategy[Sequence[_Call]]] = {
        "nothing": st.just(()),
        "send": bursts,
        "scale": scales.map(lambda call: (_SETTLE, call) if is_scaled_alike else (call,)),
        "clock": st.tuples(st.sampled_from(_JUMPS_S), meanwhile).map(
            lambda jump: (_jump(jump[0]), *jump[1], _jump(-jump[0]))
        ),
        **{kind: calls.map(lambda call: (call,)) for kind, calls in one.items()},
    }
    if order is not Order.IN_ORDER:
        steps["rewind"] = rewinds.map(lambda call: (_SETTLE, call))
    return steps


def _send(message: Message, order: Order) -> _Call:
    ahead_ms = 0 if order is Order.IN_ORDER else message.ahead_ms
    named = [("key", message.key), *([("ahead_ms", ahead_ms)] if ahead_ms else [])]
    return _Call("send", (message.stream, message.value), tuple(named))


def _jump(seconds: int) -> _Call:
    return _Call("jump_clock", (), (("seconds", seconds),))


def _results(world: _World, calls: Sequence[_Call], pace: Pace) -> Mapping[str, Mapping[Any, Any]]:
    """By topic and store, the committed messages of each key, and the entries.

    Headers of dead letters are left out: they name the task, whose key buckets depend on the factor.
    """
    if world.outside is not None:
        world.outside()
    with world.job() as job:
        job.pace.batch_max, job.pace.tail_looks = pace.batch_max, pace.tail_looks
        for call in calls:
            call.do(job)
        job.fire_event_timers()
        results: dict[str, dict[Any, Any]] = {}
        for stream in job.outputs():
            by_key = results.setdefault(f"read {stream}", {})
            for output in job.read(stream):
                by_key.setdefault(plain(output.key), []).append(plain(output.value))
        letters = results.setdefault("dead letters", {})
        for letter in job.dead_letters():
            letters.setdefault(letter.key, []).append(letter.value)
        # Broadcast state has a copy for each task, and the other two name tasks: all of them depend on the factor.
        for store in sorted({*job.stores("key", "task")} - {clock_entry.STORE, window_entry.STORE}):
            results[f"state {store}"] = {plain(key): plain(value) for key, value in job.state(store).items()}
        if world.outside is not None:
            results["outside"] = {"": plain(world.outside())}
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


def _script(world: _World, calls: Sequence[_Call], pace: Pace, difference: tuple[str, Any, Any, Any]) -> str:
    """The history as a test that fails in the same way."""
    what, key, wanted, actual = difference
    kind, _, name = what.partition(" ")
    if kind == "outside":
        check = "plain(outside())  # That of `crash_anywhere`."
    elif kind == "dead":
        check = f"[letter.value for letter in job.dead_letters() if letter.key == {key!r}]"
    elif kind == "read":
        check = f"[plain(output.value) for output in job.read({name!r}) if plain(output.key) == {key!r}]"
    else:
        check = f"{{plain(k): plain(v) for k, v in job.state({name!r}).items()}}.get({key!r})"
    lines = [
        "from samzapy.testing.histories import plain",
        "from samzapy.testing.job import MemoryJob",
        "",
        "",
        "def test_this_history():",
        *(["    outside()"] if kind == "outside" else []),
        f"    with MemoryJob({str(world.path)!r}, partitions={world.partitions}, settings={world.settings!r}) as job:",
        f"        job.pace.batch_max = {pace.batch_max}",
        *([f"        job.pace.tail_looks = {pace.tail_looks}"] if pace.tail_looks else []),
        *(f"        {call}" for call in calls),
        *(["        job.fire_event_timers()"] if kind == "outside" else []),
        "",
        f"        # Found: {actual!r}",
        f"        assert {[] if wanted is None and kind in ('read', 'dead') else wanted!r} == {check}",
    ]
    script = "\n".join(lines)
    headline = f"{what} of key {key!r}: wanted {wanted!r}, as without faults, found {actual!r}, in this history:"
    return f"{headline}\n\n{script}\n"
