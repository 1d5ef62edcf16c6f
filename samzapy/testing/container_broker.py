"""A Kafka broker in Docker, by testcontainers (the extra `docker`)."""

from __future__ import annotations

import importlib
import os
from types import TracebackType
from typing import Any, Self

from samzapy.errors import ConfigError, EnvironmentMissingError
from samzapy.testing.broker_files import BROKER_DEFAULTS


class ContainerBroker:
    """A broker in Docker. It cannot be killed or paused.

    Raises:
        EnvironmentMissingError: testcontainers is not installed, or Docker does not answer.
    """

    def __init__(self) -> None:
        if (trouble := docker_trouble()) is not None:
            raise EnvironmentMissingError(trouble)
        kafka: Any = importlib.import_module("testcontainers.community.kafka")
        self._container = kafka.KafkaContainer().with_kraft()
        for key, value in BROKER_DEFAULTS.items():
            self._container.with_env("KAFKA_" + key.upper().replace(".", "_"), value)

    @property
    def bootstrap_servers(self) -> str:
        """The `bootstrap.servers` of a client."""
        return str(self._container.get_bootstrap_server())

    def __enter__(self) -> Self:
        self._container.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._container.stop()


def docker_trouble() -> str | None:
    """Why no `ContainerBroker` can start here, with the way out; None where one can."""
    try:
        client: Any = importlib.import_module("testcontainers.core.docker_client")
    except ImportError as error:
        return f"wanted testcontainers, found: {error}; install the extra with pip: samzapy[docker]"
    try:
        client.DockerClient().client.ping()
    except Exception as error:  # A Docker client raises its own errors, those of requests, and those of sockets.
        return f"wanted a Docker that answers, found: {error}; start it, or set SAMZAPY_TEST_BROKER=local"
    return None


def wants_containers() -> bool:
    """Whether SAMZAPY_TEST_BROKER=testcontainers asks tests to use Docker."""
    wish = os.environ.get("SAMZAPY_TEST_BROKER", "")
    if wish not in ("", "local", "testcontainers"):
        raise ConfigError(f"SAMZAPY_TEST_BROKER is {wish!r}; it may be `local` (the default) or `testcontainers`.")
    return wish == "testcontainers"
