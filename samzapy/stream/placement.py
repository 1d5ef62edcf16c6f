"""The placement topic as data: operators' messages and the answers.

Any client that may write to the topic may write any bytes, so each record is read as a value: a request, a message that
does not concern the coordinator, or the reason why it cannot be read. Nothing raises and nothing is skipped in silence.
Size, spelling and numbers are checked before anything is believed, and no text from here chooses a class, a module, a
path or a word of a command line (law L10).

A value is JSON (first byte `{`) in the shape of SEP-22, or Avro as everywhere else here. JSON as Samza writes it, which
is what `encode_message` does, byte for byte:

```json
{"processorId":"0","deploymentId":"1767225600000-8f3a1b2c","subType":"ContainerPlacementRequestMessage",
 "uuid":"88b0d30c-d518-4307-9e8e-c8529eb30f04","destinationHost":"ANY_HOST","statusCode":"CREATED",
 "timestamp":1578694070875}
```

`requestExpiry` (ms) may follow `deploymentId`; a response has `responseMessage` behind `subType`; `action` comes after
these and is left out for `place-container`; a request's `arguments`, and the `phase` of a response, come last, if there
are any.
"""

from __future__ import annotations

import json
import re
import uuid as uuids
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from samzapy.model.expiry import EXPIRY_MS_MAX
from samzapy.model.placement import (
    REQUEST_TYPE,
    RESPONSE_TYPE,
    Action,
    ContainerPlacementMessage,
    ContainerPlacementRequestMessage,
    ContainerPlacementResponseMessage,
    PlacementNamespace,
    StatusCode,
    check_message,
    expiry_ms,
)
from samzapy.model.strict_json import parse_json
from samzapy.stream.keys import KeyForm, PlacementKey, parse_placement_key, placement_key
from samzapy.stream.log import LogRecord, Write
from samzapy.stream.single_object import Form, form

MESSAGE_BYTES_MAX: Final = 64 * 1024
"""Nothing longer is decoded. A request has some 300 bytes, a response at most some 16,000."""

_LONG_MAX: Final = 2**63 - 1
_REASON_LENGTH_MAX: Final = 400
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Encoding(StrEnum):
    """How a value is written."""

    JSON = "json"
    AVRO = "avro"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The form of the messages of one request.

    As text it is `samza-place-container-v1.text.json`.
    """

    namespace: PlacementNamespace = PlacementNamespace.PLACEMENT
    key_form: KeyForm = KeyForm.TEXT
    encoding: Encoding = Encoding.JSON

    def __str__(self) -> str:
        return f"{self.namespace}.{self.key_form}.{self.encoding}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """Raises ValueError for anything that `str` does not make."""
        namespace, key_form, encoding = text.split(".")
        return cls(namespace=PlacementNamespace(namespace), key_form=KeyForm(key_form), encoding=Encoding(encoding))


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """A request as it was read.

    `message` is None where it could not be read, or `is_refused` for its signature; `reason` then says why.
    """

    offset: int
    uuid: str
    place: Place
    message: ContainerPlacementRequestMessage | None
    reason: str = ""
    is_refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A record that cannot be answered."""

    offset: int
    reason: str


def read_message(
    record: LogRecord, refusal: Callable[[LogRecord], str] = lambda record: ""
) -> Requested | Unreadable | None:
    """A record of the placement topic as a coordinator reads it.

    None for responses and tombstones. Never raises.

    Args:
        refusal: why a request is refused for its signature; empty if it is not. The value of a refused one is not
            decoded.
    """
    if record.value is None:
        return None
    try:
        key = parse_placement_key(record.key)
    except ValueError as error:
        return Unreadable(offset=record.offset, reason=f"{_shortened(str(error))} ({record.size_and_digest})")
    if key.message_type != REQUEST_TYPE:
        return None
    place = Place(namespace=key.namespace, key_form=key.form, encoding=_encoding_of(record.value))
    if reason := refusal(record):
        return Requested(
            offset=record.offset, uuid=key.uuid, place=place, message=None, reason=reason, is_refused=True
        )
    try:
        message = decode_message(record.value)
        request = _checked_at_home(message, key)
    except ValueError as error:
        reason = _shortened(str(error))
        return Requested(offset=record.offset, uuid=key.uuid, place=place, message=None, reason=reason)
    return Requested(offset=record.offset, uuid=key.uuid, place=place, message=request)


