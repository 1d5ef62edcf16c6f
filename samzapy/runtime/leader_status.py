"""The status that a job's leader reports over HTTP."""

from __future__ import annotations

from collections.abc import Mapping

from samzapy.adapters.web.client import HttpCoordinatorClient
from samzapy.coordinator.state import CoordinatorState

_LEADER_WAIT_MS = 2000


def leader_status(job: str, url: str | None) -> Mapping[str, object] | None:
    """What the leader at `url` tells of the job; None where nobody leads, or does not answer soon."""
    return None if url is None else HttpCoordinatorClient().status(url, job, _LEADER_WAIT_MS)


def containers_told(job: str, state: CoordinatorState) -> Mapping[str, Mapping[str, object]]:
    """What the leader tells of containers it has heard of, by execution; nothing where no leader answers."""
    told = leader_status(job, None if state.term is None else state.term.url)
    rows = None if told is None else told.get("containers")
    if not isinstance(rows, list):
        return {}
    return {str(row.get("executionId")): row for row in rows if isinstance(row, dict)}
