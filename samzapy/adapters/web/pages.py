"""The web page of a job: its routes, and the work behind them.

| route | answer |
|---|---|
| `GET /` | the overview |
| `GET /ui/tasks`, `/ui/task?name=` | the tasks, and one of them |
| `GET /ui/containers`, `/ui/requests`, `/ui/timeline`, `/ui/load` | the other views |
| `GET /ui/events` | server-sent events: `changed` when there is something new to show |
| `GET /ui/page.css`, `/ui/page.js` | the style and the script |

All links are relative, so a reverse proxy may serve the page under any path. All work is done in one thread of its own,
one thing after the other: heartbeats, which have the event loop's thread, wait for none of it. A look at the job is
shared by all viewers, and is taken so seldom that looks use a small part of a core however large the job is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Final, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from samzapy.adapters.web.actions import Actions, Operations
from samzapy.adapters.web.bodies import Bodies
from samzapy.adapters.web.guard import Guard
from samzapy.adapters.web.moments import History, Moments
from samzapy.adapters.web.page_rendering import (
    STATIC,
    Html,
    html_of,
    leader_html,
    obstacle_html,
    refusal_html,
    single_html,
    static_bytes,
)
from samzapy.coordinator.ports import Clock
from samzapy.coordinator.snapshot import Snapshot
from samzapy.errors import RejectedError
from samzapy.inspection.page.look import Look, look_at
from samzapy.inspection.page.trend import INTERVAL_MS
from samzapy.model.credential import Scope

T = TypeVar("T")
_LOG = logging.getLogger(__name__)

VIEWERS_MAX: Final = 32
LOOK_MS: Final = 1000
"""A look is at least so old before the next one is taken."""
SHARE_MAX: Final = 0.05
"""The part of a core that looks may use."""
KEPT_MAX: Final = 64
"""So many pages of the latest look are kept, for viewers that look at the same."""
ALIVE_S: Final = 15.0
"""A comment is sent after so long without an event, so that a proxy does not end the stream."""
EVENTS_PER_S_MAX: Final = 10
"""Events to all viewers together; a viewer loads its view at each."""
_STEP_S: Final = 0.25
_REST_S: Final = 0.0002

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
}
"""In place of the server's own policy; `guard.HeaderChecks` adds the others."""
_VIEWS: Final = {
    "/": "overview",
    "/ui/tasks": "tasks",
    "/ui/task": "task",
    "/ui/containers": "containers",
    "/ui/requests": "requests",
    "/ui/timeline": "timeline",
    "/ui/load": "load",
}


class PageSource(Protocol):
    """The coordinator behind a page, as `routes.Answering` has it."""

    @property
    def clock(self) -> Clock: ...

    @property
    def guard(self) -> Guard: ...

    @property
    def operations(self) -> Operations | None: ...

    @property
    def history(self) -> History | None: ...

    @property
    def bodies(self) -> Bodies: ...

    @property
    def stopping(self) -> Callable[[], bool]: ...

    def leading(self) -> Snapshot | None: ...

    def leader_url(self) -> str | None: ...

    def obstacle(self) -> str: ...


