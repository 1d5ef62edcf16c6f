"""Inputs whose topics are gone: the query leaves them out, and they stay granted.

The coordinator decides when such an input leaves the plan. Until then its positions stay as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from samzapy.config import JobConfig
from samzapy.container.orders import Orders
from samzapy.container.ports import TopicBounds, Topics
from samzapy.container.start import check_identity
from samzapy.errors import MissingTopicError, TemporaryError
from samzapy.model.grant import Grant
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.model.text import some

_LOG = logging.getLogger(__name__)


class MissingInputs:
    """The inputs that the present query leaves out, and those that a new one would."""

    def __init__(self, config: JobConfig, topics: Topics) -> None:
        self._config = config
        self._topics = topics
        self._left_out: frozenset[SystemStream] = frozenset()
        self._now: frozenset[SystemStream] = frozenset()

    @property
    def has_changed(self) -> bool:
        """Whether a new query would read other inputs than the present one."""
        return self._now != self._left_out

    @property
    def text(self) -> str:
        """The inputs that the query leaves out, for people."""
        return f"{some(sorted(map(str, self._left_out)))} was deleted, or made again: it is not read"

    def look(self, orders: Orders, running: Sequence[Grant]) -> frozenset[SystemStream]:
        """The granted inputs that are missing, or are other topics than the coordinator recorded, and that may be.

        Raises:
            TemporaryError, DataError: as `check_identity`.
        """
        granted = {start.ssp_kb.ssp.system_stream for grant in running for start in grant.starts}
        recorded = {stream: topic_id for stream, topic_id in orders.input_topic_ids.items() if stream in granted}
        return check_identity(self._config, recorded, self._topics.input_topic_ids(sorted(recorded)))

    def note(self, orders: Orders, running: Sequence[Grant]) -> None:
        """Look again while the query runs. Raises as `look`."""
        self._now = self.look(orders, running)

    def leave_out(self, missing: frozenset[SystemStream]) -> bool:
        """Leave these out of the next query; returns whether there is one that was read before."""
        is_new = bool(missing - self._left_out)
        self._now = missing
        if missing != self._left_out:
            self._left_out = missing
            _LOG.warning("%s", self.text if missing else "all inputs are read again")
        return is_new

    def without(self, starts: Mapping[SspKeyBucket, int]) -> Mapping[SspKeyBucket, int]:
        """The starts of the inputs that are read."""
        return {ssp_kb: offset for ssp_kb, offset in starts.items() if ssp_kb.ssp.system_stream not in self._left_out}

    def bounds(
        self, ssps: Sequence[SystemStreamPartition], wait_ms: int, orders: Orders, running: Sequence[Grant]
    ) -> Mapping[SystemStreamPartition, TopicBounds]:
        """The bounds of partitions that are read.

        Raises:
            MissingTopicError: a topic is missing that may not be.
            TemporaryError: as the port, and for a topic that may be missing and went since the last look.
        """
        try:
            return self._topics.input_bounds(ssps, wait_ms)
        except MissingTopicError as error:
            if self.look(orders, running) == self._left_out:
                raise
            raise TemporaryError(str(error)) from error
