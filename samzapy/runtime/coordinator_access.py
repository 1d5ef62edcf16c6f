"""Credentials and certificates of a process for the coordinator's HTTP port.

They come from configuration and environment.

| process | shows as a client |
|---|---|
| a container that a coordinator started | the credential in its environment, renewed by heartbeat answers |
| a self-managed container | the credential that it derives from `job.coordinator.secret` |
| a command with `--config` | the same secret's credential for reading |
| a command without the secret | `SAMZAPY_COORDINATOR_TOKEN` |
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from samzapy.adapters.host.secret_file import SecretSource
from samzapy.adapters.web.access import Access
from samzapy.adapters.web.tls import TlsFiles, client_context
from samzapy.config import JobConfig
from samzapy.errors import ConfigError
from samzapy.model.credential import CREDENTIAL_VARIABLE, Scope, credential, name_in
from samzapy.model.job import ExecutionId
from samzapy.model.request_signature import SignedOnly
from samzapy.stream.log import LogRecord

TOKEN_VARIABLE: Final = "SAMZAPY_COORDINATOR_TOKEN"  # the name of a variable
"""A credential for commands, or `file:/path` of one."""
CA_VARIABLE: Final = "SAMZAPY_COORDINATOR_CA"
_COMMANDS: Final = "commands"


def container_access(config: JobConfig, environment: Mapping[str, str]) -> Access:
    """What a container of the job shows in its heartbeats.

    Raises:
        ConfigError: the secret or a certificate cannot be read.
    """
    given = environment.get(CREDENTIAL_VARIABLE)
    kept = [given]
    derived = None if given else launched_credential(config, environment)
    return Access(
        heartbeat=lambda execution_id: kept[0] if derived is None else derived(ExecutionId(execution_id)),
        renew=lambda renewed: kept.__setitem__(0, renewed),
        tls=_tls(files_of(config)),
        sends_in_clear=config.is_coordinator_insecure,
    )


def launched_credential(config: JobConfig, environment: Mapping[str, str]) -> Callable[[ExecutionId], str | None]:
    """The credential of an execution that this process's coordinator starts.

    Raises:
        ConfigError: the secret cannot be read.
    """
    derived = _deriving(config, environment)
    return lambda execution_id: derived(Scope.HEARTBEAT, execution_id)


def command_access(config: JobConfig | None, environment: Mapping[str, str]) -> Access:
    """What a command shows to ask the leader for its status.

    Files are read when the leader is asked; many commands do not ask it. A ConfigError then names a file that cannot
    be read.
    """
    files = TlsFiles(ca=environment.get(CA_VARIABLE)) if config is None else files_of(config)

    @cache
    def read() -> str | None:
        token = _token(environment)
        if token is not None or config is None:
            return token
        return _deriving(config, environment)(Scope.READ, _COMMANDS)

    return Access(read=read, tls=_tls(files), sends_in_clear=config is not None and config.is_coordinator_insecure)


def signing_credential(config: JobConfig | None, environment: Mapping[str, str]) -> str | None:
    """The credential that a command signs requests with.

    None if the command has neither the secret nor a credential of scope `operate`.

    Raises:
        ConfigError: the secret cannot be read.
    """
    token = _token(environment)
    if token is not None:
        return token if name_in(token, Scope.OPERATE) is not None else None
    return None if config is None else _deriving(config, environment)(Scope.OPERATE, _COMMANDS)


def signature_check(config: JobConfig, environment: Mapping[str, str]) -> Callable[[LogRecord, int], str]:
    """Why a coordinator of this process refuses a request for its signature.

    The function gets the record and the time. It returns an empty text for a request that is not refused.

    Raises:
        ConfigError: the secret cannot be read.
    """
    if config.coordinator_secret is None:
        return lambda record, now_ms: ""
    source = SecretSource(config.coordinator_secret, environment)

    def refusal(record: LogRecord, now_ms: int) -> str:
        signed = SignedOnly(job=config.job, secrets=source.secrets(), is_required=config.are_signatures_required)
        return signed.refusal(record.key or b"", record.value or b"", record.headers, now_ms)

    return refusal


def made_token(config: JobConfig, environment: Mapping[str, str], scope: Scope, name: str) -> str:
    """A new credential for a person or a program.

    Raises:
        ConfigError: the job has no secret, or the name has wrong characters.
    """
    token = _deriving(config, environment)(scope, name)
    if token is None:
        raise ConfigError(
            "wanted job.coordinator.secret, which credentials are derived from, found nothing; set it to file:/path or "
            "env:NAME for every process of the job"
        )
    return token


def _deriving(config: JobConfig, environment: Mapping[str, str]) -> Callable[[Scope, str], str | None]:
    if config.coordinator_secret is None:
        return lambda scope, name: None
    source = SecretSource(config.coordinator_secret, environment)
    return lambda scope, name: credential(source.secrets()[0], config.job, scope, name)


def _tls(files: TlsFiles) -> Callable[[], ssl.SSLContext]:
    """The context of a client.

    It is made when it is needed, because to load the authorities of a host takes time.
    """
    made = cache(lambda: client_context(files))
    return lambda: made().context()


def files_of(config: JobConfig) -> TlsFiles:
    """The certificates of a process of the job."""
    return TlsFiles(
        certificate=config.coordinator_certificate,
        key=config.coordinator_key,
        ca=config.coordinator_ca,
        wants_client_certificate=config.coordinator_client_auth == "required",
    )


def _token(environment: Mapping[str, str]) -> str | None:
    text = environment.get(TOKEN_VARIABLE)
    if text is not None and text.startswith("file:"):
        path = text.removeprefix("file:")
        try:
            text = Path(path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{TOKEN_VARIABLE}: wanted to read {path}, found: {error}; correct the path") from error
    token = (text or "").strip()
    if not (token.isascii() and token.isprintable()):
        # The text is not quoted, because it is a secret.
        raise ConfigError(
            f"{TOKEN_VARIABLE}: wanted a credential, one line of ASCII characters, found others in it; copy it again "
            "as `samzapy job token` printed it"
        )
    return token or None
