"""Traces of a leader's decisions.

Each decision that writes records has a span, and so has the write.
Several decisions are appended in one transaction. So the span of the write is a child of the first decision's span, and
has links to the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from samzapy.coordinator.commands import Command
from samzapy.coordinator.decide import Decision
from samzapy.coordinator.state import CoordinatorState
from samzapy.model.tracing import Attributes, Span, Tracer
from samzapy.stream.kinds import KIND_OF_TYPE
from samzapy.stream.records import CoordinatorRecord, Removed, RequestPut

_DECIDE = "samzapy.coordinator.decide"
_APPEND = "samzapy.coordinator.append"


class DecisionTraces:
    """The traces of one append, and of the decisions in it.

    Args:
        topic: the coordinator stream.
    """

    def __init__(self, tracer: Tracer, job: str, topic: str) -> None:
        self._tracer = tracer
        self._job = job
        self._topic = topic
        self._spans: list[Span] = []
        self._record_count = 0

    def forget(self) -> None:
        """Drop the decisions that were noted.

        A later one of their batch was refused, so none is written.
        """
        self._spans, self._record_count = [], 0

    def decided(
        self, command: Command, decision: Decision, state: CoordinatorState, *, term: int, took_ns: int
    ) -> None:
        """Note a decision with records.

        Args:
            state: the one that it was made on.
        """
        if not self._tracer.is_on:
            return
        requests = [record for record in decision.records if isinstance(record, RequestPut)]
        ids = [request.uuid for request in requests]
        attributes = {
            "samzapy.job": self._job,
            "samzapy.trigger": _words(type(command).__name__),
            "samzapy.term": term,
            "samzapy.record.count": len(decision.records),
            "samzapy.record.kinds": _kinds(decision.records),
            **_plan_of(state),
            **({"samzapy.request.id": ids[0], "samzapy.request.action": requests[0].action} if len(ids) == 1 else {}),
        }
        span = self._tracer.begin(_DECIDE, attributes, age_ns=took_ns, requests=ids)
        for request in requests:
            span.note("samzapy.request", _request_of(request))
        self._spans.append(span)
        self._record_count += len(decision.records)

    @contextmanager
    def appending(self) -> Iterator[None]:
        """The write of the decisions that were noted; it ends their spans."""
        if not self._spans:
            yield
            return
        write = self._tracer.begin(
            _APPEND,
            {
                "samzapy.job": self._job,
                "messaging.system": "kafka",
                "messaging.operation.type": "send",
                "messaging.operation.name": "commit",
                "messaging.destination.name": self._topic,
                "messaging.batch.message_count": self._record_count,
            },
            inside=self._spans,
        )
        try:
            yield
        except BaseException as error:
            self._end((write, *self._spans), error)
            raise
        self._end((write, *self._spans))

    def _end(self, spans: Sequence[Span], error: BaseException | None = None) -> None:
        for span in spans:
            span.end(error)
        self.forget()


def _words(name: str) -> str:
    """`RequestsRead` as `requests-read`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def _kinds(records: Sequence[CoordinatorRecord]) -> Sequence[str]:
    """The kinds of the records, each once, in their order."""
    names = (
        record.key.partition("/")[0] if isinstance(record, Removed) else str(KIND_OF_TYPE[type(record)].namespace)
        for record in records
    )
    return tuple(dict.fromkeys(names))


def _plan_of(state: CoordinatorState) -> Attributes:
    """The run and the generation in force, as far as there are any."""
    run = {} if state.run is None else {"samzapy.run": state.run.run_id}
    return run if state.generation is None else {**run, "samzapy.generation": state.generation.generation}


def _request_of(request: RequestPut) -> Attributes:
    """The state of a request, without the text of its answer and its arguments."""
    return {
        "samzapy.request.id": request.uuid,
        "samzapy.request.action": request.action,
        "samzapy.request.status": str(request.status_code),
        "samzapy.request.phase": str(request.phase),
        "samzapy.processor": request.processor_id,
    }
