"""The interface of user code: tasks, messages, outputs and stores.

A job file holds one task: a function marked with `@samzapy.task`, or a class so marked with `process` and, if
wanted, `init` and `close`. Tasks are made in Spark's Python workers, where the job file is loaded by its path, so
`samzapy.run()` stands under `if __name__ == "__main__":`.

A task instance belongs to one worker process and one run of the query: `init` is called before its first message there,
and again after a recovery. Keep lasting data in stores, not in the instance. `close` is called when the job stops,
before another container gets the task, and in a later query for the instances of the one before. A killed process calls
nothing. A `close` that raises is logged with the task's name and has no further effect: the work of the instance is
committed by then.
"""

from __future__ import annotations

import builtins
import dis
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, overload

from samzapy.errors import TaskModuleError
from samzapy.model.text import error_text

# The package imports this module at once, also for commands that load no task (samzapy/__init__.py).
if TYPE_CHECKING:
    from samzapy.declared_task import Declared, Time
    from samzapy.model.reach import Reach
    from samzapy.state import State
    from samzapy.streams import AnyStream, HeadersToSend, IncomingMessageEnvelope, Message, Output
    from samzapy.windows import Tick

K = TypeVar("K")
V = TypeVar("V")
_MARK = "__samzapy_task__"
_JOB_MODULE = "samzapy_job_file"


