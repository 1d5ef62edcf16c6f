"""TLS contexts of the coordinator's server and of its clients.

Certificates and authorities are replaced without a restart. Server and client make a new context once their files have
changed, for the connections that come next.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from samzapy.config import refuse_open_file
from samzapy.errors import ConfigError

_LOG = logging.getLogger(__name__)
_OLDEST: Final = ssl.TLSVersion.TLSv1_2


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The PEM files of a process, as `job.coordinator.tls.*` name them; None: not set."""

    certificate: str | None = None
    key: str | None = None
    ca: str | None = None
    wants_client_certificate: bool = False

    def signature(self) -> tuple[tuple[str, int, int], ...]:
        """What changes when a file is replaced."""
        paths = [path for path in (self.certificate, self.key, self.ca) if path is not None]
        return tuple((path, *_state_of(path)) for path in paths)

    def load_own(self, context: ssl.SSLContext) -> None:
        """Load this process's certificate, if it has one.

        Raises:
            ConfigError: a file cannot be read, is no certificate, or key and certificate do not fit.
        """
        if self.certificate is None or self.key is None:
            return
        _check_mode(self.key)
        try:
            # Without a callback OpenSSL would ask for a passphrase on the terminal.
            context.load_cert_chain(self.certificate, self.key, password=_no_passphrase)
        except (OSError, ValueError) as error:
            raise ConfigError(
                "job.coordinator.tls.certificate, job.coordinator.tls.key: wanted a PEM chain and its private key "
                f"without a passphrase, found {_reason(error)} in {self.certificate} and {self.key}; correct the files"
            ) from error

    def load_ca(self, context: ssl.SSLContext) -> None:
        """Trust the authorities of `job.coordinator.tls.ca`, if it is set.

        Raises:
            ConfigError: the file cannot be read, or has no certificate.
        """
        if self.ca is None:
            return
        try:
            context.load_verify_locations(self.ca)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"job.coordinator.tls.ca: wanted a PEM file of certificates, found {_reason(error)} in {self.ca}; "
                "correct the file"
            ) from error


class Reloading:
    """A context that is made again once its files have changed.

    `make` gives a context with the present files. Any thread may ask.

    Raises:
        ConfigError: the files are wrong at the first time. Later the last good context stays in force.
    """

    def __init__(self, files: TlsFiles, make: Callable[[], ssl.SSLContext]) -> None:
        self._files = files
        self._make = make
        self._lock = threading.Lock()
        self._signature = files.signature()
        self._context = make()

    def context(self) -> ssl.SSLContext:
        """The context with the present files."""
        with self._lock:
            signature = self._files.signature()
            if signature != self._signature:
                self._signature = signature
                try:
                    self._context = self._make()
                except ConfigError as error:
                    _LOG.error("%s; the certificates that were loaded before stay in force", error)
            return self._context

    @property
    def latest(self) -> ssl.SSLContext:
        """The context of the last look at the files."""
        return self._context


class ListeningContext(ssl.SSLContext):
    """The context that a listening server keeps; each connection gets the latest one.

    It is never changed itself. OpenSSL adds authorities to a context and removes none, and a context resumes its
    sessions without another look at the client's certificate.
    """

    reloading: Reloading

    @classmethod
    def of(cls, reloading: Reloading) -> Self:
        """The context of a server with the files of `reloading`."""
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        context.reloading = reloading
        return context

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """See `SSLContext`; asyncio calls it for each connection."""
        return self.reloading.latest.wrap_bio(*args, **kwargs)


def server_context(files: TlsFiles) -> Reloading:
    """The context of a server's connections."""

    def make() -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = _OLDEST
        if files.wants_client_certificate:
            made.verify_mode = ssl.CERT_REQUIRED
        files.load_own(made)
        files.load_ca(made)
        return made

    return Reloading(files, make)


def client_context(files: TlsFiles) -> Reloading:
    """The context of a client: it checks the server's certificate and name."""

    def make() -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.minimum_version = _OLDEST
        if files.ca is None:
            made.load_default_certs(ssl.Purpose.SERVER_AUTH)
        files.load_ca(made)
        files.load_own(made)
        return made

    return Reloading(files, make)


def _no_passphrase() -> str:
    raise ValueError("an encrypted key")


def _state_of(path: str) -> tuple[int, int]:
    try:
        status = Path(path).stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_ino


def _check_mode(path: str) -> None:
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return  # `load_cert_chain` names it.
    refuse_open_file("job.coordinator.tls.key", path, mode)


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "no PEM"
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
