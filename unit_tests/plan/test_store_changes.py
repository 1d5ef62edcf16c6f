"""The fate of stores: new, unchanged, changed, dropped, or refused."""

from __future__ import annotations

import re

import pytest

from samzapy.config import JobConfig, parse_config
from samzapy.errors import ConfigError
from samzapy.model.topics import changelog_topic
from samzapy.plan.store_changes import StoreFate, refusals, store_changes

_JOB = {
    "job.name": "flights",
    "task.inputs": "kafka.orders",
    "systems.kafka.bootstrap.servers": "localhost:9092",
    "local.store.dir": "/data",
}
SEEN = {"stores.seen.msg.serde": "json"}
TTL = {**SEEN, "stores.seen.ttl.ms": "1000"}
WINDOW = {"stores._window.kind": "window", "stores._window.msg.serde": "long"}
TIMERS = {"stores._timers.kind": "timer", "stores._timers.key.serde": "bytes", "stores._timers.msg.serde": "bytes"}
TOPICS = [changelog_topic("flights-1", name) for name in ("seen", "_timers", "_window")]


def a_job(**settings: str) -> JobConfig:
    return parse_config({**_JOB, **settings})


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (SEEN, SEEN, ("seen", StoreFate.STAYS, "")),
        (
            SEEN,
            {"stores.seen.msg.serde": "string"},
            ("seen", StoreFate.CHANGES, "read as string, .* written as json"),
        ),
        (SEEN, {}, ("seen", StoreFate.REFUSED, r"wanted the store \(scope key\).*stores\.seen\.drop=true")),
        (
            SEEN,
            {"stores.seen.drop": "true"},
            ("seen", StoreFate.DROPPED, "topic until `samzapy state drop --store seen`"),
        ),
        (
            {**TTL, "stores.seen.ttl.clock": "event"},
            TTL,
            ("seen", StoreFate.CHANGES, "expire by the host's clock from"),
        ),
        (
            TTL,
            {**TTL, "stores.seen.ttl.clock": "event"},
            ("seen", StoreFate.CHANGES, "expire by event time from their"),
        ),
        (SEEN, {**TTL, "stores.seen.ttl.clock": "event"}, ("seen", StoreFate.STAYS, "")),
        (
            SEEN,
            {**SEEN, "stores.seen.scope": "task"},
            ("seen", StoreFate.REFUSED, "scope: wanted key, .* found task"),
        ),
        ({}, SEEN, ("seen", StoreFate.REFUSED, "wanted a store under a new name")),
        ({"stores.seen.drop": "true"}, SEEN, ("seen", StoreFate.REFUSED, "wanted a store under a new name")),
        (TIMERS, {}, ("_timers", StoreFate.REFUSED, r"would never fire\. .* stores\._timers\.drop=true")),
        (TIMERS, {"stores._timers.drop": "true"}, ("_timers", StoreFate.DROPPED, "")),
        ({}, TIMERS, ("_timers", StoreFate.REFUSED, "give the job a new job.id")),
    ],
)
def test_a_store_with_entries_changes_in_one_way(
    before: dict[str, str], after: dict[str, str], expected: tuple[str, StoreFate, str]
) -> None:
    (change,) = store_changes(a_job(**after), {**_JOB, **before}, TOPICS, has_run=True)

    name, fate, text = expected
    assert (name, fate) == (change.store, change.fate)
    assert re.search(text, change.text), change.text
    assert ([change.text] if fate is StoreFate.REFUSED else []) == refusals([change])


def test_a_store_without_entries_may_change_and_be_removed() -> None:
    config, other = a_job(**SEEN), {**_JOB, "stores.other.msg.serde": "json"}

    assert [StoreFate.NEW] == [change.fate for change in store_changes(config, other, TOPICS, has_run=False)]
    assert [StoreFate.NEW] == [change.fate for change in store_changes(config, other, [], has_run=True)]


def test_the_moment_of_the_last_window_passes_without_a_report() -> None:
    of_task = {**WINDOW, "stores._window.scope": "task"}
    for before, after in ((WINDOW, {}), ({}, WINDOW), (WINDOW, WINDOW), (of_task, WINDOW)):
        assert [] == store_changes(a_job(**after), {**_JOB, **before}, TOPICS, has_run=True)


def test_a_dropped_store_is_declared_nowhere_else() -> None:
    assert () == a_job(**{"stores.seen.drop": "true"}).stores
    assert () == a_job(**{"stores.seen.drop": "false"}).stores
    with pytest.raises(
        ConfigError, match=r"stores\.seen\.drop=true: wanted no other line of the store, .*msg\.serde"
    ):
        a_job(**SEEN, **{"stores.seen.drop": "true"})


@pytest.mark.parametrize(
    ("before", "fate"), [({"stores.seen.drop": "true"}, StoreFate.NEW), ({}, StoreFate.NEW), (SEEN, StoreFate.STAYS)]
)
def test_a_name_may_be_used_again_once_the_topic_of_the_dropped_store_is_gone(
    before: dict[str, str], fate: StoreFate
) -> None:
    gone = [changelog_topic("flights-1", "seen")]

    (change,) = store_changes(a_job(**SEEN), {**_JOB, **before}, TOPICS, has_run=True, gone=gone)

    assert fate == change.fate