Answer = Callable[[PageSource, Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class _Reading:
    """A snapshot, with the time of its reading.

    The page's thread may be busy for a second before it looks. A look with the time of the thread would show old
    figures as those of that moment, and new figures would wait for the next look.
    """

    snapshot: Snapshot
    now_ms: int
    wall_ms: int


class Pages:
    """The page of one server.

    Only the event loop calls its methods; the thread has `_look_now` and the rendering.
    """

    def __init__(self, source: PageSource) -> None:
        self._source = source
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="samzapy-page")
        self._look: Look | None = None
        self._look_after_ms = 0
        self._sampling: Future[Look] | None = None
        self._kept: OrderedDict[tuple[str, str, bool], bytes] = OrderedDict()
        self._kept_of: Look | None = None
        self._viewers = 0
        self._places = cycle(range(VIEWERS_MAX))

    def answers(self) -> Mapping[str, Answer]:
        """The answer of each route, by its path."""
        static = {f"/ui/{name}": _static_answer(name) for name in STATIC}
        return {
            **{path: self._view_answer(name) for path, name in _VIEWS.items()},
            **static,
            "/ui/events": self._events,
        }

    def moment_answers(self) -> Mapping[str, Answer]:
        """The answers about moments of the past, by their paths."""
        if self._source.history is None:
            return {}
        moments = Moments(self._source.history, self._show, self._not_leading)
        return {"/ui/moment": moments.moment, "/ui/diff": moments.diff}

    def action_answers(self) -> Sequence[tuple[str, str, Answer]]:
        """Path, method and answer of each route of the actions, if there are any."""
        if self._source.operations is None:
            return ()
        actions = Actions(self._source.operations, self._show, self._not_leading)
        return (
            ("/ui/actions", "GET", actions.forms),
            ("/ui/plan", "GET", actions.plan),
            ("/ui/apply", "POST", actions.apply),
        )

    def sample(self) -> None:
        """Take a look for the last hour and the timeline, if the latest one is old.

        It is called with each request. A job that runs gets heartbeats, so the hour has no gap.
        """
        if self._sampling is not None and not self._sampling.done():
            return
        now_ms = self._source.clock.monotonic_ms()
        if self._look is not None and now_ms - self._look.now_ms < INTERVAL_MS:
            return
        reading = self._read()
        if reading is not None:
            self._sampling = self._thread.submit(self._look_now, reading)
            self._sampling.add_done_callback(_log_failure)

    def _read(self) -> _Reading | None:
        """The job as it is now; None if this process does not lead, or reaches no broker."""
        # The time comes first: a snapshot that is older than its time would end the wait for the next look.
        now_ms, wall_ms = self._source.clock.monotonic_ms(), self._source.clock.wall_ms()
        snapshot = self._source.leading()
        return None if snapshot is None else _Reading(snapshot, now_ms, wall_ms)

    def _look_now(self, reading: _Reading) -> Look:
        """The latest look, or a new one if that is old.

        Only the page's thread calls this.
        """
        snapshot, now_ms = reading.snapshot, reading.now_ms
        if self._look is not None and now_ms < self._look_after_ms and _is_same_term(self._look.snapshot, snapshot):
            return self._look
        # By the time of this thread: on a busy machine a look takes long and uses no more of a core.
        began_s = time.thread_time()
        look = look_at(snapshot, self._look, now_ms=now_ms, wall_ms=reading.wall_ms, rest=_rest)
        took_ms = 1000 * (time.thread_time() - began_s)
        # Viewers of one view share its page, so there is one look for a round of events.
        self._look_after_ms = now_ms + int(max(1000 * period_s(self._viewers), took_ms / SHARE_MAX))
        self._look = look
        return look

    def _view_answer(self, name: str) -> Answer:
        async def answer(source: PageSource, request: Request) -> Response:
            reading = self._read()
            if reading is None:
                return await self._not_leading(name)
            return await self._in_thread(partial(self._view, name, reading, request))

        return answer

    async def _not_leading(self, name: str) -> Response:
        """The answer of a process that does not lead, or that reaches no broker."""
        return await self._in_thread(partial(_not_leading, self._source, name))

    async def _show(self, name: str, request: Request, values: Mapping[str, object], status_code: int) -> Response:
        """The answer with a view that is made for this request alone."""
        reading = self._read()
        if reading is None:
            return await self._not_leading(name)

        def show() -> Response:
            look = self._look_now(reading)
            html = single_html(name, look, {**values, "operates": self._operates(request)}, _rest)
            return _page(html, status_code)

        return await self._in_thread(show)

    def _operates(self, request: Request) -> bool:
        """Whether the caller may use actions, and there are any."""
        return self._source.operations is not None and self._source.guard.allows(request.state.caller, Scope.OPERATE)

    def _view(self, name: str, reading: _Reading, request: Request) -> Response:
        """The answer to a request for a view, in the page's thread."""
        look = self._look_now(reading)
        if look is not self._kept_of:
            self._kept.clear()
            self._kept_of = look
        operates = self._operates(request)
        key = (name, request.url.query, operates)
        body = self._kept.get(key)
        if body is None:
            try:
                body = self._html(name, look, request, operates).encode()
            except RejectedError as error:
                return _page(refusal_html(str(error), name), 400)
            self._kept[key] = body
            if len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return _page(body, 200)

    def _html(self, name: str, look: Look, request: Request, operates: bool) -> Html:
        has_history = self._source.history is not None
        return html_of(name, look, request.query_params, _rest, operates=operates, has_history=has_history)

    async def _events(self, source: PageSource, request: Request) -> Response:
        if source.leading() is None:
            return Response(status_code=503, headers=_HEADERS)
        if self._viewers >= VIEWERS_MAX:
            return Response(
                f"wanted a place among {VIEWERS_MAX} viewers, found none; the page asks again",
                status_code=503,
                headers={**_HEADERS, "Retry-After": "30"},
            )
        self._viewers += 1
        return _EventStream(self._changes(source), on_end=self._viewer_left)

    def _viewer_left(self) -> None:
        self._viewers -= 1

    async def _changes(self, source: PageSource) -> AsyncIterator[str]:
        """An event for each new look, until this process does not lead any more, or stops."""
        loop = asyncio.get_running_loop()
        yield "retry: 3000\n\n"
        sent, silent_s = 0, loop.time()
        # Viewers that came together load their views one after the other, so that a heartbeat waits for one at most.
        spread_s = period_s(VIEWERS_MAX) * next(self._places) / VIEWERS_MAX
        while not source.stopping():
            reading = self._read()
            if reading is None:
                yield "event: changed\ndata: 0\n\n"
                return
            look = await self._in_thread(partial(self._look_now, reading))
            if look.number != sent:
                sent, silent_s = look.number, loop.time()
                yield f"event: changed\ndata: {sent}\n\n"
            elif loop.time() - silent_s > ALIVE_S:
                silent_s = loop.time()
                yield ": alive\n\n"
            next_s = loop.time() + period_s(self._viewers) + spread_s
            spread_s = 0.0
            while loop.time() < next_s and not source.stopping():
                await asyncio.sleep(_STEP_S)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def period_s(viewers: int) -> float:
    """The shortest time between two events to one of so many viewers."""
    return max(LOOK_MS / 1000, viewers / EVENTS_PER_S_MAX)


def _rest() -> None:
    """Let the event loop's thread run.

    A thread that computes keeps Python's lock for 5 ms at a time, and a heartbeat needs the lock several times.
    """
    time.sleep(_REST_S)


class _EventStream(StreamingResponse):
    """A stream of events that frees its place however it ends."""

    def __init__(self, events: AsyncIterator[str], on_end: Callable[[], None]) -> None:
        # A proxy must not hold events back (nginx reads this header).
        headers = {**_HEADERS, "X-Accel-Buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._on_end = on_end

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


def _static_answer(name: str) -> Answer:
    async def answer(source: PageSource, request: Request) -> Response:
        # The links to it have its digest, so a new release is never served from a cache.
        headers = {**_HEADERS, "Cache-Control": "private, max-age=86400"}
        return Response(static_bytes(name), media_type=STATIC[name], headers=headers)

    return answer


def _not_leading(source: PageSource, view: str) -> Response:
    obstacle = source.obstacle()
    return _page(obstacle_html(obstacle, view) if obstacle else leader_html(source.leader_url(), view), 503)


def _page(body: Html | bytes, status_code: int) -> Response:
    # A viewer keeps one connection, that of its events; others are free for heartbeats at once.
    headers = {**_HEADERS, "Connection": "close"}
    return Response(body, status_code=status_code, media_type="text/html", headers=headers)


def _is_same_term(one: Snapshot, other: Snapshot) -> bool:
    return one.state.term == other.state.term


def _log_failure(sampling: Future[Look]) -> None:
    error = sampling.exception()
    if error is not None:
        _LOG.error("the page could not look at the job: %s", error, exc_info=error)
