"""The declarations of a task class: streams, state, handlers of single streams."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from samzapy.config import SCHEME_KEY, WINDOW_KEY, JobConfig, Setting, Source, StoreConfig
from samzapy.durations import DURATION_MAX_MS, is_duration
from samzapy.errors import ConfigError, TaskModuleError
from samzapy.model import clock_entry, timer_entry, window_entry
from samzapy.model.reach import Reach
from samzapy.model.serde import NamedSerde, key_serde_of, name_of, named, serde_of, with_flags
from samzapy.model.timer_entry import Domain
from samzapy.state import ExpiryClock, State
from samzapy.streams import STREAM_OF_HANDLER, AnyStream
from samzapy.timers import TIMER_OF_HANDLER, Timer

DECLARED: Final = "__samzapy_declared__"
"""The attribute of a marked task that has its `Declared`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The declarations of a job file.

    Empty for a task of a properties file alone.

    Attributes:
        broadcast: inputs that every task gets whole.
        handlers: by name of an input, the name of the method that handles it.
        states: by name.
        timers: by name.
        timer_handlers: by name of a timer, the name of the method that is called when it fires.
        has_window: whether the task has a method `window`.
        has_end: whether it has a method `end_of_stream`.
        window_ms: the time between two calls of it; None to leave that to the configuration.
        place: where the task is marked, `job.py:12`.
    """

    inputs: tuple[AnyStream, ...] = ()
    outputs: tuple[AnyStream, ...] = ()
    broadcast: tuple[AnyStream, ...] = ()
    states: Mapping[str, State] = field(default_factory=dict)
    handlers: Mapping[str, str] = field(default_factory=dict)
    timers: Mapping[str, Timer] = field(default_factory=dict)
    timer_handlers: Mapping[str, str] = field(default_factory=dict)
    has_window: bool = False
    has_end: bool = False
    window_ms: int | None = None
    place: str = ""

    @property
    def streams(self) -> Mapping[str, AnyStream]:
        """Inputs and outputs by name."""
        return {stream.name: stream for stream in (*self.inputs, *self.broadcast, *self.outputs)}

    @property
    def takes_context(self) -> bool:
        """Whether messages are handed over as `(envelope, collector, context)`.

        A task class takes `(message, out)`.
        """
        return not self.handlers

    @property
    def has_timers(self) -> bool:
        """Whether timers are set: those of the task, or those by which entries expire."""
        return bool(self.timers) or self.has_ttl

    @property
    def has_ttl(self) -> bool:
        """Whether entries of a state expire."""
        return any(state.ttl_ms is not None for state in self.states.values())

    @property
    def goes_by_event_time(self) -> bool:
        """Whether the task uses the time of its messages.

        Its entries expire by that then.
        """
        has_timers = any(timer.domain is Domain.EVENT for timer in self.timers.values())
        return has_timers or any(stream.event_time is not None or stream.disorder_ms for stream in self.inputs)

    @property
    def keeps_time(self) -> bool:
        """Whether the task keeps event time, or must know the end of its inputs."""
        return self.goes_by_event_time or self.has_end

    @property
    def acts_by_time(self) -> bool:
        """Whether the task does anything without a message."""
        return self.has_timers or self.has_window or self.has_end

    def stream_serdes(self, stream: str, config: JobConfig) -> tuple[NamedSerde, NamedSerde]:
        """The serdes of a stream's keys and values.

        They are the declared ones, else those of the configuration.
        """
        own = self.streams.get(stream)
        if own is not None:
            return named(own.key, is_key=True), named(own.value)
        return key_serde_of(config.key_serde(stream)), serde_of(config.msg_serde(stream))

    def store_serde(self, store: StoreConfig) -> NamedSerde:
        """The serde of a store's values, likewise."""
        state = self.states.get(store.name)
        serde = serde_of(store.msg_serde) if state is None else named(state.serde)
        return with_flags(serde) if store.kind in ("map", "list") else serde

    def timer_key(self, config: JobConfig) -> NamedSerde:
        """The serde of the keys of timers, and of those that a window walks over."""
        return self.stream_serdes(self.inputs[0].name, config)[0]

    def settings(self) -> tuple[Setting, ...]:
        """The declarations as configuration, with their places."""
        settings = [_setting("task.inputs", ",".join(stream.name for stream in self.inputs), self.place)]
        if self.broadcast:
            names = ",".join(stream.name for stream in self.broadcast)
            settings.append(_setting("task.broadcast.inputs", names, self.place))
        if len(self.inputs) > 1 and (self.states or self.timers):
            # Else each input had tasks of its own, and a key as many states as there are inputs.
            settings.append(_setting(SCHEME_KEY, "cogroup", self.place))
        for stream in self.streams.values():
            system, _, topic = stream.name.partition(".")
            prefix = f"systems.{system}.streams.{topic}.samza"
            settings.append(_setting(f"{prefix}.key.serde", name_of(stream.key), stream.place))
            settings.append(_setting(f"{prefix}.msg.serde", name_of(stream.value), stream.place))
        for name, state in self.states.items():
            settings.append(_setting(f"stores.{name}.msg.serde", name_of(state.serde), state.place))
            settings.append(_setting(f"stores.{name}.scope", state.scope, state.place))
            if state.kind != "value":
                settings.append(_setting(f"stores.{name}.kind", state.kind, state.place))
                settings.append(_setting(f"stores.{name}.key.serde", state.sub_keys, state.place))
            settings += self._ttl_settings(state)
        if self.has_timers:
            prefix = f"stores.{timer_entry.STORE}"
            settings += [
                _setting(f"{prefix}.kind", "timer", self.place),
                _setting(f"{prefix}.key.serde", "bytes", self.place),
                _setting(f"{prefix}.msg.serde", "bytes", self.place),
            ]
        if self.has_window:
            prefix = f"stores.{window_entry.STORE}"
            settings += [
                _setting(f"{prefix}.kind", window_entry.KIND, self.place),
                _setting(f"{prefix}.msg.serde", "long", self.place),
            ]
        if self.keeps_time:
            prefix = f"stores.{clock_entry.STORE}"
            settings += [
                _setting(f"{prefix}.kind", clock_entry.KIND, self.place),
                _setting(f"{prefix}.msg.serde", "json", self.place),
            ]
        if self.window_ms is not None:
            settings.append(_setting(WINDOW_KEY, str(self.window_ms), self.place))
        return tuple(settings) if self.inputs else ()

    def _ttl_settings(self, state: State) -> Iterator[Setting]:
        if state.ttl_ms is not None:
            yield _setting(f"stores.{state.name}.ttl.ms", str(state.ttl_ms), state.place)
            if self.goes_by_event_time:
                yield _setting(f"stores.{state.name}.ttl.clock", "event", state.place)

    def check(self, config: JobConfig) -> None:
        """Refuse inputs, maps, lists and windows that only the configuration declares.

        Raises:
            TaskModuleError: no method would handle the messages of the inputs.
            ConfigError: a function task has no maps, lists and windows, or a window has no interval.
        """
        self._check_window(config.window_ms)
        for store in config.stores:
            if store.kind != "value" and store.name not in self.states and store.kind not in self._own_kinds:
                raise ConfigError(
                    f"stores.{store.name}.kind: wanted value, found {store.kind}, which only a task class can declare; "
                    f"write {store.name} = samzapy.{store.kind}(...) in it, and leave this key out"
                )
        names = {stream.name for stream in (*self.inputs, *self.broadcast)}
        others = [stream for stream in config.streams_read if stream not in names]
        if self.inputs and others:
            raise TaskModuleError(
                f"{self.place}: wanted a task that declares every input, found {', '.join(others)} in the properties "
                "only; add it to inputs=[...] or broadcast=[...]. A task class has no intermediate streams"
            )

    @property
    def _own_kinds(self) -> Collection[str]:
        """The kinds of the stores that samzapy keeps for the task."""
        kinds = {"timer": self.has_timers, window_entry.KIND: self.has_window, clock_entry.KIND: self.keeps_time}
        return {kind for kind, is_kept in kinds.items() if is_kept}

    def _check_window(self, window_ms: int) -> None:
        if self.has_window and not window_ms:
            raise ConfigError(
                f"{WINDOW_KEY}: wanted the time between two calls of window ({self.place}), found none; write "
                "@samzapy.task(..., window_ms=samzapy.minutes(1)), or set the key"
            )
        if window_ms and not self.has_window:
            raise ConfigError(
                f"{WINDOW_KEY}: wanted a task class with a method window(self, tick, out), found none; leave the key "
                "out"
            )


