"""stderr of a driver under spark-submit, which else comes out on stdout.

spark-submit's JVM starts Python with stderr and stdout in one pipe, and copies that to its own stdout. So neither
what a job prints nor its log could be sent anywhere alone. The JVM's own stderr is the real one, and py4j reaches it.
(/proc/<parent>/fd/2 does not: a file would be opened anew at its beginning, a socket not at all.)
"""

from __future__ import annotations

import io
import os
import queue
import stat
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

# Importing py4j and connecting has taken more than a second on a busy machine, and the words of a job that ended at
# once were lost.
_CONNECT_WAIT_S = 10.0
_FLUSH_WAIT_S = 1.0


class ForwardedStderr(io.TextIOBase):
    """Text for another process's stderr.

    A thread of its own does the writing: who logs may be a signal handler that came in the middle of another call to
    the JVM. `flush` waits for it, so that the last words before an `os._exit` arrive, but never for long: what is not
    written by then, and all that comes later, goes to `own`.

    Args:
        connect: gives a function that writes, in the thread.
        own: takes what cannot be written there.
        connect_wait_s: how long `flush` waits before there is a connection; afterwards it is a second.
    """

    def __init__(
        self, connect: Callable[[], Callable[[str], None]], own: TextIO, connect_wait_s: float = _CONNECT_WAIT_S
    ) -> None:
        self._connect, self._own, self._wait_s = connect, own, connect_wait_s
        self._queue: queue.SimpleQueue[str | threading.Event] = queue.SimpleQueue()
        self._in_hand = ""
        self._is_lost = False
        threading.Thread(target=self._run, name="samzapy-stderr", daemon=True).start()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """The file descriptor, for child processes that inherit stderr."""
        return self._own.fileno()

    def write(self, text: str) -> int:
        self._queue.put(text)
        if self._is_lost:
            self._rescue()
        return len(text)

    def flush(self) -> None:
        done = threading.Event()
        self._queue.put(done)
        if self._is_lost or not done.wait(self._wait_s):
            self._rescue()

    def _run(self) -> None:
        forward: Callable[[str], None] | None = None
        while not self._is_lost:
            item = self._queue.get()
            if isinstance(item, threading.Event):
                item.set()
                continue
            self._in_hand = item
            try:
                if forward is None:
                    forward, self._wait_s = self._connect(), _FLUSH_WAIT_S
                forward(item)
                self._in_hand = ""
            except Exception:  # py4j raises its own errors and any of a socket's; the text is not to be lost.
                self._rescue()

    def _rescue(self) -> None:
        """Write to `own` what the thread has not written; it may come twice if the thread was only slow."""
        self._is_lost = True
        text, self._in_hand = self._in_hand, ""
        with suppress(queue.Empty):
            while True:
                item = self._queue.get_nowait()
                if isinstance(item, threading.Event):
                    item.set()
                else:
                    text += item
        self._own.write(text)
        self._own.flush()


def real_stderr(environment: Mapping[str, str]) -> TextIO:
    """The stderr of this process, forwarded if spark-submit joined it with stdout."""
    if "PYSPARK_GATEWAY_PORT" not in environment or not _is_joined_by_a_jvm():
        return sys.stderr
    return ForwardedStderr(lambda: _jvm_stderr(environment), sys.stderr)  # type: ignore[return-value]  # a text stream


def _is_joined_by_a_jvm() -> bool:
    try:
        out, error = os.fstat(1), os.fstat(2)
        parent = Path(f"/proc/{os.getppid()}/comm").read_text().strip()
    except OSError:
        return False
    same = (out.st_dev, out.st_ino) == (error.st_dev, error.st_ino)
    return same and stat.S_ISFIFO(out.st_mode) and parent == "java"


def _jvm_stderr(environment: Mapping[str, str]) -> Callable[[str], None]:
    # Imported here, in the thread: it takes a moment, and what is refused at once is not to wait for it.
    from py4j.java_gateway import GatewayParameters, JavaGateway

    parameters = GatewayParameters(
        port=int(environment["PYSPARK_GATEWAY_PORT"]), auth_token=environment["PYSPARK_GATEWAY_SECRET"]
    )
    stream: Any = JavaGateway(gateway_parameters=parameters).jvm.java.lang.System.err

    def write(text: str) -> None:
        stream.print(text)
        stream.flush()

    return write
