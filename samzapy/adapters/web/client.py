"""Send requests to a coordinator, and check that the answer comes from one.

Another program may answer: a port is used again, or an old leader wakes up. An answer counts only if it is small, in
time, of the right shape, and has the job (and for a heartbeat the execution) of the request. Everything else counts as
no answer, which callers expect.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

_LOG = logging.getLogger(__name__)

ANSWER_BYTES_MAX = 64 * 1024
STATUS_BYTES_MAX = 16 * 1024 * 1024
_REASON_BYTES_MAX = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """The answer of the coordinator of `term` to a heartbeat. `alive: False` is final."""

    alive: bool
    term: int


class HttpCoordinatorClient:
    """Sends each request to the given coordinator; keeps no connection."""

    def heartbeat(self, url: str, body: Mapping[str, object], timeout_ms: int) -> HeartbeatAnswer | None:
        """Send a heartbeat; None when there is no valid answer.

        Args:
            body: as `coordinator.assignment.heartbeat_json` reads it; the answer must repeat `job` and `executionId`.
            timeout_ms: for everything together.
        """
        answer = _ask_json(
            url, "POST", "/containerHeartbeat", json.dumps(body).encode(), timeout_ms, ANSWER_BYTES_MAX
        )
        if answer is None:
            return None
        alive, term = answer.get("alive"), answer.get("term")
        if answer.get("job") != body["job"] or answer.get("executionContainerId") != body["executionId"]:
            _LOG.warning("%s answered for another job or execution: not a coordinator of %s", url, body["job"])
            return None
        if not isinstance(alive, bool) or not isinstance(term, int) or isinstance(term, bool):
            return None
        return HeartbeatAnswer(alive=alive, term=term)

    def status(self, url: str, job: str, timeout_ms: int) -> Mapping[str, object] | None:
        """`GET /status` of the leader of `job`; None when there is no valid answer."""
        status = _ask_json(url, "GET", "/status", None, timeout_ms, STATUS_BYTES_MAX)
        return status if status is not None and status.get("job") == job else None


def _ask_json(
    url: str, method: str, path: str, body: bytes | None, timeout_ms: int, bytes_max: int
) -> Mapping[str, object] | None:
    """The JSON object of an answer with status 200; None for any other answer."""
    answer = ask(method, url, path, body, timeout_ms=timeout_ms, bytes_max=bytes_max)
    if answer is None:
        return None
    status, text = answer
    if 400 <= status < 500:
        # Retries will not help, and without an answer a container ends after its grace period.
        reason = text[:_REASON_BYTES_MAX].decode(errors="replace")
        _LOG.warning("%s%s refused the request: %d %s", url, path, status, reason)
    if status != 200:
        return None
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        _LOG.debug("no answer from %s%s: %s", url, path, error)
        return None
    return value if isinstance(value, dict) else None


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
    try:
        target = urlsplit(url)
        if target.scheme != "http" or target.hostname is None:
            return None
        connection = HTTPConnection(target.hostname, target.port)
    except (HTTPException, ValueError):
        return None
    until_s = time.monotonic() + timeout_ms / 1000
    try:
        connection.sock = _connected(connection.host, connection.port, until_s)
        with _cut_at(connection.sock, until_s):
            headers = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            text = response.read(bytes_max + 1)
    except (OSError, HTTPException, ValueError) as error:
        _LOG.debug("no answer from %s%s: %s", url, path, error)
        return None
    finally:
        connection.close()
    # An answer that was cut off looks complete; only the announced length shows the difference.
    is_whole = len(text) <= bytes_max and not response.length
    return (response.status, text) if is_whole else None


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
            connected.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(_left_s(until_s), cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
