"""Tell a SIGINT from a `KeyboardInterrupt` that user code raises."""

from __future__ import annotations

import signal
from types import FrameType


class Interrupts:
    """Remembers SIGINT, and raises `KeyboardInterrupt` as Python's own handler does."""

    def __init__(self) -> None:
        self.was_interrupted = False

    def install(self) -> None:
        """Install the handler; call this in the main thread.

        PySpark sets Python's own one before each task of Spark, so it is installed again for each.
        """
        signal.signal(signal.SIGINT, self.interrupt)

    def interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt, wherever the main thread is."""
        self.was_interrupted = True
        raise KeyboardInterrupt
