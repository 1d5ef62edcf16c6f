"""The requests of operators, each with its history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from samzapy.inspection.page.look import Look
from samzapy.inspection.page.timeline import Event
from samzapy.inspection.request_list import LATELY_MS, closed_requests
from samzapy.model.placement import UNSUCCESSFUL

FINISHED_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """A request.

    Attributes:
        subject: the processor, or empty for the whole job.
        phase: empty for finished requests.
        message: empty for finished requests that an earlier leader answered. Their answers are on the placement topic.
        accepted_at_ms: wall clock; None: it is not kept for finished requests.
        history: the events of this request that this leader has seen, the oldest first.
    """

    uuid: str
    action: str
    subject: str
    destination: str
    arguments: str
    status: str
    phase: str
    message: str
    accepted_at_ms: int | None
    decided_at_ms: int | None
    history: Sequence[Event]


def request_rows(look: Look) -> Sequence[RequestRow]:
    """The open requests in the order of their arrival, then finished ones.

    The latest of the finished ones comes first.
    """
    state = look.snapshot.state
    history: dict[str, list[Event]] = {}
    for event in look.events:
        if event.subject:
            history.setdefault(event.subject, []).append(event)
    rows = [
        RequestRow(
            uuid=request.uuid,
            action=request.action,
            subject=request.processor_id,
            destination=request.destination_host,
            arguments=request.arguments,
            status=request.status_code.value,
            phase=request.phase,
            message=request.response_message,
            accepted_at_ms=request.accepted_at_ms,
            decided_at_ms=request.decided_at_ms or None,
            history=history.get(request.uuid, ()),
        )
        for request in sorted(state.requests.values(), key=lambda item: (item.accepted_at_ms, item.uuid))
    ]
    finished = sorted(closed_requests(state), key=lambda item: (-item.decided_at_ms, item.uuid))
    return rows + [
        RequestRow(
            uuid=memory.uuid,
            action=memory.action,
            subject=memory.processor_id,
            destination="",
            arguments="",
            status=memory.status_code.value,
            phase="",
            message=look.snapshot.reasons.get(memory.uuid, ""),
            accepted_at_ms=None,
            decided_at_ms=memory.decided_at_ms,
            history=history.get(memory.uuid, ()),
        )
        for memory in finished[:FINISHED_MAX]
    ]


def failed_lately(look: Look) -> Sequence[RequestRow]:
    """The requests that failed or were refused within `LATELY_MS`, the latest first."""
    since_ms = look.wall_ms - LATELY_MS
    failed = [
        row for row in request_rows(look) if row.status in UNSUCCESSFUL and (row.decided_at_ms or 0) >= since_ms
    ]
    return sorted(failed, key=lambda row: row.decided_at_ms or 0, reverse=True)
