"""SIGTERM and Ctrl-C as a request to drain.

Operators know the pid of spark-submit, which is the JVM: on SIGTERM it would be gone in a second, and Python with it.
So one handler is in the JVM (a `sun.misc.SignalHandler` that calls back into Python), and another in Python for signals
that reach it directly. A second signal changes nothing, because the drain is bounded anyway.

Before the session is up there is no work to drain, and the JVM's own handling applies: it ends at once, with 143 or
130, and Python with it (`end_with_parent`).
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOG = logging.getLogger(__name__)
_SIGNALS = {"TERM": signal.SIGTERM, "INT": signal.SIGINT}
_PARENT_CHECK_S = 0.5


class DrainRequest:
    """Set when this process is asked to stop (`container.ports.StopRequest`)."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def is_set(self) -> bool:
        return self._asked.is_set()

    def wait(self, timeout_s: float | None) -> bool:
        return self._asked.wait(timeout_s)

    def ask(self, reason: str) -> None:
        is_first = not self._asked.is_set()
        # Set before the log line: stderr may be blocked, by a pipe that is full or a terminal under Ctrl-S.
        self._asked.set()
        if is_first:
            _LOG.info("asked to stop (%s); the running micro-batch is finished first", reason)


def end_signals() -> list[signal.Signals]:
    """SIGTERM and SIGINT, without those that this process ignores.

    They stay ignored: a shell ignores SIGINT for a command in its background.
    """
    return [number for number in _SIGNALS.values() if signal.getsignal(number) is not signal.SIG_IGN]


class SignalThread:
    """Calls a function for each signal, in a thread of its own.

    A handler runs in the main thread, between any two steps of it. If the main thread waits for an Event meanwhile, it
    may hold the event's lock, and a handler that sets the event waits for that lock for ever. `SimpleQueue.put` may
    interrupt itself. Make it in the main thread.
    """

    def __init__(self, numbers: Iterable[signal.Signals], act: Callable[[signal.Signals], object]) -> None:
        self._act = act
        self._came: SimpleQueue[int | None] = SimpleQueue()
        threading.Thread(target=self._run, name="samzapy-signals", daemon=True).start()
        self._before = {number: signal.signal(number, self._note) for number in numbers}

    def close(self) -> None:
        """Give the signals back to their former handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._came.put(None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came.put(number)

    def _run(self) -> None:
        for number in iter(self._came.get, None):
            self._act(signal.Signals(number))


class _JvmHandler:
    """Called by the JVM on a signal; py4j finds the method by its Java name."""

    def __init__(self, request: DrainRequest) -> None:
        self._request = request

    def handle(self, java_signal: Any) -> None:
        self._request.ask(f"SIG{java_signal.getName()} to spark-submit")

    class Java:
        implements = ("sun.misc.SignalHandler",)


def install_handlers(context: SparkContext, request: DrainRequest) -> None:
    """Set the handlers in JVM and Python.

    Called after the SparkContext is up, which sets a SIGINT handler itself.
    """
    # Imported here: the watch over the parent begins before pyspark is imported.
    from pyspark.java_gateway import ensure_callback_server_started

    gateway, jvm = context._gateway, context._jvm
    assert gateway is not None and jvm is not None, "a running SparkContext has a gateway"
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]  # pyspark has no types for it
    handler = _JvmHandler(request)
    for name in sorted(_SIGNALS):
        jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal(name), handler)
    SignalThread(_SIGNALS.values(), lambda number: request.ask(number.name))


def end_with_parent() -> None:
    """End this process at once when spark-submit's JVM is killed.

    An execution lives and dies as a whole. Without spark-submit the JVM is a child of this process, and the parent may
    leave.
    """
    port = os.environ.get("PYSPARK_GATEWAY_PORT")
    if port is None:
        return
    parent = os.getppid()
    if not _listens(int(port)):
        # The JVM was gone already, and `parent` is the process that adopted this one.
        os._exit(137)

    def watch() -> None:
        while os.getppid() == parent:
            threading.Event().wait(_PARENT_CHECK_S)
        os._exit(137)

    threading.Thread(target=watch, name="samzapy-parent-watch", daemon=True).start()


def _listens(port: int) -> bool:
    """Whether spark-submit's JVM runs."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
