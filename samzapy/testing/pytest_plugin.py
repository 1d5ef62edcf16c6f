"""Fixtures for tests of a job. Installed with `pip install samzapy[test]`.

| fixture | scope | value |
|---|---|---|
| `run_task` | test | `samzapy.testing.task_kit.run_task`, with paths from the directory of the test |
| `samzapy_job` | test | `samzapy.testing.job.MemoryJob`, a whole job in memory, with paths as of `run_task` |
| `dev_broker` | session | a Kafka broker on this machine, without Docker; needs Java |
| `dev_cluster` | test | three Kafka brokers on this machine, which the test may stop, kill and start; needs Java |
| `kafka_container` | session | a Kafka broker in Docker; the test is skipped where Docker does not answer |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# Every pytest of an environment with samzapy loads this module, so the fixtures import what they need themselves.
if TYPE_CHECKING:
    from samzapy.testing.broker import DevBroker
    from samzapy.testing.broker_cluster import DevCluster
    from samzapy.testing.container_broker import ContainerBroker
    from samzapy.testing.job import MemoryJob
    from samzapy.testing.task_kit import TaskRun


@pytest.fixture
def run_task(request: pytest.FixtureRequest) -> Callable[..., TaskRun]:
    """Run a job's task on messages in memory, without Spark and Kafka.

    Paths are relative to the directory of the test, whatever directory pytest was started in.
    """
    from samzapy.testing.task_kit import run_task as run_task_of

    here = Path(request.path).parent

    def run(
        job_file: Path | str, messages: Iterable[Any], *, config_file: Path | str | None = None, **options: Any
    ) -> TaskRun:
        config = None if config_file is None else here / config_file
        return run_task_of(here / job_file, messages, config_file=config, **options)

    return run


@pytest.fixture
def samzapy_job(request: pytest.FixtureRequest) -> Iterator[Callable[..., MemoryJob]]:
    """Run a whole job in memory, without Spark and Kafka.

    It is stopped after the test. Paths are relative to the directory of the test.
    """
    from samzapy.testing.job import MemoryJob

    here, jobs = Path(request.path).parent, []

    def run(job_file: Path | str, *, config_file: Path | str | None = None, **options: Any) -> MemoryJob:
        config = None if config_file is None else here / config_file
        jobs.append(MemoryJob(here / job_file, config_file=config, **options))
        return jobs[-1]

    yield run
    for job in jobs:
        job.close()


@pytest.fixture(scope="session")
def dev_broker() -> Iterator[DevBroker]:
    """A broker of this session, on a free port of this machine.

    Its `bootstrap_servers` are those of a client. The first start downloads Kafka.
    """
    from samzapy.testing.broker import DevBroker

    with DevBroker() as broker:
        yield broker


@pytest.fixture
def dev_cluster() -> Iterator[DevCluster]:
    """Three brokers for this test alone, which it may stop, kill, pause and start.

    Topics have three replicas, of which two must be in sync. The first start downloads Kafka.
    """
    from samzapy.testing.broker_cluster import DevCluster

    with DevCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_container() -> Iterator[ContainerBroker]:
    """A broker in Docker, by testcontainers: `pip install samzapy[test,docker]`."""
    from samzapy.testing.container_broker import ContainerBroker, docker_trouble

    trouble = docker_trouble()
    if trouble is not None:
        pytest.skip(trouble)
    with ContainerBroker() as broker:
        yield broker
