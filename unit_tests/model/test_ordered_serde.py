"""The bytes of sub-keys have the order of their values."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.model.serde import SerdeError, ordered_of, serde_of, with_flags

_TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)
_BYTES = st.binary(max_size=8) | st.lists(st.sampled_from([0, 1, 255]), max_size=6).map(bytes)
_LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
_VALUES = {
    "string": _TEXTS,
    "bytes": _BYTES,
    "integer": st.integers(-(2**31), 2**31 - 1),
    "long": _LONGS,
    "timestamp": _LONGS,
    "uuid": st.uuids(),
    "string,long": st.tuples(_TEXTS, _LONGS),
    "long,string": st.tuples(_LONGS, _TEXTS),
    "bytes,bytes,uuid": st.tuples(_BYTES, _BYTES, st.uuids()),
}


@pytest.mark.parametrize("names", sorted(_VALUES))
def test_bytes_have_the_order_of_the_values_and_are_read_back(names: str) -> None:
    serde, values = ordered_of(names), _VALUES[names]

    @given(values, values)
    def holds(one: object, other: object) -> None:
        encoded, encoded_other = serde.encode(one), serde.encode(other)
        assert encoded is not None and encoded_other is not None
        # Python orders text by code point too.
        assert (encoded < encoded_other) == (one < other)  # type: ignore[operator]
        assert (encoded == encoded_other) == (one == other)
        assert one == serde.decode(encoded)

    holds()


@pytest.mark.parametrize("names", ["double", "json", "string,msgpack", "", "long,,long"])
def test_a_serde_without_order_is_refused(names: str) -> None:
    with pytest.raises(ValueError, match="wanted serdes that have an order"):
        ordered_of(names)


def test_a_sub_key_above_its_bound_is_refused_with_the_way_out() -> None:
    assert 255 == len(ordered_of("string").encode("x" * 255) or b"")
    with pytest.raises(SerdeError, match=r"at most 255 bytes, found 256 .* put the long part into the value"):
        ordered_of("string").encode("x" * 256)


@pytest.mark.parametrize(
    ("names", "value"),
    [("long", None), ("long", "1"), ("string,long", ("a",)), ("string,long", ["a", 1]), ("string,long", ("a", None))],
)
def test_a_sub_key_of_another_type_is_refused(names: str, value: object) -> None:
    with pytest.raises(SerdeError, match="wanted"):
        ordered_of(names).encode(value)


@pytest.mark.parametrize(
    ("names", "raw"),
    [
        ("string,long", b"a"),
        ("string,long", b"a\x00\x01"),
        ("uuid,uuid", UUID(int=1).bytes * 3),
        # A second spelling of ("a\0b", 0): a map would have two entries for it.
        ("string,long", b"a\x00b\x00\x01" + b"\x80" + bytes(7)),
    ],
)
def test_bytes_that_are_no_sub_key_are_refused(names: str, raw: bytes) -> None:
    with pytest.raises(SerdeError, match="wanted"):
        ordered_of(names).decode(raw)


def test_a_value_after_flags_is_read_back_and_unknown_flags_are_refused() -> None:
    serde = with_flags(serde_of("string"))

    assert (b"\x00a", "a", None) == (serde.encode("a"), serde.decode(b"\x00a"), serde.decode(None))
    for raw in (b"\x01a", b""):
        with pytest.raises(SerdeError, match="a newer release wrote it"):
            serde.decode(raw)
