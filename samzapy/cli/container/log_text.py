"""The end of a log and its further lines, wherever its bytes are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Final, Protocol

BLOCK_BYTES: Final = 64 * 1024
FOLLOW_EVERY_S: Final = 1.0


class Log(Protocol):
    """The bytes of a log."""

    def length(self) -> int:
        """The number of bytes now.

        Raises:
            SamzapyError: the log cannot be reached.
        """
        ...

    def read(self, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end`; fewer where the log is shorter.

        Raises:
            SamzapyError: the log cannot be reached.
        """
        ...


def last_lines(log: Log, count: int, length: int) -> bytes:
    """The last `count` lines of the first `length` bytes.

    The log is read backwards, block by block, as far as the lines need.
    """
    if count == 0:
        return b""
    blocks: list[bytes] = []
    newlines, start = 0, length
    # The newest newline ends the last line, and the oldest one ends a line before the wanted ones.
    while start and newlines <= count:
        end, start = start, max(0, start - BLOCK_BYTES)
        blocks.append(log.read(start, end))
        newlines += blocks[-1].count(b"\n")
    return b"".join(BytesIO(b"".join(reversed(blocks))).readlines()[-count:])


def appended(log: Log, position: int, wait: Callable[[], None]) -> Iterator[bytes]:
    """The bytes that are appended behind `position`, without end.

    A log that is shorter than before was begun anew, so it is read from its start.
    """
    while True:
        length = log.length()
        position = position if length >= position else 0
        while position < length:
            end = min(length, position + BLOCK_BYTES)
            yield log.read(position, end)
            # The page of a Spark worker replaces bytes that are no text, so a block may be longer than its part.
            position = end
        wait()
