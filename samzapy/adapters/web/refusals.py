"""The view of a refused request, for actions and moments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response

from samzapy.errors import ConfigError, DataError, RejectedError, SamzapyError

Show = Callable[[str, Request, Mapping[str, object], int], Awaitable[Response]]
"""Makes the answer with a view of the page: its name, the request, its values, the status."""


async def show_refusal(
    show: Show, request: Request, error: SamzapyError, back: str, status_code: int | None = None
) -> Response:
    """The answer that says why a request was refused.

    Args:
        back: the view to which it leads.
        status_code: None: 400 for a mistake of the caller, and 503 where another try may help.
    """
    if status_code is None:
        status_code = 400 if isinstance(error, RejectedError | ConfigError | DataError) else 503
    return await show("refused", request, {"reason": str(error), "back": (back, back)}, status_code)
