"""Read the secret of `job.coordinator.secret`, and notice a new one.

A file is read again when it has changed, so a secret is replaced without a restart: add the new one as the first line,
and remove the old line later. A file that cannot be read any more leaves the secrets that were read last in force.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from samzapy.config import refuse_open_file
from samzapy.errors import ConfigError
from samzapy.model.credential import secrets_of

_LOG = logging.getLogger(__name__)


class SecretSource:
    """The secrets of a job, the newest first; any thread may ask.

    Args:
        reference: `file:/absolute/path` or `env:NAME`, as `config.checks` accepts it.
        environment: of this process.

    Raises:
        ConfigError: there is no such file or variable, other users may read the file, or a secret is too short.
    """

    def __init__(self, reference: str, environment: Mapping[str, str]) -> None:
        kind, _, name = reference.partition(":")
        self._path = Path(name) if kind == "file" else None
        self._lock = threading.Lock()
        self._signature: tuple[int, ...] = ()
        self._trouble = ""
        self._secrets: tuple[str, ...] = ()
        if self._path is not None:
            self._read(self._path)
        elif name in environment:
            self._secrets = secrets_of(environment[name], f"${name}")
        else:
            raise ConfigError(
                f"job.coordinator.secret={reference}: wanted the environment variable {name}, found that it is not "
                "set; set it for this process"
            )

    def secrets(self) -> tuple[str, ...]:
        """The secrets that are in force now."""
        if self._path is not None:
            with self._lock:
                self._read_again(self._path)
        return self._secrets

    def _read_again(self, path: Path) -> None:
        try:
            self._read(path)
        except ConfigError as error:
            if str(error) != self._trouble:
                _LOG.error("%s; the secret that was read before stays in force", error)
            self._trouble = str(error)
        else:
            self._trouble = ""

    def _read(self, path: Path) -> None:
        try:
            status = path.stat()
            signature = (status.st_mtime_ns, status.st_ino, status.st_size, status.st_mode)
            if signature == self._signature:
                return
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "bytes that are no text"
            raise ConfigError(
                f"job.coordinator.secret: wanted to read {path}, found: {reason}; create the file, readable by this "
                "user only"
            ) from error
        refuse_open_file("job.coordinator.secret", path, status.st_mode)
        self._secrets = secrets_of(text, str(path))
        self._signature = signature
