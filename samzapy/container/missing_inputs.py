"""Inputs without a topic: for a moment, or for good.

A broker that has just started may report for a moment that a topic does not exist. So may a broker that has not heard
of a new topic yet. So the container asks for a missing topic again for a while. An input of a pattern may be deleted
for good. Then the query leaves it out until the coordinator removes it, or until the topic exists again. Its positions
stay, and the container still holds its grants.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from samzapy.config import JobConfig
from samzapy.container.ownership import Ownership
from samzapy.container.ports import ContainerPorts, TopicBounds
from samzapy.container.start_rules import check_identity
from samzapy.errors import MissingTopicError, TemporaryError
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.model.text import some

_LOG = logging.getLogger(__name__)
_APPEARS_WITHIN_MS = 15_000
_MISSED_AGAIN_MS = 10_000


class MissingInputs:
    """Tracks the inputs that the query leaves out, and how long a topic is missing."""

    def __init__(self, config: JobConfig, ports: ContainerPorts, ownership: Ownership) -> None:
        self._config = config
        self._clock = ports.clock
        self._topics = ports.topics
        self._ownership = ownership
        # The inputs that the query leaves out, and those that it would leave out now.
        self._left_out: frozenset[SystemStream] = frozenset()
        self._missing_now: frozenset[SystemStream] = frozenset()
        self._since_ms: int | None = None
        self._last_ms = 0

    # --- a topic that may appear ---

    def tolerate(self, error: MissingTopicError) -> None:
        """Wait for a missing topic for a while; raise `error` when it stays away."""
        now_ms, last_ms = self._clock.monotonic_ms(), self._last_ms
        self._last_ms = now_ms
        if self._since_ms is None or now_ms - last_ms > _MISSED_AGAIN_MS:
            # The last error is long ago, so the topic existed in between: the time begins again.
            self._since_ms = now_ms
            _LOG.warning("waiting up to %d s for a missing topic: %s", _APPEARS_WITHIN_MS // 1000, error)
        elif now_ms - self._since_ms > _APPEARS_WITHIN_MS:
            raise error

    def all_answered(self) -> None:
        """Note that every requested topic exists."""
        self._since_ms = None

    # --- inputs that are left out ---

    @property
    def has_changed(self) -> bool:
        """True if an input disappeared or came back since the query started."""
        return self._missing_now != self._left_out

    def look(self) -> None:
        """Look up the inputs that are missing now. Raises as `missing`."""
        self._missing_now = self.missing()

    def missing(self) -> frozenset[SystemStream]:
        """The granted inputs of a pattern that were deleted, or created again.

        Inputs that are granted elsewhere are not checked: they may be deleted, or no longer read.

        Raises:
            TopicIdentityError: as `check_identity`.
        """
        granted = {start.ssp_kb.ssp.system_stream for grant in self._ownership.running for start in grant.starts}
        topic_ids = self._ownership.orders.input_topic_ids
        recorded = {stream: topic_id for stream, topic_id in topic_ids.items() if stream in granted}
        return check_identity(self._config, recorded, self._topics.input_topic_ids(sorted(recorded)))

    def leave_out(self) -> bool:
        """Leave the missing inputs out of the query that starts now.

        Returns:
            True if an input is missing that the last query read. That query failed for this reason, or would have.
        """
        missing = self.missing()
        is_more = bool(missing - self._left_out)
        self._missing_now = missing
        if missing != self._left_out:
            self._left_out = missing
            _LOG.warning("%s", self.text() if missing else "all inputs are there again")
        return is_more

    def without_left_out(self, starts: Mapping[SspKeyBucket, int]) -> Mapping[SspKeyBucket, int]:
        """The starts of the inputs that the query reads."""
        return {ssp_kb: offset for ssp_kb, offset in starts.items() if ssp_kb.ssp.system_stream not in self._left_out}

    def text(self) -> str:
        """A message for people that names the inputs that are left out."""
        names = some(sorted(map(str, self._left_out)))
        return f"{names} was deleted, or deleted and created again: the query leaves it out"

    def bounds(
        self, ssps: Sequence[SystemStreamPartition], wait_ms: int
    ) -> Mapping[SystemStreamPartition, TopicBounds]:
        """Ask for the bounds of inputs, as `Topics.input_bounds`.

        Raises:
            TemporaryError: an input that may be removed was just deleted.
        """
        try:
            return self._topics.input_bounds(ssps, wait_ms)
        except MissingTopicError as error:
            if self.missing() == self._left_out:
                raise
            raise TemporaryError(str(error)) from error
