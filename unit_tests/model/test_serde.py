from __future__ import annotations

import gzip
import pickle
import re
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.config import KEY_SERDES, SERDES
from samzapy.model.serde import SerdeError, key_serde_of, serde_of

json_values = st.recursive(
    st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=4)
    ),
    max_leaves=10,
)


@pytest.mark.parametrize("name", SERDES)
def test_every_serde_of_the_configuration_is_there_and_passes_none_through(name: str) -> None:
    serde = serde_of(name)

    assert name == serde.name
    assert (None, None) == (serde.encode(None), serde.decode(None))


@given(st.binary())
def test_bytes_are_read_back_unchanged(value: bytes) -> None:
    assert value == serde_of("bytes").decode(serde_of("bytes").encode(value))


@given(st.text(st.characters(codec="utf-8")))
def test_text_is_read_back_unchanged(value: str) -> None:
    assert value == serde_of("string").decode(serde_of("string").encode(value))


@given(json_values)
def test_json_values_are_read_back_unchanged(value: Any) -> None:
    assert value == serde_of("json").decode(serde_of("json").encode(value))


@pytest.mark.parametrize("value", [bytearray(b"ab"), memoryview(b"ab")])
def test_other_kinds_of_bytes_are_copied(value: Any) -> None:
    encoded = serde_of("bytes").encode(value)

    assert (b"ab", bytes) == (encoded, type(encoded))


def test_json_is_written_compactly_in_utf_8_and_in_the_order_given() -> None:
    assert '{"b":"ä","a":[1,2]}'.encode() == serde_of("json").encode({"b": "ä", "a": [1, 2]})


def test_an_object_with_a_repeated_key_is_refused_before_it_is_written() -> None:
    with pytest.raises(SerdeError, match="serde json: the key '1' stands twice in an object"):
        serde_of("json").encode({"orders": {1: "a", "1": "b"}})


def test_keys_that_json_makes_text_of_are_written_as_text() -> None:
    assert b'{"1":"a","null":{"true":2,"1.5":3}}' == serde_of("json").encode({1: "a", None: {True: 2, 1.5: 3}})


def test_json_null_is_none() -> None:
    assert serde_of("json").decode(b"null") is None


@pytest.mark.parametrize("raw", [rb'"\ud83d"', rb'{"a\udc00":["\ud800x"]}', rb'"\ud83d\ude00"', '"ä"'.encode()])
def test_json_with_half_of_a_surrogate_pair_can_be_read_and_written_again(raw: bytes) -> None:
    value = serde_of("json").decode(raw)

    assert value == serde_of("json").decode(serde_of("json").encode(value))


def test_half_of_a_surrogate_pair_is_written_as_an_escape() -> None:
    assert rb'{"a":"\ud83d"}' == serde_of("json").encode({"a": "\ud83d"})


JSON_TEXTS = st.recursive(
    st.sampled_from(
        ["null", "true", "0", "-0.0", "1e400", "-1e999", "1e-400", "1e308", "1.5", '"\\ud800"', '"a"', "NaN"]
    )
    | st.integers(-(2**70), 2**70).map(str)
    | st.integers(300, 320).map("1e{}".format)
    | st.integers(4290, 4310).map("9".__mul__)
    | st.integers(390, 410).map(lambda levels: "[" * levels + "]" * levels),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
        | st.lists(inner, max_size=3).map(
            lambda items: "{" + ",".join(f'"k{number}":{item}' for number, item in enumerate(items)) + "}"
        )
    ),
    max_leaves=6,
)


@given(JSON_TEXTS)
def test_json_that_can_be_read_can_be_written_and_is_the_same_value(text: str) -> None:
    json_serde = serde_of("json")
    try:
        value = json_serde.decode(text.encode())
    except SerdeError:
        return

    assert value == json_serde.decode(json_serde.encode(value))


@pytest.mark.parametrize(
    ("name", "raw", "reason"),
    [
        (
            "json",
            b'\x00\x00\x00\x04\xd2{"a":1}',
            "the framing of a schema registry (a zero, then the schema's id, 1234)",
        ),
        (
            "string",
            b"\x00\x00\x00\x00\x07\xff\xfe",
            "the framing of a schema registry (a zero, then the schema's id, 7)",
        ),
        ("json", b"\xef\xbb\xbf{}", "ef bb bf, which looks like a UTF-8 byte order mark"),
        ("json", "{}".encode("utf-16"), "ff fe, which looks like a byte order mark of UTF-16"),
        ("string", "ä".encode("utf-16"), "ff fe, which looks like a byte order mark of UTF-16"),
        ("json", gzip.compress(b"{}", mtime=0), "1f 8b, which looks like gzip; use serde bytes and gzip.decompress"),
        ("string", gzip.compress(b"text", mtime=0), "1f 8b, which looks like gzip"),
        ("json", b"\x28\xb5\x2f\xfd\x00", "looks like zstd"),
        ("string", b"\x82SNAPPY\x00", "looks like snappy"),
        ("json", b"\xc3\x01\x00", "looks like an Avro single object"),
        ("json", pickle.dumps({"a": 1}, 4), "looks like a Python pickle"),
    ],
)
def test_the_error_of_a_refused_value_describes_its_first_bytes(name: str, raw: bytes, reason: str) -> None:
    with pytest.raises(SerdeError, match=re.escape(reason)):
        serde_of(name).decode(raw)


