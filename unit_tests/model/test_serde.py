from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.config import SERDES
from samzapy.model.serde import SerdeError, serde_of

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
def test_bytes_come_back_as_they_were(value: bytes) -> None:
    assert value == serde_of("bytes").decode(serde_of("bytes").encode(value))


@given(st.text(st.characters(codec="utf-8")))
def test_text_comes_back_as_it_was(value: str) -> None:
    assert value == serde_of("string").decode(serde_of("string").encode(value))


@given(json_values)
def test_json_values_come_back_as_they_were(value: Any) -> None:
    assert value == serde_of("json").decode(serde_of("json").encode(value))


@pytest.mark.parametrize("value", [bytearray(b"ab"), memoryview(b"ab")])
def test_other_kinds_of_bytes_are_copied(value: Any) -> None:
    encoded = serde_of("bytes").encode(value)

    assert (b"ab", bytes) == (encoded, type(encoded))


def test_json_is_written_compactly_in_utf_8_and_in_the_order_given() -> None:
    assert '{"b":"ä","a":[1,2]}'.encode() == serde_of("json").encode({"b": "ä", "a": [1, 2]})


def test_an_object_with_the_same_key_twice_is_refused_by_name_before_anybody_writes_it() -> None:
    with pytest.raises(SerdeError, match="serde json: the key '1' stands twice in an object"):
        serde_of("json").encode({"orders": {1: "a", "1": "b"}})


def test_keys_that_json_makes_text_of_are_written_as_text() -> None:
    assert b'{"1":"a","null":{"true":2,"1.5":3}}' == serde_of("json").encode({1: "a", None: {True: 2, 1.5: 3}})


def test_json_null_is_none() -> None:
    assert serde_of("json").decode(b"null") is None


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
        ("json", "\ud800"),
        pytest.param("json", deep(100_000), id="json-too-deep"),
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
