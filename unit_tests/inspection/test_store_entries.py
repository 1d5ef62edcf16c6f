from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.config import StoreConfig
from samzapy.errors import CorruptRecordError
from samzapy.inspection.store_entries import EntrySerdes, StoreEntry, fold, in_order
from samzapy.model.serde import SerdeError, ordered_of
from samzapy.stream.changelog import changelog_key, copy_mark_key, split_task_entry_key, task_entry_key
from samzapy.stream.log import LogRecord
from samzapy.testing.builders import a_config

KEYED = a_config(local_store_dir="/data", stores_sums_msg_serde="json").stores[0]
OF_TASKS = a_config(local_store_dir="/data", stores_sums_msg_serde="long", stores_sums_scope="task").stores[0]


def a_record(offset: int, key: bytes, value: bytes | None) -> LogRecord:
    return LogRecord(offset=offset, timestamp_ms=1000 + offset, key=key, value=value)


def folded(store: StoreConfig, *records: LogRecord) -> list[StoreEntry]:
    return list(in_order(fold(records, store, 3, topic="changelog").values()))


def test_the_last_record_of_a_key_counts_and_a_tombstone_removes_it() -> None:
    a, b, named = changelog_key(b"a", b""), changelog_key(b"b", b""), changelog_key(b"a", b"x")

    entries = folded(
        KEYED, a_record(0, a, b"1"), a_record(1, b, b"2"), a_record(2, named, b"3"), a_record(3, a, b"4"),
        a_record(4, b, None),
    )  # fmt: skip

    assert [(b"a", b"", b"4", 3, 3), (b"a", b"x", b"3", 3, 2)] == [
        (entry.owner, entry.name, entry.value, entry.partition, entry.offset) for entry in entries
    ]


def test_a_tombstone_of_a_key_that_was_never_there_removes_nothing() -> None:
    assert [] == folded(KEYED, a_record(0, changelog_key(b"a", b""), None))


def test_entries_of_maps_are_shown_with_their_sub_keys_and_without_flags() -> None:
    store = a_config(
        local_store_dir="/data",
        stores_sums_msg_serde="long",
        stores_sums_kind="map",
        stores_sums_key_serde="string,uuid,long",
    ).stores[0]
    names = ordered_of("string,uuid,long")
    key = changelog_key(b"a", names.encode(("x", UUID(int=1), -5)) or b"")

    entries = folded(store, a_record(0, key, b"\x00" + struct.pack(">q", 7)), a_record(1, key + b"z", b"\x09"))

    shown = [
        EntrySerdes(keys=("string",), name=store.key_serde, value="long", is_ordered=True).as_json(entry)
        for entry in entries
    ]
    assert ["a", ["x", str(UUID(int=1)), -5], 7] == [shown[0][name] for name in ("key", "name", "value")]
    assert {"nameBase64", "valueBase64"} <= shown[1].keys()


def test_entries_of_tasks_are_shown_by_task_and_marks_are_left_out() -> None:
    one = task_entry_key("Partition_0", b"n")

    entries = folded(
        OF_TASKS, a_record(0, one, struct.pack(">q", 7)), a_record(1, copy_mark_key("Partition_0"), b"3")
    )

    assert [("Partition_0", "n", 7)] == [
        (row["key"], row["name"], row["value"])
        for row in map(EntrySerdes.of(OF_TASKS, a_config()).as_json, entries)
    ]  # fmt: skip


@given(st.text(st.characters(codec="utf-8")), st.binary())
def test_the_key_of_a_task_s_entry_is_split_again(task: str, name: bytes) -> None:
    assert (task, name) == split_task_entry_key(task_entry_key(task, name))
    assert split_task_entry_key(copy_mark_key(task)) is None


@pytest.mark.parametrize("key", [b"", b"\x05ab", changelog_key(b"t", b"\x07")])
def test_a_key_that_no_task_wrote_is_named_with_its_offset(key: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="changelog-3, offset 9: wanted"):
        folded(OF_TASKS, a_record(9, key, b"1"))


PACKED = msgspec.msgpack.encode


def an_entry(owner: bytes, value: bytes) -> StoreEntry:
    return StoreEntry(owner=owner, name=b"", value=value, partition=0, offset=0, timestamp_ms=0)


