"""The requests of operators in the status of a job.

Open requests are listed in the order of service. The latest of those that failed or were refused follow, the newest
first. Others are on the placement topic, and the page lists more of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import chain
from typing import TYPE_CHECKING, Final

from samzapy.coordinator.requests.turns import in_order
from samzapy.model.placement import UNFINISHED, UNSUCCESSFUL
from samzapy.stream.records import RequestMemoryPut, RequestPut

if TYPE_CHECKING:
    from samzapy.coordinator.state import CoordinatorState

Json = Mapping[str, object]
FAILED_MAX: Final = 10
LATELY_MS: Final = 3_600_000
"""For how long people are shown a request that failed."""


def requests_json(state: CoordinatorState, reasons: Mapping[str, str]) -> Sequence[Json]:
    """The requests, with null and empty texts for what is not known.

    Args:
        reasons: by uuid, the texts of answers that the log no longer has.
    """
    recorded = state.requests.values()
    both: Iterable[RequestPut | RequestMemoryPut] = chain(recorded, closed_requests(state))
    failed = nsmallest(
        FAILED_MAX,
        (request for request in both if request.status_code in UNSUCCESSFUL),
        key=lambda request: (-request.decided_at_ms, request.uuid),
    )
    opened = in_order(request for request in recorded if request.status_code in UNFINISHED)
    return [_request_json(request, reasons) for request in (*opened, *failed)]


def closed_requests(state: CoordinatorState) -> Iterator[RequestMemoryPut]:
    """The finished requests whose own record is removed, so that none is listed twice."""
    return (memory for uuid, memory in state.request_memory.items() if uuid not in state.requests)


def _request_json(request: RequestPut | RequestMemoryPut, reasons: Mapping[str, str]) -> Json:
    fields: dict[str, object] = {
        "uuid": request.uuid,
        "action": request.action,
        "processorId": request.processor_id,
        "destinationHost": "",
        "arguments": "",
        "statusCode": request.status_code.value,
        "phase": "",
        "responseMessage": reasons.get(request.uuid, ""),
        "acceptedAtMs": None,
        "decidedAtMs": request.decided_at_ms or None,
    }
    if isinstance(request, RequestPut):
        fields |= {
            "destinationHost": request.destination_host,
            "arguments": request.arguments,
            "phase": request.phase,
            "responseMessage": request.response_message,
            "acceptedAtMs": request.accepted_at_ms,
        }
    return fields
