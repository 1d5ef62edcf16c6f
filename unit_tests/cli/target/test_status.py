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
    """The degraded parts of a job with this one container."""
    status_answer = {
        "containers": [{"executionId": "container-0-8f", **container}],
        "tasks": [{"task": "a", "owner": "e"}],
    }
    state = CoordinatorState(job=JobIdentityPut(job_name="flights", job_id="1"))
    monkeypatch.setattr(status, "recorded_state", lambda address: state)
    monkeypatch.setattr(status, "leader_status", lambda job, url, access: status_answer)
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


def test_a_stalled_task_is_degraded_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    still = {"cause": "query-failing", "forMs": 42_000, "detail": "the query of container e1 has failed 4 times"}
    rows = [{"task": f"t{number}", "owner": "e1", "standstill": still} for number in range(12)]
    rows.append({"task": "t12", "owner": "e1", "standstill": None})

    lines = degraded_tasks(monkeypatch, rows)

    assert lines[0] == "t0 stands still for 42 s: query-failing: the query of container e1 has failed 4 times"
    assert lines[10:] == ["2 more tasks stand still (-o json)"]


def degraded_tasks(monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]]) -> Any:
    """The problems that are listed of a job with these tasks."""
    state = CoordinatorState(job=JobIdentityPut(job_name="flights", job_id="1"))
    monkeypatch.setattr(status, "recorded_state", lambda address: state)
    monkeypatch.setattr(status, "leader_status", lambda job, url, access: {"containers": [], "tasks": rows})
    connection = KafkaConnection(bootstrap_servers="localhost:1")
    return status.read_status(JobAddress(job="flights-1", connection=connection))["degraded"]


def test_a_notice_is_no_reason_to_call_a_job_degraded(monkeypatch: pytest.MonkeyPatch) -> None:
    notice = {"code": "coordinator-insecure", "severity": "notice", "found": "no TLS", "remedy": "set it"}
    finding = {"code": "topic-min-isr", "severity": "data", "found": "found 1", "remedy": "set 2"}
    status_answer = {"containers": [], "tasks": [{"task": "a", "owner": "e"}], "findings": [notice, finding]}
    state = CoordinatorState(job=JobIdentityPut(job_name="flights", job_id="1"))
    monkeypatch.setattr(status, "recorded_state", lambda address: state)
    monkeypatch.setattr(status, "leader_status", lambda job, url, access: status_answer)
    connection = KafkaConnection(bootstrap_servers="localhost:1")

    shown = status.read_status(JobAddress(job="flights-1", connection=connection))

    assert ["topic-min-isr: found 1. set 2"] == shown["degraded"]
    assert [notice, finding] == shown["findings"]
