"""Notes slow messages and unreported costs in the slot of the worker.

The loop over messages only writes down the offset in hand, because a clock for each message would be measurable. A
thread compares the offset with that of its last look. It cannot look while a C library keeps the interpreter's lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from samzapy.container.task.so_far import SoFar
from samzapy.model.slow_message import SLOW_MS

_LOOK_S: Final = 1.0
InHand = tuple[int, int]
"""Route and offset of a message."""


class _Slot(Protocol):
    def note_slow(self, route: int, offset: int, since_boot_ms: int) -> None: ...
    def clear_slow(self) -> None: ...
    def note_so_far(self, noted: Sequence[SoFar]) -> None: ...
    def clear_so_far(self) -> None: ...


class SlowMessageWatch:
    """Watches the message that this worker process has in hand, from `begin` to `end`.

    Args:
        in_hand: the message that user code handles now; None between two messages.
        boot_ms: the host's clock since its boot.
        so_far: the costs that are not reported yet, while a message is in hand; none while they are small.
    """

    def __init__(
        self,
        in_hand: Callable[[], InHand | None],
        boot_ms: Callable[[], int],
        look_s: float = _LOOK_S,
        so_far: Callable[[], Sequence[SoFar]] = tuple,
    ) -> None:
        self._in_hand = in_hand
        self._so_far = so_far
        self._has_costs = False
        self._boot_ms = boot_ms
        self._look_s = look_s
        self._lock = threading.Lock()
        self._slot: _Slot | None = None
        self._seen: InHand | None = None
        self._since_ms = 0
        self._is_noted = False
        self._thread: threading.Thread | None = None

    def begin(self, slot: _Slot) -> None:
        """Watch the messages that are handled in `slot`."""
        with self._lock:
            self._slot, self._seen = slot, None
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="samzapy-slow-messages", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Write nothing more to the slot, which another process may hold next."""
        with self._lock:
            self._clear()
            self._clear_costs()
            self._slot = None

    def report(self) -> None:
        """Take the note of the costs back, because their report comes now."""
        with self._lock:
            self._clear_costs()

    def look(self) -> None:
        """Note the message in hand if it is the one that was in hand long ago."""
        with self._lock:
            if self._slot is None:
                return
            in_hand, now_ms = self._in_hand(), self._boot_ms()
            self._note_costs(in_hand)
            if in_hand is None or in_hand != self._seen:
                self._seen, self._since_ms = in_hand, now_ms
                self._clear()
            elif now_ms - self._since_ms >= SLOW_MS and not self._is_noted:
                self._slot.note_slow(*in_hand, self._since_ms)
                self._is_noted = True

    def _clear(self) -> None:
        if self._is_noted and self._slot is not None:
            self._slot.clear_slow()
        self._is_noted = False

    def _note_costs(self, in_hand: InHand | None) -> None:
        """Note the costs.

        Between two messages the loop may wait for rows, which is no cost.
        """
        noted = () if in_hand is None else self._so_far()
        if noted and self._slot is not None:
            self._slot.note_so_far(noted)
            self._has_costs = True

    def _clear_costs(self) -> None:
        if self._has_costs and self._slot is not None:
            self._slot.clear_so_far()
        self._has_costs = False

    def _run(self) -> None:
        while True:
            time.sleep(self._look_s)
            self.look()
