"""The reasons of a container to restart its query, as the chaos runs count them."""

from __future__ import annotations

from dataclasses import replace

from integration_tests.support.grant_changes import grant_changes, transactions
from samzapy.model.container import ContainerPhase
from samzapy.model.job import ProcessorId
from samzapy.stream.records import ContainerPut, GenerationPut, GrantPut, PlannedTaskPut, Record
from samzapy.testing.builders import a_container, a_grant

P0, P1 = ProcessorId("0"), ProcessorId("1")


def is_there(execution_id: str, processor_id: str) -> list[Record]:
    return [ContainerPut(container=a_container(execution_id, processor_id=processor_id))]


def granted(*tasks: str, to: str, epoch: int) -> list[Record]:
    return [GrantPut(grant=a_grant(task, epoch=epoch, execution_id=to)) for task in tasks]


def planned(generation: int, **tasks: str) -> list[Record]:
    """The processor of each task."""
    of = a_grant("a").starts
    records: list[Record] = [
        PlannedTaskPut(
            generation=generation,
            task_name=a_grant(task).task_name,
            partition_id=0,
            mode="active",
            processor_id=ProcessorId(processor),
            changelog_partition=0,
            ssp_kbs=tuple(start.ssp_kb for start in of),
        )
        for task, processor in tasks.items()
    ]
    return [
        *records,
        GenerationPut(generation=generation, factor=1, task_count=len(tasks), scheme="max", processor_ids=(P0, P1)),
    ]


BEGUN = [
    planned(1, a="0", b="0", c="1"),
    is_there("e0", "0"),
    is_there("e1", "1"),
    granted("a", "b", to="e0", epoch=1),
    granted("c", to="e1", epoch=2),
]


def test_the_first_grants_are_a_start_and_no_reason_to_start_again() -> None:
    assert {} == grant_changes(BEGUN).reasons


def test_many_grants_of_one_transaction_are_one_reason() -> None:
    more = [planned(2, a="0", b="0", c="1", d="0", e="0"), granted("d", "e", to="e0", epoch=3)]

    assert {P0: 1} == grant_changes([*BEGUN, *more]).reasons


def test_a_plan_that_takes_away_is_one_reason_and_the_release_is_none() -> None:
    released = [
        GrantPut(grant=replace(a_grant(task, epoch=1, execution_id="e0"), released=True)) for task in ("a", "b")
    ]
    moved = [planned(2, c="1", a="1", b="1"), [released[0]], [released[1]]]

    assert {P0: 1} == grant_changes([*BEGUN, *moved]).reasons


def test_a_container_that_keeps_its_tasks_has_no_reason_whatever_happens_to_others() -> None:
    changes = grant_changes(
        [
            *BEGUN,
            [ContainerPut(container=a_container("e1", processor_id="1", phase=ContainerPhase.LOST))],
            is_there("e2", "1"),
            granted("c", to="e2", epoch=3),
        ]
    )

    assert {P0: 0, P1: 1} == {P0: changes.reasons.get(P0, 0), P1: changes.reasons[P1]}
    # When c was granted first, and again.
    assert 2 == changes.kept_by_others


def test_a_transaction_ends_where_its_marker_takes_an_offset() -> None:
    records = [record for records in BEGUN for record in records]

    ends = transactions(zip((0, 1, 2, 3, 5, 7, 9, 10, 12), records, strict=True))

    assert BEGUN == ends
