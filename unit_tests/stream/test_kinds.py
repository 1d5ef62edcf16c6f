"""The table of record kinds is whole, and its rows do not contradict each other."""

from __future__ import annotations

from collections import Counter
from importlib import resources
from typing import get_args

import pytest

from samzapy.coordinator.state import INITIAL, TABLES
from samzapy.stream.keys import key_of, parse_key
from samzapy.stream.kinds import KIND_OF_TYPE, KINDS, Namespace, RecordKind
from samzapy.stream.records import CheckpointPut, CheckpointRecord, CoordinatorRecord, ProgressPut, Record, Removed
from unit_tests.fixtures.record_examples import EXAMPLES

EXAMPLE_OF = {type(example): example for example in EXAMPLES}
of_each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.record_type.__name__)


def test_every_member_of_the_unions_has_one_row_and_a_tombstone_has_none() -> None:
    members = {*get_args(Record), *get_args(CoordinatorRecord), *get_args(CheckpointRecord)} - {Removed}

    assert Counter(kind.record_type for kind in KINDS) == Counter(members)


@pytest.mark.parametrize("column", ["namespace", "schema_name", "removal"])
def test_no_two_kinds_share_a_name_in_keys_a_schema_or_a_removal(column: str) -> None:
    assert max(Counter(getattr(kind, column) for kind in KINDS).values()) == 1


def test_every_namespace_has_a_kind() -> None:
    assert {kind.namespace for kind in KINDS} == set(Namespace)


def test_every_part_of_the_state_is_held_by_one_kind() -> None:
    parts = Counter(part for kind in KINDS for part in (kind.part, kind.offsets) if part)

    assert parts == Counter({name for name in vars(INITIAL) if name not in ("offset_next", "views")})
    assert {part for kind in KINDS if kind.is_table for part in (kind.part, kind.offsets) if part} == set(TABLES)
    assert [CheckpointPut, ProgressPut] == [kind.record_type for kind in KINDS if not kind.part]


@of_each_kind
def test_a_kind_has_its_schema_and_an_example(kind: RecordKind) -> None:
    schema = resources.files("samzapy").joinpath("schemas", f"{kind.schema_name}.avsc")

    assert schema.is_file()
    assert kind.record_type in EXAMPLE_OF


@of_each_kind
def test_a_key_is_parsed_to_the_fields_that_distinguish_records_of_a_kind(kind: RecordKind) -> None:
    example = EXAMPLE_OF[kind.record_type]

    parsed = parse_key(key_of(example))

    assert KIND_OF_TYPE[type(example)] is kind
    assert parsed.namespace is kind.namespace
    assert kind.identity(example) == kind.identity_of_parts(parsed.parts)


@of_each_kind
def test_a_record_is_made_again_from_the_state(kind: RecordKind) -> None:
    example = EXAMPLE_OF[kind.record_type]

    assert example == kind.record_of(kind.identity(example), kind.value(example))
