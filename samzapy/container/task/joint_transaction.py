"""Kafka's transaction of a worker slot, over one task or several.

A micro-batch has a transaction per task. A tail has one for all tasks with records in a bunch, because most of its cost
is the same however many tasks it is of. `task.transaction.max.ms` counts from its begin, whichever task that was for.

Theory. The tasks' work is a generator: it handles rows, yields its part when that is to be committed, and goes on after
the commit. All parts are produced before Kafka's commit, and all local stores are committed after it. A process that
dies in between leaves some local stores behind Kafka, and the next start has each of them catch up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from samzapy.container.task.commit_trace import NOT_TRACED, CommitTraces
from samzapy.container.task.ports import CrashPoints, Producer, SlotGuard
from samzapy.container.task.transaction import Handled
from samzapy.container.task.work_plan import Report, any_failed
from samzapy.errors import FencedError, ProducerError
from samzapy.model.tracing import Span

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Part:
    """One task's part, ready for Kafka's commit.

    Attributes:
        commit: commits the local store; called after Kafka's commit.
        is_last: whether all rows of the task are handled, and the commit may wait for other tasks.
        handled: the counts by route.
        produce_s: how long the task produced its changelog entries and checkpoints.
    """

    commit: Callable[[], None]
    is_last: bool
    handled: Mapping[int, Handled]
    produce_s: float


Work = Generator[Part, float, Sequence[Report]]
"""The work of a task on its rows.

It yields each part, is sent its share of the commit's duration in seconds, and returns its reports.
"""


class AbortedError(Exception):
    """Another task of the transaction failed, so this task's part is aborted, too."""


class JointTransaction:
    """The transactions of a slot, one after the other.

    Attributes:
        begun_at_s: when the open transaction began, or the last one.
    """

    def __init__(
        self,
        slot: SlotGuard,
        crash_points: CrashPoints,
        now_s: Callable[[], float],
        must_end: Callable[[], bool] = lambda: False,
        traces: CommitTraces = NOT_TRACED,
    ) -> None:
        """Begin nothing yet.

        Args:
            must_end: whether the works are to stop soon, with what they have handled committed.
        """
        self.slot = slot
        self.must_end = must_end
        self.begun_at_s = 0.0
        self._crash_points = crash_points
        self._now_s = now_s
        self._traces = traces
        # None while no transaction is open.
        self._producer: Producer | None = None
        # The works that wait for the commit.
        self._waiting: list[tuple[Work, Part]] = []
        self._reports: list[Report] = []

    def begin(self) -> Producer:
        """The producer, with an open transaction.

        Raises:
            LostContainerError: the lease has run out.
        """
        if self._producer is None:
            self.slot.check_lease()
            producer = self.slot.producer()
            self.slot.mark_open()
            self._crash_points.hit("before-begin")
            producer.begin()
            self._producer, self.begun_at_s = producer, self._now_s()
        return self._producer

    def run(self, works: Iterable[Work]) -> Sequence[Report]:
        """Do the works of several tasks, and commit.

        If a task fails, the open transaction is aborted, and the works after it are left out.

        Raises:
            LostContainerError, SamzapyError: as `TaskRunner.run`.
        """
        try:
            for work in works:
                if not self._advance(work):
                    return self._abort()
            if self._waiting:
                self._commit()
        except BaseException as error:
            self._end_all(error)
            raise
        return self._reports

    def _advance(self, work: Work) -> bool:
        """Do one work up to its last part. Returns False if its task failed."""
        try:
            part = next(work)
            while True:
                self._waiting.append((work, part))
                if part.is_last:
                    return True
                share_s = self._commit(unfinished=work)
                part = work.send(share_s)
        except StopIteration as ended:
            reports: Sequence[Report] = ended.value
            self._reports.extend(reports)
            return not any_failed(reports)

    def _commit(self, unfinished: Work | None = None) -> float:
        """Commit by Kafka, then the local stores, and then mark the slot clean.

        Args:
            unfinished: a work that goes on; all others that wait come to their ends.

        Returns:
            The share of each work in the duration, in seconds.
        """
        assert self._producer is not None
        begun_s = self._now_s()
        span = self._traces.begin([(part.handled, part.produce_s) for _, part in self._waiting])
        try:
            self._commit_all(self._producer, span)
        except BaseException as error:
            span.end(error)
            raise
        span.end()
        waiting, self._waiting, self._producer = self._waiting, [], None
        share_s = (self._now_s() - begun_s) / len(waiting)
        for work, _ in waiting:
            if work is not unfinished:
                self._reports.extend(_reports_at_the_end(work, share_s))
        return share_s

    def _commit_all(self, producer: Producer, span: Span) -> None:
        self._crash_points.hit("after-produce")
        producer.flush()
        span.note("flushed")
        self.slot.check_lease()
        self._crash_points.hit("before-commit")
        producer.commit()
        span.note("committed")
        self._crash_points.hit("after-kafka-commit")
        for _, part in self._waiting:
            part.commit()
        span.note("stored")
        self._crash_points.hit("after-local-commit")
        self.slot.mark_clean()

    def _abort(self) -> Sequence[Report]:
        """Abort after a message failed.

        Its error counts, also when the broker had ended the transaction before.
        """
        self._end_all(AbortedError())
        if self._producer is not None:
            try:
                self._producer.abort()
                self.slot.mark_clean()
            except (FencedError, ProducerError) as error:
                _LOG.warning("cannot abort a transaction; the broker or the next start ends it: %s", error)
        return self._reports

    def _end_all(self, error: BaseException) -> None:
        """Let the works that wait abort their local transactions.

        Raises:
            SlowMessageError: a message of one of them is the cause of `error`.
        """
        waiting, self._waiting = self._waiting, []
        cause: BaseException | None = None
        for work, _ in waiting:
            try:
                work.throw(error)
            except StopIteration as ended:
                self._reports.extend(ended.value)
            except BaseException as of_work:
                cause = cause or (None if of_work is error else of_work)
        if cause is not None:
            raise cause


def _reports_at_the_end(work: Work, share_s: float) -> Sequence[Report]:
    try:
        work.send(share_s)
    except StopIteration as ended:
        reports: Sequence[Report] = ended.value
        return reports
    raise AssertionError("a work ends after its last part")
