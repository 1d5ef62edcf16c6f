"""The end of the tasks of a worker in good order: user code's `close`.

There are two ways. The driver asks for it by a signal before it releases the tasks, while no worker can be at work. And
Spark closes the socket of a worker that was idle for a minute. In both cases the worker closes its tasks while it waits
for Spark's next task, and in the main thread, in which user code has made its connections.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from io import BufferedReader
from types import FrameType
from typing import Final

from samzapy.adapters.spark.open_tasks import CLOSE_SIGNAL

_SIGNALS_MAX: Final = 4096
_end: WorkerEnd | None = None


def close_at_end(close_tasks: Callable[[], None], may_close: Callable[[], bool]) -> None:
    """Have the tasks of this worker closed when they end in good order.

    Args:
        close_tasks, may_close: as of `WorkerEnd`.
    """
    global _end
    _end = WorkerEnd(close_tasks, may_close)


def awaiting_tasks(main: Callable[[BufferedReader, object], None]) -> Callable[[BufferedReader, object], None]:
    """PySpark's work on one of Spark's tasks, behind the wait for it."""

    def run(infile: BufferedReader, outfile: object) -> None:
        if _end is not None:
            _end.await_task(infile)
        main(infile, outfile)

    return run


class WorkerEnd:
    """Closes the tasks of this process while it waits for Spark's next task.

    Make it in the main thread.

    Args:
        close_tasks: may be called again when there are new ones.
        may_close: whether they may be closed although the driver has not asked for it.
    """

    def __init__(self, close_tasks: Callable[[], None], may_close: Callable[[], bool]) -> None:
        self._close_tasks = close_tasks
        self._may_close = may_close
        self._is_asked = False
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(CLOSE_SIGNAL, self._ask)

    def await_task(self, infile: BufferedReader) -> None:
        """Wait for Spark's next task.

        Close the tasks of this process if the driver asks for it meanwhile, or Spark closes the socket.

        Args:
            infile: has no bytes in its buffer yet, as PySpark makes a reader for each of Spark's tasks.
        """
        has_come = False
        while not has_come:
            has_come = self._wait(infile.fileno())
            if self._is_asked:
                self._is_asked = False
                self._close_tasks()
        if _is_at_end(infile) and self._may_close():
            self._close_tasks()

    def _wait(self, descriptor: int) -> bool:
        """Wait for bytes, the end of the socket, or a signal.

        Returns whether there was more than a signal.
        """
        # The interpreter runs a handler between its own steps. A signal after the last of them, or in another thread,
        # does not end a read: the worker would sleep on. So the signal itself writes a byte.
        before = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        try:
            if self._is_asked:
                return False
            waiting = select.poll()
            for each in (descriptor, self._woken):
                waiting.register(each, select.POLLIN)
            ready = {each for each, _ in waiting.poll()}
        finally:
            signal.set_wakeup_fd(before)
        with suppress(BlockingIOError):
            os.read(self._woken, _SIGNALS_MAX)
        return descriptor in ready

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self._is_asked = True


def _is_at_end(infile: BufferedReader) -> bool:
    """Wait for the next byte; True if the socket is closed."""
    try:
        return not infile.peek(1)
    except OSError:
        return True
