"""What user code raises, as text. An error makes its text and its attributes itself, and they may be of any size."""

from __future__ import annotations

import traceback
from collections.abc import Collection

from samzapy.model.text import cut

TRACEBACK_CHARS_MAX = 16_000
_PART_CHARS_MAX = 2_000
_KEY_CHARS_MAX = 200


def user_traceback(error: BaseException, not_the_users: Collection[str]) -> str:
    """The traceback without frames of samzapy; empty when no code of the user ran (a serde refused the message).

    At most `TRACEBACK_CHARS_MAX` characters: a long text of the error is cut, so that the frames in front of it stay,
    and of many frames the last ones count.

    Args:
        not_the_users: files whose frames are left out.
    """
    try:
        told = traceback.TracebackException.from_exception(error)
        frames = [frame for frame in told.stack if frame.filename not in not_the_users]
        if not frames:
            return ""
        told.stack = traceback.StackSummary.from_list(frames)
        parts = [cut(part.rstrip("\n"), _PART_CHARS_MAX) for part in told.format()]
    except BaseException:  # Attributes of the error are looked at, which are user code.
        parts = ["<the traceback cannot be made: the error's own code raises>"]
    return "\n".join(parts).encode(errors="replace").decode()[-TRACEBACK_CHARS_MAX:]


def shown_key(key: bytes | None) -> str:
    """A message's key, for a line that an operator reads."""
    return cut(repr(key), _KEY_CHARS_MAX)
