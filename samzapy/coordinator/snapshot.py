"""Snapshots: the state of a coordinator as one immutable value.

HTTP threads read the latest snapshot while the loop goes on; it is replaced whole.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from samzapy.coordinator.assignment.cut_off import cut_off_findings
from samzapy.coordinator.assignment.liveness import Liveness
from samzapy.coordinator.commands import RequestsRead
from samzapy.coordinator.launching.suspension import suspension_findings
from samzapy.coordinator.ports import Clock
from samzapy.coordinator.state import CoordinatorState
from samzapy.model.finding import Finding, refused_request, repeated_request, unreadable_request
from samzapy.model.topics import coordinator_topic, placement_topic
from samzapy.stream.examination import REMEDIES
from samzapy.stream.numbering import Foreign

_LOG = logging.getLogger(__name__)

UNREADABLE_SHOWN_MAX = 20
UNREADABLE_SHOWN_MS = 60 * 60 * 1000
"""How many messages that could not be read are shown, and for how long; the topic keeps all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """How long the last work of a kind took; None: this process has done none."""

    job_model_generation_ns: int | None = None
    checkpoint_compute_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of a coordinator at one moment.

    Attributes:
        state: of the log; the last one that was read, when this coordinator does not lead.
        verified_ms: monotonic time at which the last read of the log to its end began that showed no newer
            term; None: does not lead. The lease of an answer counts from it, because a coordinator that was
            stopped for a minute does not know which records it missed.
        trouble: the error of the last attempt at an action; empty when all is well.
        findings: about the job's topics, containers and requests, in this term.
        timings: for metrics.
        reasons: by uuid, the texts of this process's latest answers to requests.
    """

    job: str
    state: CoordinatorState
    liveness: Liveness
    verified_ms: int | None
    trouble: str
    findings: tuple[Finding, ...] = ()
    timings: Timings = Timings()
    reasons: Mapping[str, str] = field(default_factory=dict)

    def may_answer(self, now_ms: int, limit_ms: int) -> bool:
        """Whether this is the leader's answer, and fresh enough to be given."""
        return self.verified_ms is not None and now_ms - self.verified_ms <= limit_ms


class CurrentFindings:
    """The findings of this term.

    Each is logged when it appears and shown while it holds. `of_configuration` hold for as long as this process runs.
    """

    def __init__(self, job: str, clock: Clock, of_configuration: Sequence[Finding] = ()) -> None:
        self._of_configuration = tuple(of_configuration)
        self._stream_topic = coordinator_topic(job)
        self._placement_topic = placement_topic(job)
        self._clock = clock
        self._topics: tuple[Finding, ...] = ()
        # Messages and records that could not be used, with the time at which they were read.
        self._unusable: tuple[tuple[int, Finding], ...] = ()

    def clear(self) -> None:
        """Forget the findings of a term that is over."""
        self._topics = ()
        self._unusable = ()

    def shown(self, state: CoordinatorState, liveness: Liveness) -> tuple[Finding, ...]:
        """The current findings: of topics, containers and unusable messages."""
        now_ms = self._clock.monotonic_ms()
        silent_ms = {execution_id: sighting.kafka_silent_ms for execution_id, sighting in liveness.last.items()}
        unusable = [finding for at_ms, finding in self._unusable if now_ms - at_ms < UNREADABLE_SHOWN_MS]
        of_state = (*suspension_findings(state), *cut_off_findings(silent_ms, state))
        return (*self._of_configuration, *self._topics, *of_state, *unusable)

    def note_topics(self, findings: tuple[Finding, ...]) -> None:
        """Replace the findings about topics.

        Each is logged when it appears and when it is resolved.
        """
        before, self._topics = self._topics, findings
        for finding in findings:
            if finding not in before:
                _LOG.warning("%s", finding)
        for finding in before:
            if finding not in findings:
                _LOG.info("resolved: %s: %s", finding.code, finding.found)

    def note_unserved(self, command: RequestsRead, state: CoordinatorState) -> None:
        """List requests that are unreadable, refused, or copies of others.

        They come with their offsets. Requests that an earlier term has passed are skipped.

        Args:
            state: the one that the command is decided on.
        """
        topic = self._placement_topic
        unserved = {
            message.offset: unreadable_request(topic, message.offset, message.reason)
            for message in command.unreadable
        }
        seen = {*state.requests, *state.request_memory}
        for request in sorted(command.requests, key=lambda request: request.offset):
            if request.offset < state.inbox.offset_next:
                continue
            if request.message is None:
                noted = refused_request if request.is_refused else unreadable_request
                unserved[request.offset] = noted(topic, request.offset, request.reason)
            elif request.uuid in seen:
                unserved[request.offset] = repeated_request(topic, request.offset, request.uuid)
            seen.add(request.uuid)
        now_ms = self._clock.monotonic_ms()
        findings = [unserved[offset] for offset in sorted(unserved) if offset >= state.inbox.offset_next]
        known = {finding for _, finding in self._unusable}
        new = [(now_ms, finding) for finding in findings if finding not in known]
        if new:
            _LOG.warning("%s%s", new[0][1], f" (the first of {len(new)})" if len(new) > 1 else "")
        self._unusable = (*self._unusable, *new)[-UNREADABLE_SHOWN_MAX:]

    def note_foreign(self, foreign: Sequence[Foreign], count: int) -> None:
        """List the latest foreign records, of `count` that were read."""
        if not foreign:
            return
        now_ms = self._clock.monotonic_ms()
        findings = [
            Finding(
                code=record.code,
                subject=f"topic {self._stream_topic}",
                found=f"{record.text(self._stream_topic)}. It changes nothing",
                remedy=REMEDIES[record.code],
            )
            for record in foreign[-UNREADABLE_SHOWN_MAX:]
        ]
        _LOG.warning("%s%s", findings[-1], f" (the last of {count})" if count > 1 else "")
        self._unusable = (*self._unusable, *((now_ms, finding) for finding in findings))[-UNREADABLE_SHOWN_MAX:]
