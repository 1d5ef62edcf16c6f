"""Send requests to a coordinator, and check that the answer comes from one.

Another program may answer: a port is used again, or an old leader wakes up. An answer counts only if it is small, in
time, of the right shape, and has the job (and for a heartbeat the execution) of the request. Everything else counts as
no answer, which callers expect.
"""

from __future__ import annotations

import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection, HTTPException, HTTPResponse
from urllib.parse import urlsplit

from samzapy.adapters.web.access import Access
from samzapy.adapters.web.kept_connection import Connected, KeptConnection, Target
from samzapy.errors import RejectedError
from samzapy.model.strict_json import parse_json

_LOG = logging.getLogger(__name__)

ANSWER_BYTES_MAX = 64 * 1024
STATUS_BYTES_MAX = 16 * 1024 * 1024
_REASON_BYTES_MAX = 300
_ASK_AGAIN_AFTER_S = 0.05
"""The first pause after a connection without an answer; each further one is twice as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """The answer of the coordinator of `term` to a heartbeat. `alive: False` is final."""

    alive: bool
    term: int


class HttpCoordinatorClient:
    """Sends each request to the given coordinator.

    It keeps the connection of its last heartbeat for the next one to the same address. Any thread may send.
    """

    def __init__(self, access: Access | None = None) -> None:
        self._access = access or Access()
        self._kept = KeptConnection()

    def close(self) -> None:
        """Close the connection that is kept. Another heartbeat makes a new one."""
        self._kept.close()

    def heartbeat(self, url: str, body: Mapping[str, object], timeout_ms: int) -> HeartbeatAnswer | None:
        """Send a heartbeat; None when there is no valid answer.

        Args:
            body: as `coordinator.assignment.heartbeat_json` reads it; the answer must repeat `job` and `executionId`.
            timeout_ms: for everything together.
        """
        status_code, answer = self._ask_json(
            _Request("POST", "/containerHeartbeat", json.dumps(body).encode(), asks_again=True),
            url,
            self._access.heartbeat(str(body["executionId"])),
            timeout_ms,
            ANSWER_BYTES_MAX,
            self._kept,
        )
        if status_code != 200 or answer is None:
            return None
        alive, term = answer.get("alive"), answer.get("term")
        if answer.get("job") != body["job"] or answer.get("executionContainerId") != body["executionId"]:
            _LOG.warning("%s answered for another job or execution: not a coordinator of %s", url, body["job"])
            return None
        if not isinstance(alive, bool) or not isinstance(term, int) or isinstance(term, bool):
            return None
        renewed = answer.get("credential")
        if isinstance(renewed, str):
            self._access.renew(renewed)
        return HeartbeatAnswer(alive=alive, term=term)

    def status(self, url: str, job: str, timeout_ms: int) -> Mapping[str, object] | None:
        """`GET /status` of the leader of `job`; None when there is no valid answer.

        Raises:
            RejectedError: the leader wants another credential.
        """
        status_code, status = self._ask_json(
            _Request("GET", "/status"), url, self._access.read(), timeout_ms, STATUS_BYTES_MAX
        )
        if status_code in (401, 403) and status is not None and status.get("job") == job:
            reason = _in_one_line(str(status.get("reason"))[:_REASON_BYTES_MAX])
            raise RejectedError(
                f"{url}: {reason}; give --config with job.coordinator.secret, or set "
                "SAMZAPY_COORDINATOR_TOKEN to a credential of scope read"
            )
        if status_code != 200:
            return None
        return status if status is not None and status.get("job") == job else None

    def _ask_json(
        self,
        request: _Request,
        url: str,
        credential: str | None,
        timeout_ms: int,
        bytes_max: int,
        kept: KeptConnection | None = None,
    ) -> tuple[int, Mapping[str, object] | None]:
        """The status code of an answer, 0 without one, and its JSON object, if it has one."""
        credited = replace(request, headers=self._access.header(url, credential))
        answer = _asked(credited, url, self._access.tls, timeout_ms, bytes_max, kept)
        if answer is None:
            return 0, None
        status, text = answer
        if 400 <= status < 500:
            # Retries will not help, and without an answer a container ends after its grace period.
            reason = _in_one_line(text[:_REASON_BYTES_MAX].decode(errors="replace"))
            _LOG.warning("%s%s refused the request: %d %s", url, request.path, status, reason)
        try:
            value: object = parse_json(text)
        except ValueError as error:
            _LOG.debug("no answer from %s%s: %s", url, request.path, error)
            return status, None
        return status, value if isinstance(value, dict) else None


def _in_one_line(text: str) -> str:
    """The text of a stranger, with control codes escaped: logs go to a terminal, too."""
    return text if text.isprintable() else repr(text)


@dataclass(frozen=True, slots=True)
class _Request:
    """A request, to whichever URL.

    Attributes:
        body: JSON.
        asks_again: whether it is sent again when its connection is closed without an answer, as long as there is time.
            A server with too many connections closes some of them. The request must allow a repetition. Only such a
            request uses a kept connection.
    """

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    asks_again: bool = False


def ask(
    method: str, url: str, path: str, body: bytes | None = None, *, timeout_ms: int, bytes_max: int
) -> tuple[int, bytes] | None:
    """The status code and the body of the answer.

    Returns None if it does not come whole and in time, or is too large.

    Args:
        url: `http://host:port`; `path` with its query is appended. Redirects are not followed.
        body: JSON.
        timeout_ms: for everything together, with the resolution of the name.
    """
    return _asked(_Request(method, path, body), url, None, timeout_ms, bytes_max)


def _asked(
    request: _Request,
    url: str,
    tls: Callable[[], ssl.SSLContext] | None,
    timeout_ms: int,
    bytes_max: int,
    kept: KeptConnection | None = None,
) -> tuple[int, bytes] | None:
    """As `ask`.

    Args:
        tls: the context for `https`; None: such a URL is not asked.
        kept: has the connection to use again, and gets the one that was used; None: it is closed.
    """
    until_s = time.monotonic() + timeout_ms / 1000
    pause_s = _ASK_AGAIN_AFTER_S
    while True:
        try:
            target = _target(url, tls)
            return None if target is None else _answer(request, target, until_s, bytes_max, kept)
        except (OSError, HTTPException, ValueError) as error:
            is_last = not request.asks_again or not _is_closed(error) or time.monotonic() + pause_s >= until_s
            if is_last and isinstance(error, ssl.SSLError):
                # A wrong certificate stays wrong, and "no answer" would not name it.
                _LOG.warning("%s: wanted a TLS connection, found: %s", url, error)
            else:
                _LOG.debug("no answer from %s%s: %s", url, request.path, error)
            if is_last:
                return None
        time.sleep(pause_s)
        pause_s *= 2


def _answer(
    request: _Request, target: Target, until_s: float, bytes_max: int, kept: KeptConnection | None
) -> tuple[int, bytes] | None:
    """The answer to a request; None for one that is not whole or too large.

    Raises:
        OSError, HTTPException, ValueError: there is none.
    """
    idle = None if kept is None or not request.asks_again else kept.take(target)
    if idle is not None:
        try:
            return _exchanged(request, idle, until_s, bytes_max, kept)
        except (OSError, HTTPException) as error:
            # A server may close an idle connection at any time.
            if not _is_closed(error):
                raise
    return _exchanged(request, _opened(target, until_s), until_s, bytes_max, kept)


def _exchanged(
    request: _Request, connected: Connected, until_s: float, bytes_max: int, kept: KeptConnection | None
) -> tuple[int, bytes] | None:
    """As `_answer`, over this connection, which is then kept or closed."""
    connection, is_kept = connected.http, False
    try:
        with _cut_at(connection.sock, until_s):
            if isinstance(connection.sock, ssl.SSLSocket):
                connection.sock.do_handshake()
            content = {} if request.body is None else {"Content-Type": "application/json"}
            connection.request(request.method, request.path, request.body, {**content, **request.headers})
            response: HTTPResponse = connection.getresponse()
            text = response.read(bytes_max + 1)
        # An answer that was cut off looks complete; only the announced length shows the difference.
        is_whole = len(text) <= bytes_max and not response.length
        is_kept = kept is not None and is_whole and response.status == 200 and response.isclosed()
    finally:
        if not is_kept:
            connection.close()
    if kept is not None and is_kept:
        kept.put(connected)
    return (response.status, text) if is_whole else None


def _is_closed(error: Exception) -> bool:
    """Whether a connection was made and then closed without an answer."""
    return isinstance(error, (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError, ssl.SSLZeroReturnError))


def _target(url: str, tls: Callable[[], ssl.SSLContext] | None) -> Target | None:
    """The other end of a URL; None if it cannot be asked."""
    try:
        target = urlsplit(url)
        if target.scheme not in ("http", "https") or target.hostname is None:
            return None
        if target.scheme == "http":
            return Target(target.hostname, target.port or 80, None)
        return None if tls is None else Target(target.hostname, target.port or 443, tls())
    except (HTTPException, ValueError):
        return None


def _opened(target: Target, until_s: float) -> Connected:
    """A new connection.

    Raises:
        OSError, HTTPException, ValueError: there is none in time.
    """
    http = HTTPConnection(target.host, target.port)
    http.auto_open = 0  # It would connect again without TLS.
    connected = _connected(target.host, target.port, until_s)
    http.sock = connected if target.context is None else _wrapped(connected, target.context, target.host)
    return Connected(target, http)


def _wrapped(connected: socket.socket, context: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    """The socket with TLS; the handshake comes later, when its time is limited."""
    try:
        return context.wrap_socket(connected, server_hostname=host, do_handshake_on_connect=False)
    except BaseException:
        connected.close()
        raise


def _connected(host: str, port: int, until_s: float) -> socket.socket:
    """A connection to one of the host's addresses.

    Each one gets its share of the time.

    Raises:
        OSError, ValueError: no address answers in time.
    """
    addresses = _resolved(host, port, until_s)
    for number, address in enumerate(addresses):
        share_s = _left_s(until_s) / (len(addresses) - number)
        try:
            connected = socket.create_connection(address, share_s)
        except OSError as error:
            _LOG.debug("no connection to %s: %s", address, error)
            continue
        # As in `HTTPConnection.connect`, because head and body are sent one after the other.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.settimeout(None)  # `_cut_at` limits the time.
        return connected
    raise ConnectionError(f"none of the addresses of {host} answered")


def _resolved(host: str, port: int, until_s: float) -> list[tuple[str, int]]:
    """The addresses of a host.

    A thread resolves them, because a resolver may take any time and cannot be stopped.

    Raises:
        OSError, ValueError: there are none, or not in time.
    """
    addresses: Future[list[tuple[str, int]]] = Future()

    def resolve() -> None:
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses.set_result([(str(address[0]), port) for *_, address in infos])
        except (OSError, ValueError) as error:
            addresses.set_exception(error)

    threading.Thread(target=resolve, name="samzapy-resolver", daemon=True).start()
    return addresses.result(_left_s(until_s))


def _left_s(until_s: float) -> float:
    """The time that is left. Raises TimeoutError if there is none."""
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("the time is up")
    return left_s


@contextmanager
def _cut_at(connected: socket.socket, until_s: float) -> Iterator[None]:
    """End the connection when the time is up.

    A socket's own time-out starts again with each byte.
    """

    def cut() -> None:
        with suppress(OSError):
            # Not the method of an SSLSocket, which takes the TLS state from under the thread that reads.
            socket.socket.shutdown(connected, socket.SHUT_RDWR)

    timer = threading.Timer(_left_s(until_s), cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
