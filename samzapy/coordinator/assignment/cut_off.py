"""Containers that send heartbeats while no broker answers them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from samzapy.coordinator.assignment.liveness import LIVING
from samzapy.model.finding import Finding

if TYPE_CHECKING:
    from samzapy.coordinator.state import CoordinatorState
    from samzapy.model.job import ExecutionId

KAFKA_SILENT_MS = 10_000
"""Shorter silences are not reported: an election of a partition's leader takes some seconds."""


def cut_off_findings(silent_ms: Mapping[ExecutionId, int], state: CoordinatorState) -> tuple[Finding, ...]:
    """Containers that send heartbeats and get no answer from any broker.

    They read and commit nothing.
    """
    return tuple(
        Finding(
            code="container-cut-off",
            subject=f"container {container.execution_id}",
            found=f"container {container.execution_id} (processor {container.processor_id} on {container.host}) sends "
            f"heartbeats, and no broker has answered it for {silent_ms[container.execution_id] // 1000} s: it reads "
            "and commits nothing",
            remedy=f"See that {container.host} reaches the brokers under the addresses that they advertise; the "
            "container goes on by itself. To run its tasks elsewhere, end it",
        )
        for container in state.containers_sorted
        if container.phase in LIVING and silent_ms.get(container.execution_id, 0) >= KAFKA_SILENT_MS
    )
