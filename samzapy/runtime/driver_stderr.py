"""The stderr of a driver under spark-submit, which otherwise appears on stdout.

spark-submit's JVM starts Python with stderr and stdout in one pipe, and copies that to its own stdout. So the output of
a job and its log could not be separated. The JVM's own stderr is the real one, and py4j can write to it.
(/proc/<parent>/fd/2 is no way: a file would be opened again at its beginning, a socket not at all.)
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

# Importing py4j and connecting can take more than a second on a busy machine. With a shorter wait the output of a job
# that ended at once was lost.
_CONNECT_WAIT_S = 10.0
_FLUSH_WAIT_S = 1.0


class ForwardedStderr(io.TextIOBase):
    """Text for another process's stderr.

    A thread does the writing, because a signal handler may log in the middle of another call to the JVM. `flush` waits
    for it, so that the last lines before an `os._exit` arrive, but only for a limited time: unwritten text, and all
    later text, then goes to `own`.

    Args:
        connect: returns a function that writes; called in the thread.
        own: takes text that cannot be written there.
        connect_wait_s: how long `flush` waits before there is a connection; afterwards it is a second.
    """

    def __init__(
        self, connect: Callable[[], Callable[[str], None]], own: TextIO, connect_wait_s: float = _CONNECT_WAIT_S
    ) -> None:
        self._connect, self._own, self._wait_s = connect, own, connect_wait_s
        self._queue: queue.SimpleQueue[str | threading.Event] = queue.SimpleQueue()
        self._in_hand = ""
        self._is_lost = False
        # A signal handler may log in the middle of it.
        self._rescuing = threading.RLock()
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
        """Write to `own` all text that the thread has not written.

        It may appear twice if the thread was only slow.
        """
        self._is_lost = True
        # A process may end as soon as its flush has returned, so no flush returns while another thread still writes.
        with self._rescuing:
            text, self._in_hand = self._in_hand, ""
            flushes: list[threading.Event] = []
            with suppress(queue.Empty):
                while True:
                    item = self._queue.get_nowait()
                    if isinstance(item, threading.Event):
                        flushes.append(item)
                    else:
                        text += item
            try:
                self._own.write(text)
                self._own.flush()
            finally:
                for flush in flushes:
                    flush.set()


def real_stderr(environment: Mapping[str, str]) -> TextIO:
    """The stderr of this process, forwarded if spark-submit joined it with stdout."""
    if "PYSPARK_GATEWAY_PORT" not in environment or not _is_joined_by_a_jvm():
        return sys.stderr
    return ForwardedStderr(lambda: _jvm_stderr(environment), sys.stderr)  # type: ignore[return-value]  # a text stream


def _is_joined_by_a_jvm() -> bool:
    try:
        out, error = os.fstat(1), os.fstat(2)
        parent = Path(f"/proc/{os.getppid()}/comm").read_bytes().strip()
    except OSError:
        return False
    same = (out.st_dev, out.st_ino) == (error.st_dev, error.st_ino)
    return same and stat.S_ISFIFO(out.st_mode) and parent == b"java"


def _jvm_stderr(environment: Mapping[str, str]) -> Callable[[str], None]:
    # Imported here, in the thread: it takes a moment, and an early refusal must not wait for it.
    from py4j.java_gateway import GatewayParameters, JavaGateway

    parameters = GatewayParameters(
        port=int(environment["PYSPARK_GATEWAY_PORT"]), auth_token=environment["PYSPARK_GATEWAY_SECRET"]
    )
    stream: Any = JavaGateway(gateway_parameters=parameters).jvm.java.lang.System.err

    def write(text: str) -> None:
        stream.print(text)
        stream.flush()

    return write
