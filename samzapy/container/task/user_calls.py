"""Calls of user code in one task: of `process`, of timers and of `window`.

Each takes effect with its outputs and writes, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from samzapy.container.task.context import Handles
from samzapy.container.task.error_policy import OF_NO_MESSAGE, ErrorPolicy
from samzapy.container.task.message_scope import Place
from samzapy.container.task.output_checks import OutputChecks
from samzapy.container.task.stores import TaskState
from samzapy.container.task.transaction import Handled, LastMessage, Transaction, TransactionLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCall:
    """A call that no message causes: of a timer that fires, or of a window.

    Attributes:
        call: the user's method, with the collector as its argument.
        note: notes in the state that the call was done. It is kept also where the call fails and its policy goes on.
        key: in hand during the call; None without one.
        headers: of a dead letter, naming the call.
    """

    call: Callable[[Any], None]
    note: Callable[[], None]
    place: Place
    key: bytes | None
    headers: Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCalls:
    """The handles and state that user code gets, and the rules for what it does.

    Attributes:
        is_interrupted: whether a signal interrupted this process.
    """

    handles: Handles
    state: TaskState
    checks: OutputChecks
    policy: ErrorPolicy
    limits: TransactionLimits
    is_interrupted: Callable[[], bool]

    def roll_back(self, error: BaseException) -> None:
        """Undo a call that failed; the error policy follows.

        Errors that are not of one call are raised again.
        """
        if isinstance(error, OF_NO_MESSAGE) or self.is_interrupted():
            raise error
        self.handles.collector.held.clear()
        self.state.journal.roll_back(self.state.local)

    def make(self, timed: TimedCall, transaction: Transaction, handled: Handled) -> None:
        """Call the method, and send its outputs.

        Args:
            handled: the counts to which the outputs are added.

        Raises:
            MessageFailed: the method failed, and the error policy ends the batch.
        """
        now_s = self.limits.now_s
        begun_s = now_s()
        collector, _, _ = self.handles.renew()
        self.state.message_key, self.state.key_prefix = timed.key, None
        try:
            timed.note()
            timed.call(collector)
            if collector.must_be_checked:
                self.checks.check(collector, transaction.producer)
        except BaseException as error:  # User code may raise anything; the policy decides.
            self.roll_back(error)
            self.policy.apply_to_timed_call(timed.headers, timed.key, timed.place(), error, transaction.producer)
            timed.note()
            handled.dead_letters += 1
        finally:
            transaction.last = LastMessage(timed.place, now_s() - begun_s)
            self.handles.expire(timed.place)
        for output in collector.held:
            transaction.producer.produce(*output)
        handled.records_out += len(collector.held)
        collector.held.clear()
        self.end()

    def end(self) -> None:
        """Keep what was written since the last end, whatever fails from here on."""
        self.state.journal.clear()
