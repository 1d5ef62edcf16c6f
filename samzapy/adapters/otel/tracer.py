"""Spans by the SDK of OpenTelemetry, sent in batches by a thread.

The only module that imports OpenTelemetry; it comes with the extra `otel`. A job's own use of OpenTelemetry is left
alone: the provider here is no global one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter, SpanExportResult
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace import Span as SdkSpan

from samzapy.adapters.otel.wishes import CONSOLE
from samzapy.model.tracing import NO_ATTRIBUTES, Attributes, Span
from samzapy.version import __version__

DELAY_MS: Final = 1000
"""The time between two batches, where `OTEL_BSP_SCHEDULE_DELAY` names no other. The SDK's 5 s would leave more spans
to a worker that is killed."""

_log = logging.getLogger(__name__)


class OtelSpan:
    """A span of the SDK."""

    __slots__ = ("span",)

    def __init__(self, span: SdkSpan) -> None:
        self.span = span

    def note(self, event: str, attributes: Attributes = NO_ATTRIBUTES) -> None:
        self.span.add_event(event, attributes)

    def put(self, attributes: Attributes) -> None:
        self.span.set_attributes(attributes)

    def end(self, error: BaseException | None = None) -> None:
        if error is not None:
            self.span.set_attribute("error.type", type(error).__name__)
            self.span.set_status(Status(StatusCode.ERROR))
        self.span.end()


class OtelTracer:
    """The spans of one process.

    Args:
        job: its name; the traces of its requests are derived from it.
        resource: attributes of this process; those of the environment win.
    """

    def __init__(self, processors: Sequence[SpanProcessor], job: str, resource: Mapping[str, str]) -> None:
        self.is_on = True
        self._job = job
        self._processors = tuple(processors)
        # Without its exit handler, which would wait for a collector that is away.
        self._provider = TracerProvider(resource=_resource(resource), shutdown_on_exit=False)
        for processor in processors:
            self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("samzapy", __version__)

    def begin(
        self,
        name: str,
        attributes: Attributes = NO_ATTRIBUTES,
        *,
        age_ns: int = 0,
        inside: Sequence[Span] = (),
        requests: Sequence[str] = (),
    ) -> OtelSpan:
        around = [span.span.get_span_context() for span in inside if isinstance(span, OtelSpan)]
        around += [self._request(request) for request in requests]
        # A part of several things is the child of the first. Requests are equals: their traces are only linked.
        parent = around[0] if around and (inside or len(around) == 1) else None
        # Without a context the SDK takes the current one, which may have a span of the job's own.
        own = Context()
        return OtelSpan(
            self._tracer.start_span(
                name,
                own if parent is None else set_span_in_context(NonRecordingSpan(parent), own),
                attributes=attributes,
                links=[Link(context) for context in around if context is not parent],
                start_time=time.time_ns() - age_ns,
            )
        )

    def _request(self, request: str) -> SpanContext:
        """The place of a request in its trace.

        It is the same for each leader of the job, without a record of it.
        """
        digest = hashlib.sha256(f"{self._job}\n{request}".encode()).digest()
        return SpanContext(
            int.from_bytes(digest[:16]), int.from_bytes(digest[16:24]), is_remote=True, trace_flags=TraceFlags(1)
        )

    def close(self, timeout_s: float) -> None:
        """Send the spans that wait, and end.

        Spans that end later are dropped. Waits for `timeout_s` at most.
        """
        # The SDK ends its exporters in turn. Its own limits are longer, and not kept by each of them.
        threads = [
            threading.Thread(target=processor.shutdown, name="samzapy-traces-end", daemon=True)
            for processor in self._processors
        ]
        deadline_s = time.monotonic() + timeout_s
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))


def open_tracer(exporters: Sequence[str], job: str, resource: Mapping[str, str]) -> OtelTracer:
    """A tracer that sends spans to `exporters`, as the environment says.

    Raises:
        ValueError: a variable of OpenTelemetry has a value that the SDK refuses.
    """
    sdk = logging.getLogger("opentelemetry")
    if sdk.level == logging.NOTSET:
        # It would log each failed try; `_Watched` logs one line in place of them. A level that is set stays.
        sdk.setLevel(logging.CRITICAL)
    delay_ms = None if os.environ.get("OTEL_BSP_SCHEDULE_DELAY") else DELAY_MS
    processors = [
        BatchSpanProcessor(_Watched(_exporter(name), name), schedule_delay_millis=delay_ms) for name in exporters
    ]
    return OtelTracer(processors, job, resource)


def _exporter(name: str) -> SpanExporter:
    # A job's own output may be on stdout.
    return ConsoleSpanExporter(out=sys.stderr) if name == CONSOLE else OTLPSpanExporter()


def _resource(wanted: Mapping[str, str]) -> Resource:
    # Only the environment wins. The SDK makes up a name and, since 1.45, a random instance of its own.
    of_operator = OTELResourceDetector().detect().attributes
    ours = {key: value for key, value in wanted.items() if not of_operator.get(key)}
    return Resource.create().merge(Resource(ours))


class _Watched(SpanExporter):
    """An exporter whose trouble is logged once, and once more when it is over."""

    def __init__(self, exporter: SpanExporter, name: str) -> None:
        self._exporter = exporter
        self._name = name
        self._is_failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception as error:
            # In the thread of the batches: nothing here may end it. The text may name an endpoint with a password.
            _log.debug("exporting spans: %s", type(error).__name__)
            result = SpanExportResult.FAILURE
        has_failed = result is not SpanExportResult.SUCCESS
        if has_failed and not self._is_failing:
            _log.warning(
                "traces do not reach their collector (OTEL_TRACES_EXPORTER=%s) and are dropped; the job goes on",
                self._name,
            )
        elif self._is_failing and not has_failed:
            # As loud as the line that it ends: a Python worker writes nothing that is less than a warning.
            _log.warning("traces reach their collector again")
        self._is_failing = has_failed
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)