def _setting(key: str, value: str, place: str) -> Setting:
    return Setting(key=key, value=value, source=Source.JOB, place=str(place))


def declared(
    marked: Any,
    inputs: Sequence[AnyStream],
    outputs: Sequence[AnyStream],
    broadcast: Sequence[AnyStream],
    window_ms: int | None,
    place: str,
    base: Any,
) -> Declared:
    """What a marked class or function declares.

    Args:
        base: `Task`, whose methods do nothing.

    Raises:
        TaskModuleError: no inputs, a stream that is declared twice in different ways, an input without a handler, or a
            handler of a stream that is no input.
    """
    if not inputs:
        raise TaskModuleError(f"{place}: wanted inputs=[...] with one stream or more, found none")
    _check_streams([*inputs, *broadcast, *outputs])
    handlers = _handlers(marked, [*inputs, *broadcast], place, base) if isinstance(marked, type) else {}
    timers = {timer.name: timer for timer in _attributes(marked, Timer, base)}
    states = {state.name: state for state in _attributes(marked, State, base)}
    has_window, has_end = (_has_own(marked, base, name) for name in ("window", "end_of_stream"))
    if timers or has_window or has_end:
        _check_keys(inputs, place)
    _check_interval(window_ms, place, has_window=has_window)
    return Declared(
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        broadcast=tuple(broadcast),
        states=states,
        handlers=handlers,
        timers=timers,
        timer_handlers=_timer_handlers(marked, timers, place),
        has_window=has_window,
        has_end=has_end,
        window_ms=window_ms,
        place=place,
    )


