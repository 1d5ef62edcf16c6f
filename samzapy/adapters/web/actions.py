"""The actions of the page: forms, plans, and requests on the placement topic.

| route | answer |
|---|---|
| `GET /ui/actions` | the forms |
| `GET /ui/plan?action=` | the plan of an action, with a button to apply it |
| `POST /ui/apply` | writes the request of a plan, and leads to `/ui/requests` |

All of them need the scope OPERATE. A browser sends a password along with a form of another site too, so a request is
written only for a plan that this process made for the same caller: the plan carries a seal over the whole request. The
seal is valid for ten minutes. The request has its uuid from the plan on, so a form that is sent twice is one request.

Plans read from Kafka. They are made one after the other, in a thread of their own.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import uuid as uuids
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Protocol
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from samzapy.adapters.web.bodies import Bodies
from samzapy.adapters.web.refusals import Show, show_refusal
from samzapy.adapters.web.turns import Turns
from samzapy.config import FACTORS
from samzapy.coordinator.ports import Clock
from samzapy.coordinator.snapshot import Snapshot
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import RejectedError, SamzapyError
from samzapy.inspection.page.actions import ActionPlan, choices, is_for, made_for_now, request_of
from samzapy.model.credential import Caller
from samzapy.model.placement import ContainerPlacementRequestMessage
from samzapy.stream.placement import Place, decode_message, encode_message

FORM_BYTES_MAX: Final = 64 * 1024
PLAN_MS: Final = 10 * 60 * 1000
"""How long a plan can be applied."""
_SAME_ORIGIN: Final = {"Referrer-Policy": "same-origin"}
"""With `no-referrer` a browser sends `Origin: null` with a form, which is refused."""


class Operations(Protocol):
    """What actions need of the cluster. Any thread may call it."""

    def plan(self, message: ContainerPlacementRequestMessage, state: CoordinatorState) -> ActionPlan:
        """The effect of a request on a job in `state`; nothing is written.

        Raises:
            SamzapyError: the request is refused, or the cluster does not answer.
        """
        ...

    def send(self, message: ContainerPlacementRequestMessage) -> None:
        """Write the request to the placement topic.

        Raises:
            SamzapyError: it was not written, as far as is known.
        """
        ...


class ActionSource(Protocol):
    """The coordinator behind the actions, as `routes.Answering` has it."""

    @property
    def clock(self) -> Clock: ...

    @property
    def bodies(self) -> Bodies: ...

    def leading(self) -> Snapshot | None: ...


Answer = Callable[[ActionSource, Request], Awaitable[Response]]


class Actions:
    """The actions of one server. Only the event loop calls its methods.

    Args:
        show: makes a page in the page's thread.
        not_leading: makes the answer of a process that does not lead.
    """

    def __init__(self, operations: Operations, show: Show, not_leading: Callable[[str], Awaitable[Response]]) -> None:
        self._operations = operations
        self._show = show
        self._not_leading = not_leading
        self._seal_key = secrets.token_bytes(32)
        self._turns = Turns("samzapy-actions")

    async def forms(self, source: ActionSource, request: Request) -> Response:
        """The answer to `GET /ui/actions`."""
        snapshot = source.leading()
        if snapshot is None:
            return await self._not_leading("actions")
        values = {"choices": choices(snapshot.state), "factors": FACTORS, "given": dict(request.query_params)}
        return await self._page("actions", request, values, 200)

    async def plan(self, source: ActionSource, request: Request) -> Response:
        """The answer to `GET /ui/plan`."""
        snapshot = source.leading()
        if snapshot is None:
            return await self._not_leading("plan")
        try:
            message = request_of(
                dict(request.query_params),
                snapshot.state,
                uuid=uuids.uuid4(),
                now_ms=source.clock.wall_ms(),
                by=_name_of(request),
            )
        except RejectedError as error:
            return await self._refused(request, error)
        return await self._planned(source, request, message, "")

    async def apply(self, source: ActionSource, request: Request) -> Response:
        """The answer to `POST /ui/apply`."""
        _check_own_page(request)
        fields = dict(parse_qsl((await source.bodies.read(request, FORM_BYTES_MAX)).decode(errors="replace")))
        value = fields.get("request", "").encode()
        if not self._is_sealed(value, _name_of(request), fields.get("seal", ""), source.clock.monotonic_ms()):
            reason = "wanted a plan of this page that is at most ten minutes old, found none; nothing was written"
            return await self._refused(request, RejectedError(f"{reason}. Plan the action again"), 409)
        snapshot = source.leading()
        if snapshot is None:
            return await self._not_leading("plan")
        message = decode_message(value)
        assert isinstance(message, ContainerPlacementRequestMessage), "only requests are sealed"
        if _is_known(message, snapshot.state):
            # The form was sent before. Its own request may have changed the generation since.
            return _written(message)
        if not is_for(message, snapshot.state):
            return await self._planned_anew(source, request, message, snapshot.state)
        try:
            await self._turns.take(partial(self._operations.send, message))
        except SamzapyError as error:
            return await self._refused(request, error)
        return _written(message)

    async def _planned_anew(
        self, source: ActionSource, request: Request, old: ContainerPlacementRequestMessage, state: CoordinatorState
    ) -> Response:
        """The plan for now, in place of a request that was made for another plan."""
        message = made_for_now(old, state, uuid=uuids.uuid4(), now_ms=source.clock.wall_ms())
        before, now = (item.arguments["expectedGeneration"] for item in (old, message))
        return await self._planned(
            source,
            request,
            message,
            f"Nothing was written. The plan was made for generation {before}, and generation {now} is in force. "
            "This is the plan for now.",
        )

    async def _planned(
        self, source: ActionSource, request: Request, message: ContainerPlacementRequestMessage, notice: str
    ) -> Response:
        """The page of a plan; `notice` tells why it is not the one that was to be applied."""
        snapshot = source.leading()
        if snapshot is None:
            return await self._not_leading("plan")
        try:
            plan = await self._turns.take(partial(self._operations.plan, message, snapshot.state))
        except SamzapyError as error:
            return await self._refused(request, error)
        value = encode_message(message, Place(namespace=message.action.namespace)).value or b""
        values = {
            "plan": plan,
            "notice": notice,
            "generation": message.arguments["expectedGeneration"],
            "request": value.decode(),
            "seal": self._sealed(value, _name_of(request), source.clock.monotonic_ms() + PLAN_MS),
        }
        return await self._page("plan", request, values, 409 if notice else 200)

    async def _refused(self, request: Request, error: SamzapyError, status_code: int | None = None) -> Response:
        return await show_refusal(self._page, request, error, "actions", status_code)

    async def _page(self, name: str, request: Request, values: Mapping[str, object], status_code: int) -> Response:
        response = await self._show(name, request, values, status_code)
        response.headers.update(_SAME_ORIGIN)
        return response

    def _sealed(self, value: bytes, by: str | None, until_ms: int) -> str:
        text = b"\0".join((str(until_ms).encode(), (by or "").encode(), value))
        return f"{until_ms}.{hmac.new(self._seal_key, text, hashlib.sha256).hexdigest()}"

    def _is_sealed(self, value: bytes, by: str | None, seal: str, now_ms: int) -> bool:
        until = seal.partition(".")[0]
        if not (until.isascii() and until.isdigit() and len(until) < 19 and now_ms <= int(until)):
            return False
        return hmac.compare_digest(self._sealed(value, by, int(until)).encode(), seal.encode())


def _check_own_page(request: Request) -> None:
    """Raise HTTPException unless a page of this server sent the form.

    `guard.HeaderChecks` has checked the host of an `Origin`; here one is wanted.
    """
    if request.headers.get("origin") is None or request.headers.get("sec-fetch-site") not in (None, "same-origin"):
        raise HTTPException(403, "wanted a form of this server's own page, found another origin or none")
    if (
        request.headers.get("content-type", "").partition(";")[0].strip().lower()
        != "application/x-www-form-urlencoded"
    ):
        raise HTTPException(415, "wanted Content-Type: application/x-www-form-urlencoded")


def _is_known(message: ContainerPlacementRequestMessage, state: CoordinatorState) -> bool:
    """Whether the coordinator has read this request."""
    uuid = str(message.uuid)
    return uuid in state.requests or uuid in state.request_memory


def _written(message: ContainerPlacementRequestMessage) -> Response:
    """The answer to the form of a request that is on the topic."""
    # Relative, because a reverse proxy may serve the page under any path.
    return RedirectResponse(f"requests?written={message.uuid}", status_code=303, headers=_SAME_ORIGIN)


def _name_of(request: Request) -> str | None:
    caller: Caller | None = request.state.caller
    return None if caller is None else caller.name
