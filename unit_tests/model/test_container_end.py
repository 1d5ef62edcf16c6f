"""Reports of ends: the parts of an error that they have, and those that never."""

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.container.task.user_errors import shown_key
from samzapy.errors import SamzapyError, TaskError
from samzapy.model.container_end import (
    MESSAGE_LENGTH_MAX,
    UNKNOWN,
    ContainerEnd,
    exit_text,
    message_of,
    with_key_digests,
)

KEY = b"alice@example.com"
DIGEST = hashlib.sha256(KEY).hexdigest()[:16]
FAILED = (
    "wanted a commit within 3 starts of the query, found none; last failure: samzapy.errors.TaskError: task "
    f"Partition_3 failed at kafka.orders.3 offset 12, key {KEY!r}: KeyError: {KEY.decode()!r}. Unread are 3"
)


def digest_of(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()[:16]


def ended(error: Exception) -> ContainerEnd:
    return ContainerEnd.of_error(error, processor_id="0", execution_id="e1", host="host-a", at_ms=5)


def test_the_message_that_ended_a_container_is_read_from_the_error() -> None:
    end = ended(TaskError(FAILED))

    assert (end.exit_code, end.error) == (7, "KeyError")
    assert (end.task_name, end.ssp, end.offset, end.key_digest) == ("Partition_3", "kafka.orders.3", 12, DIGEST)


def test_no_key_is_in_a_report_also_where_user_code_names_it() -> None:
    end = ended(TaskError(FAILED))

    assert KEY.decode() not in str(end.as_json())
    assert DIGEST in end.message


@pytest.mark.parametrize(
    ("key", "task", "ssp", "offset"),
    [
        (b"123", "Partition_0", "kafka.flights.0", 51234),
        (b"orders", "Partition_0", "kafka.orders.0", 7),
        (b"100", "Partition_100", "kafka.orders.100", 100),
        (b"failed", "Partition_0", "kafka.orders.0", 7),
    ],
)
def test_a_place_whose_text_contains_the_key_is_reported_as_it_is(
    key: bytes, task: str, ssp: str, offset: int
) -> None:
    text = f"task {task} failed at {ssp} offset {offset}, key {key!r}: KeyError: {key.decode()!r}"
    end = ended(TaskError(text))

    assert (task, ssp, offset) == message_of(text)
    assert (task, ssp, offset) == (end.task_name, end.ssp, end.offset)
    assert (digest_of(key), "KeyError") == (end.key_digest, end.error)
    assert end.message.endswith(": KeyError: '<key>'")


def test_a_digest_that_contains_its_key_stays_whole_where_no_place_is_named() -> None:
    key = next(key for key in (b"%03d" % i for i in range(1000)) if key.decode() in digest_of(key))

    assert with_key_digests(f"timer t of key {key!r}: failed at {key.decode()}") == (
        f"timer t of key sha256:{digest_of(key)}: failed at <key>"
    )


def ways_to_name(key: bytes) -> list[str]:
    text = key.decode(errors="replace")
    return [text, repr(text), repr(key)]


@pytest.mark.parametrize(
    "key",
    [b"C:\\alice", b"alice\tlee", "al\u200bice".encode(), b"\xffalice@x.com", b"al'ice", b"al'ice\"lee"],
    ids=["backslash", "tab", "invisible", "no text", "quote", "both quotes"],
)
def test_no_key_is_in_a_report_also_where_it_is_named_as_a_literal(key: bytes) -> None:
    for named in ways_to_name(key):
        hidden = with_key_digests(f"offset 12, key {key!r}: KeyError: {named}; more")

        assert re.fullmatch(rf"offset 12, key sha256:{digest_of(key)}: KeyError: b?['\"]?<key>['\"]?; more", hidden)


def test_no_key_of_serde_json_is_in_a_report_also_where_it_is_named_without_its_quotes() -> None:
    key = b'"alice"'

    hidden = with_key_digests(f"offset 12, key {key!r}: KeyError: 'alice'")

    assert f"offset 12, key sha256:{digest_of(key)}: KeyError: '<key>'" == hidden


@pytest.mark.parametrize(
    "key",
    [
        b"alice@x.com" * 30,
        b"alice lee's " * 30,
        b"alice's " * 30 + b'"',
        b'"alice lee" ' * 30,
        "al\u00efce ".encode() * 40,
        b"a" * 197 + b"\xff" * 9,
        b"a\n\\" * 90,
    ],
    ids=["letters", "a quote", "a late quote", "JSON", "letters of two bytes", "cut in an escape", "only escapes"],
)
def test_no_key_that_is_too_long_to_be_shown_is_in_a_report(key: bytes) -> None:
    for named in ways_to_name(key):
        hidden = with_key_digests(f"offset 12, key {shown_key(key)}: KeyError: {named}\nTraceback")

        assert re.fullmatch(
            rf"offset 12, key sha256:{digest_of(key)}: KeyError: b?['\"]?\"?<key>(\nTraceback)?", hidden
        )


@given(st.binary(min_size=201, max_size=400))
def test_the_end_of_a_key_that_is_too_long_to_be_shown_is_in_no_report(key: bytes) -> None:
    for named in ways_to_name(key):
        hidden = with_key_digests(f"offset 12, key {shown_key(key)}: KeyError: {named}")

        assert re.fullmatch(rf"offset 12, key sha256:{digest_of(key)}: KeyError: b?['\"]?\"*<key>", hidden)


def test_a_forged_length_of_a_key_is_no_error() -> None:
    text = f"key b'{'a' * 198}... [cut, whole length 9999999999 bytes, sha256 {'0' * 64}]: no {'a' * 300}"

    assert with_key_digests(text) == f"key sha256:{'0' * 16}: no <key>"


@pytest.mark.parametrize("literal", ["b'\u00e9'", "b'a\nb'", r"b'\xZZ'"])
def test_a_text_that_only_looks_like_a_key_is_digested_too(literal: str) -> None:
    """User code may write such a text in its error."""
    digest = hashlib.sha256(literal[2:-1].encode()).hexdigest()[:16]

    assert with_key_digests(f"no key {literal} here") == f"no key sha256:{digest} here"


def test_a_message_without_a_key_has_no_digest() -> None:
    end = ended(TaskError("task T failed at kafka.orders.3 offset 12, key None: ValueError: no"))

    assert (end.error, end.offset, end.key_digest) == ("ValueError", 12, "")


def test_an_error_without_a_message_has_its_own_class() -> None:
    end = ended(SamzapyError("a micro-batch hangs"))

    assert (end.exit_code, end.error, end.task_name, end.offset) == (1, "SamzapyError", "", -1)
    assert str(end) == "container e1 on host-a ended with exit code 1: a micro-batch hangs"


def test_a_report_has_one_short_line() -> None:
    assert len(ended(SamzapyError("a\nb " * 5000)).message) == MESSAGE_LENGTH_MAX
    assert "\n" not in ended(SamzapyError("a\nb")).message


@given(st.binary(min_size=4, max_size=400), st.text(max_size=20))
def test_the_digest_of_a_key_is_that_of_its_bytes(key: bytes, more: str) -> None:
    """Also of a key that is too long to be shown whole."""
    text = with_key_digests(f"offset 3, key {shown_key(key)}: ValueError: {more}")

    assert text.startswith(f"offset 3, key sha256:{hashlib.sha256(key).hexdigest()[:16]}: ValueError: ")


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [
        (UNKNOWN, "ended"),
        (None, "ended"),
        (7, "ended with exit code 7"),
        (137, "ended with exit code 137 (SIGKILL)"),
        (255, "ended with exit code 255"),
    ],
)
def test_an_exit_code_of_a_signal_has_its_name(exit_code: int | None, words: str) -> None:
    assert words == exit_text(exit_code)


def test_a_report_is_read_back_from_json() -> None:
    end = ended(TaskError(FAILED))

    assert ContainerEnd.from_json(end.as_json()) == end


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("exitCode", "7"),
        ("exitCode", True),
        ("offset", -2),
        ("offset", 2**63),
        ("message", None),
        ("processorId", "a/b"),
        ("executionId", ""),
    ],
)
def test_a_wrong_field_is_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        ContainerEnd.from_json({**ended(TaskError("no")).as_json(), name: value})


def test_long_and_odd_texts_are_cut_and_mended() -> None:
    end = ContainerEnd.from_json({**ended(TaskError("no")).as_json(), "message": "\ud800" * 9000})

    assert end.message == "?" * MESSAGE_LENGTH_MAX
