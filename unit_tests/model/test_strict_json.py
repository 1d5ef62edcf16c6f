import pytest

from samzapy.model.strict_json import parse_json


def test_what_json_is_comes_through() -> None:
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
        (b"[" * 100_000, "nested too deep"),
        (b"1" * 10_000, "Exceeds the limit"),
    ],
)
def test_what_others_would_read_otherwise_or_not_at_all_is_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(raw)


def test_a_name_of_megabytes_is_not_told_in_full() -> None:
    name = b'"' + b"n" * 1_000_000 + b'"'

    with pytest.raises(ValueError, match="stands twice") as refused:
        parse_json(b"{" + name + b":1," + name + b":2}")

    assert len(str(refused.value)) < 200
