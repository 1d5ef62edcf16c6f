"""Messages as lines: each form is read back, and a line that is none is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.adapters.kafka.console import TopicMessage
from samzapy.cli.dev.message_lines import json_line, messages_of_json, messages_of_text, text_line
from samzapy.errors import RejectedError

CONTENTS = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
MESSAGES = st.builds(
    TopicMessage,
    key=CONTENTS,
    value=CONTENTS,
    headers=st.lists(st.tuples(st.text(max_size=8), CONTENTS), max_size=3).map(tuple),
    partition=st.none() | st.integers(0, 2**31 - 1),
    timestamp_ms=st.none() | st.integers(0, 2**63 - 1),
)


@given(MESSAGES)
def test_a_message_as_json_is_read_back_unchanged(message: TopicMessage) -> None:
    assert [message] == list(messages_of_json([json_line(message)]))


def test_a_json_value_that_is_no_string_is_written_as_json_text() -> None:
    (message,) = messages_of_json(['{"key": 7, "value": {"delay": 4, "to": ["a", "ü"]}}'])

    assert (b"7", '{"delay":4,"to":["a","ü"]}'.encode()) == (message.key, message.value)


def test_headers_may_be_an_object() -> None:
    (message,) = messages_of_json(['{"value": null, "headers": {"source": "demo"}}'])

    assert (None, (("source", b"demo"),)) == (message.value, message.headers)


def test_a_line_of_text_is_key_tab_value() -> None:
    messages = list(messages_of_text(["a\tb\tc\r\n", "alone\n", "\tb\n", "\n"]))

    assert [(b"a", b"b\tc"), (None, b"alone"), (b"", b"b"), (None, b"")] == [
        (message.key, message.value) for message in messages
    ]


def test_bytes_that_are_not_utf_8_pass_through_as_text() -> None:
    line = b"k\xff\tv\xfe".decode(errors="surrogateescape")

    (message,) = messages_of_text([line])

    assert (b"k\xff", b"v\xfe") == (message.key, message.value)


def test_a_text_line_sends_no_codes_to_a_terminal() -> None:
    assert "\\x1b[31m\t\\xff" == text_line(TopicMessage(key=b"\x1b[31m", value=b"\xff"))
    assert "\tb" == text_line(TopicMessage(key=None, value=b"b"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "Expecting property name"),
        ("[1]", "it has no field value"),
        ('{"key": "a"}', "it has no field value"),
        ('{"value": "a", "topic": "b"}', "the field topic is not known"),
        ('{"value": {"base64": "?"}}', "'?' is not base64"),
        ('{"value": "a", "partition": "0"}', "'0' is not a whole number"),
        ('{"value": "a", "timestampMs": true}', "True is not a whole number"),
        ('{"value": "a", "partition": 2147483648}', "2147483648 is not a number from 0 to 2147483647"),
        ('{"value": "a", "partition": -1}', "-1 is not a number from 0 to 2147483647"),
        ('{"value": "a", "timestampMs": 9223372036854775808}', "is not a number from 0 to 9223372036854775807"),
        ('{"value": "a", "timestampMs": -1}', "-1 is not a number from 0 to 9223372036854775807"),
        ('{"value": "a", "headers": [1]}', "cannot unpack"),
        ('{"value": "a", "headers": [["\\ud800", "b"]]}', "surrogates not allowed"),
        ("[" * 5_000, "nested too deep"),
        ('{"value": "a", "value": "b"}', "stands twice"),
    ],
)
def test_a_line_that_is_no_message_is_named_with_its_number(line: str, reason: str) -> None:
    lines = iter(['{"value": "first"}', "", line])
    messages = messages_of_json(lines)
    assert b"first" == next(messages).value

    with pytest.raises(
        RejectedError, match=r"line 3: wanted an object .* the lines before it were written"
    ) as raised:
        next(messages)
    assert reason in str(raised.value)
