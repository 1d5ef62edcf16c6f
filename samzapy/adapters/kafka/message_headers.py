"""The headers of a message of the client.

Any client may write any bytes as the name of a header. confluent-kafka (2.16) decodes names without a check: although
an error is set, it returns a list with a hole. A call that Python has specialised leaves `try` with this list, and a
later call raises the error, or the process dies. So no other module may call `Message.headers`.
"""

from __future__ import annotations

from operator import methodcaller
from typing import Any, Final

Headers = tuple[tuple[str, bytes | None], ...]
UNREADABLE_HEADERS: Final[Headers] = (("\N{REPLACEMENT CHARACTER}", None),)
"""In place of headers with a name that is not UTF-8."""

# A call from C, which Python never specialises: it checks for an error each time.
_ask_headers = methodcaller("headers")


def headers_of(message: Any) -> Headers:
    """The headers of a message; `UNREADABLE_HEADERS` if a name is not UTF-8.

    Ask once for each message: the client keeps the list with the hole, and returns it at the next call.
    """
    try:
        return tuple(_ask_headers(message) or ())
    except (SystemError, UnicodeDecodeError):
        return UNREADABLE_HEADERS
