"""Stop the job: `stop`.

Theory. To stop the job is one record, the run as finished. Everything else follows from it, so the request is answered
when it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from samzapy.coordinator.requests.handler import ImmediateHandler
from samzapy.coordinator.state import CoordinatorState
from samzapy.model.placement import StatusCode
from samzapy.stream.records import RequestPut, RunPut


def answer(request: RequestPut, together: Mapping[str, RequestPut], state: CoordinatorState) -> RequestPut:
    """See `ImmediateHandler`."""
    text = "the containers are told to stop; they drain, and the run ends with the last of them"
    return replace(request, status_code=StatusCode.SUCCEEDED, response_message=text)


def effects(state: CoordinatorState) -> Iterable[RunPut]:
    """The run as finished, unless it is. See `ImmediateHandler`."""
    if state.run is not None and not state.run.finished and not state.run.ended:
        yield replace(state.run, finished=True)


STOP = ImmediateHandler(answer=answer, effects=effects)
