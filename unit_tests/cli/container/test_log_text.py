"""The end of a log and its further lines."""

from __future__ import annotations

from io import BytesIO
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.cli.container import log_text
from samzapy.cli.container.log_text import appended, last_lines


class BytesLog:
    def __init__(self, text: bytes = b"") -> None:
        self.text = text
        self.bytes_read = 0

    def length(self) -> int:
        return len(self.text)

    def read(self, start: int, end: int) -> bytes:
        self.bytes_read += end - start
        return self.text[start:end]


class TextLog(BytesLog):
    """A log whose parts arrive as text, as the page of a Spark worker sends them."""

    def read(self, start: int, end: int) -> bytes:
        return super().read(start, end).decode(errors="replace").encode()


@given(
    st.lists(st.sampled_from([b"", b"a", b"50%\r60%", b"bb" * 5, b"\xc3\xa4"]), max_size=12),
    st.booleans(),
    st.integers(0, 14),
)
def test_the_last_lines_are_those_of_the_whole_log(lines: list[bytes], is_whole: bool, count: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_text, "BLOCK_BYTES", 3)
        text = b"\n".join(lines) + (b"\n" if is_whole else b"")

        last = last_lines(BytesLog(text), count, len(text))

    whole = BytesIO(text).readlines()
    assert b"".join(whole[max(0, len(whole) - count) :]) == last


def test_of_a_long_log_only_the_end_is_read() -> None:
    log = BytesLog(b"a line\n" * 1_000_000)

    assert b"a line\n" * 100 == last_lines(log, 100, log.length())
    assert log.bytes_read == log_text.BLOCK_BYTES


def test_a_log_is_followed_in_blocks_also_after_it_was_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_text, "BLOCK_BYTES", 4)
    log = BytesLog(b"old\n")
    writes = iter([b"old\nappended", b"old\nappended", b"new"])

    def wait() -> None:
        log.text = next(writes)

    assert [b"appe", b"nded", b"new"] == list(islice(appended(log, 4, wait), 3))


def test_a_log_whose_blocks_are_longer_than_their_parts_is_followed_without_gaps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The page of a Spark worker has three bytes for one that is no text."""
    monkeypatch.setattr(log_text, "BLOCK_BYTES", 2)
    log = TextLog("aää".encode())

    followed = b"".join(islice(appended(log, 0, lambda: None), 3))

    assert "a\ufffd\ufffd\ufffd\ufffd" == followed.decode()
