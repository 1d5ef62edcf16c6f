"""Tell a SIGINT from a `KeyboardInterrupt` that user code raises."""

from __future__ import annotations

import signal
from types import FrameType


class Interrupts:
    """Remembers SIGINT, and raises `KeyboardInterrupt` as Python's own handler does."""

    def __init__(self) -> None:
        self.was_interrupted = False

    @classmethod
    def installed(cls) -> Interrupts:
        """Install a handler and return it. Call this in the main thread."""
        interrupts = cls()
        interrupts.install()
        return interrupts

    def install(self) -> None:
        """Install the handler again.

        PySpark sets Python's own one before each task of Spark.
        """
        signal.signal(signal.SIGINT, self.interrupt)

    def interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt, wherever the main thread is."""
        self.was_interrupted = True
        raise KeyboardInterrupt
