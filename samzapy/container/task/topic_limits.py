"""The records that a topic takes, by its settings.

A record that the broker refuses ends a transaction, and the error does not tell which message sent it. So outputs are
held against their topic's settings before the producer gets them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

NO_TIMESTAMP: Final = -1
_ANY: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLimits:
    """The limits that a topic's settings set for its records.

    Attributes:
        batch_bytes_max: the largest batch, compressed.
        wants_keys: it is compacted, and takes no record without a key.
        timestamp_behind_max_ms: how far a record's time may lie behind the broker's clock.
        timestamp_ahead_max_ms: how far it may lie ahead.
    """

    batch_bytes_max: int
    wants_keys: bool = False
    timestamp_behind_max_ms: int = _ANY
    timestamp_ahead_max_ms: int = _ANY

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Self:
        """The limits out of a topic's settings, Kafka's defaults among them.

        KIP-937: before Kafka 3.6 one bound was for both directions, and until 4.0 it counts where theirs is not set.
        """
        either = settings.get("message.timestamp.difference.max.ms", str(_ANY))

        def bound(name: str) -> int:
            own = int(settings.get(name, _ANY))
            return int(either) if own == _ANY else own

        uses_broker_time = settings.get("message.timestamp.type") == "LogAppendTime"
        return cls(
            batch_bytes_max=int(settings["max.message.bytes"]),
            wants_keys="compact" in settings.get("cleanup.policy", ""),
            timestamp_behind_max_ms=_ANY if uses_broker_time else bound("message.timestamp.before.max.ms"),
            timestamp_ahead_max_ms=_ANY if uses_broker_time else bound("message.timestamp.after.max.ms"),
        )

    def refusal(self, key: bytes | None, timestamp_ms: int | None, now_ms: int) -> str:
        """Why the topic takes no such record, apart from its size; empty when it does.

        Args:
            timestamp_ms: None means now; -1 is no time (Kafka's NO_TIMESTAMP), which is taken everywhere.
        """
        if key is None and self.wants_keys:
            return (
                "wanted a key, because the topic is compacted, found none; pass key=..., or change its cleanup.policy"
            )
        if timestamp_ms is None or timestamp_ms == NO_TIMESTAMP:
            return ""
        if self.timestamp_ahead_max_ms != _ANY and timestamp_ms - now_ms > self.timestamp_ahead_max_ms:
            return (
                f"wanted a timestamp_ms at most {self.timestamp_ahead_max_ms} ms ahead of the clock, found "
                f"{timestamp_ms}, which is {timestamp_ms - now_ms} ms ahead; raise message.timestamp.after.max.ms of "
                "the topic, or put the time into the value or a header"
            )
        if self.timestamp_behind_max_ms != _ANY and now_ms - timestamp_ms > self.timestamp_behind_max_ms:
            return (
                f"wanted a timestamp_ms at most {self.timestamp_behind_max_ms} ms behind the clock, found "
                f"{timestamp_ms}, which is {now_ms - timestamp_ms} ms behind; raise message.timestamp.before.max.ms of "
                "the topic, or put the time into the value or a header"
            )
        return ""
