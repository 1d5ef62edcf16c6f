"""Errors of user code as text.

An error makes its text and attributes itself, and they may be of any size.
"""

from __future__ import annotations

import traceback
from pathlib import Path

from samzapy.model.serde import serde_of
from samzapy.model.text import cut, cut_mark

TRACEBACK_CHARS_MAX = 16_000
_PART_CHARS_MAX = 2_000
_KEY_CHARS_MAX = 200
_PARTS = Path(__file__).parents
# The loop, the serdes, and the handles of task classes.
_OUR_DIRECTORIES = (str(_PARTS[0]), serde_of.__code__.co_filename.rpartition("/")[0], str(_PARTS[2]))


def user_traceback(error: BaseException) -> str:
    """The traceback without frames of samzapy.

    Empty when no code of the user ran, as when a serde refused the message.

    At most `TRACEBACK_CHARS_MAX` characters: a long text of the error is cut, so that the frames in front of it stay,
    and of many frames the last ones count.
    """
    try:
        captured = traceback.TracebackException.from_exception(error)
        frames = [frame for frame in captured.stack if not _is_ours(frame.filename)]
        if not frames:
            return ""
        captured.stack = traceback.StackSummary.from_list(frames)
        parts = [cut(part.rstrip("\n"), _PART_CHARS_MAX) for part in captured.format()]
    except BaseException:  # Attributes of the error are looked at, which are user code.
        parts = ["<the traceback cannot be made: the error's own code raises>"]
    return "\n".join(parts).encode(errors="replace").decode()[-TRACEBACK_CHARS_MAX:]


def _is_ours(filename: str) -> bool:
    return filename.rpartition("/")[0] in _OUR_DIRECTORIES


def shown_key(key: bytes | None) -> str:
    """A message's key, for a line that an operator reads.

    The mark of a long key has the digest of the key, not of its text.
    """
    text = repr(key)
    if key is None or len(text) <= _KEY_CHARS_MAX:
        return text
    return f"{text[:_KEY_CHARS_MAX]}... [{cut_mark(len(key), 'bytes', key)}]"
