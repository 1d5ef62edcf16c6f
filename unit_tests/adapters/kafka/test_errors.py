from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from samzapy.adapters.kafka.errors import (
    _NAMES,
    ERROR_TYPES,
    connection_hint,
    translate,
    unavailable,
)
from samzapy.errors import (
    BrokerUnavailableError,
    ConfigError,
    FencedError,
    LostRangeError,
    MissingTopicError,
    ProducerError,
    SamzapyError,
    TemporaryError,
    UndeliveredError,
)

ALL_NAMES = sorted(
    name for name in dir(KafkaError) if isinstance(getattr(KafkaError, name), int) and name[:2] != "__"
)


@pytest.mark.parametrize("name", ALL_NAMES)
def test_every_code_of_librdkafka_has_its_branch_of_the_error_tree(name: str) -> None:
    error = KafkaError(getattr(KafkaError, name))

    translated = translate(error, "testing x")

    assert getattr(KafkaError, name) in ERROR_TYPES, f"{name} is new: decide which party can act on it"
    assert type(translated) is ERROR_TYPES[error.code()]
    assert str(translated).startswith("testing x: Kafka answered ")
    assert "; " in str(translated)


def test_no_code_is_named_twice() -> None:
    names = [name for group in _NAMES.values() for name in group.split()]

    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._FENCED, FencedError),
        (KafkaError.INVALID_PRODUCER_EPOCH, FencedError),
        (KafkaError._TRANSPORT, BrokerUnavailableError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, MissingTopicError),
        (KafkaError._AUTO_OFFSET_RESET, LostRangeError),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ConfigError),
        (KafkaError.CONCURRENT_TRANSACTIONS, TemporaryError),
    ],
)
def test_the_error_class_says_how_to_react(code: int, expected: type[SamzapyError]) -> None:
    assert type(translate(KafkaException(KafkaError(code)), "testing")) is expected


def test_a_fatal_error_is_never_temporary() -> None:
    error = KafkaError(KafkaError._TRANSPORT, "x", True)

    assert error.fatal()
    assert type(translate(error, "testing")) is UndeliveredError
    assert type(translate(KafkaError(KafkaError.INVALID_RECORD, "x", True), "testing")) is ProducerError


def test_a_fatal_fencing_is_still_a_fencing() -> None:
    assert type(translate(KafkaError(KafkaError._FENCED, "x", True), "testing")) is FencedError


def test_an_error_that_librdkafka_calls_retriable_is_temporary() -> None:
    error = KafkaError(KafkaError._STATE, "x", False, True)

    assert error.retriable()
    assert isinstance(translate(error, "testing"), TemporaryError)


def test_a_refused_login_is_named_although_the_wait_ends_in_a_time_out() -> None:
    events = [
        KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"),
        KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error: invalid credentials"),
    ]

    message = str(unavailable("broker-1:9092", 10.0, "reading x", events))

    assert "reading x: no broker answered within 10 s at broker-1:9092; authentication or TLS" in message
    assert "invalid credentials" in message
    assert "ssl.ca.location" in message


def test_a_connection_that_breaks_at_its_first_request_looks_like_tls() -> None:
    event = KafkaError(KafkaError._TRANSPORT, "Disconnected while requesting ApiVersion: might be caused by ...")

    assert "looks like authentication or TLS" in connection_hint([event])


def test_without_events_the_message_has_a_general_remedy() -> None:
    message = str(unavailable("broker-1:9092", 3.0, "reading x"))

    assert "see whether the brokers run" in message
