"""The development broker or cluster that a command of `samzapy dev` is about."""

from __future__ import annotations

from pathlib import Path

import click

from samzapy.adapters.maven.fetch import cache_root
from samzapy.errors import RejectedError
from samzapy.testing.broker import DevBroker
from samzapy.testing.broker_cluster import DevCluster

directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the broker or cluster in this directory [default: in samzapy's cache directory].",
)


def kafka_in(directory: Path | None) -> DevBroker | DevCluster:
    """The broker or cluster of the directory, as it was started last.

    It is the cluster by default if a node of it runs.
    """
    if directory is None:
        default = default_directory(is_cluster=True)
        is_running = DevCluster.is_in(default) and bool(pids_of(DevCluster(default, detached=True)))
        directory = default_directory(is_cluster=is_running)
    if DevCluster.is_in(directory):
        return DevCluster(directory, detached=True)
    last = DevBroker(directory, detached=True).last_start()
    if last is None:
        return DevBroker(directory, detached=True)
    return DevBroker(directory, port_number=last.port_number, overrides=last.overrides, detached=True)


def servers_of(directory: Path | None) -> str:
    """The addresses of the broker or cluster in a directory.

    Raises RejectedError if none runs.
    """
    kafka = kafka_in(directory)
    if not pids_of(kafka):
        raise RejectedError(f"wanted a broker in {kafka.directory}, found none that runs; samzapy dev up starts it")
    return kafka.bootstrap_servers


def pids_of(kafka: DevBroker | DevCluster) -> list[int]:
    """The processes of the broker, or of the nodes, that run."""
    nodes = kafka.nodes.values() if isinstance(kafka, DevCluster) else [kafka]
    return [process.pid for node in nodes if (process := node.process()) is not None]


def default_directory(*, is_cluster: bool) -> Path:
    """The place in samzapy's cache directory, where no other is named."""
    return cache_root() / ("dev-cluster" if is_cluster else "dev-broker")
