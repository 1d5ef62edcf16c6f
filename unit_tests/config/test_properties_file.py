"""The properties file is read as Java reads it, except for deliberate refusals."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.config import properties_text, read_properties
from samzapy.config.properties_file import entries
from samzapy.errors import ConfigError
from unit_tests.config.java_reads import CORPUS, Read, has_compiler, read_by_java, texts

BLANKS = " \t\f"


def read_here(text: str) -> Read | str:
    """As Java's answer, or the reason for which a text is refused."""
    try:
        return [(entry.key, entry.value) for entry in entries(text, "f")]
    except ConfigError as error:
        return str(error)


def assert_read_alike(text: str, java: Read) -> None:
    here = read_here(text)
    if java is None:
        # Of several faults the first one is named, which may be another one than Java's.
        assert isinstance(here, str), text
    elif isinstance(here, str):
        characters = "".join(key + value for key, value in java)
        assert (
            ("byte order mark" in here and text.startswith("\ufeff"))
            or ("wanted key=value" in here and any(not key for key, _ in java))
            or ("half of a surrogate pair" in here and any("\ud800" <= sign <= "\udfff" for sign in characters))
        ), (text, here, java)
    else:
        if java[-1:] == [("", "")] and len(java) == len(here) + 1:
            # Java takes a continued line at the end of the file that has nothing in it for an entry without a key.
            java = java[:-1]
        assert [key for key, _ in java] == [key for key, _ in here], text
        for (_, there), (_, value) in zip(java, here, strict=True):
            assert there == value + there[len(value) :] and not there[len(value) :].strip(BLANKS), text


def test_each_recorded_text_is_read_as_java_read_it() -> None:
    recorded = json.loads(CORPUS.read_text())

    assert len(recorded) > 400
    for entry in recorded:
        assert_read_alike(entry["text"], entry["read"] and [(key, value) for key, value in entry["read"]])


@pytest.mark.skipif(
    not has_compiler(), reason="java here is a JRE, which cannot run a source file; the corpus is held"
)
def test_fresh_texts_are_read_as_this_java_reads_them() -> None:
    fresh = texts(5_000, seed=14)

    for text, java in zip(fresh, read_by_java(fresh), strict=True):
        assert_read_alike(text, java)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\\\\\\\n2\n", {"a": "1\\2"}),
        ("a=x\u2028y\n", {"a": "x\u2028y"}),
        ("a=x\x85y\n", {"a": "x\x85y"}),
        ("a\\:b=1\n", {"a:b": "1"}),
        ("a=localhost\\:9092\r\nb=\\u00e9\\t\\ud83d\\ude00\r", {"a": "localhost:9092", "b": "é\t😀"}),
        ("a=orders-\\\\d+", {"a": "orders-\\d+"}),
        ("a=x \t\f\nb=x\\ \nc=\\u0020 \n", {"a": "x", "b": "x ", "c": " "}),
    ],
)
def test_escapes_line_ends_and_blanks_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert expected == {setting.key: setting.value for setting in read_properties(text, "f")}


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("\ufeffa=1\n", "f:1: wanted text, found a byte order mark (U+FEFF)"),
        ("b=1\na=hunter\\u2\n", "f:2: wanted four hexadecimal digits behind \\u"),
        ("a=hunter\\ud83d2\n", "f:1: wanted whole characters, found half of a surrogate pair"),
    ],
)
def test_a_malformed_line_is_refused_by_file_and_line_without_its_text(text: str, refused: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(refused)) as error:
        read_properties(text, "f")

    assert "hunter" not in str(error.value)


@pytest.mark.parametrize(
    ("raw", "refused"),
    [
        ("a=1\n".encode("utf-16"), "f: wanted UTF-8 text, found UTF-16; save the file as UTF-8"),
        (
            "a=1\r\nb=é\n".encode("latin-1"),
            "f:2: wanted UTF-8 text, found invalid continuation byte at byte 7 (0xe9)",
        ),
    ],
)
def test_a_file_in_another_encoding_is_refused_by_file_and_line(raw: bytes, refused: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(refused)):
        properties_text(raw, "f")


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8"))))
def test_whatever_java_would_store_is_read_back(properties: dict[str, str]) -> None:
    text = "".join(f"{_stored(key)}={_stored(value)}\n" for key, value in properties.items())

    assert properties == {entry.key: entry.value for entry in entries(text, "f")}


def _stored(text: str) -> str:
    """As `java.util.Properties.store` writes it, each blank escaped."""
    names = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
    units = text.encode("utf-16-be")
    characters = (chr(int.from_bytes(units[index : index + 2], "big")) for index in range(0, len(units), 2))
    return "".join(
        names.get(sign)
        or (f"\\u{ord(sign):04x}" if not " " <= sign <= "~" else f"\\{sign}" if sign in " =:#!\\" else sign)
        for sign in characters
    )
