from __future__ import annotations

import pytest

from samzapy.container.task.topic_limits import TopicLimits

DEFAULTS = {
    "max.message.bytes": "1048588",
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": "3600000",
}


def refused(settings: dict[str, str], key: bytes | None, timestamp_ms: int | None) -> str:
    return TopicLimits.of(DEFAULTS | settings).refusal(key, timestamp_ms, now_ms=10_000_000)


@pytest.mark.parametrize(
    ("settings", "timestamp_ms", "expected"),
    [
        ({}, 13_600_000, ""),
        ({}, 13_600_001, "wanted a timestamp_ms at most 3600000 ms ahead of the clock, found 13600001"),
        ({}, 0, ""),
        ({}, None, ""),
        ({}, -(2**63), ""),
        ({"message.timestamp.after.max.ms": str(2**63 - 1)}, 2**63 - 1, ""),
        ({"message.timestamp.before.max.ms": "5"}, -1, ""),
        ({"message.timestamp.before.max.ms": "5"}, -2, "wanted a timestamp_ms at most 5 ms behind the clock"),
        ({"message.timestamp.before.max.ms": "5"}, 9_999_994, "wanted a timestamp_ms at most 5 ms behind the clock"),
        ({"message.timestamp.type": "LogAppendTime"}, 20_000_000, ""),
    ],
)
def test_a_topic_takes_records_of_times_around_now(
    settings: dict[str, str], timestamp_ms: int | None, expected: str
) -> None:
    refusal = refused(settings, b"k", timestamp_ms)

    assert refusal.startswith(expected)
    assert bool(expected) == bool(refusal)


def test_an_older_broker_s_one_bound_is_for_both() -> None:
    limits = TopicLimits.of({"max.message.bytes": "1", "message.timestamp.difference.max.ms": "7"})

    assert (7, 7) == (limits.timestamp_behind_max_ms, limits.timestamp_ahead_max_ms)


def test_between_3_6_and_4_0_the_old_bound_counts_where_the_new_ones_are_not_set() -> None:
    unset = str(2**63 - 1)
    settings = {
        "max.message.bytes": "1",
        "message.timestamp.difference.max.ms": "7",
        "message.timestamp.before.max.ms": unset,
        "message.timestamp.after.max.ms": "9",
    }
    limits = TopicLimits.of(settings)

    assert (7, 9) == (limits.timestamp_behind_max_ms, limits.timestamp_ahead_max_ms)


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_takes_no_record_without_a_key(policy: str) -> None:
    assert "wanted a key" in refused({"cleanup.policy": policy}, None, None)
    assert not refused({"cleanup.policy": policy}, b"", None)
    assert not refused({}, None, None)
