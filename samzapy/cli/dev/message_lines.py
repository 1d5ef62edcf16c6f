"""One message as one line of text or JSON.

This is the format of `samzapy dev produce` and `samzapy dev consume`. Text is the key, a tab and the value; a line
without a tab has no key. JSON is an object:

    {"key": "N14228", "value": {"delay": 4}, "headers": [["source", "demo"]], "partition": 0, "timestampMs": 1}

`key` and `value` may be a string, any other JSON value, which is written as JSON text, or `{"base64": "..."}` for bytes
that are not UTF-8; `null` is none. All fields but `value` may be left out.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from typing import Any

from samzapy.adapters.kafka.console import TopicMessage
from samzapy.cli.output.terminal import printable
from samzapy.errors import RejectedError
from samzapy.model.strict_json import parse_json_text

_PARTITION_MAX = 2**31 - 1
_TIMESTAMP_MAX = 2**63 - 1
"""Kafka's own limits. The client ends with an OverflowError beyond them."""

_FIELDS = {"key", "value", "headers", "partition", "timestampMs", "offset"}


def messages_of_text(lines: Iterable[str]) -> Iterator[TopicMessage]:
    """Parse `key<TAB>value` lines."""
    for line in lines:
        key, tab, value = line.rstrip("\r\n").partition("\t")
        if tab:
            yield TopicMessage(key=key.encode(errors="surrogateescape"), value=_text_bytes(value))
        else:
            yield TopicMessage(key=None, value=_text_bytes(key))


def messages_of_json(lines: Iterable[str]) -> Iterator[TopicMessage]:
    """Parse one JSON object per line; blank lines are skipped.

    Raises:
        RejectedError: names the first line that is not such an object.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield _of_json(parse_json_text(line))
            except (ValueError, TypeError) as error:
                raise RejectedError(
                    f'line {number}: wanted an object like {{"key": "a", "value": "b"}}, found {line.strip()[:80]!r}: '
                    f"{str(error)[:200]}; the lines before it were written"
                ) from error


def text_line(message: TopicMessage) -> str:
    """The line `key<TAB>value`.

    A message without a key begins with the tab. Bytes that are not UTF-8 are escaped.
    """
    return f"{_shown(message.key)}\t{_shown(message.value)}"


def json_line(message: TopicMessage) -> str:
    """The message with all its fields, as `messages_of_json` reads it."""
    return json.dumps(
        {
            "partition": message.partition,
            "offset": message.offset,
            "timestampMs": message.timestamp_ms,
            "key": _as_json(message.key),
            "value": _as_json(message.value),
            "headers": [[name, _as_json(content)] for name, content in message.headers],
        },
        ensure_ascii=False,
    )


def _of_json(fields: Any) -> TopicMessage:
    if not isinstance(fields, dict) or "value" not in fields:
        raise ValueError("it has no field value")
    if unknown := sorted(fields.keys() - _FIELDS):
        raise ValueError(f"the field {unknown[0][:80]} is not known")
    headers = fields.get("headers") or []
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    return TopicMessage(
        key=_as_bytes(fields.get("key")),
        value=_as_bytes(fields["value"]),
        headers=tuple((_header_name(name), _as_bytes(content)) for name, content in pairs),
        partition=_number(fields.get("partition"), _PARTITION_MAX),
        timestamp_ms=_number(fields.get("timestampMs"), _TIMESTAMP_MAX),
    )


def _header_name(value: Any) -> str:
    name = str(value)
    name.encode()  # Kafka takes UTF-8 alone; half of a surrogate pair is a ValueError here.
    return name


def _number(value: Any, maximum: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value!r:.80} is not a whole number")
    if not 0 <= value <= maximum:
        raise ValueError(f"{value!r:.80} is not a number from 0 to {maximum}")
    return value


def _as_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return _text_bytes(value)
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise ValueError(f"{value['base64']!r:.80} is not base64") from error
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _as_json(content: bytes | None) -> str | dict[str, str] | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _text_bytes(text: str) -> bytes:
    # Bytes of the input that are not UTF-8 arrive as surrogates, and leave as they came.
    return text.encode(errors="surrogateescape")


def _shown(content: bytes | None) -> str:
    return "" if content is None else printable(content.decode(errors="backslashreplace"))
