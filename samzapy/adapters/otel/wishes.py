"""The traces that the environment asks for.

It asks by the usual variables of OpenTelemetry.
This module imports nothing of OpenTelemetry, so a process that traces nothing does not pay for it. The exporter and the
SDK read their other variables themselves: endpoints, headers, certificates, sampler, batches and limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

OTLP: Final = "otlp"
CONSOLE: Final = "console"
EXPORTERS: Final = (OTLP, CONSOLE)
PROTOCOL: Final = "http/protobuf"
_NONE: Final = "none"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def wanted_exporters(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The exporters that are asked for, known to samzapy or not; empty: no traces.

    As the specification says, an empty variable counts as unset. Unlike there, without `OTEL_TRACES_EXPORTER` traces
    are wanted only where an endpoint is named: a job should not look for a collector that no variable names.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ()
    named = [name.strip().lower() for name in environment.get("OTEL_TRACES_EXPORTER", "").split(",")]
    names = tuple(dict.fromkeys(name for name in named if name))
    if not names:
        return (OTLP,) if any(environment.get(name, "").strip() for name in _ENDPOINTS) else ()
    return () if _NONE in names else names


def trouble_of(names: tuple[str, ...], environment: Mapping[str, str]) -> str | None:
    """Why spans cannot go to these exporters; None if they can."""
    unknown = [name for name in names if name not in EXPORTERS]
    if unknown:
        return f"OTEL_TRACES_EXPORTER: wanted {', '.join((*EXPORTERS, _NONE))}, found {', '.join(unknown)}"
    protocol = next((name for name in _PROTOCOLS if environment.get(name, "").strip()), None)
    if OTLP in names and protocol is not None and environment[protocol].strip().lower() != PROTOCOL:
        return f"{protocol}: wanted {PROTOCOL}, found {environment[protocol].strip()}"
    return None
