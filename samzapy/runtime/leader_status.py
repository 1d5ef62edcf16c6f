"""The status that a job's leader reports over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samzapy.adapters.web.access import Access
    from samzapy.coordinator.state import CoordinatorState


_LEADER_WAIT_MS = 2000


def leader_status(job: str, url: str | None, access: Access) -> Mapping[str, object] | None:
    """The status from the leader at `url`; None without a leader or a timely answer."""
    if url is None:
        return None
    # A job without a leader is shown without HTTP.
    from samzapy.adapters.web.client import HttpCoordinatorClient

    return HttpCoordinatorClient(access).status(url, job, _LEADER_WAIT_MS)


def reported_containers(job: str, state: CoordinatorState, access: Access) -> Mapping[str, Mapping[str, object]]:
    """The containers that the leader knows, by execution; empty without an answer."""
    status = leader_status(job, None if state.term is None else state.term.url, access)
    rows = None if status is None else status.get("containers")
    if not isinstance(rows, list):
        return {}
    return {str(row.get("executionId")): row for row in rows if isinstance(row, dict)}
