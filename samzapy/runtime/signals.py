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
        if not self._asked.is_set():
            _LOG.info("asked to stop (%s); the running micro-batch is finished first", reason)
        self._asked.set()


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
    for name, number in sorted(_SIGNALS.items()):
        jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal(name), handler)
        signal.signal(number, lambda number, _: request.ask(signal.Signals(number).name))


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
