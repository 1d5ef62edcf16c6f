"""The report on an end that no leader heard, on the checkpoint topic.

It has the key and the form of a container's record, as release 0.1.0 wrote it, and the report as JSON in place of the
reason. Every release reads such a record there, and takes no position from it. A kind of its own would stop 0.1.0,
which refuses the whole topic because of one key that it does not know (docs/internals/adr/0030).
"""

from __future__ import annotations

import json
from dataclasses import replace

from samzapy.model.container import Container, ContainerPhase
from samzapy.model.container_end import ContainerEnd
from samzapy.model.strict_json import parse_json_text
from samzapy.stream.records import ContainerPut, Record
from samzapy.stream.release_0_1_0 import encoded


def encode_unheard_end(container: Container, end: ContainerEnd) -> tuple[bytes, bytes]:
    """The key and the value of the record.

    The processor and the host are those of `container`, which the leader knows.
    """
    report = replace(end, processor_id=container.processor_id, host=container.host)
    reason = json.dumps(report.as_json())
    return encoded(ContainerPut(container=replace(container, phase=ContainerPhase.STOPPED, reason=reason)))


def unheard_end_of(record: Record) -> ContainerEnd | None:
    """The report in a record of the checkpoint topic; None if it has none."""
    if not isinstance(record, ContainerPut):
        return None
    try:
        values = parse_json_text(record.container.reason)
        end = ContainerEnd.from_json(values) if isinstance(values, dict) else None
    except ValueError:
        return None
    # Its key names the execution.
    return end if end is not None and end.execution_id == record.container.execution_id else None
