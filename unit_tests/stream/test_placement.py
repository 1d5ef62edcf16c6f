"""Messages of the placement topic: Samza's bytes, a round trip, unreadable ones.

Hostile bytes in large numbers are in `unit_tests/hostile`.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.model.job import TaskName
from samzapy.model.placement import (
    EXPIRY_MS_MAX,
    REQUEST_TYPE,
    RESPONSE_TYPE,
    Action,
    ContainerPlacementMessage,
    ContainerPlacementRequestMessage,
    ContainerPlacementResponseMessage,
    Mark,
    Phase,
    PlacementNamespace,
    Rewind,
    Scale,
    StatusCode,
    Target,
    generation_expected,
    rewind_of,
    scale_of,
)
from samzapy.model.ssp import SystemStream
from samzapy.stream.keys import KeyForm, PlacementKey, parse_placement_key, placement_key
from samzapy.stream.log import LogRecord
from samzapy.stream.placement import (
    MESSAGE_BYTES_MAX,
    Encoding,
    Place,
    Requested,
    Unreadable,
    decode_message,
    encode_message,
    read_message,
    tombstones,
)

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "samza_cases" / "placement_messages.jsonl").read_text().splitlines()
]
UUID_TEXT = "88b0d30c-d518-4307-9e8e-c8529eb30f04"

words = st.text("abcXYZ019._-", min_size=1, max_size=40)
timestamps = st.integers(0, 2**63 - 1)
expiries = st.none() | st.integers(1, EXPIRY_MS_MAX).map(lambda ms: timedelta(milliseconds=ms))


def of_the_job(action, required, optional):
    return st.builds(
        ContainerPlacementRequestMessage,
        uuid=st.uuids(),
        deployment_id=words,
        processor_id=st.just(""),
        request_expiry=expiries,
        timestamp_ms=timestamps,
        action=st.just(action),
        arguments=st.fixed_dictionaries(required, optional=optional),
    )


requests = (
    st.builds(
        ContainerPlacementRequestMessage,
        uuid=st.uuids(),
        deployment_id=words,
        processor_id=words,
        destination_host=words,
        request_expiry=expiries,
        timestamp_ms=timestamps,
        action=st.sampled_from(
            [action for action in Action if not action.is_of_job and action is not Action.CONTROL_STANDBY]
        ),
    )
    | st.builds(
        ContainerPlacementRequestMessage,
        uuid=st.uuids(),
        deployment_id=words,
        processor_id=words,
        timestamp_ms=timestamps,
        action=st.just(Action.CONTROL_STANDBY),
        arguments=st.fixed_dictionaries({"command": st.sampled_from(["start", "stop"])}),
    )
    | of_the_job(
        Action.SCALE,
        {"factor": st.sampled_from(["1", "2", "256"])},
        {"expectedGeneration": st.integers(0, 99).map(str)},
    )
    | of_the_job(
        Action.REWIND,
        {"stream": st.just("kafka.page.views"), "to": st.sampled_from(["oldest", "7", "2026-01-01T00:00:00Z"])},
        {"partition": st.integers(0, 99).map(str), "task": words},
    )
)
responses = st.builds(
    ContainerPlacementResponseMessage,
    uuid=st.uuids(),
    deployment_id=words,
    processor_id=words,
    destination_host=words,
    request_expiry=expiries,
    timestamp_ms=timestamps,
    action=st.sampled_from(Action),
    status_code=st.sampled_from(StatusCode),
    response_message=st.text(st.characters(codec="utf-8"), max_size=40),
    phase=st.sampled_from(["", *Phase]),
)


def a_place(message: ContainerPlacementMessage, key_form: KeyForm, encoding: Encoding) -> Place:
    return Place(namespace=message.action.namespace, key_form=key_form, encoding=encoding)


def a_request(**changes: object) -> ContainerPlacementRequestMessage:
    fields: dict[str, object] = {
        "uuid": UUID(UUID_TEXT),
        "deployment_id": "1767225600000-8f3a1b2c",
        "processor_id": "0",
        "destination_host": "ANY_HOST",
        "timestamp_ms": 5,
    }
    return ContainerPlacementRequestMessage(**(fields | changes))  # type: ignore[arg-type]


def read(key: bytes | None, value: bytes | None) -> Requested | Unreadable | None:
    return read_message(LogRecord(offset=7, timestamp_ms=0, key=key, value=value))


def read_json(**changes: object) -> Requested | Unreadable | None:
    """A good request with some fields changed; None removes one."""
    write = encode_message(a_request(), Place())
    assert write.value is not None
    fields = {name: value for name, value in (json.loads(write.value) | changes).items() if value is not None}
    return read(write.key, json.dumps(fields).encode())


def reason_of(request: Requested | Unreadable | None) -> str:
    assert isinstance(request, Requested) and request.message is None and request.uuid == UUID_TEXT
    return request.reason


# --- as Samza ---


@pytest.mark.parametrize("case", [case for case in CASES if case["op"] == "placement"], ids=lambda case: case["id"])
def test_key_and_value_are_samza_s_to_the_byte(case: dict[str, dict[str, str]]) -> None:
    given, expected = case["in"], case["out"]
    expiry = given.get("expiry_ms")
    common = {
        "uuid": UUID(given["uuid"]),
        "deployment_id": given["deployment"],
        "processor_id": given["processor"],
        "destination_host": given["host"],
        "request_expiry": None if expiry is None else timedelta(milliseconds=int(expiry)),
        "timestamp_ms": int(given["timestamp"]),
    }
    message: ContainerPlacementMessage
    if "status" in given:
        message = ContainerPlacementResponseMessage(
            **common,  # type: ignore[arg-type]
            status_code=StatusCode(given["status"]),
            response_message=given["response"],
        )
    else:
        message = ContainerPlacementRequestMessage(**common)  # type: ignore[arg-type]

    write = encode_message(message, Place(key_form=KeyForm.SAMZA))

    assert (expected["record_key"], expected["value"]) == (write.key.decode(), (write.value or b"").decode())
    assert message == decode_message(expected["value"].encode())


@pytest.mark.parametrize(
    "case", [case for case in CASES if case["op"] == "placement_read"], ids=lambda case: case["id"]
)
def test_bytes_that_samza_reads_are_read_and_those_it_fails_on_are_named(case: dict[str, dict[str, str]]) -> None:
    """An unknown subType or status is named, on purpose unlike in Samza.

    It is no reason to fail or to skip.
    """
    value, expected = case["in"]["bytes"].encode(), case["out"]

    if "error" in expected or expected["string"] is None:
        with pytest.raises(ValueError, match="wanted"):
            decode_message(value)
    else:
        assert f"UUID: {decode_message(value).uuid}" in expected["string"]
        # A request is CREATED, whatever its status field is.
        assert StatusCode.CREATED is decode_message(value).status_code


# --- there and back ---


@given(requests | responses, st.sampled_from(KeyForm), st.sampled_from(Encoding))
def test_every_message_is_read_back_as_written(
    message: ContainerPlacementMessage, key_form: KeyForm, encoding: Encoding
) -> None:
    write = encode_message(message, a_place(message, key_form, encoding))

    assert message == decode_message(write.value or b"")


@given(requests, st.sampled_from(KeyForm), st.sampled_from(Encoding))
def test_a_request_is_read_with_its_place_and_form(
    message: ContainerPlacementRequestMessage, key_form: KeyForm, encoding: Encoding
) -> None:
    place = a_place(message, key_form, encoding)
    write = encode_message(message, place)

    request = read(write.key, write.value)

    assert request == Requested(offset=7, uuid=str(message.uuid), place=place, message=message)
    assert place == Place.parse(str(place))


@given(responses)
def test_responses_and_tombstones_are_ignored_by_the_coordinator(
    message: ContainerPlacementResponseMessage,
) -> None:
    place = a_place(message, KeyForm.TEXT, Encoding.JSON)
    write = encode_message(message, place)

    assert read(write.key, write.value) is None
    assert [None, None] == [
        read(tombstone.key, tombstone.value) for tombstone in tombstones(str(message.uuid), place)
    ]


def test_the_spelling_of_both_forms_of_a_key_is_frozen() -> None:
    text = placement_key(
        PlacementKey(namespace=PlacementNamespace.CONTROL, uuid=UUID_TEXT, message_type=REQUEST_TYPE)
    )
    samza = placement_key(
        PlacementKey(
            namespace=PlacementNamespace.PLACEMENT,
            uuid=UUID_TEXT,
            message_type=RESPONSE_TYPE,
            form=KeyForm.SAMZA,
        )
    )

    assert f"samzapy-control-v1/{UUID_TEXT}.ContainerPlacementRequestMessage" == text.decode()
    assert f'[1,"samza-place-container-v1","{UUID_TEXT}.ContainerPlacementResponseMessage"]' == samza.decode()
    assert text == placement_key(parse_placement_key(text))
    assert samza == placement_key(parse_placement_key(samza))


# --- the arguments of an action ---


def a_scale(**arguments: object) -> Requested | Unreadable | None:
    request = a_request(processor_id="", destination_host="", action=Action.SCALE, arguments={"factor": "4"})
    write = encode_message(request, Place(namespace=PlacementNamespace.CONTROL))
    assert write.value is not None
    return read(write.key, json.dumps(json.loads(write.value) | {"arguments": arguments}).encode())


def test_numbers_among_the_arguments_may_be_written_as_numbers() -> None:
    request = a_scale(factor=8, expectedGeneration="3")

    assert isinstance(request, Requested) and request.message is not None
    assert Scale(factor=8) == scale_of(request.message.arguments)
    assert 3 == generation_expected(request.message.arguments)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            {},
            "arguments.factor: wanted a power of two from 1 to 256, or arguments.containers from 1 to 10000, found "
            "nothing",
        ),
        (
            {"factor": 2, "containers": 2},
            "arguments: wanted factor or containers, found both; ask for one after the other",
        ),
        ({"containers": "0"}, "arguments.containers: wanted a number from 1 to 10000, found 0"),
        ({"factor": 3}, "wanted a factor that is a power of two from 1 to 256, found 3"),
        ({"factor": "512"}, "wanted a factor that is a power of two from 1 to 256, found 512"),
        ({"factor": "-1"}, "arguments.factor: wanted a whole number, found '-1'"),
        ({"factor": True}, "arguments.'factor': wanted a text or a whole number, found True"),
        ({"factor": 2, "expectedGeneration": "x"}, "arguments.expectedGeneration: wanted a whole number, found 'x'"),
        ({"factor": 2, "by": "a b"}, "arguments.by: wanted a text like [A-Za-z0-9_.\\-]{1,255}, found 'a b'"),
        ({"factor": 2, "faktor": 4}, "arguments: wanted factor or containers, and expectedGeneration, found faktor"),
    ],
)
def test_arguments_without_a_value_are_named(arguments: dict[str, object], reason: str) -> None:
    assert reason == reason_of(a_scale(**arguments))


def a_rewind(**arguments: object) -> Requested | Unreadable | None:
    given = {"stream": "kafka.orders", "to": "oldest"}
    request = a_request(processor_id="", destination_host="", action=Action.REWIND, arguments=given)
    write = encode_message(request, Place(namespace=PlacementNamespace.CONTROL))
    assert write.value is not None
    return read(write.key, json.dumps(json.loads(write.value) | {"arguments": arguments}).encode())


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("oldest", Target(Mark.OLDEST)),
        ("newest", Target(Mark.NEWEST)),
        ("0", Target(Mark.OFFSET, 0)),
        (1767225600000, Target(Mark.OFFSET, 1_767_225_600_000)),
        ("1767225600000ms", Target(Mark.TIME, 1_767_225_600_000)),
        ("2026-01-01T00:00:00Z", Target(Mark.TIME, 1_767_225_600_000)),
        ("2026-01-01T02:00:00.0015+02:00", Target(Mark.TIME, 1_767_225_600_001)),
    ],
)
def test_a_place_to_rewind_to_is_a_mark_an_offset_or_a_time(text: object, target: Target) -> None:
    request = a_rewind(stream="kafka.page.views", to=text, partition=3, task="Partition_3")

    assert isinstance(request, Requested) and request.message is not None
    assert Rewind(
        stream=SystemStream("kafka", "page.views"), to=target, partition=3, task=TaskName("Partition_3")
    ) == rewind_of(request.message.arguments)


NO_PLACE = (
    "arguments.to: wanted oldest, newest, an offset, milliseconds since 1970 like 1767225600000ms, or a time with its "
    "distance from UTC like 2026-01-01T00:00:00Z; found "
)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"to": "oldest"}, "arguments.stream: wanted one, found nothing"),
        ({"stream": "kafka.a"}, "arguments.to: wanted one, found nothing"),
        ({"stream": "orders", "to": "1"}, "wanted system.stream (for instance kafka.orders), found 'orders'"),
        ({"stream": "kafka.a", "to": "latest"}, f"{NO_PLACE}'latest'"),
        ({"stream": "kafka.a", "to": "2026-01-01T00:00:00"}, f"{NO_PLACE}'2026-01-01T00:00:00'"),
        ({"stream": "kafka.a", "to": "1969-12-31T00:00:00Z"}, f"{NO_PLACE}'1969-12-31T00:00:00Z'"),
        ({"stream": "kafka.a", "to": "253402300800000ms"}, f"{NO_PLACE}'253402300800000ms'"),
        ({"stream": "kafka.a", "to": "-1"}, f"{NO_PLACE}'-1'"),
        ({"stream": "kafka.a", "to": "\u0663"}, f"{NO_PLACE}'\u0663'"),
        ({"stream": "kafka.a", "to": "1", "partition": "x"}, "arguments.partition: wanted a whole number, found 'x'"),
        (
            {"stream": "kafka.a", "to": "1", "task": "t", "processor": "0"},
            "arguments.task, arguments.processor: wanted at most one of them, found both",
        ),
        (
            {"stream": "kafka.a", "to": "1", "from": "2"},
            "arguments: wanted stream, to, partition, task and processor, found from",
        ),
    ],
)
def test_a_rewind_without_a_place_is_refused(arguments: dict[str, object], reason: str) -> None:
    assert reason == reason_of(a_rewind(**arguments))


def test_arguments_that_an_action_does_not_have_are_refused() -> None:
    expected = "arguments: wanted expectedGeneration and by for place-container, found factor"
    assert expected == reason_of(read_json(arguments={"factor": 2}))


def test_a_scale_is_for_the_whole_job_and_names_no_processor() -> None:
    request = a_request(destination_host="", action=Action.SCALE, arguments={"factor": "4"})

    with pytest.raises(ValueError, match="processorId: wanted none"):
        encode_message(request, Place(namespace=PlacementNamespace.CONTROL))


# --- unreadable messages ---


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"\xff\xfe",
        b"job",
        b"samza-place-container-v1/no-uuid.ContainerPlacementRequestMessage",
        f"samza-place-container-v1/{UUID_TEXT.upper()}.{REQUEST_TYPE}".encode(),
        f"samza-place-container-v1/{UUID_TEXT}.OtherMessage".encode(),
        f"other/{UUID_TEXT}.{REQUEST_TYPE}".encode(),
        f'[2,"samza-place-container-v1","{UUID_TEXT}.{REQUEST_TYPE}"]'.encode(),
        f'[1, "samza-place-container-v1","{UUID_TEXT}.{REQUEST_TYPE}"]'.encode(),
        b"[" * 500,
        b"samza-place-container-v1/" + b"x" * 1_000_000,
    ],
    ids=range(12),
)
def test_a_key_of_another_format_is_named_with_its_offset(key: bytes | None) -> None:
    request = read(key, encode_message(a_request(), Place()).value)

    assert isinstance(request, Unreadable)
    assert 7 == request.offset
    assert "wanted" in request.reason or "codec can't decode" in request.reason
    assert len(request.reason) < 500


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"uuid": "11b0d30c-d518-4307-9e8e-c8529eb30f04"}, "uuid"),
        ({"uuid": UUID_TEXT.upper()}, "uuid"),
        ({"uuid": 5}, "uuid"),
        ({"deploymentId": None}, "deploymentId"),
        ({"deploymentId": "x" * 1000}, "deploymentId"),
        ({"processorId": "../../etc"}, "processorId"),
        ({"processorId": "0; rm -rf /"}, "processorId"),
        ({"processorId": "\ud800"}, "processorId"),
        ({"destinationHost": "h o s t"}, "destinationHost"),
        ({"destinationHost": ""}, "destinationHost"),
        ({"destinationHost": ["a"]}, "destinationHost"),
        ({"timestamp": -1}, "timestamp"),
        ({"timestamp": 1e400}, "Infinity"),
        ({"timestamp": 5.0}, "timestamp"),
        ({"timestamp": True}, "timestamp"),
        ({"timestamp": 2**63}, "timestamp"),
        ({"requestExpiry": 0}, "requestExpiry"),
        ({"requestExpiry": -5}, "requestExpiry"),
        ({"requestExpiry": EXPIRY_MS_MAX + 1}, "requestExpiry"),
        ({"subType": "Other"}, "subType"),
        ({"subType": RESPONSE_TYPE, "responseMessage": ""}, "subType"),
        ({"action": "os.system"}, "action"),
        # The answer quotes arguments, and half of a surrogate pair cannot be written to a record.
        ({"action": "rewind", "arguments": {"stream": "kafka.\ud800"}}, "arguments.stream"),
        ({"action": "rewind", "arguments": {"\ud800": "oldest"}}, "arguments"),
        ({"action": "restart-query"}, "action"),
    ],
)
def test_a_request_that_is_wrong_in_a_field_is_answered_with_its_name(changes: dict[str, object], field: str) -> None:
    assert field in reason_of(read_json(**changes))


def test_fields_that_are_not_known_are_no_matter() -> None:
    message = read_json(extra={"deep": [1, 2]}, statusCode="NEW_STATUS")

    assert isinstance(message, Requested) and message.message == a_request()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b"\xff" * 100,
        b"\xc3\x01",
        b"\xc3\x01" + b"\x00" * 50,
        b'{"uuid":1,"uuid":1}',
        b'{"timestamp":' + b"9" * 10_000 + b"}",
        b'{"a":' * 10_000,
        b"{" + b" " * MESSAGE_BYTES_MAX + b"}",
    ],
    ids=range(12),
)
def test_bytes_that_are_no_message_are_answered_under_the_uuid_of_the_key(value: bytes) -> None:
    key = encode_message(a_request(), Place()).key

    assert reason_of(read(key, value))


def test_a_bad_value_is_answered_in_its_own_encoding_and_in_json_where_it_has_none() -> None:
    place = Place(encoding=Encoding.AVRO)
    write = encode_message(a_request(), place)
    assert write.value is not None

    torn, junk = read(write.key, write.value[:-3]), read(write.key, b"junk")

    assert isinstance(torn, Requested) and torn.place == place
    assert isinstance(junk, Requested) and junk.place == Place()
