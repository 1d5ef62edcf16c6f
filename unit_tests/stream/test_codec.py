from __future__ import annotations

import dataclasses
import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from fastavro.schema import fingerprint
from hypothesis import given
from hypothesis import strategies as st

from samzapy.errors import CorruptRecordError, UnknownSchemaError
from samzapy.model.placement import StatusCode
from samzapy.stream.codec import (
    VALUE_BYTES_MAX,
    RecordHeaders,
    decode,
    encode,
    headers,
    parse_headers,
    schema_records,
)
from samzapy.stream.log import LogRecord
from samzapy.stream.placement import MESSAGE_FORMS
from samzapy.stream.records import ConfigPut, EpochPut, PlannedTaskPut, Record, Removed, RequestPut
from unit_tests.fixtures.record_examples import EXAMPLES, RECORD_TYPES
from unit_tests.fixtures.record_strategies import records

GOLDEN = Path(__file__).parent / "golden" / "records.jsonl"


def read_back(key: bytes | None, value: bytes | None) -> Record:
    return decode(LogRecord(offset=5, timestamp_ms=0, key=key, value=value), topic="t", partition=2)


@given(records)
def test_every_record_is_read_back_as_written(record: Record) -> None:
    assert read_back(*encode(record)) == record


def test_a_tombstone_is_read_back_as_removed() -> None:
    assert read_back(*encode(Removed(key="grant/Partition_0/3"))) == Removed(key="grant/Partition_0/3")


def test_every_record_class_has_an_example_a_schema_and_a_strategy() -> None:
    assert [type(record) for record in EXAMPLES] == list(RECORD_TYPES)
    # The messages of the placement topic have schemas too.
    assert len(schema_records()) == len(RECORD_TYPES) + len(MESSAGE_FORMS) == len(_schema_files())


def test_the_bytes_of_every_record_are_frozen() -> None:
    """A changed line is data that a deployed job reads no more, or writes differently.

    Never change a line: a new schema gets a new line and a new format level.
    """
    frozen = [json.loads(line) for line in GOLDEN.read_text().splitlines()]

    assert [line["record"] for line in frozen] == [type(record).__name__ for record in EXAMPLES]
    for line, record in zip(frozen, EXAMPLES, strict=True):
        key, value = encode(record)
        assert value is not None
        assert (line["key"], line["value"]) == (key.decode(), value.hex())
        assert read_back(line["key"].encode(), bytes.fromhex(line["value"])) == record


def test_the_fingerprint_is_crc_64_avro_in_little_endian_order() -> None:
    """The reference value is in Avro's specification: 0x7275d51a3f395c8f for "int"."""
    assert fingerprint('"int"', "CRC-64-AVRO") == (0x7275D51A3F395C8F).to_bytes(8, "little").hex()

    _, value = encode(EpochPut(epoch=1))
    recorded = {json.loads(put.schema_json)["name"]: put.fingerprint for put in schema_records()}

    assert value is not None
    assert value[:10].hex() == "c301" + recorded["Epoch"]


def test_schema_records_can_be_written_to_the_stream_they_describe() -> None:
    for put in schema_records():
        assert read_back(*encode(put)) == put
        assert json.loads(put.schema_json)["type"] == "record"


def _schema_files(release: str = "") -> list[tuple[str, Any]]:
    folder = resources.files("samzapy").joinpath("schemas", release)
    return [(path.name, json.loads(path.read_text())) for path in folder.iterdir() if path.name.endswith(".avsc")]


PRIMITIVES = {"boolean", "int", "long", "float", "double", "bytes", "string"}


def _width_min(schema: Any, names_above: frozenset[str]) -> int:
    """The smallest size of a value in bytes; fails on a schema that fastavro refuses."""
    if isinstance(schema, str):
        # A name here would be a reference, the only way to write a recursion; ours need none.
        assert schema in PRIMITIVES | {"null"}, f"{schema}: a reference to a named schema"
        return 0 if schema == "null" else 1
    if isinstance(schema, list):
        return 1 + min(_width_min(branch, names_above) for branch in schema)
    match schema["type"]:
        case "record":
            assert schema["name"] not in names_above, f"{schema['name']} holds itself"
            above = names_above | {schema["name"]}
            return sum(_width_min(field["type"], above) for field in schema["fields"])
        case "array":
            assert _width_min(schema["items"], names_above) > 0, "an array of zero-width items"
            return 1
        case "map":
            assert _width_min(schema["values"], names_above) > 0, "a map of zero-width items"
            return 1
        case "enum":
            return 1
        case "fixed":
            return int(schema["size"])
        case other:
            return _width_min(other, names_above)


@pytest.mark.parametrize(("file_name", "schema"), [*_schema_files(), *_schema_files("0.1.0")])
def test_no_schema_has_a_recursion_or_an_array_of_zero_width_items(file_name: str, schema: Any) -> None:
    assert _width_min(schema, frozenset()) >= 1
    assert schema["namespace"] == "samzapy"
    assert file_name == f"{_snake_case(schema['name'])}.avsc"


