from __future__ import annotations

from typing import Any

import pytest

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.cli.target import status
from samzapy.coordinator.state import CoordinatorState
from samzapy.model.failing import Failing
from samzapy.runtime.job_address import JobAddress
from samzapy.stream.records import JobIdentityPut


def degraded(monkeypatch: pytest.MonkeyPatch, **container: Any) -> Any:
    """What is listed as degraded of a job with this one container."""
    told = {"containers": [{"executionId": "container-0-8f", **container}], "tasks": [{"task": "a", "owner": "e"}]}
    state = CoordinatorState(job=JobIdentityPut(job_name="flights", job_id="1"))
    monkeypatch.setattr(status, "recorded_state", lambda address: state)
    monkeypatch.setattr(status, "leader_status", lambda job, url: told)
    return status.read_status(
        JobAddress(job="flights-1", connection=KafkaConnection(bootstrap_servers="localhost:1"))
    )["degraded"]


def test_a_query_that_fails_without_a_commit_is_degraded_with_its_retry_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing = Failing(attempts=4, for_ms=30_000, left_ms=570_000, reason="no memory")

    (line,) = degraded(monkeypatch, failing=failing.as_json())

    assert line == (
        "container-0-8f: its query has failed 4 times in 30 s without a commit, and is started again for 570 s more "
        "(task.query.retry.ms): no memory"
    )


@pytest.mark.parametrize("container", [{"failing": None}, {}], ids=["well", "an earlier release's leader"])
def test_a_container_whose_query_commits_is_not_degraded(
    monkeypatch: pytest.MonkeyPatch, container: dict[str, Any]
) -> None:
    assert [] == degraded(monkeypatch, **container)