def encode_message(message: ContainerPlacementMessage, place: Place) -> Write:
    """Key and value of a message.

    Raises:
        ValueError: a field has a value that is not allowed, or the action belongs to another namespace.
    """
    if isinstance(message, ContainerPlacementRequestMessage):
        check_message(message)
        if place.namespace is not message.action.namespace:
            raise ValueError(f"wanted {message.action} in {message.action.namespace}, found {place.namespace}")
    is_json = place.encoding is Encoding.JSON
    value = _to_json(message) if is_json else _FORM_OF_TYPE[type(message)].encode(message)
    return Write(key=message_key(str(message.uuid), _type_of(message), place), value=value)


def message_key(uuid: str, message_type: str, place: Place) -> bytes:
    """The key of a message, spelled as the others of its request."""
    return placement_key(
        PlacementKey(namespace=place.namespace, uuid=uuid, message_type=message_type, form=place.key_form)
    )


def tombstones(uuid: str, place: Place) -> tuple[Write, Write]:
    """The tombstones of a request and its response."""
    request = message_key(uuid, REQUEST_TYPE, place)
    return Write(key=request, value=None), Write(key=message_key(uuid, RESPONSE_TYPE, place), value=None)


def decode_message(value: bytes) -> ContainerPlacementRequestMessage | ContainerPlacementResponseMessage:
    """The message that `value` holds.

    Raises:
        ValueError: it holds none; names the field, or the actual bytes. No other exception is raised.
    """
    if len(value) > MESSAGE_BYTES_MAX:
        raise ValueError(f"wanted a message of at most {MESSAGE_BYTES_MAX} bytes, found {len(value)}")
    try:
        return _from_json(value) if value.startswith(b"{") else _from_avro(value)
    except ValueError:
        raise
    except Exception as error:
        # As broad as this on purpose: fastavro raises many types, and deep brackets are a RecursionError.
        raise ValueError(f"wanted a message, found what cannot be decoded ({type(error).__name__})") from None


def _checked_at_home(message: ContainerPlacementMessage, key: PlacementKey) -> ContainerPlacementRequestMessage:
    """The message, which is one that may stand under the key of a request.

    Raises ValueError.
    """
    if not isinstance(message, ContainerPlacementRequestMessage):
        raise ValueError(f"subType: wanted {key.message_type} as in the key, found {_type_of(message)}")
    if str(message.uuid) != key.uuid:
        raise ValueError(f"uuid: wanted the one in the key, {key.uuid}, found {message.uuid}")
    if message.action.namespace is not key.namespace:
        raise ValueError(f"action: {message.action} belongs to {message.action.namespace}, found in {key.namespace}")
    check_message(message)
    return message


def _type_of(message: ContainerPlacementMessage) -> str:
    return RESPONSE_TYPE if isinstance(message, ContainerPlacementResponseMessage) else REQUEST_TYPE


def _encoding_of(value: bytes) -> Encoding:
    """A request in neither encoding is answered in the one that every tool can read."""
    known = any(value.startswith(known.header) for known in MESSAGE_FORMS)
    return Encoding.AVRO if known else Encoding.JSON


# --- JSON ---


