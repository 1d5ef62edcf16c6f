"""Sizes of stores: added up by store, and read from outside."""

from __future__ import annotations

import json

import pytest

from samzapy.model.store_size import StoreSize, sizes_from_json, sizes_json, total_sizes


def a_size(entries: int) -> StoreSize:
    return StoreSize(bytes_used=4096 * entries, entries=entries)


def test_sizes_are_added_up_by_store_in_the_order_of_the_names() -> None:
    total = total_sizes([{"sums": a_size(1), "seen": a_size(0)}, {}, {"sums": a_size(2), "new": a_size(5)}])

    assert [("new", a_size(5)), ("seen", a_size(0)), ("sums", a_size(3))] == list(total.items())


def test_sizes_are_read_back_from_json_unchanged_although_a_newer_release_has_more_fields() -> None:
    sizes = {"seen": a_size(0), "sums": StoreSize(bytes_used=2**62, entries=1)}

    fields = json.loads(json.dumps(sizes_json(sizes)))

    assert {"bytes": 2**62, "entries": 1} == fields["sums"]
    assert sizes == sizes_from_json({store: {**size, "newer": 1} for store, size in fields.items()})


@pytest.mark.parametrize(
    "fields",
    [
        None,
        [],
        "sums",
        {"sums": 1},
        {"sums": {"bytes": 1}},
        {"sums": {"entries": 1}},
        {"sums": {"bytes": -1, "entries": 1}},
        {"sums": {"bytes": 1, "entries": True}},
        {"sums": {"bytes": 1, "entries": 2**63}},
        {"sums": {"bytes": "1", "entries": 1}},
        {"": {"bytes": 1, "entries": 1}},
        {"s" * 401: {"bytes": 1, "entries": 1}},
    ],
)
def test_sizes_that_cannot_be_are_refused(fields: object) -> None:
    with pytest.raises(ValueError, match="wanted"):
        sizes_from_json(fields)


def test_a_name_with_half_a_character_can_be_shown() -> None:
    assert ["sums?"] == [*sizes_from_json({"sums\ud800": {"bytes": 1, "entries": 1}})]
