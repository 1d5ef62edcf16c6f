"""Decides when a process leads: while it is elected and not fenced.

Two things say which process leads, and they may disagree for a while. The election is a hint: it makes candidates
become leader one after the other and not all at once. The transactional id of the coordinator stream is the lock: a
record that is committed under it is decided, whatever any process believes. So losing the seat ends a term at once,
being fenced ends it too, and nothing else does. The leader ignores candidates that come and go.

A leader that a newer one has fenced drops its state and rejoins the election behind the others (law L5): its seat, if
it still has one, is a hint that has proven wrong. A leader that merely failed (no broker answered, a transaction ended
in doubt) keeps the seat and becomes leader again: another process would hardly do better, and would have to read the
whole stream. But a candidate that fails several times in a row lets others try: the cause may be in this process alone.
A missing topic is such a failure too. A process does not start without its topics (`runtime.submission`), so the topic
was there once, and a broker that was just restarted may not know it yet.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from samzapy.coordinator.commands import SubmitJob
from samzapy.coordinator.ports import Election
from samzapy.coordinator.service import CoordinatorService
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import DeadlineError, FencedError, MissingTopicError, ProducerError, TemporaryError

_LOG = logging.getLogger(__name__)
TERM_ENDS = (TemporaryError, DeadlineError, ProducerError, MissingTopicError)
"""Errors that end a term, and neither the process nor its candidacy."""
FAILURES_MAX = 3
"""Failures in a row after which a candidate lets others try."""


class Candidate:
    """One process that may lead; driven by one thread.

    Args:
        submission: returns the job to submit at the beginning of a term, given the state then. It is called each time,
            because the inputs may have grown since the process was started. It accepts problems that a leader only
            reports: the job may be running (docs/guides/doctor.md).
    """

    def __init__(
        self, service: CoordinatorService, election: Election, submission: Callable[[CoordinatorState], SubmitJob]
    ) -> None:
        self._service = service
        self._election = election
        self._submission = submission
        self._failures = 0
        self._is_submitted = False

    def run_once(self, timeout_ms: int) -> None:
        """Wait for the seat, become leader, or do one round of the loop.

        Each waits at most `timeout_ms`.

        Raises:
            Exception: one of `TERM_ENDS`: the term is over; call again after a little while.
            ConfigError, DataError: the job cannot be led as it is.
        """
        service = self._service
        if not self._election.wait(0 if service.is_leader else timeout_ms):
            if service.is_leader:
                _LOG.warning("lost the election: the term ends, and this process is a candidate again")
                service.step_down()
            return
        try:
            if not service.is_leader:
                service.become_leader()
                self._submit()
            service.run_once(timeout_ms)
            self._failures = 0
        except FencedError as error:
            _LOG.warning("stepped down; rejoined the election behind the others: %s", error)
            self._rejoin_election()
        except TERM_ENDS:
            self._failures += 1
            if self._failures >= FAILURES_MAX:
                _LOG.warning(
                    "failed to lead %d times in a row; rejoined the election behind the others", self._failures
                )
                self._rejoin_election()
            else:
                service.step_down()
            raise
        except BaseException:
            service.step_down()
            raise

    def _submit(self) -> None:
        submission = self._submission(self._service.status().state)
        if self._is_submitted:
            # The plan that the operator looked at before this process was started has been applied.
            submission = replace(submission, expected_generation=None)
        self._service.submit(submission)
        self._is_submitted = True

    def _rejoin_election(self) -> None:
        self._failures = 0
        self._service.step_down()
        self._election.rejoin()
