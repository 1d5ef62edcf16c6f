"""Whether one broker of a cluster answers, over a connection of its own.

Clients ask any broker, so the silence of one broker of several shows in none of their answers. The question is
`ApiVersions`, which a broker answers before any authentication.
"""

from __future__ import annotations

import socket
import ssl
import struct
from contextlib import suppress
from typing import Final, NamedTuple

WAIT_S: Final = 1.0
_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""Size, key 18, version 0, correlation id 1, no client id."""


class BrokerAddress(NamedTuple):
    """A broker as the metadata of the cluster names it."""

    broker_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"broker {self.broker_id} ({self.host}:{self.port})"


def silence_of(broker: BrokerAddress, *, is_tls: bool, wait_s: float = WAIT_S) -> str:
    """Why the broker gives no answer in time; empty if it answers.

    Each step has `wait_s`.

    Any bytes are an answer, and so is an end of the connection: a process that hangs sends neither.
    """
    try:
        with socket.create_connection((broker.host, broker.port), timeout=wait_s) as plain:
            _ask(plain, broker.host, is_tls=is_tls)
    except ConnectionRefusedError:
        return "it refuses connections"
    except TimeoutError:
        return f"it sends nothing within {wait_s:g} s"
    except ConnectionError:
        return ""
    except OSError as error:
        return f"it cannot be reached: {error}"
    return ""


def _ask(plain: socket.socket, host: str, *, is_tls: bool) -> None:
    plain.sendall(_client_hello(host) if is_tls else _API_VERSIONS)
    plain.recv(1)


def _client_hello(host: str) -> bytes:
    """The first message of a TLS handshake.

    The handshake is left there. A broker that asks for our certificate would log each one that fails.
    """
    # Nothing secret is sent, and no answer is believed: whose it is does not matter.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    to_broker = ssl.MemoryBIO()
    handshake = context.wrap_bio(ssl.MemoryBIO(), to_broker, server_hostname=host)
    with suppress(ssl.SSLWantReadError):
        handshake.do_handshake()
    return to_broker.read()
