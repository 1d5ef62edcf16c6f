"""The OTEL_ variables ask for traces, and no trouble with them stops a job."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext

import pytest
from opentelemetry.context import Context, attach, detach, get_value, set_value
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from samzapy.adapters.otel.tracer import OtelTracer
from samzapy.adapters.otel.wishes import wanted_exporters
from samzapy.model.tracing import NO_TRACER
from samzapy.runtime import tracing
from samzapy.testing.builders import a_config

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    sdk = logging.getLogger("opentelemetry")
    before = sdk.level
    yield
    tracing.close()
    sdk.setLevel(before)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ()),
        ({ENDPOINT: "http://c:4318"}, ("otlp",)),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, ("otlp",)),
        ({ENDPOINT: " "}, ()),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, ("otlp",)),
        ({"OTEL_TRACES_EXPORTER": "console, OTLP"}, ("console", "otlp")),
        ({"OTEL_TRACES_EXPORTER": "none", ENDPOINT: "http://c:4318"}, ()),
        ({"OTEL_TRACES_EXPORTER": "", ENDPOINT: "http://c:4318"}, ("otlp",)),
        ({"OTEL_SDK_DISABLED": "TRUE", ENDPOINT: "http://c:4318"}, ()),
        ({"OTEL_SDK_DISABLED": "1", ENDPOINT: "http://c:4318"}, ("otlp",)),
    ],
)
def test_the_usual_variables_ask_for_traces(environment: Mapping[str, str], expected: tuple[str, ...]) -> None:
    assert expected == wanted_exporters(environment)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER: wanted otlp, console, none, found zipkin"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL: wanted http/protobuf, found grpc",
        ),
    ],
)
def test_an_unknown_exporter_is_logged_once_and_stops_no_job(
    environment: Mapping[str, str], expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (tracing.tracer_of(a_config(), environment) for _ in range(2))

    assert NO_TRACER is first and NO_TRACER is second
    (record,) = caplog.records
    assert f"no traces: {expected}; the job goes on" == record.getMessage()


def test_the_log_of_a_missing_extra_has_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, "samzapy.adapters.otel.tracer")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)

    assert NO_TRACER is tracing.tracer_of(a_config(), {ENDPOINT: "http://c:4318"})

    (record,) = caplog.records
    assert logging.WARNING == record.levelno and "pip install 'samzapy[otel]'" in record.getMessage()


def test_the_log_of_a_refused_value_has_its_class_and_no_value(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "-5")

    assert NO_TRACER is tracing.tracer_of(a_config(), {ENDPOINT: "http://user:pass@c:4318"})

    (record,) = caplog.records
    assert "refuses (ValueError)" in record.getMessage() and "pass" not in record.getMessage()


_IMPORTS = """
import json, sys
import samzapy.runtime.container_process, samzapy.runtime.worker_process
from samzapy.runtime import tracing
from samzapy.runtime.worker_daemon import preload
from samzapy.testing.builders import a_config
import os
preload()
tracer = tracing.tracer_of(a_config(), os.environ)
print(json.dumps([tracer.is_on, sorted(name for name in sys.modules if name.startswith("opentelemetry"))]))
"""


def test_a_process_without_the_variables_imports_nothing_of_opentelemetry() -> None:
    run = subprocess.run([sys.executable, "-c", _IMPORTS], capture_output=True, text=True, check=True, timeout=120)

    assert [False, []] == json.loads(run.stdout)


def test_names_of_the_environment_win_over_those_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    config = a_config()
    unnamed = resource_of(config)
    assert ("samzapy-flights-1", "e1") == (unnamed["service.name"], unnamed["service.instance.id"])
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=i7,team=a")

    named = resource_of(config)

    assert ("mine", "i7", "a", "flights-1") == tuple(
        named[name] for name in ("service.name", "service.instance.id", "team", "samzapy.job")
    )


class Begun(SpanProcessor):
    """The spans that began, each with what its context has of the job's own."""

    def __init__(self) -> None:
        self.spans: list[tuple[Span, object]] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.spans.append((span, get_value("of-the-job", parent_context)))


