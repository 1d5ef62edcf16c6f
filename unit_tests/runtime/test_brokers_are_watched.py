"""A container and a coordinator watch their brokers; here no broker listens."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.cli.job import submission
from samzapy.runtime.container_process import _Run
from samzapy.runtime.spark_start import SparkStart
from samzapy.testing.builders import a_config
from samzapy.testing.ports import LOOPBACK, free_port
from unit_tests.fixtures.container_run import a_container_run

WITHIN_S = 60.0


class Line(logging.Handler):
    """Waits for the first line."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.is_there = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()
        self.is_there.set()


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def connection(line: Line) -> Iterator[KafkaConnection]:
    log = logging.getLogger("samzapy.adapters.kafka.broker_watch")
    log.addHandler(line)
    yield KafkaConnection(bootstrap_servers=f"{LOOPBACK}:{free_port()}")
    log.removeHandler(line)


def test_a_container_names_brokers_that_do_not_answer_while_it_runs(
    tmp_path: Path, connection: KafkaConnection, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(*_: object, is_launched: bool) -> None:
        assert line.is_there.wait(WITHIN_S), is_launched

    monkeypatch.setattr(_Run, "_run", wait)
    a_container_run(tmp_path, connection).run(cast(SparkStart, None), is_launched=False)

    assert line.text.startswith(f"no broker of {connection.bootstrap_servers} has answered for ")


def test_a_coordinator_names_brokers_that_do_not_answer_while_it_runs(
    connection: KafkaConnection, line: Line
) -> None:
    with submission._leader_search(a_config(), connection):
        assert line.is_there.wait(WITHIN_S)

    assert line.text.startswith(f"no broker of {connection.bootstrap_servers} has answered for ")
