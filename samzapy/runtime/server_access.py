"""Which requests the coordinator's server answers.

A module of its own, because commands need a client's access only, and a server takes long to import.
"""

from __future__ import annotations

from collections.abc import Mapping

from samzapy.adapters.host.secret_file import SecretSource
from samzapy.adapters.web.guard import Guard
from samzapy.adapters.web.server import ServerAccess
from samzapy.config import JobConfig, exposes_coordinator
from samzapy.runtime.coordinator_access import files_of


def server_access(
    config: JobConfig, environment: Mapping[str, str], advertised_host: str | None = None
) -> ServerAccess:
    """Which requests the server of this process answers, and its name in the URL.

    Raises:
        ConfigError: the secret cannot be read, or is too short.
    """
    source = None if config.coordinator_secret is None else SecretSource(config.coordinator_secret, environment)
    files = files_of(config)
    return ServerAccess(
        guard=Guard(
            job=config.job,
            secrets=None if source is None else source.secrets,
            wants_client_certificate=files.wants_client_certificate,
            is_exposed=exposes_coordinator(config),
        ),
        tls=files if files.certificate is not None else None,
        advertised_host=advertised_host,
        allowed_hosts=config.coordinator_allowed_hosts,
    )
