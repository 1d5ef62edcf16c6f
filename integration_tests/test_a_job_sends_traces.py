"""A job sends traces of its decisions and commits by OTLP over HTTP."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from integration_tests.bad_input.kit import Cluster, Message, unique
from integration_tests.support.job_process import JobProcess
from samzapy.testing.broker import DevBroker
from samzapy.testing.container_broker import ContainerBroker

_JOB = """
import samzapy


@samzapy.task
def count(envelope, collector, context):
    store = context.store("counts")
    seen = (store.get() or 0) + 1
    store.put(seen)
    collector.send("{output}", seen, key=envelope.key)


if __name__ == "__main__":
    samzapy.run()
"""
_PROPERTIES = """
job.name={job}
task.inputs=kafka.{input}
systems.kafka.bootstrap.servers={servers}
systems.kafka.samza.offset.default=oldest
systems.kafka.samza.key.serde=string
systems.kafka.samza.msg.serde=json
stores.counts.msg.serde=json
local.store.dir={state}
"""
_FIRST, _MORE = 3, 5
_SECRET = b'"a secret of the message"'


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanSeen:
    """A span as it arrived, with the attributes of its process."""

    span: Span
    resource: Mapping[str, object]

    @property
    def attributes(self) -> Mapping[str, object]:
        return read(self.span.attributes)


class Collector:
    """The bodies that were posted to a collector of traces."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def spans(self, name: str) -> list[SpanSeen]:
        return [
            SpanSeen(span=span, resource=read(of_process.resource.attributes))
            for body in self.bodies
            for of_process in ExportTraceServiceRequest.FromString(body).resource_spans
            for of_scope in of_process.scope_spans
            for span in of_scope.spans
            if span.name == name
        ]


def read(attributes: Iterator[KeyValue] | object) -> Mapping[str, object]:
    """Attributes by name; a list as a tuple."""
    values: dict[str, object] = {}
    for item in attributes:  # type: ignore[attr-defined]
        kind = item.value.WhichOneof("value")
        value = getattr(item.value, kind)
        values[item.key] = tuple(entry.string_value for entry in value.values) if kind == "array_value" else value
    return values


@contextmanager
def a_collector() -> Iterator[tuple[Collector, str]]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert ("/v1/traces", "application/x-protobuf") == (self.path, self.headers["Content-Type"])
            collector.bodies.append(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield collector, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.timeout(900)
def test_decisions_and_commits_reach_a_collector_also_the_last_ones_of_a_job(
    broker: DevBroker | ContainerBroker, tmp_path: Path
) -> None:
    cluster = Cluster(broker.bootstrap_servers)
    topics = {name: cluster.topic(name) for name in ("input", "output")}
    name, job_file = unique("traced"), tmp_path / "job.py"
    job_file.write_text(_JOB.format(output=topics["output"]))
    job_file.with_suffix(".properties").write_text(
        _PROPERTIES.format(
            job=name, input=topics["input"], servers=broker.bootstrap_servers, state=tmp_path / "state"
        )
    )

    with a_collector() as (collector, url), JobProcess(
        job_file,
        log_dir=tmp_path / "log",
        overrides={},
        environment={
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
            # Nothing is sent before the end of the job.
            "OTEL_BSP_SCHEDULE_DELAY": "600000",
        },
    ) as job:  # fmt: skip
        cluster.publish(topics["input"], *(Message(value=_SECRET, key=b"hidden") for _ in range(_FIRST)))
        job.start()
        job.wait_until(lambda: len(cluster.read(topics["output"])) == _FIRST or None, 300, "the first messages")
        for count in range(_FIRST + 1, _FIRST + _MORE + 1):
            cluster.publish(topics["input"], Message(value=_SECRET, key=b"hidden"))
            job.wait_until(lambda count=count: len(cluster.read(topics["output"])) == count or None, 120, "an answer")
        assert 0 == job.terminate(120), job.log_text()[-4000:]
        job.wait_gone()

    decisions = collector.spans("samzapy.coordinator.decide")
    appends = collector.spans("samzapy.coordinator.append")
    commits = collector.spans("samzapy.container.commit")
    assert {f"samzapy-{name}-1"} == {seen.resource["service.name"] for seen in (*decisions, *appends, *commits)}
    assert {"test"} == {seen.resource["deployment.environment.name"] for seen in (*decisions, *commits)}
    triggers = {str(seen.attributes["samzapy.trigger"]) for seen in decisions}
    assert {"start-term", "submit-job", "heartbeat", "starts-resolved"} <= triggers
    parents = {seen.span.span_id for seen in decisions}
    assert appends and {seen.span.parent_span_id for seen in appends} <= parents
    assert _FIRST + _MORE == sum(int(str(seen.attributes["messaging.batch.message_count"])) for seen in commits)
    assert {"micro-batch", "tail"} == {str(seen.attributes["samzapy.commit.of"]) for seen in commits}
    assert {f"{name}-1"} == {str(seen.attributes["samzapy.job"]) for seen in (*decisions, *commits)}
    assert {("flushed", "committed", "stored")} == {
        tuple(event.name for event in seen.span.events) for seen in commits
    }
    assert not [body for body in collector.bodies if b"a secret" in body or b"hidden" in body]
