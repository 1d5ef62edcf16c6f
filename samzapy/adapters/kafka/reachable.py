"""Whether the brokers of a job accept connections, in plain text."""

from __future__ import annotations

import socket
from typing import Final

_WAIT_S: Final = 1.0
_ADDRESSES_MAX: Final = 3


def connections_text(bootstrap_servers: str) -> str:
    """Whether the first addresses accept TCP connections, a sentence for each.

    Each takes a second at most. A process that hangs accepts connections too.
    """
    addresses = [address.strip() for address in bootstrap_servers.split(",") if address.strip()]
    return " ".join(f"{address} {_answer_of(address)}." for address in addresses[:_ADDRESSES_MAX])


def _answer_of(address: str) -> str:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_WAIT_S):
            return "accepts connections, and does not answer"
    except ConnectionRefusedError:
        return "refuses connections"
    except TimeoutError:
        return f"accepts no connection within {_WAIT_S:g} s"
    except (OSError, ValueError) as error:
        return f"cannot be reached: {error}"
