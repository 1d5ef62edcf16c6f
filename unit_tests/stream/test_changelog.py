from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.stream.changelog import changelog_key, copy_mark_key, split_changelog_key, task_entry_key

byte_strings = st.binary(max_size=300)


@given(byte_strings, byte_strings)
def test_a_changelog_key_gives_back_the_message_key_and_the_sub_key(message_key: bytes, sub_key: bytes) -> None:
    assert split_changelog_key(changelog_key(message_key, sub_key)) == (message_key, sub_key)


@pytest.mark.parametrize("length", [0, 1, 127, 128, 129, 16_383, 16_384, 1_000_000])
def test_a_message_key_may_have_any_length(length: int) -> None:
    assert split_changelog_key(changelog_key(b"k" * length, b"s")) == (b"k" * length, b"s")


@given(byte_strings)
def test_any_bytes_are_one_key_in_one_spelling_or_are_refused(key: bytes) -> None:
    try:
        parts = split_changelog_key(key)
    except ValueError as error:
        assert str(error).startswith("wanted")  # noqa: PT017
        return
    assert changelog_key(*parts) == key


@pytest.mark.parametrize("key", [b"", b"\x01", b"\x80", b"\x80\x00", b"\x85\x00hello", b"\xff" * 5, b"\xff" * 9])
def test_bytes_that_are_no_changelog_key_are_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match="wanted"):
        split_changelog_key(key)


def test_the_bytes_are_frozen() -> None:
    assert changelog_key(b"ann", b"count") == b"\x03anncount"
    assert changelog_key(b"k" * 300, b"") == b"\xac\x02" + b"k" * 300
    assert task_entry_key("Partition_3", b"count") == b"\x0bPartition_3\x00count"
    assert copy_mark_key("Partition_3") == b"\x0bPartition_3\x01"


@given(byte_strings)
def test_no_entry_of_a_task_is_the_mark_that_closes_its_copy(sub_key: bytes) -> None:
    assert task_entry_key("Partition_3", sub_key) != copy_mark_key("Partition_3")