class MessageCollector(Protocol):
    """Collects the messages that a task sends.

    Nothing is sent before `process` returns, and nothing at all if it raises. A collector is valid for one message,
    like the context and its stores. Threads and callbacks may use them for as long as `process`
    waits for them. Later uses raise OutsideMessageError, and the job ends by that under every error policy.
    """

    def send(
        self,
        stream: str,
        value: Any,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: HeadersToSend | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Send a message to `stream`: `kafka.orders`, or `orders` of the default system.

        Args:
            value, key: encoded by the stream's serdes; a value of `None` is a tombstone.
            partition: chosen by Java's murmur2 of the key bytes if not given, as JVM producers do.
            headers: a mapping, or pairs in order, of which names may repeat: `headers=envelope.headers` passes them on.
            timestamp_ms: the record's time, since 1970; now if not given. How far from now it may lie is a setting of
                the topic (`message.timestamp.after.max.ms`, an hour by default, and `message.timestamp.before.max.ms`).
                0 is refused: the Kafka client would send the present time instead.

        Raises:
            SerdeError: the serde refuses the key or the value.
            TaskError: partition, headers or timestamp_ms are none that a record can have, or that the client can send.

        A record that the topic does not accept (too large, no key on a compacted topic, a time too far from now) fails
        the message with a named error after it was handled.
        """
        ...


class KeyedStore(Protocol):
    """State of the current message's key, committed exactly once with the outputs.

    Each key has any number of named entries; the one without a name is `""`. Under `stores.<name>.scope=broadcast` the
    entries are no key's: every task has all of them, and they are written while a broadcast message is handled.

    Raises:
        TaskError: used while a message without a key, or of a broadcast input, is handled; under scope `broadcast`:
            written while a message of the task's own is.
    """

    def get(self, name: str = "") -> Any:
        """The entry's value, or `None`."""
        ...

    def put(self, value: Any, name: str = "") -> None:
        """Set the entry. `None` is refused: that is `delete`."""
        ...

    def delete(self, name: str = "") -> None:
        """Remove the entry; nothing happens if there is none."""
        ...


class TaskContext(Protocol):
    """The context of a task: its stores and intermediate streams.

    Attributes:
        task_name: for instance `SystemStreamPartition_kafka.orders.3`.
        partition_id: the task's number in the job, 0 and up; never changes.
        config: the job's properties as text; in place of a secret stands `***`.
    """

    @property
    def task_name(self) -> str: ...
    @property
    def partition_id(self) -> int: ...
    @property
    def config(self) -> Mapping[str, str]: ...

    @property
    def watermark_ms(self) -> int | None:
        """The event time up to which the inputs are complete, for the key in hand.

        In milliseconds since 1970. A message with an older `time_ms` is late. None while an input that may have
        messages has had none, and for a task that keeps no event time (docs/guides/time.md). At the end of bounded
        inputs it is 2**62 - 1.
        """
        ...

    def intermediate(self, name: str) -> str:
        """The stream declared by `task.intermediate.<name>.partitions`.

        Give it to `MessageCollector.send`, with a key. Its messages come back to the job's own tasks, exactly once,
        with `envelope.intermediate == name`.

        Raises TaskError for an undeclared one.
        """
        ...

    def keys(self, state: State) -> Iterator[Any]:
        """The keys of this task that have a state, within `window`.

        Each is in hand until the next one: its state and timers can be used. They come in no particular order.

        Raises TaskError elsewhere, and for a state that belongs to no key.
        """
        ...

    def store(self, name: str) -> KeyedStore:
        """The store declared by `stores.<name>....`.

        Raises TaskError for an undeclared one.
        """
        ...


class StreamTask(Protocol):
    """A task as a class. `init` and `close` may be left out."""

    def process(self, envelope: IncomingMessageEnvelope, collector: MessageCollector, context: TaskContext) -> None:
        """Handle one message.

        All its outputs and store writes take effect, or, if this raises, none.
        """
        ...


class Task(Generic[K, V]):
    """The base of a task class, of inputs with keys K and values V.

    ```python
    @samzapy.task(inputs=[orders], outputs=[totals])
    class Totals(samzapy.Task[str, Order]):
        total = samzapy.value(samzapy.Double, default=0.0)

        def process(self, message: samzapy.Message[str, Order], out: samzapy.Output) -> None:
            self.total.set(self.total.get() + message.value.amount)
            out.send(totals, self.total.get(), key=message.key)
    ```

    Inputs of several types get a method each, marked with `@stream.each`, in the place of `process`.
    """

    context: TaskContext

    def init(self, context: TaskContext) -> None:
        """Prepare the instance, before its first message in this process."""

    def process(self, message: Message[K, V], out: Output) -> None:
        """Handle one message.

        Its outputs and writes take effect together, or, if this raises, none does.
        """
        raise NotImplementedError("a task has process, or a method marked with .each for each input")

    def window(self, tick: Tick, out: Output) -> None:
        """Act once for each interval of `window_ms`, with or without messages.

        No message is in hand. `self.context.keys(state)` goes through the keys of the task that have a state.
        """

    def end_of_stream(self, out: Output) -> None:
        """Act once when a bounded run has read all inputs of the task.

        All timers in event time have fired. Like `window`, it can go through the keys that have a state.
        """

    def close(self) -> None:
        """Release what the instance holds: its container stops, or begins a new query.

        A process that dies or is killed calls nothing.
        """


ProcessFunction = Callable[..., None]
"""Handles a message: `(envelope, collector, context)`, or `(message, out)` of a task class."""
Marked = TypeVar("Marked", bound=Callable[..., Any])


@overload
def task(marked: Marked, /) -> Marked: ...


@overload
def task(
    *,
    inputs: Sequence[AnyStream],
    outputs: Sequence[AnyStream] = (),
    broadcast: Sequence[AnyStream] = (),
    window_ms: int | None = None,
) -> Callable[[Marked], Marked]: ...


def task(
    marked: Any = None,
    /,
    *,
    inputs: Sequence[AnyStream] = (),
    outputs: Sequence[AnyStream] = (),
    broadcast: Sequence[AnyStream] = (),
    window_ms: int | None = None,
) -> Callable[..., Any]:
    """Mark the job file's task.

    A task is a function `(envelope, collector, context)`, or a class with `process`. With `inputs=[...]`, the methods
    of a class take `(message, out)`, see `Task`. Every task gets all messages of the streams in `broadcast`, and its
    `window` is called each `window_ms` milliseconds.

    Raises:
        TaskModuleError: it is neither, takes other arguments, declares something twice, or a call of it would run
            nothing (`async def`, `yield`).
    """
    if marked is not None:
        if isinstance(marked, type) and issubclass(marked, Task):
            raise TaskModuleError(
                f"@samzapy.task: wanted inputs=[...] for {marked.__name__}, which extends samzapy.Task, found none"
            )
        _check_marked(marked, _ARGUMENTS)
        setattr(marked, _MARK, True)
        return marked  # type: ignore[no-any-return]
    from samzapy.declared_task import DECLARED, declared
    from samzapy.streams import place_of_caller

    place = place_of_caller()

    def mark(given: Marked) -> Marked:
        own = declared(given, inputs, outputs, broadcast, window_ms, place, Task)
        handlers = dict.fromkeys(own.handlers.values(), ("message", "out"))
        timers = dict.fromkeys(own.timer_handlers.values(), ("timer", "out"))
        windows = {"window": ("tick", "out")} if own.has_window else {}
        ends = {"end_of_stream": ("out",)} if own.has_end else {}
        methods = {"init": ("context",), **handlers, **timers, **windows, **ends, "close": ()}
        _check_marked(given, methods if isinstance(given, type) else _ARGUMENTS)
        setattr(given, _MARK, True)
        setattr(given, DECLARED, own)
        return given

    return mark


def _check_marked(marked: Callable[..., Any], arguments: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse a task that could not be called."""
    if isinstance(marked, type) and "process" in arguments and not callable(getattr(marked, "process", None)):
        raise TaskModuleError(
            f"@samzapy.task: wanted a class with process(envelope, collector, context), found {marked}"
        )
    methods = [getattr(marked, name, None) for name in arguments] if isinstance(marked, type) else [marked]
    for method in methods:
        if any(is_one(method) for is_one in _NOT_CALLED_THROUGH):
            raise TaskModuleError(
                f"@samzapy.task: wanted a plain function, found {getattr(method, '__qualname__', method)} with `async` "
                "or `yield`, of which a call runs nothing. Write it without; `asyncio.run(...)` inside it is allowed"
            )
    _check_arguments(marked, arguments)


def _check_arguments(marked: Callable[..., Any], arguments: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse arguments that would fail in every call."""
    if not isinstance(marked, type):
        _check_call(marked, arguments["process"])
        return
    _check_call(marked, ())
    for name, own in arguments.items():
        method = inspect.getattr_static(marked, name, None)
        if inspect.isfunction(method):
            _check_call(method, ("self", *own))
        elif isinstance(method, staticmethod | classmethod):
            _check_call(getattr(marked, name), own)


def _check_call(called: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    try:
        signature = inspect.signature(called)
    except (ValueError, TypeError):  # Python does not know the signature, for instance of a C function.
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        name = getattr(called, "__qualname__", repr(called))
        raise TaskModuleError(
            f"@samzapy.task: wanted {name}({', '.join(arguments)}), found {name}{signature}: {error}"
        ) from None


_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "init": ("context",),
    "process": ("envelope", "collector", "context"),
    "close": (),
}
_NOT_CALLED_THROUGH = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTask:
    """One instance of the user's task, ready to be called.

    Attributes:
        handlers: by input, what handles its messages in the place of `process`.
        timers: by name, what is called when a timer fires: `(timer, out)`.
        window: what is called at each tick: `(tick, out)`.
        end_of_stream: what is called at the end of bounded inputs: `(out)`.
        bind: gives the instance the stores of its task, a context, and the clocks of timers; called before `init`.
    """

    process: ProcessFunction
    init: Callable[[TaskContext], None] | None
    close: Callable[[], None] | None
    handlers: Mapping[str, ProcessFunction] = field(default_factory=dict)
    timers: Mapping[str, Callable[[Any, Any], None]] = field(default_factory=dict)
    window: Callable[[Tick, Any], None] | None = None
    end_of_stream: Callable[[Any], None] | None = None
    bind: Callable[[Reach, TaskContext, Time], None] | None = None


@dataclass(frozen=True, slots=True)
class TaskFactory:
    """Makes instances of the task of a job file."""

    declared: Declared
    _make: Callable[[], LoadedTask]

    def __call__(self) -> LoadedTask:
        return self._make()


def load_task_factory(path: Path) -> TaskFactory:
    """Load the job file as a module of its own and find its one task.

    Raises:
        TaskModuleError: the file does not import (names the error and its line), calls `samzapy.run()` without the
            guard, marks no task or several, or uses a global name that is neither defined nor imported.
    """
    from samzapy.declared_task import DECLARED, Declared

    module = _load(path.absolute())
    marked_names = {
        name: value
        for name, value in sorted(vars(module).items())
        # Its own mark: a class that extends the task is not marked by that.
        if _MARK in getattr(value, "__dict__", ()) and getattr(value, "__module__", None) == _JOB_MODULE
    }
    distinct = {id(value): value for value in marked_names.values()}
    if len(distinct) != 1:
        what = f"several: {', '.join(marked_names)}" if marked_names else "none"
        raise TaskModuleError(f"{path}: wanted one function or class marked with @samzapy.task, found {what}")
    (marked,) = distinct.values()
    missing = _missing_names(marked, module)
    if missing:
        raise TaskModuleError("\n".join(f"{path}: {problem}" for problem in missing))
    own: Declared = getattr(marked, DECLARED, Declared())
    if not isinstance(marked, type):
        return TaskFactory(own, lambda: LoadedTask(process=marked, init=None, close=None))
    if own.inputs:
        return TaskFactory(own, lambda: _of_declared(marked(), own))
    return TaskFactory(own, lambda: _of_instance(marked()))


def _missing_names(marked: Callable[..., Any], module: ModuleType) -> Sequence[str]:
    """A problem for each undefined global name that the code of the task loads.

    Covers the marked function, or the methods of the marked class, and the functions of the file that they name.
    """
    known = vars(module).keys() | vars(builtins).keys()
    functions = [value for value in vars(module).values() if inspect.isfunction(value)]
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    methods = [method for one in classes for method in vars(one).values() if inspect.isfunction(method)]
    set_later = {name for code in _codes([*functions, *methods]) for name in _global_names(code, "STORE_GLOBAL")}
    problems: dict[int, str] = {}
    for name, line in _names_loaded(marked, module, functions):
        if name not in known | set_later:
            problems.setdefault(line, f"line {line}: name {name!r} is not defined; import or define it")
    return [problems[line] for line in sorted(problems)]


def _names_loaded(
    marked: Callable[..., Any], module: ModuleType, functions: Sequence[Callable[..., Any]]
) -> Iterator[tuple[str, int]]:
    """The global names, with lines, that the task and its functions load."""
    left = (
        [value for value in vars(marked).values() if inspect.isfunction(value)]
        if isinstance(marked, type)
        else [marked]
    )
    seen: dict[int, Callable[..., Any]] = {}
    while left:
        function = inspect.unwrap(left.pop())
        # A decorator's function claims to be of this module, and is not.
        if id(function) in seen or getattr(function, "__globals__", None) is not vars(module):
            continue
        seen[id(function)] = function
        for code in _codes([function]):
            if not _LOOKS_ITSELF.isdisjoint(code.co_names):
                continue
            for name, line in _global_names(code, "LOAD_GLOBAL").items():
                yield name, line
                left += [value for value in functions if value is vars(module).get(name)]


_LOOKS_ITSELF = frozenset({"globals", "NameError"})
"""Names in code that defines names at run time, or that asks whether they exist."""


def _codes(functions: Sequence[Callable[..., Any]]) -> Iterator[CodeType]:
    """The code of functions, and of the functions inside them."""
    left = [code for function in functions if isinstance(code := getattr(function, "__code__", None), CodeType)]
    while left:
        code = left.pop()
        yield code
        left += [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _global_names(code: CodeType, operation: str) -> Mapping[str, int]:
    """Names that an operation of the code is about, with the line of the first one."""
    line_of_name: dict[str, int] = {}
    for instruction in dis.get_instructions(code):
        if instruction.opname == operation:
            line = instruction.positions.lineno if instruction.positions is not None else None
            line_of_name.setdefault(str(instruction.argval), line or code.co_firstlineno)
    return line_of_name


def _of_instance(instance: Any) -> LoadedTask:
    return LoadedTask(
        process=instance.process, init=getattr(instance, "init", None), close=getattr(instance, "close", None)
    )


def _of_declared(instance: Any, own: Declared) -> LoadedTask:
    from samzapy.declared_task import bind

    handlers: dict[str, ProcessFunction] = {
        stream: getattr(instance, method) for stream, method in own.handlers.items()
    }
    return LoadedTask(
        process=next(iter(handlers.values())),
        init=getattr(instance, "init", None),
        close=getattr(instance, "close", None),
        handlers=handlers,
        timers={timer: getattr(instance, method) for timer, method in own.timer_handlers.items()},
        window=instance.window if own.has_window else None,
        end_of_stream=instance.end_of_stream if own.has_end else None,
        bind=lambda reach, context, time: bind(instance, own, reach, context, time),
    )


def load_from_directory(directory: Path, name: str, setting: str) -> Callable[..., Any]:
    """The class `module:Class` of the job's own code.

    The module is in `directory` or below.

    Args:
        setting: the line of the configuration that says `name`; messages begin with it.

    Raises:
        TaskModuleError: no such module there, one that does not import, or no such class in it.
    """
    module_name, _, class_name = name.partition(":")
    place = directory.absolute().joinpath(*module_name.split("."))
    path = next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)
    if path is None:
        raise TaskModuleError(
            f"{setting}: wanted a module of the job's own code, {place.with_suffix('.py')}, found no such file; "
            "it is looked for beside the job file (--job-file of `samzapy job plan`, `scale` and `config check`)"
        )
    module = _import(module_name, path, directory.absolute())
    module_file = Path(getattr(module, "__file__", None) or "built in")
    if module_file.resolve() != path.resolve():
        raise TaskModuleError(
            f"{setting}: wanted the module {path}, found another called {module_name}, {module_file}; give yours "
            "another name"
        )
    wanted = getattr(module, class_name, None)
    if not callable(wanted):
        raise TaskModuleError(f"{setting}: wanted a class {class_name} in {path}, found none")
    return cast(Callable[..., Any], wanted)


def _import(module_name: str, path: Path, directory: Path) -> ModuleType:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    _importing.append(path)
    try:
        return importlib.import_module(module_name)
    except TaskModuleError:
        raise
    except BaseException as error:  # The file is the user's: it may raise anything, SystemExit included.
        raise TaskModuleError(f"{path} does not import: {_where(error, path)}{error_text(error)}") from error
    finally:
        _importing.pop()


_importing: list[Path] = []


def is_loading_job_file() -> bool:
    """Whether the job file is being loaded as a module.

    `samzapy.run()` there means that the guard is missing.
    """
    return bool(_importing) or getattr(sys.modules.get(_JOB_MODULE), _MARK, None) == "loading"


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_JOB_MODULE, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise TaskModuleError(f"wanted a Python file with a task, found nothing at {path}")
    module = importlib.util.module_from_spec(spec)
    setattr(module, _MARK, "loading")
    sys.modules[_JOB_MODULE] = module
    # Modules beside the job file can be imported, as when it is run as a script. For a link these are
    # also the modules beside its target, where Python looks for a script's modules.
    for directory in (str(path.resolve().parent), str(path.parent)):
        if directory not in sys.path:
            sys.path.insert(0, directory)
    try:
        spec.loader.exec_module(module)
    except TaskModuleError:
        raise
    except BaseException as error:  # The file is the user's: it may raise anything, SystemExit included.
        raise TaskModuleError(f"{path} does not import: {_where(error, path)}{error_text(error)}") from error
    finally:
        setattr(module, _MARK, "loaded")
    return module


def _where(error: BaseException, path: Path) -> str:
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f"line {line}: "
