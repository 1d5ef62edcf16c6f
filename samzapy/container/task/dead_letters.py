"""The dead letter of a failed message, made so that its topic takes it.

A dead letter that its topic refuses would stop the job for a message that was to be put aside. So a letter that is too
large is cut, the least important part first: traceback, error, value, the message's own headers, key. A header names
each part of the message that was cut, with its whole length and its digest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from samzapy.container.task.record_size import record_bytes
from samzapy.model.text import cut_mark

MARK_BYTES: Final = 160
"""At least the size of a mark, with its header's name and lengths."""
FITS_BYTES: Final = 2_048
"""The dead letter of any message can be cut to this size, with names of Kafka's longest topic."""
Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A failed message and its error.

    Attributes:
        key, value, own_headers: the message's.
        place: headers that name the message.
        marks: headers that name the parts that were changed.
    """

    key: bytes | None
    value: bytes | None
    own_headers: Sequence[Header]
    place: Sequence[Header]
    error: bytes
    traceback: bytes
    marks: tuple[Header, ...] = ()

    @property
    def headers(self) -> tuple[Header, ...]:
        """All headers of the letter.

        The message's own come last: a reader that looks one of ours up by name takes the first.
        """
        why: tuple[Header, ...] = (("error", self.error), ("traceback", self.traceback))
        return (*self.place, *why, *self.marks, *self.own_headers)

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        return record_bytes(self.key, self.value, self.headers)

    def with_key(self, key: bytes) -> DeadLetter:
        """The letter for a compacted topic, which takes no record without a key."""
        return replace(self, key=key, marks=(*self.marks, ("no.key", b"the topic is compacted and wants one")))

    def fitted(self, size_max: int) -> DeadLetter:
        """A letter of at most `size_max` bytes, if that is at least `FITS_BYTES`."""
        letter = self
        for shorten in _SHORTEN:
            over = letter.size - size_max
            if over <= 0:
                break
            letter = shorten(letter, over)
        return letter


def _shorter_traceback(letter: DeadLetter, over: int) -> DeadLetter:
    return replace(letter, traceback=_shorter_text(letter.traceback, over))


def _shorter_error(letter: DeadLetter, over: int) -> DeadLetter:
    return replace(letter, error=_shorter_text(letter.error, over))


def _shorter_value(letter: DeadLetter, over: int) -> DeadLetter:
    if letter.value is None or len(letter.value) <= MARK_BYTES:
        return letter
    mark = cut_mark(len(letter.value), "bytes", letter.value).encode()
    kept = max(0, len(letter.value) - over - MARK_BYTES)
    return replace(letter, value=letter.value[:kept], marks=(*letter.marks, ("cut.value", mark)))


def _fewer_headers(letter: DeadLetter, over: int) -> DeadLetter:
    if record_bytes(None, None, letter.own_headers) <= MARK_BYTES:
        return letter
    mark = cut_mark(len(letter.own_headers), "headers", repr(list(letter.own_headers)).encode(errors="replace"))
    kept = list(letter.own_headers)
    removed = 0
    while kept and removed < over + MARK_BYTES:
        removed += record_bytes(None, None, [kept.pop()])
    return replace(letter, own_headers=tuple(kept), marks=(*letter.marks, ("cut.headers", mark.encode())))


def _shorter_key(letter: DeadLetter, over: int) -> DeadLetter:
    if letter.key is None or len(letter.key) <= MARK_BYTES:
        return letter
    mark = cut_mark(len(letter.key), "bytes", letter.key).encode()
    kept = max(0, len(letter.key) - over - MARK_BYTES)
    return replace(letter, key=letter.key[:kept], marks=(*letter.marks, ("cut.key", mark)))


_SHORTEN: Sequence[Callable[[DeadLetter, int], DeadLetter]] = (
    _shorter_traceback,
    _shorter_error,
    _shorter_value,
    _fewer_headers,
    _shorter_key,
)


def _shorter_text(text: bytes, over: int) -> bytes:
    """The beginning of UTF-8 text, shorter by at least `over` bytes, with a mark."""
    if len(text) <= MARK_BYTES:
        return text[: max(0, len(text) - over)].decode(errors="ignore").encode()
    kept = max(0, len(text) - over - MARK_BYTES)
    mark = f"... [{cut_mark(len(text), 'bytes', text)}]".encode()
    return text[:kept].decode(errors="ignore").encode() + mark
