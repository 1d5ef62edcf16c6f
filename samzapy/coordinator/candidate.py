"""When a process leads: it stands for election, and holds office while it is elected and nobody fences it.

Theory. Two things say who leads, and they may disagree for a while. The election is a hint: it makes the candidates
take office one after the other and not all at once. The transactional id of the coordinator stream is the lock: what
is committed under it is decided, whatever anybody believes. So losing the seat ends a term at once, being fenced ends
it too, and nothing else does; other candidates that come and go in the meantime are none of the leader's business.

Whoever was fenced by a newer leader drops everything and stands again behind the others (law L5): its seat, if it
still has one, is a hint that has proven wrong. Whoever merely failed (no broker answered, a transaction ended in
doubt) keeps the seat and takes office again: another would hardly fare better, and would have to read everything
anew. But who fails to take office again and again lets others try: what ails may be this process's alone.
A topic that is not there is such a failure too: a process that starts is refused without one (`runtime.submission`),
so a candidate found it once, and a broker that was just restarted may not know it yet.
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
"""What ends a term, and neither the process nor its candidacy."""
FAILURES_MAX = 3
"""So often in a row a candidate fails to take office before it lets others try."""


class Candidate:
    """One process that would lead, for `service`; driven by one thread.

    Args:
        submission: the job as it is to be handed in at the beginning of a term, by what its stream says then. Asked
            each time, because the inputs may have grown since the process was started. It refuses nothing that a leader
            would only show: the job may be running (docs/guides/doctor.md).
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
        """Wait for the seat, take office, or do one round in office; each waits at most `timeout_ms` for news.

        Raises:
            Exception: one of `TERM_ENDS`: the term is over; call again after a little while.
            ConfigError, DataError: the job cannot be led as it is.
        """
        service = self._service
        if not self._election.wait(0 if service.is_leader else timeout_ms):
            if service.is_leader:
                _LOG.warning("lost the seat in the election: the term ends, and this process is a candidate again")
                service.step_down()
            return
        try:
            if not service.is_leader:
                service.become_leader()
                self._submit()
            service.run_once(timeout_ms)
            self._failures = 0
        except FencedError as error:
            _LOG.warning("left office and stands again behind the others: %s", error)
            self._stand_behind_the_others()
        except TERM_ENDS:
            self._failures += 1
            if self._failures >= FAILURES_MAX:
                _LOG.warning("could not hold office %d times in a row: others may try", self._failures)
                self._stand_behind_the_others()
            else:
                service.step_down()
            raise
        except BaseException:
            service.step_down()
            raise

    def _submit(self) -> None:
        submission = self._submission(self._service.status().state)
        if self._is_submitted:
            # What was looked at before this process was started has been applied.
            submission = replace(submission, expected_generation=None)
        self._service.submit(submission)
        self._is_submitted = True

    def _stand_behind_the_others(self) -> None:
        self._failures = 0
        self._service.step_down()
        self._election.rejoin()
