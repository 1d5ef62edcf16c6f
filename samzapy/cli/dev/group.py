"""`samzapy dev`: run Kafka on this machine, for development.

The same broker (`testing/broker.py`) and cluster (`testing/broker_cluster.py`) as in the tests, started so that they
outlive the command. Everything about them is in one directory; the pid file of each node names its process, and
`down` ends those processes only.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from samzapy.cli.dev.kafka import default_directory, directory_option, kafka_in, pids_of, servers_of
from samzapy.cli.dev.messages import consume, produce
from samzapy.cli.output.groups import HintingGroup
from samzapy.cli.output.option import is_json, output_option, print_json, print_result
from samzapy.cli.output.table import print_table
from samzapy.errors import ExitCode, RejectedError
from samzapy.testing.broker import DevBroker
from samzapy.testing.broker_cluster import DevCluster
from samzapy.testing.topics import make_topics, topic_names

PORT_DEFAULT = 19092
NODES_MAX = 9
_GONE_WITHIN_S = 30.0


def _settings(_context: click.Context, _parameter: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"wanted key=value, found {text!r}.")
        settings[key] = value
    return settings


_node_argument = click.argument("node_id", type=click.IntRange(1), metavar="NODE", required=False)


@click.group(cls=HintingGroup)
def dev() -> None:
    """Run a Kafka broker on this machine, for development."""


@dev.command()
@click.option(
    "--port",
    "port_number",
    type=click.IntRange(1, 65535),
    default=PORT_DEFAULT,
    show_default=True,
    help="Listen on this loopback port; the nodes of a cluster use this one and the next ones.",
)
@click.option(
    "--nodes",
    "node_count",
    type=click.IntRange(1, NODES_MAX),
    default=1,
    show_default=True,
    help="Start this many nodes. With 3, topics get three replicas, of which two must be in sync.",
)
@directory_option
@output_option()
@click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_settings,
    help="Set one broker setting; may be repeated.",
)
def up(port_number: int, node_count: int, directory: Path | None, output: str, overrides: dict[str, str]) -> None:
    """Start the broker or a cluster; download Kafka first if it is missing."""
    directory = directory or default_directory(is_cluster=node_count > 1)
    if node_count > 1 or DevCluster.is_in(directory):
        _up_cluster(directory, node_count, port_number, overrides, output)
        return
    broker = DevBroker(directory, port_number=port_number, overrides=overrides, detached=True)
    before = broker.process()
    stale_pid = broker.stale_pid()
    if stale_pid is not None:
        click.echo(f"The last broker here, pid {stale_pid}, ended without a shutdown; its data is kept.", err=True)
    broker.start()
    process = broker.process()
    outcome = "runs already" if before is not None and before == process else "started"
    text = f"Kafka {outcome}: bootstrap.servers={broker.bootstrap_servers}, directory {broker.directory}"
    print_result(_facts(broker), text, output)


@dev.command()
@directory_option
@output_option()
def down(directory: Path | None, output: str) -> None:
    """Stop the broker or the cluster and keep its data."""
    kafka = kafka_in(directory)
    pids = pids_of(kafka)
    kafka.stop()
    stopped = f"Kafka stopped (pid {', '.join(map(str, pids))}); its data is kept in {kafka.directory}"
    text = stopped if pids else f"No broker runs in {kafka.directory}"
    print_result({"pids": pids, "directory": str(kafka.directory)}, text, output)


@dev.command()
@_node_argument
@directory_option
@output_option()
def kill(node_id: int | None, directory: Path | None, output: str) -> None:
    """Kill the broker, or NODE of a cluster, with SIGKILL; its data is kept.

    \b
    Example:
      samzapy dev kill 2
    """
    kafka = kafka_in(directory)
    node = _node(kafka, node_id)
    process = node.process()
    if process is None:
        raise RejectedError(f"wanted a broker in {node.directory}, found none that runs; samzapy dev up starts it")
    process.send(signal.SIGKILL)
    process.wait_gone(_GONE_WITHIN_S)
    text = f"Kafka killed (pid {process.pid}); samzapy dev restart{_id_text(node_id)} starts it again"
    print_result({"pid": process.pid, "directory": str(node.directory)}, text, output)


@dev.command()
@_node_argument
@directory_option
@output_option()
def restart(node_id: int | None, directory: Path | None, output: str) -> None:
    """Restart the broker, or NODE of a cluster, with the same data and port."""
    kafka = kafka_in(directory)
    if isinstance(kafka, DevBroker) and kafka.last_start() is None:
        # Without this check the restart would make a new cluster where --dir is mistyped.
        raise RejectedError(
            f"wanted a directory of samzapy dev up, found no broker's last start in {kafka.directory}; name the "
            "directory with --dir, or start a broker with samzapy dev up"
        )
    node = _node(kafka, node_id)
    node.restart()
    text = f"Kafka restarted: node{_id_text(node_id) or ' 1'} serves on {node.bootstrap_servers}"
    print_result(_facts(node), text, output)


@dev.command()
@click.argument("names", nargs=-1, required=True)
@click.option(
    "--partitions",
    "partition_count",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    metavar="N",
    help="Create each topic with N partitions.",
)
@directory_option
@output_option()
def topic(names: Sequence[str], partition_count: int, directory: Path | None, output: str) -> None:
    """Create topics on the broker, for inputs and outputs.

    Existing topics are not changed.

    \b
    Example:
      samzapy dev topic flights flights-by-aircraft --partitions 4
    """
    servers = servers_of(directory)
    there = topic_names(servers)
    wanted = [name for name in dict.fromkeys(names) if name not in there]
    make_topics(servers, dict.fromkeys(wanted, partition_count))
    if is_json(output):
        print_json([{"topic": name, "made": name in wanted} for name in dict.fromkeys(names)], output)
        return
    for name in dict.fromkeys(names):
        click.echo(f"{name}: {f'made with {partition_count} partitions' if name in wanted else 'is there already'}")


dev.add_command(produce)
dev.add_command(consume)


@dev.command()
@directory_option
@output_option()
@click.pass_context
def status(context: click.Context, directory: Path | None, output: str) -> None:
    """Show whether the broker or the cluster runs, and where.

    Exits with 3 if it, or one of its nodes, does not run.
    """
    kafka = kafka_in(directory)
    if isinstance(kafka, DevCluster):
        nodes = {node_id: _facts(node) for node_id, node in kafka.nodes.items()}
        running = [facts["state"] == "running" for facts in nodes.values()]
        state = "running" if all(running) else "degraded" if any(running) else "not running"
        facts: dict[str, Any] = {"state": state, "bootstrap_servers": kafka.bootstrap_servers}
        columns = {f"node {node_id}": node for node_id, node in nodes.items()}
        printed = facts | {"directory": str(kafka.directory), "nodes": nodes}
    else:
        printed = facts = _facts(kafka)
        columns = {"broker": facts}
    if is_json(output):
        print_json(printed, output)
    else:
        _print_status(columns)
    context.exit(ExitCode.OK if facts["state"] == "running" else ExitCode.REJECTED)


def _print_status(columns: Mapping[str, Mapping[str, Any]]) -> None:
    rows = [
        (name, *("-" if facts[name] is None else str(facts[name]) for facts in columns.values()))
        for name in next(iter(columns.values()))
    ]
    print_table(("", *columns), rows, heading=str)


def _facts(broker: DevBroker) -> dict[str, Any]:
    process = broker.process()
    return {
        "state": "running" if process else "not running",
        "bootstrap_servers": broker.bootstrap_servers if process else None,
        "pid": process.pid if process else None,
        "stale_pid": broker.stale_pid(),
        "directory": str(broker.directory),
        "log": str(broker.log_path),
    }


def _up_cluster(
    directory: Path, node_count: int, port_number: int, overrides: Mapping[str, str], output: str
) -> None:
    if (directory / "broker.json").exists() or (directory / "data").exists():
        raise RejectedError(
            f"wanted a directory for a cluster of {node_count} nodes, found a single broker's in {directory}; "
            "choose another one with --dir"
        )
    cluster = DevCluster(
        directory, node_count=node_count, port_number=port_number, overrides=overrides, detached=True
    )
    if len(cluster.nodes) != node_count:
        raise RejectedError(
            f"wanted a cluster of {node_count} nodes, found one of {len(cluster.nodes)} in {directory}; start it with "
            f"--nodes {len(cluster.nodes)}, or choose another directory with --dir"
        )
    if cluster.port_number != port_number:
        raise RejectedError(
            f"wanted the nodes' ports from {port_number} on, found a cluster in {directory} whose ports begin with "
            f"{cluster.port_number}; start it with --port {cluster.port_number}, or choose another directory with --dir"
        )
    before = pids_of(cluster)
    cluster.start()
    outcome = "runs already" if len(before) == node_count and before == pids_of(cluster) else "started"
    facts = {"nodes": node_count, "bootstrap_servers": cluster.bootstrap_servers, "directory": str(directory)}
    text = (
        f"Kafka {outcome}, {node_count} nodes: bootstrap.servers={cluster.bootstrap_servers}, directory {directory}"
    )
    print_result(facts, text, output)


def _node(kafka: DevBroker | DevCluster, node_id: int | None) -> DevBroker:
    if isinstance(kafka, DevBroker):
        if node_id not in (None, 1):
            raise RejectedError(f"wanted node {node_id}, found a single broker in {kafka.directory}; leave NODE out")
        return kafka
    if node_id is None:
        raise RejectedError(
            f"wanted one of the nodes {', '.join(map(str, kafka.nodes))} of {kafka.directory}, found none named; "
            "name it as NODE"
        )
    return kafka.node(node_id)


def _id_text(node_id: int | None) -> str:
    return "" if node_id is None else f" {node_id}"
