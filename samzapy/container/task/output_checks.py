"""Checks outputs before they reach the producer.

Topic, partition, size, time and key are checked. A record that the broker refuses ends a transaction, and the error
does not tell which message sent it. So each output is held against its topic's limits while its message is in hand.
"""

from __future__ import annotations

from collections.abc import Callable

from samzapy.config import FRAME_BYTES, JobConfig
from samzapy.container.task.outputs import Collector
from samzapy.container.task.ports import Producer
from samzapy.container.task.record_size import record_bytes, too_large
from samzapy.container.task.topic_limits import TopicLimits
from samzapy.errors import ConfigError, MissingTopicError, TaskError


class OutputChecks:
    """The topics that one task sends to, as the cluster describes them."""

    def __init__(self, config: JobConfig, collector: Collector, wall_ms: Callable[[], int]) -> None:
        """Share limits with `collector` and its successors."""
        self._config = config
        self.record_bytes_max, self._compacted = collector.record_bytes_max, collector.compacted
        self._wall_ms = wall_ms
        self._partition_counts: dict[str, int] = {}
        self._topic_limits: dict[str, TopicLimits | None] = {}

    def check(self, collector: Collector, producer: Producer) -> None:
        """Check that the topics of held outputs exist and take them.

        Raises:
            MissingTopicError: there is no such topic.
            ConfigError: a topic takes no batch as large as producers send.
            TaskError: a topic refuses an output.
        """
        counts = self._partition_counts
        for topic, key, value, partition, headers, timestamp_ms in collector.held:
            count = counts.get(topic)
            # Asked again before a partition is refused: topics grow.
            if count is None or (partition is not None and partition >= count):
                count = self._ask_topic(producer, topic)
            size, size_max = record_bytes(key, value, headers or ()), self.record_bytes_max[topic]
            if size > size_max:
                raise TaskError(too_large(f"an output to {topic}", size, size_max))
            if partition is not None and partition >= count:
                raise TaskError(f"an output to {topic}: wanted a partition below {count}, found {partition}")
            now_ms = self._wall_ms()
            if self._refusal(topic, key, timestamp_ms, now_ms):
                # Asked again before it is refused: the settings may have been changed since.
                self._ask_limits(producer, topic)
                refusal = self._refusal(topic, key, timestamp_ms, now_ms)
                if refusal:
                    raise TaskError(f"an output to {topic}: {refusal}")
        # A stream that only failed messages have sent to so far is still to be asked for.
        collector.must_be_checked = not collector.topics() <= counts.keys()

    def limits_of(self, producer: Producer, topic: str) -> TopicLimits | None:
        """The limits of a topic, asked for once; None when we may not know them.

        Raises ConfigError as `check` does.
        """
        if topic not in self._topic_limits:
            self._ask_limits(producer, topic)
        return self._topic_limits[topic]

    def _refusal(self, topic: str, key: bytes | None, timestamp_ms: int | None, now_ms: int) -> str:
        limits = self._topic_limits[topic]
        return "" if limits is None else limits.refusal(key, timestamp_ms, now_ms)

    def _ask_topic(self, producer: Producer, topic: str) -> int:
        """Ask for a topic's partition count and limits."""
        count = producer.partition_count(topic)
        if count is None:
            raise MissingTopicError(
                f"wanted the topic {topic} for its outputs, found no such topic; create it, or correct the name"
            )
        self._partition_counts[topic] = count
        self._ask_limits(producer, topic)
        return count

    def _ask_limits(self, producer: Producer, topic: str) -> None:
        config = self._config
        limits = producer.topic_limits(topic)
        if limits is None:
            self.record_bytes_max[topic] = config.record_bytes_max
            self._topic_limits[topic] = None
            return
        if limits.batch_bytes_max < config.batch_bytes:
            raise ConfigError(
                f"wanted the topic {topic} to take batches of {config.batch_bytes} bytes, found max.message.bytes "
                f"{limits.batch_bytes_max}; raise it, or set systems.{config.default_system}.client.batch.size to at "
                "most that"
            )
        self.record_bytes_max[topic] = min(config.record_bytes_max, max(0, limits.batch_bytes_max - FRAME_BYTES))
        self._topic_limits[topic] = limits
        if limits.wants_keys:
            self._compacted.add(topic)
        else:
            self._compacted.discard(topic)
