"""The broker in Docker, with testcontainers and a fake of its Docker client."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from samzapy.errors import EnvironmentMissingError
from samzapy.testing.broker_files import BROKER_DEFAULTS
from samzapy.testing.container_broker import ContainerBroker, docker_trouble

pytest.importorskip("testcontainers", reason="needs the extra `docker`")
STARTED = b"INFO [KafkaRaftServer nodeId=1] Kafka Server started (kafka.server.KafkaRaftServer)"


class FakeContainer:
    """A container whose broker has started."""

    id = short_id = "c0ffee"
    status = "running"

    def __init__(self) -> None:
        self.files: list[str] = []
        self.is_removed = False

    def put_archive(self, path: str, data: bytes) -> bool:
        self.files.append(path)
        return True

    def logs(self, stdout: bool = True, stderr: bool = True) -> bytes:
        return STARTED if stdout else b""

    def reload(self) -> None:
        pass

    def remove(self, force: bool, v: bool) -> None:
        self.is_removed = True


class FakeDocker:
    """The part of testcontainers' `DockerClient` that a container uses; counts calls."""

    def __init__(self) -> None:
        self.container = FakeContainer()
        self.environment: Mapping[str, str] = {}
        self.pings = 0
        self.is_away = False
        self.client = self

    def __call__(self, **settings: Any) -> FakeDocker:
        return self

    def ping(self) -> bool:
        if self.is_away:
            raise ConnectionRefusedError("no such socket")
        self.pings += 1
        return True

    def create(self, image: str, *, environment: Mapping[str, str], **settings: Any) -> FakeContainer:
        self.environment = environment
        return self.container

    def start(self, container: FakeContainer) -> None:
        assert container is self.container

    def get_connection_mode(self) -> Any:
        return importlib.import_module("testcontainers.core.config").ConnectionMode.docker_host

    def host(self) -> str:
        return "docker.example"

    def port(self, container_id: str, port: int) -> str:
        assert (self.container.id, 9093) == (container_id, port)
        return "32768"

    def close(self) -> None:
        pass


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> FakeDocker:
    fake = FakeDocker()
    for module in ("testcontainers.core.docker_client", "testcontainers.core.container"):
        monkeypatch.setattr(importlib.import_module(module), "DockerClient", fake)
    monkeypatch.setattr(
        importlib.import_module("testcontainers.core.config").testcontainers_config, "ryuk_disabled", True
    )
    return fake


def test_a_broker_starts_with_the_settings_of_the_local_one_and_is_removed(docker: FakeDocker) -> None:
    with ContainerBroker() as broker:
        assert "docker.example:32768" == broker.bootstrap_servers
        assert ["/"] == docker.container.files and not docker.container.is_removed

    assert docker.container.is_removed
    given = {key: docker.environment["KAFKA_" + key.upper().replace(".", "_")] for key in BROKER_DEFAULTS}
    assert BROKER_DEFAULTS == given
    assert "broker,controller" == docker.environment["KAFKA_PROCESS_ROLES"]


def test_a_docker_that_does_not_answer_is_named(docker: FakeDocker) -> None:
    docker.is_away = True

    with pytest.raises(
        EnvironmentMissingError, match="wanted a Docker that answers, found: no such socket; start it"
    ):
        ContainerBroker()


def test_without_testcontainers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "testcontainers.core.docker_client", None)

    assert "install the extra with pip: samzapy[docker]" in (docker_trouble() or "")


def test_where_docker_answers_there_is_no_trouble(docker: FakeDocker) -> None:
    assert docker_trouble() is None
    assert 1 == docker.pings
