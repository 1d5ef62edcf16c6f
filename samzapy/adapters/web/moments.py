"""The job as it was, and differences of moments.

| route | answer |
|---|---|
| `GET /ui/moment?at=` | the job at an offset of the coordinator stream, or at a time |
| `GET /ui/diff?from=&to=` | what is different at the second moment |

Both read the coordinator stream from its beginning, in a thread of their own, up to limits in records and in time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response

from samzapy.adapters.web.refusals import Show, show_refusal
from samzapy.adapters.web.turns import Turns
from samzapy.coordinator.snapshot import Snapshot
from samzapy.errors import RejectedError, SamzapyError
from samzapy.inspection.page.moments import Moment, moment_difference, moment_view
from samzapy.stream.position import Position


class History(Protocol):
    """The moments of a job. Any thread may call it."""

    def moments(self, at: Sequence[Position | None]) -> Sequence[Moment]:
        """The moments `at`, the earliest first; None is now.

        Raises:
            SamzapyError: there is no such moment, or it cannot be read in time.
        """
        ...


class MomentSource(Protocol):
    """The coordinator behind the moments, as `routes.Answering` has it."""

    def leading(self) -> Snapshot | None: ...


class Moments:
    """The moments of one server. Only the event loop calls its methods.

    Args:
        show: makes a page in the page's thread.
        not_leading: makes the answer of a process that does not lead.
    """

    def __init__(self, history: History, show: Show, not_leading: Callable[[str], Awaitable[Response]]) -> None:
        self._history = history
        self._show = show
        self._not_leading = not_leading
        self._turns = Turns("samzapy-history")

    async def moment(self, source: MomentSource, request: Request) -> Response:
        """The answer to `GET /ui/moment`."""
        return await self._answer("moment", ("at",), source, request)

    async def diff(self, source: MomentSource, request: Request) -> Response:
        """The answer to `GET /ui/diff`."""
        return await self._answer("diff", ("from", "to"), source, request)

    async def _answer(self, view: str, names: Sequence[str], source: MomentSource, request: Request) -> Response:
        if source.leading() is None:
            return await self._not_leading(view)
        try:
            at = [_position(name, request.query_params.get(name, "")) for name in names]
            values = await self._turns.take(partial(self._values, at))
        except SamzapyError as error:
            return await show_refusal(self._show, request, error, "timeline")
        return await self._show(view, request, values, 200)

    def _values(self, at: Sequence[Position | None]) -> Mapping[str, object]:
        moments = self._history.moments(at)
        if len(moments) == 1:
            return {"moment": moments[0], "job": moment_view(moments[0].state)}
        before, after = moments
        return {"before": before, "after": after, "difference": moment_difference(before.state, after.state)}


def _position(name: str, text: str) -> Position | None:
    """The position of a parameter; without `to` a difference goes up to now."""
    if name == "to" and not text.strip():
        return None
    try:
        return Position.parse(text.strip()[:100])
    except ValueError as error:
        raise RejectedError(f"{name}: {error}") from error
