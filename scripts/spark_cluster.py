"""A Spark standalone cluster on this machine, for development.

    scripts/spark-cluster up [--workers 3] [--slots 2] [--dir DIRECTORY]
    scripts/spark-cluster status [--dir DIRECTORY] [-o json]
    scripts/spark-cluster down [--dir DIRECTORY]

A real master with its REST server, and workers w1, w2, ... on 127.0.0.1, 127.0.0.2, ..., each as a host of its own
(`integration_tests.support.spark_cluster`). It outlives the command; `down` ends it with everything that runs on it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# The repository's own tools, which are no part of the package.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import click
from rich.console import Console
from rich.table import Table

from integration_tests.support.spark_cluster import Ports, SparkCluster
from samzapy.adapters.maven.fetch import cache_root
from samzapy.errors import ExitCode, SamzapyError

_PORTS = Ports(master_port=17077, rest_port=16066, page_port=18080)

_directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the cluster [default: dev-spark in samzapy's cache directory].",
)


_PORT = click.IntRange(0, 65535)


@click.group()
def main() -> None:
    """A Spark standalone cluster on this machine, for development."""


@main.command()
@click.option("--workers", type=click.IntRange(1, 200), default=3, show_default=True, help="Workers; each is a host.")
@click.option("--slots", type=click.IntRange(1), default=2, show_default=True, help="Containers for each worker.")
@click.option(
    "--port", type=_PORT, default=_PORTS.master_port, show_default=True, help="Port of the master; 0: any free one."
)
@click.option(
    "--rest-port",
    type=_PORT,
    default=_PORTS.rest_port,
    show_default=True,
    help="Port where drivers are submitted; 0: any free one.",
)
@click.option(
    "--page-port",
    type=_PORT,
    default=_PORTS.page_port,
    show_default=True,
    help="Port of the master's page; 0: any free one.",
)
@_directory_option
def up(workers: int, slots: int, port: int, rest_port: int, page_port: int, directory: Path | None) -> None:
    """Starts the cluster, or its missing parts. It may run already."""
    cluster = SparkCluster(
        directory or _default_directory(),
        workers=workers,
        slots=slots,
        ports=Ports(master_port=port, rest_port=rest_port, page_port=page_port),
        detached=True,
    )
    before = cluster.processes()
    cluster.start()
    started = [name for name, process in cluster.processes().items() if process != before.get(name)]
    outcome = f"started {', '.join(started)}" if started else "runs already"
    click.echo(f"Spark {outcome}: {cluster.master_url}, submissions at {cluster.rest_url}, page {cluster.page_url}")
    click.echo(f"Hosts: {', '.join(cluster.hosts())}, {slots} containers each; directory {cluster.directory}")


@main.command()
@_directory_option
def down(directory: Path | None) -> None:
    """Ends the cluster and all that runs on it. It may be stopped already."""
    cluster = SparkCluster(directory or _default_directory(), detached=True)
    running = [name for name, process in cluster.processes().items() if process is not None]
    killed = cluster.stop()
    if not running and not killed:
        click.echo(f"No Spark cluster runs in {cluster.directory}")
        return
    click.echo(f"Stopped {', '.join(running)}; logs and work directories are kept in {cluster.directory}")
    if killed:
        click.echo(f"{killed} processes did not end by themselves and were killed.")


@main.command()
@_directory_option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def status(context: click.Context, directory: Path | None, output: str) -> None:
    """Shows the processes and addresses of the cluster.

    Exit code 3 when none of it runs, 6 when only a part of it does.
    """
    cluster = SparkCluster(directory or _default_directory(), detached=True)
    processes = cluster.processes()
    alive = [process for process in processes.values() if process is not None]
    facts: dict[str, Any] = {
        "state": "running" if len(alive) == len(processes) else "partly running" if alive else "not running",
        "directory": str(cluster.directory),
        "master": cluster.master_url if alive else None,
        "rest": cluster.rest_url if alive else None,
        "page": cluster.page_url if alive else None,
        "pids": {name: None if process is None else process.pid for name, process in processes.items()},
        "drivers": len((cluster.page() or {}).get("activedrivers", ())) if alive else 0,
    }
    if output == "json":
        click.echo(json.dumps(facts, indent=2))
    else:
        table = Table("", "Spark cluster")
        pids = facts.pop("pids")
        for name, value in {**facts, **{f"pid of {name}": pid for name, pid in pids.items()}}.items():
            table.add_row(name, "-" if value is None else str(value))
        Console().print(table)
    if facts["state"] != "running":
        context.exit(ExitCode.DEGRADED if alive else ExitCode.REJECTED)


def _default_directory() -> Path:
    return cache_root() / "dev-spark"


if __name__ == "__main__":
    try:
        main()
    except SamzapyError as error:
        print(f"spark-cluster: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