def _to_json(message: ContainerPlacementMessage) -> bytes:
    fields: dict[str, object] = {"processorId": message.processor_id, "deploymentId": message.deployment_id}
    if message.request_expiry is not None:
        fields["requestExpiry"] = expiry_ms(message.request_expiry)
    fields["subType"] = _type_of(message)
    if isinstance(message, ContainerPlacementResponseMessage):
        fields["responseMessage"] = message.response_message
    fields |= {
        "uuid": str(message.uuid),
        "destinationHost": message.destination_host,
        "statusCode": message.status_code.value,
        "timestamp": message.timestamp_ms,
    }
    if message.action is not Action.PLACE_CONTAINER:
        fields["action"] = message.action.value
    if isinstance(message, ContainerPlacementRequestMessage) and message.arguments:
        fields["arguments"] = dict(message.arguments)
    if isinstance(message, ContainerPlacementResponseMessage) and message.phase:
        fields["phase"] = message.phase
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def _from_json(value: bytes) -> ContainerPlacementRequestMessage | ContainerPlacementResponseMessage:
    try:
        fields = parse_json(value)
    except ValueError as error:
        raise ValueError(f"wanted a message as JSON, found {str(error) or 'something else'}") from None
    if not isinstance(fields, dict):
        raise ValueError("wanted a message as a JSON object, found something else")
    expiry = _number(fields, "requestExpiry") if fields.get("requestExpiry") is not None else None
    common: dict[str, Any] = {
        "uuid": _uuid(_text(fields, "uuid")),
        "deployment_id": _text(fields, "deploymentId"),
        "processor_id": _text(fields, "processorId"),
        "destination_host": _text(fields, "destinationHost") if "destinationHost" in fields else "",
        "request_expiry": _expiry(expiry),
        "timestamp_ms": _number(fields, "timestamp"),
        "action": _action(_text(fields, "action")) if "action" in fields else Action.PLACE_CONTAINER,
    }
    sub_type = _text(fields, "subType")
    if sub_type == REQUEST_TYPE:
        return ContainerPlacementRequestMessage(**common, arguments=_arguments(fields.get("arguments", {})))
    if sub_type == RESPONSE_TYPE:
        return ContainerPlacementResponseMessage(
            **common,
            status_code=_status(_text(fields, "statusCode")),
            response_message=_text(fields, "responseMessage"),
            phase=_text(fields, "phase") if "phase" in fields else "",
        )
    raise ValueError(f"subType: wanted {REQUEST_TYPE} or {RESPONSE_TYPE}, found {_shown(sub_type)}")


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name}: wanted a text, found {'nothing' if value is None else _shown(value)}")
    return _whole(name, value)


