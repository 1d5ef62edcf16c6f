"""A job sends traces of its decisions and commits by OTLP over HTTP."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from integration_tests.bad_input.kit import Cluster, Message, unique
from integration_tests.support.job_process import LONG_DRAIN, JobProcess
from samzapy.adapters.host.processes import ProcessIdentity
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
_COMMIT = "samzapy.container.commit"
_AWAY, _BACK = "traces do not reach their collector", "traces reach their collector again"
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
def a_collector(collector: Collector | None = None, port: int = 0) -> Iterator[tuple[Collector, str]]:
    """A collector that listens; one that was away comes back at its port."""
    collector = collector or Collector()

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

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield collector, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def a_job(cluster: Cluster, directory: Path) -> tuple[str, Path, Mapping[str, str]]:
    """A job that numbers the messages of a key: its name, its file, and its topics."""
    topics = {name: cluster.topic(name) for name in ("input", "output")}
    name, job_file = unique("traced"), directory / "job.py"
    job_file.write_text(_JOB.format(output=topics["output"]))
    job_file.with_suffix(".properties").write_text(
        _PROPERTIES.format(
            job=name, input=topics["input"], servers=cluster.bootstrap_servers, state=directory / "state"
        )
    )
    return name, job_file, topics


@pytest.mark.timeout(1800)
def test_decisions_and_commits_reach_a_collector_also_the_last_ones_of_a_job(
    broker: DevBroker | ContainerBroker, tmp_path: Path
) -> None:
    cluster = Cluster(broker.bootstrap_servers)
    name, job_file, topics = a_job(cluster, tmp_path)

    with a_collector() as (collector, url), JobProcess(
        job_file,
        log_dir=tmp_path / "log",
        overrides=LONG_DRAIN,
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
        assert 0 == job.terminate(), job.log_text()[-4000:]
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


@pytest.mark.timeout(1800)
def test_a_job_goes_on_without_its_collector_and_sends_spans_again_when_it_is_back(
    broker: DevBroker | ContainerBroker, tmp_path: Path
) -> None:
    cluster = Cluster(broker.bootstrap_servers)
    _, job_file, topics = a_job(cluster, tmp_path)
    numbers: list[bytes] = []
    # A worker that Spark has ended keeps its lines in the log.
    workers: set[ProcessIdentity] = set()

    def answer_of_next(job: JobProcess) -> None:
        cluster.publish(topics["input"], Message(value=_SECRET, key=b"hidden"))
        numbers.append(b"%d" % (len(numbers) + 1))
        job.wait_until(lambda: cluster.values(topics["output"]) == numbers or None, 300, f"answers {numbers}")
        workers.update(job.workers())

    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        collector, url = first.enter_context(a_collector())
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            # A batch is given up after so many seconds.
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        }
        job = stack.enter_context(
            JobProcess(job_file, log_dir=tmp_path / "log", overrides=LONG_DRAIN, environment=environment)
        )
        job.start()
        answer_of_next(job)
        job.wait_until(lambda: collector.spans(_COMMIT) or None, 120, "the span of a commit")

        first.close()
        for _ in range(_MORE):
            answer_of_next(job)
        job.wait_until(lambda: _AWAY in job.log_text() or None, 120, "the warning")
        # As many spans again, of which no process may log another word.
        for _ in range(_MORE):
            answer_of_next(job)
        # A slow answer of the collector before may have been one time-out more, and a return.
        log = job.log_text()
        assert log.count(_AWAY) - log.count(_BACK) <= 1 + len(workers), log[-4000:]
        assert "Traceback" not in job.log_text()

        known = len(collector.spans(_COMMIT))
        stack.enter_context(a_collector(collector, int(url.rpartition(":")[2])))
        job.wait_until(
            lambda: answer_of_next(job) or len(collector.spans(_COMMIT)) > known or None, 300, "spans again"
        )
        job.wait_until(lambda: _BACK in job.log_text() or None, 120, "the line about its return")
        assert 0 == job.terminate(), job.log_text()[-4000:]
        job.wait_gone()

    assert numbers == cluster.values(topics["output"])