def _has_own(marked: Any, base: Any, name: str) -> bool:
    """Whether a class has a method of this name that is not that of its base."""
    own = getattr(base, name)
    method = getattr(marked, name, own) if isinstance(marked, type) else own
    return method is not own and callable(method)


def _check_interval(window_ms: int | None, place: str, *, has_window: bool) -> None:
    if window_ms is None:
        return
    if not is_duration(window_ms):
        raise TaskModuleError(
            f"{place}: wanted window_ms in whole milliseconds, 1 or more, at most {DURATION_MAX_MS}, for instance "
            f"samzapy.minutes(1), found {window_ms!r}"
        )
    if not has_window:
        raise TaskModuleError(f"{place}: wanted a method window(self, tick, out) for window_ms, found none")


def _check_streams(streams: Sequence[AnyStream]) -> None:
    by_name: dict[str, AnyStream] = {}
    for stream in streams:
        other = by_name.setdefault(stream.name, stream)
        if other is not stream:
            raise TaskModuleError(
                f"{stream.place}: wanted one declaration of the stream {stream.name}, found another at {other.place}; "
                "use one object for inputs and outputs"
            )


_Attribute = TypeVar("_Attribute", State, Timer)


def _attributes(marked: Any, kind: type[_Attribute], base: Any) -> Iterator[_Attribute]:
    """The states or timers of a class and of the classes that it extends."""
    what = kind.__name__.lower()
    taken = {*vars(base), *inspect.get_annotations(base)}
    names = {name for one in inspect.getmro(marked) for name in vars(one)} if isinstance(marked, type) else ()
    for name in sorted(names):
        attribute = inspect.getattr_static(marked, name)
        if not isinstance(attribute, kind):
            continue
        if name.startswith("_"):
            raise TaskModuleError(
                f"{attribute.place}: wanted a {what} whose name does not begin with _, found {name}; such names are "
                "samzapy's own"
            )
        if name in taken:
            raise TaskModuleError(
                f"{attribute.place}: wanted a {what} with a name of its own, found {name}, which it would replace in "
                "samzapy.Task; rename it"
            )
        if name != attribute.name:
            raise TaskModuleError(
                f"{attribute.place}: wanted one name for a {what}, found {attribute.name} and {name}"
            )
        other = attribute.place.before.get(name)
        if isinstance(other, State | Timer):
            raise TaskModuleError(
                f"{attribute.place}: wanted one declaration of {name}, found another at {other.place}, which this one "
                "would replace; give them different names"
            )
        yield attribute


