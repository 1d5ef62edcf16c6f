"""Reports on unheard ends on the checkpoint topic.

They are complete, and readers of every release skip them.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from samzapy.container.start_rules import read_positions
from samzapy.errors import TaskError
from samzapy.model.checkpoint import Checkpoint
from samzapy.model.container_end import ContainerEnd
from samzapy.stream.codec import decode, encode
from samzapy.stream.log import LogRecord
from samzapy.stream.records import CheckpointPut, ContainerPut
from samzapy.stream.release_0_1_0 import first_unread
from samzapy.stream.unheard_end import encode_unheard_end, unheard_end_of
from samzapy.testing.builders import a_container, an_ssp_kb

END = ContainerEnd.of_error(
    TaskError("task a failed at kafka.orders.0 offset 3, key None: ValueError: ✈ \ud800"),
    processor_id="0",
    execution_id="e1",
    host="host-a",
    at_ms=5,
)


def on_the_topic(key: bytes, value: bytes | None) -> LogRecord:
    return LogRecord(offset=1, timestamp_ms=0, key=key, value=value)


LEFT = on_the_topic(*encode_unheard_end(a_container("e1"), END))


def test_a_report_is_read_as_it_was_written() -> None:
    assert (LEFT.key, END.offset) == (b"container/e1", 3)
    assert unheard_end_of(decode(LEFT, topic="t")) == END


def test_a_report_names_the_processor_and_the_host_that_the_leader_knows() -> None:
    container = a_container("e1", processor_id="p", host="rack-1")

    read = unheard_end_of(decode(on_the_topic(*encode_unheard_end(container, END)), topic="t"))

    assert read == replace(END, processor_id="p", host="rack-1")


def test_no_position_is_taken_from_a_report() -> None:
    position = Checkpoint(ssp_kb=an_ssp_kb(), offset_next=1, epoch=1, task_name="t", execution_id="e")
    committed = on_the_topic(*encode(CheckpointPut(checkpoint=position)))

    read = read_positions([committed, LEFT, on_the_topic(b"container/e1", None)], topic="t")

    assert (read.checkpoints, read.progress, read.unreadable) == ({position.ssp_kb: position}, {}, {})


def test_release_0_1_0_reads_a_report_and_its_removal() -> None:
    assert first_unread([LEFT, on_the_topic(b"container/e1", None)]) is None


@pytest.mark.parametrize(
    "reason",
    ["", "drained", "[]", "{", json.dumps({"processorId": "0"}), json.dumps({**END.as_json(), "executionId": "e2"})],
)
def test_a_container_record_with_another_reason_is_no_report(reason: str) -> None:
    assert unheard_end_of(ContainerPut(container=a_container("e1", reason=reason))) is None


def test_a_position_is_no_report() -> None:
    position = Checkpoint(ssp_kb=an_ssp_kb(), offset_next=1, epoch=1, task_name="t", execution_id="e1")

    assert unheard_end_of(CheckpointPut(checkpoint=position)) is None
