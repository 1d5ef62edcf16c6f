"""The review schedule: which commands are due because time has passed.

Reviews ask `decide` to look at the whole state again: at its members, inputs, requests and launches. Each round of the
loop asks for most of them; some are due once a second.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from samzapy.config import JobConfig
from samzapy.coordinator.commands import (
    CollectRequests,
    Command,
    LaunchesLooked,
    ReviewInputs,
    ReviewLaunches,
    ReviewMembers,
    ReviewRequests,
    SubmitJob,
    Tick,
)
from samzapy.coordinator.ports import Clock
from samzapy.coordinator.state import CoordinatorState
from samzapy.plan.groupers import NO_GROUPERS

REVIEW_ROUND_MS = 1000
"""Time between two reviews of the inputs, and between two collections of old requests."""

STOP_GRACE_MS = 20_000
"""Time beyond the drain that a stopping container has: to read that it must stop, and to end Spark."""

REPORT_GRACE_MS = 1000
"""Time beyond the heartbeat interval that a container has to find a new leader and to report to it."""

ROOM_KNOWN_MS = 5_000
"""How long a cluster manager's count of free places is used; the count is read several times as often."""


def run_id(began_ms: int, coordinator_id: str) -> str:
    """`<ms>-<8 hex>`, as Samza's app.run.id.

    Ids of coordinators are random, so the ids of two runs of one moment differ.
    """
    return f"{began_ms}-{hashlib.sha256(coordinator_id.encode()).hexdigest()[:8]}"


def _seed(coordinator_id: str, number: int) -> str:
    """A text unique to this review: ids of coordinators are random."""
    return hashlib.sha256(f"{coordinator_id}/{number}".encode()).hexdigest()[:16]


class ReviewSchedule:
    """Turns the passing of time into commands.

    Args:
        coordinator_id: ids of runs and of new executions are derived from it.
    """

    def __init__(self, coordinator_id: str, clock: Clock) -> None:
        self._coordinator_id = coordinator_id
        self._clock = clock
        self._groupers = NO_GROUPERS
        self._run_over = ""
        self._collect_next_ms = 0
        self._review_inputs_next_ms = 0
        self._launch_reviews = 0
        # The hosts that the cluster manager named last, with their free places, and when that was.
        self._hosts: Mapping[str, int | None] = {}
        self._hosts_at_ms = 0
        # Whether the cluster manager names hosts in this term; None: it has not answered yet.
        self._names_hosts: bool | None = None

    def restart(self) -> None:
        """Begin a term: all reviews are due, and known hosts are forgotten."""
        self._collect_next_ms = self._review_inputs_next_ms = 0
        self._hosts, self._names_hosts = {}, None

    def note_submission(self, command: SubmitJob) -> None:
        """Use the groupers, and the run that is over, of the job as it was submitted last."""
        self._groupers, self._run_over = command.groupers, command.run_over

    def note_hosts(self, commands: Iterable[Command]) -> None:
        """Remember the hosts that the cluster manager named."""
        for command in commands:
            if isinstance(command, LaunchesLooked):
                self._hosts, self._hosts_at_ms = command.hosts, self._clock.monotonic_ms()
                # Workers that are all away for a moment had names, and have them when they come back.
                self._names_hosts = bool(command.hosts) or bool(self._names_hosts)

    def tick(self, config: JobConfig) -> Tick:
        """The time by which silent containers expire."""
        return Tick(
            now_ms=self._clock.monotonic_ms(),
            lost_ms=config.lost_ms,
            lease_ms=config.lease_ms,
            release_ms=config.release_timeout_ms,
        )

    def member_review(self, config: JobConfig) -> ReviewMembers:
        """A review of which processors take part, due in each round."""
        return ReviewMembers(
            groupers=self._groupers,
            now_ms=self._clock.monotonic_ms(),
            debounce_ms=config.debounce_ms,
            grace_ms=config.processor_grace_ms,
            run_id_next=run_id(self._clock.wall_ms(), self._coordinator_id),
            run_over=self._run_over,
        )

    def due_reviews(
        self, config: JobConfig, state: CoordinatorState, *, listened_ms: int, is_submission_pending: bool
    ) -> tuple[Command, ...]:
        """The reviews that are due now, in the order in which they are decided.

        Args:
            listened_ms: how long this term has answered heartbeats without a break.
            is_submission_pending: a changed configuration waits; nothing is started that may be wrong for it.
        """
        launches = self._launch_review(config, state, listened_ms)
        return (
            self.member_review(config),
            *(() if is_submission_pending else self._input_reviews(config)),
            *self._request_reviews(config, launches, listened_ms),
            *(() if launches is None or is_submission_pending else (launches,)),
        )

    def _input_reviews(self, config: JobConfig) -> tuple[ReviewInputs, ...]:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._review_inputs_next_ms:
            return ()
        self._review_inputs_next_ms = now_ms + REVIEW_ROUND_MS
        return (ReviewInputs(now_ms=now_ms, settle_ms=config.expansion_settle_ms, groupers=self._groupers),)

    def _request_reviews(
        self, config: JobConfig, launches: ReviewLaunches | None, listened_ms: int
    ) -> tuple[Command, ...]:
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
        review = ReviewRequests(
            now_ms=wall_ms,
            expiry_ms=config.placement_expiry_ms,
            groupers=self._groupers,
            launching=launches,
            tries_max=config.placement_tries_max,
            release_ms=config.release_timeout_ms,
            reports_by_ms=wall_ms - listened_ms + config.heartbeat_ms + REPORT_GRACE_MS,
        )
        if now_ms < self._collect_next_ms:
            return (review,)
        self._collect_next_ms = now_ms + REVIEW_ROUND_MS
        collect = CollectRequests(
            now_ms=wall_ms,
            retention_ms=config.placement_retention_ms,
            memory_max=config.placement_uuids_max,
        )
        return review, collect

    def _launch_review(self, config: JobConfig, state: CoordinatorState, listened_ms: int) -> ReviewLaunches | None:
        """A review of coordinator-managed containers; None if there are none."""
        if state.container_count is None and not state.launches:
            return None
        self._launch_reviews += 1
        now_ms = self._clock.wall_ms()
        hosts = self._hosts_now(config)
        return ReviewLaunches(
            now_ms=now_ms,
            seed=_seed(self._coordinator_id, self._launch_reviews),
            request_timeout_ms=config.container_request_timeout_ms,
            stop_timeout_ms=config.drain_ms + STOP_GRACE_MS,
            retry_count=config.container_retry_count,
            retry_window_ms=config.container_retry_window_ms,
            fails_job=config.fails_job_after_retries,
            has_affinity=config.has_host_affinity,
            hosts=hosts,
            names_hosts=bool(hosts) or self._names_hosts is not False,
            listening_since_ms=now_ms - listened_ms,
        )

    def _hosts_now(self, config: JobConfig) -> Mapping[str, int | None]:
        """The known hosts with their free places (see `ReviewLaunches`).

        A count of free places that is too old is dropped.
        """
        # Logical hosts are known before the cluster manager has answered.
        configured = [process.host for process in config.process_hosts] if config.cluster_manager == "process" else []
        is_old = self._clock.monotonic_ms() - self._hosts_at_ms > ROOM_KNOWN_MS
        return dict.fromkeys(configured) | (dict.fromkeys(self._hosts) if is_old else dict(self._hosts))
