"""The rights of a request to the coordinator's HTTP port.

| configured | a caller is | rights |
|---|---|---|
| nothing | anyone who reaches the address, which is loopback | all |
| nothing, on another address (`job.coordinator.insecure`) | anyone who reaches the address | all but OPERATE |
| `job.coordinator.secret` | the holder of a credential (`model.credential`) | its scope |
| client certificates without a secret | the names in the certificate | READ, and heartbeats of its own host |

A credential comes as `Authorization: Bearer …`, or from a browser as the password of `Basic`. There are no cookies. A
browser sends that password with a form of another site too: such a form is refused by its `Origin`, and it lacks the
seal of a plan (`adapters.web.actions`).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

from samzapy.coordinator.commands import Heartbeat
from samzapy.model.credential import Caller, Scope, credential, verified

HEADER_BYTES_MAX: Final = 8 * 1024
PEER_NAMES: Final = "peer_names"
"""In the state of a connection: the names in the client's certificate, which the server has verified."""

# Chromium reads the first scheme of a header only, and asks for a password where that is Basic.
_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="samzapy", Bearer realm="samzapy"'}
_ANSWER_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""Of every answer that does not set them itself."""


class Denied(HTTPException):
    """A request without the right that it needs; the answer names the job."""

    def __init__(self, status_code: int, reason: str, job: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status_code, reason, headers)
        self.job = job


@dataclass(slots=True)
class RefusedRequests:
    """How many requests were refused for want of rights; only one thread answers."""

    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Decides which requests may be answered.

    Attributes:
        job: `<job.name>-<job.id>`.
        secrets: the secrets in force, the newest first; None: requests need no credential.
        wants_client_certificate: each connection has a verified certificate.
        is_exposed: other hosts reach the address.
    """

    job: str = ""
    secrets: Callable[[], Sequence[str]] | None = None
    wants_client_certificate: bool = False
    is_exposed: bool = False
    refused: RefusedRequests = field(default_factory=RefusedRequests)

    def require(self, request: Request, scope: Scope) -> Caller | None:
        """The caller of a request that may be answered; None: callers are not told apart.

        Raises:
            Denied: 401 without a valid credential, 403 with one of a smaller scope.
        """
        if self.secrets is not None:
            caller = verified(_credential_of(request), self.secrets(), self.job)
        elif self.wants_client_certificate:
            caller = Caller(scope=Scope.READ, name="")
        elif self.allows(None, scope):
            return None
        else:
            self.refused.count += 1
            reason = (
                "wanted a credential of scope operate, found that the job has no job.coordinator.secret to make one"
            )
            raise Denied(403, reason, self.job)
        if caller is None:
            self.refused.count += 1
            reason = "wanted a credential of this job, found none that is valid (samzapy job token makes one)"
            raise Denied(401, reason, self.job, _CHALLENGE)
        if caller.scope < scope:
            self.refused.count += 1
            raise Denied(403, f"wanted a credential of scope {scope.text}, found scope {caller.scope.text}", self.job)
        return caller

    def allows(self, caller: Caller | None, scope: Scope) -> bool:
        """Whether a caller, as `require` returned it, has this scope too."""
        if caller is None:
            return scope is not Scope.OPERATE or not self.is_exposed
        return caller.scope >= scope

    def check_heartbeat(self, request: Request, caller: Caller | None, heartbeat: Heartbeat) -> None:
        """Check that the caller is the execution that it reports for.

        Raises:
            Denied: 403 if it is another one.
        """
        if caller is None:
            return
        if self.secrets is not None:
            is_own = caller.scope is Scope.HEARTBEAT and caller.name == heartbeat.execution_id
        else:
            is_own = heartbeat.host in names_of_peer(request)
        if not is_own:
            self.refused.count += 1
            reason = "wanted a heartbeat of the container that the credential was made for, found another container"
            raise Denied(403, reason, self.job)

    def new_credential(self, caller: Caller | None) -> str | None:
        """The credential of the newest secret; None if the caller uses it already."""
        if caller is None or self.secrets is None or caller.is_current:
            return None
        return credential(self.secrets()[0], self.job, caller.scope, caller.name)


def names_of_peer(request: Request) -> Collection[str]:
    """The names in the client's certificate; none without one."""
    names: Collection[str] = getattr(request.state, PEER_NAMES, ())
    return names


def _credential_of(request: Request) -> str:
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).decode().partition(":")[2]
        except ValueError:
            return ""
    return ""


class HeaderChecks:
    """ASGI middleware that checks headers of requests and adds those of answers.

    It limits the size of a request's head, and refuses pages of other sites.

    Args:
        hosts: the names of this server, for `Origin`.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, connection: Connection, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _ANSWER_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(connection) if connection["type"] == "http" else None
        await (self._app if refusal is None else refusal)(connection, receive, send_with_headers)

    def _refusal(self, connection: Connection) -> JSONResponse | None:
        headers = Headers(scope=connection)
        head_bytes = len(connection["raw_path"]) + len(connection["query_string"])
        head_bytes += sum(len(name) + len(value) for name, value in headers.raw)
        if head_bytes > HEADER_BYTES_MAX:
            reason = f"wanted a request line and headers of at most {HEADER_BYTES_MAX} bytes, found {head_bytes}"
            return JSONResponse({"reason": reason}, status_code=431)
        origin = headers.get("origin")
        if origin is not None and _host_of(origin) not in self._hosts:
            return JSONResponse({"reason": "wanted a request of this server's own pages"}, status_code=403)
        return None


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).hostname
    except ValueError:
        return None