@pytest.mark.parametrize("raw", [b"\x00", b"\x00\x00\x00\x00\x01", b"{", b"\xff", b""])
def test_nothing_is_guessed_of_other_bytes(raw: bytes) -> None:
    with pytest.raises(SerdeError) as refused:
        serde_of("json").decode(raw)

    assert "looks like" not in str(refused.value)


def test_an_error_of_a_key_names_the_key() -> None:
    with pytest.raises(SerdeError, match=r"serde json: .* \(the key\)\Z"):
        key_serde_of("json").decode(b"{")
    with pytest.raises(SerdeError, match=r"serde string: wanted str or None, found int \(the key\)\Z"):
        key_serde_of("string").encode(1)
    with pytest.raises(SerdeError, match=r"serde bytes: wanted bytes or None, found str \(the key\)\Z"):
        key_serde_of("bytes").encode("a")


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bytes", "text"),
        ("bytes", 1),
        ("string", b"bytes"),
        ("string", 1),
        ("string", "\ud800"),
        ("json", float("nan")),
        ("json", float("inf")),
        ("json", {1: "a", "1": "b"}),
        ("json", [{"in": ({None: 1, "null": 2},)}]),
        ("json", {True: 1, "true": 2}),
        ("json", {1, 2}),
        ("json", b"bytes"),
        ("json", {(1, 2): 3}),
        pytest.param("json", deep(100_000), id="json-too-deep"),
        pytest.param("json", deep(400), id="json-too-deep-to-be-read-again"),
    ],
)
def test_a_value_that_a_serde_cannot_write_is_a_serde_error(name: str, value: Any) -> None:
    with pytest.raises(SerdeError, match=f"serde {name}: "):
        serde_of(name).encode(value)


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("string", b"\xff"),
        ("json", b""),
        ("json", b"\xff"),
        ("json", b"{"),
        ("json", b"1 2"),
        ("json", b"NaN"),
        ("json", b"-Infinity"),
        ("json", b'{"a":1,"a":2}'),
        ("json", b'[{"a":1,"b":{"c":1,"c":1}}]'),
        pytest.param("json", b"[" * 100_000, id="json-too-deep"),
        pytest.param("json", b"9" * 5000, id="json-number-too-long"),
    ],
)
def test_bytes_that_a_serde_cannot_read_are_a_serde_error(name: str, raw: bytes) -> None:
    with pytest.raises(SerdeError, match=f"serde {name}: "):
        serde_of(name).decode(raw)


@given(st.sampled_from(["string", "json"]), st.binary(max_size=50))
def test_no_bytes_make_a_serde_raise_anything_else(name: str, raw: bytes) -> None:
    with suppress(SerdeError):
        serde_of(name).decode(raw)


@pytest.mark.parametrize(
    ("name", "value", "raw"),
    [
        # As Samza's and Kafka's serdes of Java write them.
        ("integer", 1, b"\0\0\0\1"),
        ("integer", -(2**31), b"\x80\0\0\0"),
        ("long", -2, b"\xff" * 7 + b"\xfe"),
        ("long", 2**63 - 1, b"\x7f" + b"\xff" * 7),
        ("double", 1.5, b"\x3f\xf8" + b"\0" * 6),
        ("double", -0.0, b"\x80" + b"\0" * 7),
        ("timestamp", 1_700_000_000_000, b"\0\0\x01\x8b\xcf\xe5\x68\0"),
        ("uuid", UUID("00112233-4455-6677-8899-aabbccddeeff"), bytes.fromhex("00112233445566778899aabbccddeeff")),
    ],
)
def test_values_of_fixed_width_are_big_endian(name: str, value: Any, raw: bytes) -> None:
    serde = serde_of(name)

    assert raw == serde.encode(value)
    assert (value, type(value)) == (serde.decode(raw), type(serde.decode(raw)))


def test_a_double_is_made_of_an_int_as_mypy_lets_one() -> None:
    assert serde_of("double").encode(2.0) == serde_of("double").encode(2)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("integer", True, "wanted int or None, found bool"),
        ("integer", 2**31, "wanted a number of 4 bytes"),
        ("long", 2**63, "wanted a number of 8 bytes"),
        ("long", 1.0, "wanted int or None, found float"),
        ("double", "1", "wanted float or None, found str"),
        ("double", 10**400, "wanted a number of 8 bytes"),
        ("double", False, "wanted float or None, found bool"),
        ("timestamp", 1.5, "wanted int or None, found float"),
        ("uuid", "00112233-4455-6677-8899-aabbccddeeff", "wanted uuid.UUID or None, found str"),
    ],
)
def test_a_value_that_the_fixed_width_cannot_hold_is_refused(name: str, value: Any, reason: str) -> None:
    with pytest.raises(SerdeError, match=f"serde {name}: {re.escape(reason)}"):
        serde_of(name).encode(value)


@pytest.mark.parametrize("name", ["integer", "long", "double", "timestamp", "uuid"])
def test_bytes_of_another_length_are_refused_with_both_lengths(name: str) -> None:
    size = len(serde_of(name).encode(UUID(int=1) if name == "uuid" else 1) or b"")

    with pytest.raises(SerdeError, match=f"serde {name}: wanted {size} bytes, found {size + 1}"):
        serde_of(name).decode(b"\0" * (size + 1))


def test_a_key_is_never_a_double() -> None:
    """0.0 and -0.0 are equal and have different bytes, so one key would be two."""
    assert {"double"} == {*SERDES} - {*KEY_SERDES}
