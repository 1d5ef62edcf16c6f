"""Change the number of key buckets or containers, by the arguments: `scale`."""

from __future__ import annotations

from samzapy.coordinator.requests.handler import RequestHandler
from samzapy.coordinator.requests.scale_containers import RESIZING, refused_resize
from samzapy.coordinator.requests.scale_factor import SCALING, scale_wanted
from samzapy.model.placement import scale_of
from samzapy.stream.records import RequestPut


def _handler(request: RequestPut) -> RequestHandler:
    return SCALING if scale_wanted(request).containers is None else RESIZING


SCALE = RequestHandler(
    begin=lambda request, review: _handler(request).begin(request, review),
    advance=lambda request, review: _handler(request).advance(request, review),
    completion=lambda request, review: _handler(request).completion(request, review),
    timeout_reason=lambda request, review: _handler(request).timeout_reason(request, review),
    progress=lambda request, review: _handler(request).progress(request, review),
    refusal=lambda message, state: refused_resize(scale_of(message.arguments), state),
)
