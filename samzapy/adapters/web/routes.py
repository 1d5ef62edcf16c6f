"""The coordinator's HTTP routes.

Answers come from a snapshot; only heartbeats are passed on.

| route | scope | answer |
|---|---|---|
| `GET /containerHeartbeat?executionContainerId=` | heartbeat | `{"alive": …, "executionContainerId": …}` and more |
| `POST /containerHeartbeat` | heartbeat | the same, to a heartbeat (`coordinator.assignment.heartbeat_json`) |
| `GET /jobModel` | read | the plan in force, and its standbys (`plan.job_model_json`) |
| `GET /status` | read | `inspection.status` |
| `GET /metrics` | read | `inspection.metrics`, in Prometheus' text format |
| `GET /`, `GET /ui/…` | read | the page, for people (`adapters.web.pages`) |
| `GET /ui/moment`, `GET /ui/diff` | read | moments of the past (`adapters.web.moments`) |
| `GET /ui/actions`, `GET /ui/plan`, `POST /ui/apply` | operate | actions of the page (`adapters.web.actions`) |

Where credentials are configured, `adapters.web.guard` tells the scope of a request, and whether a heartbeat comes from
the execution that it is about.

A coordinator that does not lead, or has not verified for longer than a lease that it does, answers 503 with the leader
it knows. `/metrics` always answers, because a scrape of all processors of a job must not show most of them as down.
`alive: false` is final. So a new execution waits until it is registered, or gets a 503 and asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from samzapy.adapters.web.actions import Operations
from samzapy.adapters.web.bodies import Bodies
from samzapy.adapters.web.connections import keep_connection
from samzapy.adapters.web.guard import Denied, Guard, HeaderChecks
from samzapy.adapters.web.metrics import CONTENT_TYPE, exposition
from samzapy.adapters.web.moments import History
from samzapy.adapters.web.pages import Pages
from samzapy.coordinator.assignment.heartbeat_json import parse_heartbeat
from samzapy.coordinator.assignment.liveness import is_expected, may_register, may_work
from samzapy.coordinator.commands import Heartbeat
from samzapy.coordinator.launching.standbys import with_standbys
from samzapy.coordinator.ports import Clock
from samzapy.coordinator.snapshot import Snapshot
from samzapy.coordinator.state import job_model
from samzapy.inspection.metrics import Refusals, samples_of
from samzapy.inspection.status import status_json
from samzapy.model.credential import Scope
from samzapy.model.job import ExecutionId
from samzapy.plan.job_model_json import job_model_json

BODY_BYTES_MAX = 8 * 1024 * 1024
"""A heartbeat has every task of a container and its offsets: 6.5 MB for 10,000 tasks of a topic with the longest
possible name."""

REGISTERING_WAIT_S = 2.0
"""About the time of ten transactions; a container that is not registered by then asks again."""

_LOOK_S = 0.01


@dataclass(slots=True)
class InvalidCalls:
    """How often a container was unknown or declared lost in the answer.

    Only one thread answers.
    """

    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """The dependencies of the routes.

    Attributes:
        snapshot: the coordinator's latest; None before there is one.
        put: takes a heartbeat; False when there is no room.
        url: this coordinator's own URL, which is never given as that of another leader; set by the server.
        lease_ms: a snapshot that was verified longer ago gives no answers.
        leader: the leader's URL from another source, for a process that does not lead; None if unknown.
        invalid: counts the calls of containers that are unknown, or were declared lost.
        guard: the rights of requests; set by the server.
        operations: plans actions and writes their requests; None: there are no actions.
        history: reads moments of the past; None: the page shows none.
        brokers: says in words whether the brokers accept connections; it may take seconds.
        stopping: whether the server is about to end, so that answers which last end first; set by the server.
    """

    snapshot: Callable[[], Snapshot | None]
    put: Callable[[Heartbeat], bool]
    clock: Clock
    lease_ms: int
    leader: Callable[[], str | None] = lambda: None
    url: str = ""
    invalid: InvalidCalls = field(default_factory=InvalidCalls)
    guard: Guard = field(default_factory=Guard)
    bodies: Bodies = field(default_factory=Bodies)
    operations: Operations | None = None
    history: History | None = None
    brokers: Callable[[], str] = lambda: ""
    stopping: Callable[[], bool] = lambda: False

    def leading(self) -> Snapshot | None:
        """The snapshot, if this coordinator leads and may answer from it."""
        snapshot = self.snapshot()
        now_ms = self.clock.monotonic_ms()
        return snapshot if snapshot is not None and snapshot.may_answer(now_ms, self.lease_ms) else None

    def obstacle(self) -> str:
        """Why this process, which leads as far as it knows, gives no answers; else empty.

        It may take seconds.
        """
        snapshot = self.snapshot()
        verified_ms = None if snapshot is None else snapshot.verified_ms
        if verified_ms is None or self.leading() is not None:
            return ""
        silent_s = (self.clock.monotonic_ms() - verified_ms) // 1000
        return (
            f"broker-unreachable: this process leads, and no broker has answered it for {silent_s} s. {self.brokers()}"
        ).rstrip()

    def leader_url(self) -> str | None:
        """The URL of another process that leads; None if none is known."""
        snapshot = self.snapshot()
        term = None if snapshot is None else snapshot.state.term
        known = self.leader() or (None if term is None else term.url)
        return None if known == self.url else known


def make_app(answering: Answering, hosts: list[str]) -> Starlette:
    """The application.

    `hosts` are the host names that requests may have (against DNS rebinding).
    """

    pages = Pages(answering)

    def route(
        path: str, method: str, answer: Callable[[Answering, Request], Awaitable[Response]], scope: Scope
    ) -> Route:
        async def endpoint(request: Request) -> Response:
            request.state.caller = answering.guard.require(request, scope)
            pages.sample()
            return await answer(answering, request)

        return Route(path, endpoint, methods=[method])

    return Starlette(
        routes=[
            route("/containerHeartbeat", "GET", _is_alive, Scope.HEARTBEAT),
            route("/containerHeartbeat", "POST", _heartbeat, Scope.HEARTBEAT),
            route("/jobModel", "GET", _job_model, Scope.READ),
            route("/status", "GET", _status, Scope.READ),
            route("/metrics", "GET", _metrics, Scope.READ),
            *(route(path, "GET", answer, Scope.READ) for path, answer in pages.answers().items()),
            *(route(path, "GET", answer, Scope.READ) for path, answer in pages.moment_answers().items()),
            *(route(path, method, answer, Scope.OPERATE) for path, method, answer in pages.action_answers()),
        ],
        middleware=[
            Middleware(HeaderChecks, hosts=hosts),
            Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False),
        ],
        exception_handlers={HTTPException: _refused, Exception: _failed},
    )


async def _is_alive(answering: Answering, request: Request) -> Response:
    snapshot = answering.leading()
    if snapshot is None:
        return _not_leading(answering)
    execution_id = request.query_params.get("executionContainerId")
    if not execution_id:
        return _wrong(400, "wanted ?executionContainerId=<execution id>, found nothing")
    alive = may_work(snapshot.state, ExecutionId(execution_id))
    answering.invalid.count += not alive
    return _alive(snapshot, execution_id, alive=alive)


async def _heartbeat(answering: Answering, request: Request) -> Response:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return _wrong(415, "wanted Content-Type: application/json")
    body = await answering.bodies.read(request, BODY_BYTES_MAX)
    try:
        heartbeat = parse_heartbeat(body, received_ms=answering.clock.monotonic_ms())
    except ValueError as error:
        return _wrong(400, str(error))
    caller = request.state.caller
    answering.guard.check_heartbeat(request, caller, heartbeat)
    snapshot = answering.leading()
    if snapshot is None:
        return _not_leading(answering)
    renewed = answering.guard.new_credential(caller)
    if may_register(snapshot.state, heartbeat):
        return await _register(answering, heartbeat, renewed)
    expected = is_expected(snapshot.state, heartbeat)
    if expected and not answering.put(heartbeat):
        return _not_leading(answering)
    if expected:
        keep_connection(request, heartbeat.execution_id)
    answering.invalid.count += not expected
    return _alive(snapshot, heartbeat.execution_id, alive=expected, renewed=renewed)


async def _register(answering: Answering, heartbeat: Heartbeat, renewed: str | None) -> Response:
    if answering.put(heartbeat):
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + REGISTERING_WAIT_S
        while loop.time() < deadline_s:
            snapshot = answering.leading()
            if snapshot is None:
                break
            if heartbeat.execution_id in snapshot.state.containers:
                alive = is_expected(snapshot.state, heartbeat)
                return _alive(snapshot, heartbeat.execution_id, alive=alive, renewed=renewed)
            await asyncio.sleep(_LOOK_S)
    return _not_leading(answering)


async def _job_model(answering: Answering, request: Request) -> Response:
    snapshot = answering.leading()
    if snapshot is None:
        return _not_leading(answering)
    model = job_model(snapshot.state)
    if model is None:
        return _wrong(404, f"{snapshot.job} has no plan yet")
    return JSONResponse(job_model_json(with_standbys(model, snapshot.state)))


async def _status(answering: Answering, request: Request) -> Response:
    snapshot = answering.leading()
    if snapshot is None:
        return _not_leading(answering)
    return JSONResponse(status_json(snapshot, answering.clock.monotonic_ms()))


async def _metrics(answering: Answering, request: Request) -> Response:
    leading, snapshot = answering.leading(), answering.snapshot()
    samples = []
    if snapshot is not None:
        now_ms = answering.clock.monotonic_ms()
        refusals = Refusals(
            invalid_heartbeats=answering.invalid.count, refused_requests=answering.guard.refused.count
        )
        samples = samples_of(leading or snapshot, now_ms, leads=leading is not None, refusals=refusals)
    return Response(exposition(samples), headers={"Content-Type": CONTENT_TYPE})


def _alive(snapshot: Snapshot, execution_id: str, *, alive: bool, renewed: str | None = None) -> Response:
    answer = {
        "alive": alive,
        "job": snapshot.job,
        "term": snapshot.state.term.term if snapshot.state.term is not None else 0,
        "executionContainerId": execution_id,
    }
    return JSONResponse(answer if renewed is None else {**answer, "credential": renewed})


def _not_leading(answering: Answering) -> Response:
    return JSONResponse({"leader": answering.leader_url()}, status_code=503)


def _wrong(status_code: int, reason: str) -> Response:
    return JSONResponse({"reason": reason}, status_code=status_code)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    job = {"job": error.job} if isinstance(error, Denied) else {}
    return JSONResponse({"reason": error.detail, **job}, status_code=error.status_code, headers=error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    """The answer after a fault of ours; only the log has the trace."""
    return _wrong(500, "the coordinator failed to answer; see its log")
