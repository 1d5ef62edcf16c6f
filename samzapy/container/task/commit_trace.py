"""Traces of commits: a span for each transaction of a worker slot.

Its events are the phases: `flushed`, `committed` by Kafka, and `stored` in the local stores. Phases are no spans of
their own, because a tail commits hundreds of times a second.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from samzapy.container.task.transaction import Handled
from samzapy.container.task.work_plan import WorkPlan
from samzapy.model.tracing import NO_SPAN, NO_TRACER, Attributes, Span, Tracer

COMMIT: Final = "samzapy.container.commit"
Committing = tuple[Mapping[int, Handled], float]
"""A task's part in a commit: its counts by route, and how long it produced, in seconds."""


class CommitTraces:
    """Begins the spans of commits.

    Args:
        attributes: those that all commits have.
    """

    def __init__(self, tracer: Tracer, attributes: Attributes) -> None:
        self.is_on = tracer.is_on
        self._tracer = tracer
        self._attributes = attributes

    @classmethod
    def of(cls, tracer: Tracer, plan: WorkPlan, *, is_tail: bool) -> CommitTraces:
        """The traces of a plan's commits, in micro-batches or in tails."""
        if not tracer.is_on:
            return NOT_TRACED
        return cls(
            tracer,
            {
                "samzapy.job": plan.config.job,
                "samzapy.processor": plan.processor_id,
                "samzapy.execution": plan.execution_id,
                "samzapy.generation": plan.generation,
                "samzapy.commit.of": "tail" if is_tail else "micro-batch",
                "messaging.system": "kafka",
                "messaging.operation.name": "commit",
            },
        )

    def begin(self, parts: Collection[Committing]) -> Span:
        """Begin the span of a commit, behind the last record that was produced."""
        if not self.is_on:
            return NO_SPAN
        counts = [handled for of_route, _ in parts for handled in of_route.values()]
        return self._tracer.begin(
            COMMIT,
            {
                **self._attributes,
                "samzapy.task.count": len(parts),
                "samzapy.offset.count": len(counts),
                "messaging.batch.message_count": sum(handled.records_in for handled in counts),
                "samzapy.records.out": sum(handled.records_out for handled in counts),
                "samzapy.dead.letters": sum(handled.dead_letters for handled in counts),
                "samzapy.produce.seconds": sum(produce_s for _, produce_s in parts),
            },
        )


NOT_TRACED: Final = CommitTraces(NO_TRACER, {})
