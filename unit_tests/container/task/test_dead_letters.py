from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from samzapy.container.task.dead_letters import FITS_BYTES, MARK_BYTES, DeadLetter
from samzapy.container.task.record_size import record_bytes

# Few draws and many bytes: it matters which part is large.
large = st.builds(lambda part, times: part * times, st.binary(max_size=20), st.integers(0, 20_000))
text = st.builds(lambda part, times: (part * times).encode(), st.text(max_size=20), st.integers(0, 5_000))
headers = st.lists(st.tuples(st.text(max_size=30), st.none() | large), max_size=5)
letters = st.builds(
    DeadLetter,
    key=st.none() | large,
    value=st.none() | large,
    own_headers=headers,
    place=st.just(
        (
            ("task", b"t" * 300),
            ("ssp", b"s" * 270),
            ("offset", b"9" * 19),
            ("timestamp", b"9" * 19),
        )
    ),
    error=text,
    traceback=text,
)


@given(letters, st.integers(FITS_BYTES, 500_000))
def test_a_dead_letter_always_fits(letter: DeadLetter, size_max: int) -> None:
    fitted = letter.fitted(size_max)

    assert record_bytes(fitted.key, fitted.value, fitted.headers) <= size_max
    assert letter.place == fitted.place


@given(letters, st.integers(FITS_BYTES, 500_000))
def test_each_part_of_a_dead_letter_is_whole_or_has_a_mark(letter: DeadLetter, size_max: int) -> None:
    fitted = letter.fitted(size_max)
    marks = dict(fitted.marks)

    for name, whole, kept in (("value", letter.value, fitted.value), ("key", letter.key, fitted.key)):
        if whole == kept:
            assert f"cut.{name}" not in marks
        else:
            assert whole is not None and kept is not None and whole.startswith(kept)
            assert (marks[f"cut.{name}"] or b"").endswith(hashlib.sha256(whole).hexdigest().encode())
    for text, cut in ((letter.error, fitted.error), (letter.traceback, fitted.traceback)):
        # A text that is as short as its mark is cut without one.
        if text != cut and len(text) > MARK_BYTES:
            assert cut.endswith(hashlib.sha256(text).hexdigest().encode() + b"]")
    if list(letter.own_headers) != list(fitted.own_headers):
        assert (marks["cut.headers"] or b"").startswith(
            f"cut, whole length {len(letter.own_headers)} headers".encode()
        )


@given(letters)
def test_a_dead_letter_that_fits_is_left_unchanged(letter: DeadLetter) -> None:
    assert letter == letter.fitted(letter.size)


@given(letters)
def test_the_message_is_cut_only_where_it_is_too_large_by_itself(letter: DeadLetter) -> None:
    message_bytes = record_bytes(letter.key, letter.value, letter.own_headers)

    fitted = letter.fitted(message_bytes + FITS_BYTES)

    assert (letter.key, letter.value, list(letter.own_headers)) == (
        fitted.key,
        fitted.value,
        list(fitted.own_headers),
    )
