"""Asking a coordinator. Whoever answers may be anybody: a port is used again, an old leader wakes up.

An answer counts only if it is small, in time, of the right shape, and names the job (and for a heartbeat the
execution) that was asked about. Everything else is no answer, which is what the caller is prepared for.
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
    """What the coordinator of `term` says to a heartbeat. `alive: False` is final."""

    alive: bool
    term: int


class HttpCoordinatorClient:
    """Talks to whichever coordinator it is told to; keeps no connection."""

    def heartbeat(self, url: str, body: Mapping[str, object], timeout_ms: int) -> HeartbeatAnswer | None:
        """Send a heartbeat (`coordinator.assignment.heartbeat_json` has the shape); None when there is no valid answer.

        Args:
            body: its `job` and `executionId` must come back in the answer.
            timeout_ms: for everything together.
        """
        found = _asked(url, "POST", "/containerHeartbeat", json.dumps(body).encode(), timeout_ms, ANSWER_BYTES_MAX)
        if found is None:
            return None
        alive, term = found.get("alive"), found.get("term")
        if found.get("job") != body["job"] or found.get("executionContainerId") != body["executionId"]:
            _LOG.warning("%s answered for another job or execution: not a coordinator of %s", url, body["job"])
            return None
        if not isinstance(alive, bool) or not isinstance(term, int) or isinstance(term, bool):
            return None
        return HeartbeatAnswer(alive=alive, term=term)

    def status(self, url: str, job: str, timeout_ms: int) -> Mapping[str, object] | None:
        """`GET /status` of the leader of `job`; None when there is no valid answer."""
        found = _asked(url, "GET", "/status", None, timeout_ms, STATUS_BYTES_MAX)
        return found if found is not None and found.get("job") == job else None


def _asked(
    url: str, method: str, path: str, body: bytes | None, timeout_ms: int, bytes_max: int
) -> Mapping[str, object] | None:
    """The JSON object of a 200 answer."""
    answer = ask(method, url, path, body, timeout_ms=timeout_ms, bytes_max=bytes_max)
    if answer is None:
        return None
    status, text = answer
    if 400 <= status < 500:
        # Asking again will not help, and without an answer a container ends when its grace is over.
        reason = text[:_REASON_BYTES_MAX].decode(errors="replace")
        _LOG.warning("%s%s refused what was sent: %d %s", url, path, status, reason)
    if status != 200:
        return None
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        _LOG.debug("no answer from %s%s: %s", url, path, error)
        return None
    return found if isinstance(found, dict) else None


def ask(
    method: str, url: str, path: str, body: bytes | None = None, *, timeout_ms: int, bytes_max: int
) -> tuple[int, bytes] | None:
    """Status code and body of the answer; None when there is none, or not all of it in time, or it is too large.

    Args:
        url: `http://host:port`; `path` is put behind it, with its query. Redirects are not followed.
        body: JSON.
        timeout_ms: for everything together, the look-up of the name included.
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
    # What was cut reads as an end; the length that was announced tells them apart.
    is_whole = len(text) <= bytes_max and not response.length
    return (response.status, text) if is_whole else None


def _connected(host: str, port: int, until_s: float) -> socket.socket:
    """A connection to one of the host's addresses, each of which has its share of the time.

    Raises:
        OSError, ValueError: there is none, or not in time.
    """
    addresses = _resolved(host, port, until_s)
    for number, address in enumerate(addresses):
        share_s = _left_s(until_s) / (len(addresses) - number)
        try:
            connected = socket.create_connection(address, share_s)
        except OSError as error:
            _LOG.debug("no connection to %s: %s", address, error)
            continue
        # As `HTTPConnection.connect` has it: head and body are sent one after the other.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.settimeout(None)  # Its end is cut.
        return connected
    raise ConnectionError(f"none of the addresses of {host} answered")


def _resolved(host: str, port: int, until_s: float) -> list[tuple[str, int]]:
    """The addresses of a host. A resolver takes the time it wants and cannot be stopped, so nobody waits for its end.

    Raises:
        OSError, ValueError: there are none, or not in time.
    """
    found: Future[list[tuple[str, int]]] = Future()

    def resolve() -> None:
        try:
            told = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.set_result([(str(address[0]), port) for *_, address in told])
        except (OSError, ValueError) as error:
            found.set_exception(error)

    threading.Thread(target=resolve, name="samzapy-resolver", daemon=True).start()
    return found.result(_left_s(until_s))


def _left_s(until_s: float) -> float:
    """What is left of the time. Raises TimeoutError when that is nothing."""
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("the time is up")
    return left_s


@contextmanager
def _cut_at(connected: socket.socket, until_s: float) -> Iterator[None]:
    """End the connection when the time is up: a socket's own time-out starts anew with each byte."""

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