def _check_keys(inputs: Sequence[AnyStream], place: str) -> None:
    """Refuse inputs whose keys have different serdes: the key of a timer has one."""
    serdes = sorted({name_of(stream.key) for stream in inputs})
    if len(serdes) > 1:
        raise TaskModuleError(
            f"{place}: wanted inputs whose keys have one serde, because the keys of timers and windows are "
            "decoded by it, found "
            f"{', '.join(serdes)}; declare the same serde for the keys of all inputs"
        )


def _timer_handlers(marked: Any, timers: Mapping[str, Timer], place: str) -> Mapping[str, str]:
    """By timer, the name of its method."""
    handlers: dict[str, str] = {}
    for name, method in inspect.getmembers(marked, inspect.isfunction) if isinstance(marked, type) else ():
        timer = getattr(method, TIMER_OF_HANDLER, None)
        if timer is None:
            continue
        if timer.name in handlers:
            raise TaskModuleError(
                f"{timer.place}: wanted one method that is called when {timer.name} fires, found "
                f"{handlers[timer.name]} and {name}"
            )
        handlers[timer.name] = name
    for timer in timers.values():
        if timer.name not in handlers:
            raise TaskModuleError(
                f"{timer.place}: wanted a method marked with @{timer.name}.fires, found none ({place})"
            )
    return handlers


def _handlers(marked: type, inputs: Sequence[AnyStream], place: str, base: Any) -> Mapping[str, str]:
    """By input, the name of its method."""
    handlers: dict[str, str] = {}
    for name, method in inspect.getmembers(marked, inspect.isfunction):
        stream = getattr(method, STREAM_OF_HANDLER, None)
        if stream is None:
            continue
        if stream not in inputs:
            raise TaskModuleError(
                f"{place}: wanted .each of an input of the task, found {name} marked with that of {stream.name}, which "
                "inputs=[...] does not have"
            )
        if stream.name in handlers:
            raise TaskModuleError(
                f"{place}: wanted one handler of {stream.name}, found {handlers[stream.name]} and {name}"
            )
        handlers[stream.name] = name
    left = [stream.name for stream in inputs if stream.name not in handlers]
    no_process = base.process
    if left and getattr(marked, "process", no_process) is no_process:
        raise TaskModuleError(
            f"{place}: wanted a method process(self, message, out), or one marked with .each for {', '.join(left)}; "
            "found neither"
        )
    return {**dict.fromkeys(left, "process"), **handlers}


class Time(Protocol):
    """The clocks that timers and expiries go by."""

    expiry: ExpiryClock

    def wall_ms(self) -> int: ...

    def event_ms(self) -> int:
        """The watermark of the task; 0 without one."""
        ...

    def note_event_timer(self, moment_ms: int) -> bool:
        """Note that a timer in event time is to be set; False if it must not be."""
        ...


def bind(instance: Any, own: Declared, reach: Reach, context: Any, time: Time) -> None:
    """Give an instance its context, and its states and timers of one task."""
    instance.context = context
    for name, state in own.states.items():
        setattr(instance, name, state.bound(reach, time.expiry))
    for name, timer in own.timers.items():
        clock = (time.event_ms, time.note_event_timer) if timer.domain is Domain.EVENT else (time.wall_ms,)
        setattr(instance, name, timer.bound(reach, *clock))