def _number(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not -_LONG_MAX <= value <= _LONG_MAX:
        raise ValueError(f"{name}: wanted a whole number, found {'nothing' if value is None else _shown(value)}")
    return value


def _arguments(value: object) -> Mapping[str, str]:
    """Texts by name; a whole number may be written as one."""
    if not isinstance(value, dict):
        raise ValueError(f"arguments: wanted an object, found {_shown(value)}")
    arguments: dict[str, str] = {}
    for name, item in value.items():
        if not isinstance(item, str | int) or isinstance(item, bool):
            raise ValueError(f"arguments.{_shown(name)}: wanted a text or a whole number, found {_shown(item)}")
        arguments[_whole("a name in arguments", name)] = _whole(f"arguments.{name}", str(item))
    return arguments


def _whole(name: str, text: str) -> str:
    """The text, without half of a surrogate pair.

    JSON can write one, and no answer that quotes it could be encoded.
    """
    if _SURROGATE.search(text) is not None:
        raise ValueError(f"{name}: wanted a text, found half of a surrogate pair in {_shown(text)}")
    return text


# --- Avro ---


def _to_avro(message: ContainerPlacementMessage) -> dict[str, Any]:
    datum: dict[str, Any] = {
        "uuid": str(message.uuid),
        "deployment_id": message.deployment_id,
        "processor_id": message.processor_id,
        "destination_host": message.destination_host,
        "request_expiry_ms": 0 if message.request_expiry is None else expiry_ms(message.request_expiry),
        "timestamp_ms": message.timestamp_ms,
        "action": message.action.value,
    }
    if isinstance(message, ContainerPlacementRequestMessage):
        datum["arguments"] = dict(message.arguments)
    if isinstance(message, ContainerPlacementResponseMessage):
        datum |= {
            "status_code": message.status_code.value,
            "response_message": message.response_message,
            "phase": message.phase,
        }
    return datum


def _common_from_avro(datum: dict[str, Any]) -> dict[str, Any]:
    return {
        "uuid": _uuid(datum["uuid"]),
        "deployment_id": datum["deployment_id"],
        "processor_id": datum["processor_id"],
        "destination_host": datum["destination_host"],
        "request_expiry": _expiry(datum["request_expiry_ms"] or None),
        "timestamp_ms": datum["timestamp_ms"],
        "action": _action(datum["action"]),
    }


def _request_from_avro(datum: dict[str, Any]) -> ContainerPlacementRequestMessage:
    return ContainerPlacementRequestMessage(**_common_from_avro(datum), arguments=datum["arguments"])


def _response_from_avro(datum: dict[str, Any]) -> ContainerPlacementResponseMessage:
    return ContainerPlacementResponseMessage(
        **_common_from_avro(datum),
        status_code=_status(datum["status_code"]),
        response_message=datum["response_message"],
        phase=datum["phase"],
    )


def _from_avro(value: bytes) -> ContainerPlacementRequestMessage | ContainerPlacementResponseMessage:
    for known in MESSAGE_FORMS:
        if value.startswith(known.header):
            message: ContainerPlacementRequestMessage | ContainerPlacementResponseMessage
            message = known.from_avro(known.datum(value))
            return message
    raise ValueError(
        f"wanted a message as JSON (first byte {{) or as an Avro single object of this release, found {len(value)} "
        f"bytes that start with {value[:10].hex(' ') or 'nothing'}"
    )


# --- common to both encodings ---


def _uuid(text: str) -> uuids.UUID:
    try:
        uuid = uuids.UUID(text)
    except ValueError:
        uuid = None
    if uuid is None or str(uuid) != text:
        raise ValueError(f"uuid: wanted one in lower case with dashes, found {_shown(text)}")
    return uuid


def _expiry(milliseconds: int | None) -> timedelta | None:
    if milliseconds is None:
        return None
    if not 0 < milliseconds <= EXPIRY_MS_MAX:
        raise ValueError(f"requestExpiry: wanted 1 to {EXPIRY_MS_MAX} ms (7 days), found {_shown(milliseconds)}")
    return timedelta(milliseconds=milliseconds)


def _action(text: str) -> Action:
    try:
        return Action(text)
    except ValueError:
        raise ValueError(f"action: wanted one of {', '.join(Action)}, found {_shown(text)}") from None


def _status(text: str) -> StatusCode:
    try:
        return StatusCode(text)
    except ValueError:
        raise ValueError(f"statusCode: wanted one of {', '.join(StatusCode)}, found {_shown(text)}") from None


def _shown(value: object) -> str:
    return _shortened(repr(value), 100)


def _shortened(text: str, length_max: int = _REASON_LENGTH_MAX) -> str:
    """A text of limited length, without lone surrogates.

    These are legal in JSON, and cannot be written to a record.
    """
    cut = text if len(text) <= length_max else f"{text[:length_max]}..."
    return cut.encode(errors="replace").decode()


MESSAGE_FORMS: Final[tuple[Form, ...]] = (
    form(ContainerPlacementRequestMessage, "container_placement_request_message", _to_avro, _request_from_avro),
    form(ContainerPlacementResponseMessage, "container_placement_response_message", _to_avro, _response_from_avro),
)
_FORM_OF_TYPE: Final[Mapping[type[Any], Form]] = {known.record_type: known for known in MESSAGE_FORMS}
