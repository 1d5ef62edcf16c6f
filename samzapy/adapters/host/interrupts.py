"""Whether a signal interrupted this process: user code may raise `KeyboardInterrupt` without one."""

from __future__ import annotations

import signal
from types import FrameType


class Interrupts:
    """Remembers SIGINT, and raises `KeyboardInterrupt` for it as Python's own handler does."""

    def __init__(self) -> None:
        self.was_interrupted = False

    @classmethod
    def installed(cls) -> Interrupts:
        """The handler in force from now on. To be called in the main thread."""
        interrupts = cls()
        signal.signal(signal.SIGINT, interrupts.interrupt)
        return interrupts

    def interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt, wherever the main thread is."""
        self.was_interrupted = True
        raise KeyboardInterrupt
