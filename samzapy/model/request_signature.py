"""Signatures of requests on the placement topic.

A signature stands in the record's header `samzapy-signature`, as `<name> <expires> <mac>`. The key of the mac is the
credential of that name for scope `operate` (`model.credential`), which a coordinator derives from the job's secret. So
a signer needs a credential, and not the secret. The mac is HMAC-SHA256 over the expiry, the record's key and its value,
byte for byte. These contain the uuid of the request, its run and its time of issue. A reader that knows no signatures
ignores the header.

A copy of a signed request is no second request: its uuid is known (`coordinator.requests.read`).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from samzapy.errors import ConfigError
from samzapy.model.credential import Scope, credential, name_in

SIGNATURE_HEADER: Final = "samzapy-signature"
VALID_MS: Final = 10 * 60 * 1000
"""How long a signature of samzapy's own is valid. Clocks may differ by as much."""
VALID_MS_MAX: Final = 24 * 60 * 60 * 1000

_SIGNATURE: Final = re.compile(rb"([A-Za-z0-9_.-]{1,255}) ([0-9]{1,18}) ([0-9a-f]{64})")


def signature(operator: str, key: bytes, value: bytes, expires_ms: int) -> bytes:
    """The signature of a request by the holder of a credential.

    Args:
        operator: a credential of scope `operate`.

    Raises:
        ConfigError: it is none. The message does not quote it.
    """
    name = name_in(operator, Scope.OPERATE)
    if name is None:
        raise ConfigError(
            "wanted a credential of scope operate to sign a request, found another text; "
            "`samzapy job token --scope operate` makes one"
        )
    return f"{name} {expires_ms} {_mac(operator, key, value, expires_ms)}".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedOnly:
    """Tells which requests a coordinator refuses for their signature.

    Attributes:
        secrets: those of the job that are in force.
        is_required: a request without a signature is refused too.
    """

    job: str
    secrets: Sequence[str]
    is_required: bool

    def refusal(self, key: bytes, value: bytes, headers: Sequence[tuple[str, bytes | None]], now_ms: int) -> str:
        """Why a request is refused, for people; empty if it is not."""
        signatures = [content for header, content in headers if header == SIGNATURE_HEADER]
        if not signatures:
            return f"wanted a signature in its header {SIGNATURE_HEADER}, found none" if self.is_required else ""
        match = _SIGNATURE.fullmatch(signatures[0] or b"") if len(signatures) == 1 else None
        if match is None:
            return f"wanted one header {SIGNATURE_HEADER} with name, expiry and mac, found another form"
        name, expires_ms, mac = match[1].decode(), int(match[2]), match[3].decode()
        operators = [credential(secret, self.job, Scope.OPERATE, name) for secret in self.secrets]
        matching = [hmac.compare_digest(_mac(operator, key, value, expires_ms), mac) for operator in operators]
        if not any(matching):
            return (
                f"wanted the signature of {name} over this key and value, found another one: the request was altered, "
                "or the credential is not valid for this job"
            )
        if expires_ms <= now_ms:
            return (
                f"wanted a signature that is valid at {now_ms}, the time of the coordinator, found one that expired "
                f"at {expires_ms}; write a new request, and compare the clocks"
            )
        if expires_ms > now_ms + VALID_MS_MAX:
            return (
                f"wanted a signature that expires within {VALID_MS_MAX} ms of {now_ms}, the time of the coordinator, "
                f"found one until {expires_ms}; sign for a shorter time, and compare the clocks"
            )
        return ""


def _mac(operator: str, key: bytes, value: bytes, expires_ms: int) -> str:
    signed = b"\n".join((b"samzapy-request/1", str(expires_ms).encode(), key, value))
    return hmac.new(operator.encode(), signed, hashlib.sha256).hexdigest()
