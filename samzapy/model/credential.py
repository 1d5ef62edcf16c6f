"""Credentials of the coordinator's HTTP port, derived from the job's secret.

A credential is `<scope>.<name>.<mac>`: `heartbeat.0-8f3a.5d41…`, `read.prometheus.c0ff…`. The mac is HMAC-SHA256 over
job, scope and name. So a credential is valid for one job, one scope and one name, and is stored nowhere. For scope
`heartbeat` the name is the execution id: a container cannot report for another one.

While a secret is replaced there are several. The first one makes credentials; all of them are accepted.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from samzapy.errors import ConfigError

SECRET_CHARS_MIN: Final = 32
CREDENTIAL_VARIABLE: Final = "SAMZAPY_EXECUTION_CREDENTIAL"
"""In the environment of a container that a coordinator started: the credential of its execution."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,255}")
_CREDENTIAL_CHARS_MAX: Final = 512


class Scope(IntEnum):
    """The rights of a credential; a larger one includes the smaller ones.

    HEARTBEAT: to report for one execution. READ: status, job model, metrics, page. OPERATE: actions.
    """

    HEARTBEAT = 1
    READ = 2
    OPERATE = 3

    @property
    def text(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A verified credential.

    Attributes:
        name: the execution id, for scope HEARTBEAT; else the name that the operator chose.
        is_current: made of the first secret; False: made of one that is being replaced.
    """

    scope: Scope
    name: str
    is_current: bool = True


def credential(secret: str, job: str, scope: Scope, name: str) -> str:
    """The credential of `name` for `scope`.

    Raises:
        ConfigError: the name has other characters than letters, digits, dot, dash and underscore.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"wanted a name of letters, digits, dots, dashes and underscores for a credential, found {name!r}"
        )
    return f"{scope.text}.{name}.{_mac(secret, job, scope, name)}"


def verified(text: str, secrets: Sequence[str], job: str) -> Caller | None:
    """The caller that `text` is a credential of; None if it is none of this job's.

    Each secret is tried, and compared in constant time.
    """
    scope = next((scope for scope in Scope if text.startswith(f"{scope.text}.")), None)
    name = None if scope is None else name_in(text, scope)
    if scope is None or name is None:
        return None
    mac = text.rpartition(".")[2]
    matching = [hmac.compare_digest(_mac(secret, job, scope, name), mac) for secret in secrets]
    return Caller(scope=scope, name=name, is_current=matching[0]) if any(matching) else None


def name_in(text: str, scope: Scope) -> str | None:
    """The name in a credential of a scope; None if `text` has not the form of one.

    Whether the credential is valid is not checked.
    """
    if len(text) > _CREDENTIAL_CHARS_MAX or not text.isascii():
        return None
    scope_text, _, rest = text.partition(".")
    name = rest.rpartition(".")[0]
    return name if scope_text == scope.text and _NAME.fullmatch(name) else None


def secrets_of(text: str, place: str) -> tuple[str, ...]:
    """The secrets in a text, one per line, the newest first.

    Raises:
        ConfigError: there is none, or one is too short to be safe. The message does not quote it.
    """
    lines = [line.strip() for line in text.splitlines()]
    secrets = tuple(line for line in lines if line)
    if not secrets:
        raise ConfigError(f"job.coordinator.secret: wanted a secret in {place}, found nothing; {_HOW_TO_MAKE}")
    short = [number for number, line in enumerate(lines, start=1) if 0 < len(line) < SECRET_CHARS_MIN]
    if short:
        raise ConfigError(
            f"job.coordinator.secret: wanted at least {SECRET_CHARS_MIN} characters per line in {place}, found fewer "
            f"in line {short[0]}; {_HOW_TO_MAKE}"
        )
    return secrets


_HOW_TO_MAKE: Final = "`openssl rand -hex 32` makes one"


def _mac(secret: str, job: str, scope: Scope, name: str) -> str:
    text = "\n".join(("samzapy/1", job, scope.text, name))
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()
