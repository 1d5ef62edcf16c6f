import json
import time
from math import isfinite

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from samzapy.model.strict_json import LEVELS_MAX, parse_json


def test_json_values_are_read_back_unchanged() -> None:
    assert {"a": [1, 2.5, None, True, "ä"], "b": {}} == parse_json(
        '{"a": [1, 2.5, null, true, "ä"], "b": {}}'.encode()
    )


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "Expecting value"),
        (b"\xff", "utf-8"),
        (b"NaN", "NaN is not JSON"),
        (b'{"a": -Infinity}', "-Infinity is not JSON"),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' stands twice"),
        (b"[" * 100_000, "nested too deep: wanted at most 400 levels"),
        (b"[" * 401 + b"]" * 401, "nested too deep: wanted at most 400 levels"),
        (b'{"a":' * 401 + b"1" + b"}" * 401, "nested too deep: wanted at most 400 levels"),
        (b"1e400", "1e400 is larger than a number can be"),
        (b'{"a": [1, -1.5E+999]}', r"-1.5E\+999 is larger than a number can be"),
        (b"9" * 309 + b".5", "9999 is larger than a number can be"),
        (b"\xef\xbb\xbf{}", "which looks like a UTF-8 byte order mark"),
        (b"1" * 10_000, "Exceeds the limit"),
    ],
)
def test_json_that_other_parsers_read_differently_or_not_at_all_is_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(raw)


def test_as_many_levels_as_are_read_are_read() -> None:
    text = b"[" * LEVELS_MAX + b"]" * LEVELS_MAX

    assert text.decode() == json.dumps(parse_json(text))
    assert [{"brackets": "[{" * 1000}] == parse_json(b'[{"brackets": "' + b"[{" * 1000 + b'"}]')


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["{!r}", "{:.17g}", "{:.25e}", "{:.3E}", "{:f}"]),
)
def test_a_number_is_read_as_python_reads_it(number: float, style: str) -> None:
    text = style.format(number)
    # Rounded to four digits, the largest numbers overflow.
    assume(isfinite(float(text)))

    assert float(text) == parse_json(text.encode())


def test_a_name_of_megabytes_is_shortened_in_the_error() -> None:
    name = b'"' + b"n" * 1_000_000 + b'"'

    with pytest.raises(ValueError, match="stands twice") as refused:
        parse_json(b"{" + name + b":1," + name + b":2}")

    assert len(str(refused.value)) < 200


def test_a_repeated_key_of_a_large_object_is_found_in_time() -> None:
    """A message of a megabyte has as many keys, and its task waits."""
    names = [f"name-{number}" for number in range(40_000)]
    raw = ("{" + ",".join(f'"{name}":1' for name in [*names, names[-1]]) + "}").encode()
    begun_s = time.thread_time()

    with pytest.raises(ValueError, match="the key 'name-39999' stands twice"):
        parse_json(raw)

    assert time.thread_time() - begun_s < 2