def _snake_case(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def test_an_unknown_fingerprint_means_that_a_newer_release_wrote_it() -> None:
    key, value = encode(EpochPut(epoch=1))
    assert value is not None

    with pytest.raises(UnknownSchemaError, match=r"t-2 at offset 5, key 'epoch'.*0000000000000000.*upgrade"):
        read_back(key, value[:2] + bytes(8) + value[10:])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "found 0 bytes"),
        (b"{}", "7b 7d"),
        (b"\xc3\x01", "found 2 bytes"),
        (b"\xc3\x01" + bytes(7), "found 9 bytes"),
        (encode(EpochPut(epoch=1))[1] + b"\x00", "wanted 11 bytes for a epoch, found 12"),  # type: ignore[operator]
        (encode(EpochPut(epoch=1))[1][:-1], "cannot be read"),  # type: ignore[index]
        (encode(EpochPut(epoch=1))[1] + bytes(VALUE_BYTES_MAX), "at most 1048576 bytes"),  # type: ignore[operator]
    ],
)
def test_a_broken_value_is_refused_with_its_place_and_the_reason(value: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecordError, match=f"t-2 at offset 5, key 'epoch'.*{reason}") as caught:
        read_back(b"epoch", value)

    assert not isinstance(caught.value, UnknownSchemaError)


def test_a_value_under_the_key_of_another_fact_is_refused() -> None:
    _, value = encode(ConfigPut(config_key="a", value="1"))

    with pytest.raises(CorruptRecordError, match="wanted the key of the value, 'config/a'"):
        read_back(b"config/b", value)


@pytest.mark.parametrize("status", [StatusCode.ACCEPTED, StatusCode.BAD_REQUEST])
@pytest.mark.parametrize(
    "arguments", ["{", "[" * 100_000, '{"a":' * 100_000, "null", "[]", '{"factor":4}', '{"factor":NaN}', "\0"]
)
def test_a_request_whose_arguments_are_no_texts_by_name_is_refused(arguments: str, status: StatusCode) -> None:
    (example,) = (record for record in EXAMPLES if isinstance(record, RequestPut))
    key, value = encode(dataclasses.replace(example, arguments=arguments, status_code=status))

    with pytest.raises(CorruptRecordError, match="offset 5"):
        read_back(key, value)


@pytest.mark.parametrize(
    ("action", "arguments"),
    [("scale", ""), ("scale", '{"factor":"3"}'), ("rewind", '{"to":"x"}'), ("control-standby", "")],
)
def test_a_request_that_a_leader_would_act_on_with_wrong_arguments_is_refused(action: str, arguments: str) -> None:
    (example,) = (record for record in EXAMPLES if isinstance(record, RequestPut))
    key, value = encode(dataclasses.replace(example, action=action, arguments=arguments))

    with pytest.raises(CorruptRecordError, match="offset 5.*wanted"):
        read_back(key, value)


@pytest.mark.parametrize("key", [None, b"", b"\xff", b"nobody/x", b"checkpoint/kafka.a.0"])
def test_a_record_under_no_key_of_ours_is_refused_with_and_without_a_value(key: bytes | None) -> None:
    for value in (None, encode(EpochPut(epoch=1))[1]):
        with pytest.raises(CorruptRecordError, match="offset 5"):
            read_back(key, value)


def test_a_record_that_a_reader_would_refuse_is_not_written() -> None:
    with pytest.raises(ValueError, match="wanted a record of at most"):
        encode(ConfigPut(config_key="a", value="x" * VALUE_BYTES_MAX))
    with pytest.raises(ValueError, match="wanted a record of at most"):
        # Its value alone would fit; with key, headers and a batch around it, no topic takes it.
        encode(ConfigPut(config_key="a", value="x" * (VALUE_BYTES_MAX - 100)))
    with pytest.raises(ValueError, match="wanted a key"):
        encode(ConfigPut(config_key="", value="x"))
    with pytest.raises(ValueError, match="wanted a key"):
        encode(Removed(key="nobody/x"))


def test_a_mode_that_the_schema_does_not_know_is_not_written() -> None:
    planned = next(record for record in EXAMPLES if isinstance(record, PlannedTaskPut))

    with pytest.raises(ValueError, match="lazy"):
        encode(dataclasses.replace(planned, mode="lazy"))


@given(st.none() | st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_random_bytes_are_refused_by_our_error_or_are_a_tombstone(key: bytes | None, value: bytes | None) -> None:
    try:
        record = read_back(key, value)
    except CorruptRecordError:
        return
    assert isinstance(record, Removed)


def test_headers_are_read_back_as_written() -> None:
    written = headers(term=3, seq=41, event="TaskGranted", cause="cmd-1", actor="ann")

    assert parse_headers(tuple(written.items())) == RecordHeaders(
        term=3, seq=41, event="TaskGranted", cause="cmd-1", actor="ann"
    )


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("term", b"1"),),
        (("term", b"x"), ("seq", b"1"), ("event", b""), ("cause", b""), ("actor", b"\xff")),
    ],
)
def test_headers_that_are_not_ours_are_none_and_no_error(headers: tuple[tuple[str, bytes | None], ...]) -> None:
    assert parse_headers(headers) is None