@pytest.mark.parametrize(
    ("serdes", "owner", "value", "shown"),
    [
        (("string", "string", "json"), b"a", b'{"n":1}', {"key": "a", "value": {"n": 1}}),
        (("long", "string", "double"), struct.pack(">q", 5), struct.pack(">d", 0.5), {"key": 5, "value": 0.5}),
        (("uuid", "string", "bytes"), UUID(int=1).bytes, b"text", {"key": str(UUID(int=1)), "value": "text"}),
        (("bytes", "string", "bytes"), b"\xff", b"\xfe", {"keyBase64": "/w==", "valueBase64": "/g=="}),
        (("long", "string", "json"), b"short", b"{", {"keyBase64": "c2hvcnQ=", "valueBase64": "ew=="}),
        (("string", "string", "double"), b"a", struct.pack(">d", float("nan")), {"value": "nan"}),
        (("string", "string", "double"), b"a", struct.pack(">d", float("-inf")), {"value": "-inf"}),
        (
            ("msgpack", "string", "msgpack"),
            PACKED({1: "a"}),
            PACKED({"raw": b"\x00\xff", "at": datetime(2026, 1, 2, tzinfo=UTC), "all": [1, [b"a"]]}),
            {
                "key": {"1": "a"},
                "value": {
                    "raw": {"base64": "AP8="},
                    "at": "2026-01-02T00:00:00+00:00",
                    "all": [1, [{"base64": "YQ=="}]],
                },
            },
        ),
    ],
)
def test_an_entry_is_decoded_and_bytes_that_are_no_value_are_shown_in_base64(
    serdes: tuple[str, str, str], owner: bytes, value: bytes, shown: dict[str, Any]
) -> None:
    key, name, of_value = serdes

    row = EntrySerdes(keys=(key,), name=name, value=of_value).as_json(an_entry(owner, value))

    assert shown.items() <= row.items()
    json.dumps(row, allow_nan=False)


@pytest.mark.parametrize(
    ("serde", "text", "raw"),
    [
        ("string", "ä", "ä".encode()),
        ("bytes", "a", b"a"),
        ("integer", "-1", b"\xff" * 4),
        ("long", "7", struct.pack(">q", 7)),
        ("timestamp", "7", struct.pack(">q", 7)),
        ("uuid", str(UUID(int=2)), UUID(int=2).bytes),
        ("json", '{"a": 1}', b'{"a":1}'),
    ],
)
def test_a_key_is_given_as_text(serde: str, text: str, raw: bytes) -> None:
    is_owner = EntrySerdes(keys=(serde,), name="string", value="json").owners(text)

    assert is_owner(raw)
    assert not is_owner(raw + b"x")


@pytest.mark.parametrize(
    ("serde", "raw"),
    [
        ("json", b'{"day": 1, "airport": "JFK"}'),
        ("json", b'{"airport":"JFK","day":1}'),
        ("msgpack", PACKED({"day": 1, "airport": "JFK"})),
        ("msgpack", b"\x82\xa7airport\xa3JFK\xa3day\xd2\x00\x00\x00\x01"),
    ],
)
def test_a_key_is_found_in_each_of_its_encodings(serde: str, raw: bytes) -> None:
    is_owner = EntrySerdes(keys=(serde,), name="string", value="json").owners('{"airport": "JFK", "day": 1}')

    assert is_owner(raw)
    assert not is_owner(PACKED({"day": 2, "airport": "JFK"}))
    assert not is_owner(b'{"airport":"JFK","day":true}')


def test_the_keys_of_all_streams_of_a_task_are_found_and_shown() -> None:
    config = a_config(
        local_store_dir="/data",
        stores_sums_msg_serde="long",
        systems_kafka_streams_orders_samza_key_serde="long",
        task_intermediate_airports_partitions="4",
        task_intermediate_airports_key_serde="string",
    )
    serdes = EntrySerdes.of(config.stores[0], config)
    number = struct.pack(">q", 5)

    assert ("long", "string") == serdes.keys
    assert serdes.owners("JFK")(b"JFK")
    assert serdes.owners("5")(number) and serdes.owners("5")(b"5")
    assert ["JFK", "ABCDEFGH", 5, -1] == [
        serdes.as_json(an_entry(owner, number))["key"] for owner in (b"JFK", b"ABCDEFGH", number, b"\xff" * 8)
    ]
    assert {"keyBase64": "/w=="}.items() <= serdes.as_json(an_entry(b"\xff", number)).items()


@pytest.mark.parametrize(("serde", "text"), [("long", "x"), ("long", str(2**63)), ("uuid", "1"), ("json", "{")])
def test_a_text_that_is_no_such_key_is_refused(serde: str, text: str) -> None:
    with pytest.raises(SerdeError, match=f"serde {serde}"):
        EntrySerdes(keys=(serde,), name="string", value="json").owners(text)