@pytest.mark.parametrize("sampler", [ALWAYS_ON, ALWAYS_OFF])
def test_a_span_of_the_job_s_own_neither_adopts_nor_silences_those_of_samzapy(sampler: Sampler) -> None:
    begun = Begun()
    tracer = OtelTracer([begun], "flights-1", {})
    own = TracerProvider(sampler=sampler, shutdown_on_exit=False).get_tracer("of-the-job")
    token = attach(set_value("of-the-job", 1))

    with own.start_as_current_span("of-the-job"):
        first = tracer.begin("samzapy.test")
        tracer.begin("samzapy.test", inside=[first])
    detach(token)

    (outer, context_of_outer), (inner, context_of_inner) = begun.spans
    assert outer.parent is None and inner.parent == first.span.get_span_context()
    assert context_of_outer is None and context_of_inner is None


def resource_of(config: object) -> Mapping[str, object]:
    tracing.close()
    tracer = tracing.tracer_of(config, {"OTEL_TRACES_EXPORTER": "console"}, execution_id="e1")  # type: ignore[arg-type]
    assert isinstance(tracer, OtelTracer)
    return tracer._provider.resource.attributes


def test_a_collector_that_is_away_delays_no_span_and_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as reserved:
        # Bound and not listening: a connection is refused.
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        monkeypatch.setenv(ENDPOINT, url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "64")
        monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "16")
        tracer = tracing.tracer_of(a_config(), os.environ)
        deadline_s = time.monotonic() + 60
        begun_s = time.thread_time()
        for _ in range(2000):
            tracer.begin("samzapy.test").end()
        assert time.thread_time() - begun_s < 2, "to end a span does not wait for the collector"
        while not caplog.records and time.monotonic() < deadline_s:
            tracer.begin("samzapy.test").end()
        begun_s = time.monotonic()
        tracing.close()
        took_s = time.monotonic() - begun_s

    assert took_s < tracing.FLUSH_S + 10
    (record,) = caplog.records
    assert "traces do not reach their collector" in record.getMessage() and url not in record.getMessage()


_WORKER = """
import os, signal, sys
from samzapy.model.tracing import NO_TRACER
from samzapy.runtime import tracing
from samzapy.testing.builders import a_config

tracing.hold_hangup(os.environ)
tracing.end_at_hangup()
tracing.tracer_of(a_config(), os.environ).begin("samzapy.test").end()
# As PySpark's daemon does before each task.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.kill(os.getpid(), signal.SIGHUP)
signal.pause()
"""


def test_a_worker_sends_its_last_spans_when_the_daemon_hangs_up() -> None:
    environment = {**os.environ, "OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_SCHEDULE_DELAY": "600000"}

    run = subprocess.run(
        [sys.executable, "-c", _WORKER], env=environment, capture_output=True, text=True, timeout=120
    )

    assert -signal.SIGKILL == run.returncode
    assert '"name": "samzapy.test"' in run.stderr


def test_a_collector_that_is_away_keeps_no_span_from_the_console() -> None:
    with socket.socket() as reserved:
        # Bound and not listening: a connection is refused.
        reserved.bind(("127.0.0.1", 0))
        environment = {
            **os.environ,
            "OTEL_TRACES_EXPORTER": "otlp,console",
            ENDPOINT: f"http://127.0.0.1:{reserved.getsockname()[1]}",
            "OTEL_BSP_SCHEDULE_DELAY": "600000",
        }
        run = subprocess.run(
            [sys.executable, "-c", _WORKER], env=environment, capture_output=True, text=True, timeout=120
        )

    assert -signal.SIGKILL == run.returncode
    assert '"name": "samzapy.test"' in run.stderr


@pytest.mark.parametrize("is_cut_off", [False, True])
def test_the_end_of_a_worker_loop_sends_its_last_spans(is_cut_off: bool) -> None:
    tracing.tracer_of(a_config(), {"OTEL_TRACES_EXPORTER": "console"})

    def worker() -> int:
        if is_cut_off:
            raise EOFError
        return 255

    with pytest.raises(EOFError) if is_cut_off else nullcontext():
        assert 255 == tracing.closing_at_end(worker)()

    assert tracing._open is None


def test_a_worker_loop_that_goes_on_keeps_its_tracer() -> None:
    tracer = tracing.tracer_of(a_config(), {"OTEL_TRACES_EXPORTER": "console"})

    assert 0 == tracing.closing_at_end(lambda: 0)()

    assert tracer is tracing.tracer_of(a_config(), {"OTEL_TRACES_EXPORTER": "console"})
