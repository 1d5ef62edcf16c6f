"""`samzapy dev`: a Kafka broker on this machine, for development; and the coordinator, simulated.

The same broker as in the tests (`testing/broker.py`), started so that it outlives the command. Everything
about it is in one directory; the pid file there says which process it is, and `down` ends that one only.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from samzapy.adapters.maven.fetch import cache_root
from samzapy.errors import ExitCode, RejectedError
from samzapy.testing.broker import DevBroker
from samzapy.testing.simulation.checks import BrokenLawError
from samzapy.testing.simulation.simulate import simulate as a_history
from samzapy.testing.simulation.world import EVENT_COUNT, Kind
from samzapy.testing.topics import make_topics, topic_names

PORT_DEFAULT = 19092


def _settings(_context: click.Context, _parameter: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"wanted key=value, found {text!r}.")
        settings[key] = value
    return settings


_directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the broker lives [default: dev-broker in samzapy's cache directory].",
)


@click.group()
def dev() -> None:
    """A Kafka broker on this machine, for development; and the coordinator, simulated."""


@dev.command()
@click.option(
    "--port",
    "port_number",
    type=click.IntRange(1, 65535),
    default=PORT_DEFAULT,
    show_default=True,
    help="The loopback port that clients connect to.",
)
@_directory_option
@click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_settings,
    help="A broker setting; may be given several times.",
)
def up(port_number: int, directory: Path | None, overrides: dict[str, str]) -> None:
    """Starts the broker, and fetches it first if need be. Running already is fine."""
    broker = DevBroker(directory or _default_directory(), port_number=port_number, overrides=overrides, detached=True)
    before = broker.process()
    stale_pid = broker.stale_pid()
    if stale_pid is not None:
        click.echo(f"The last broker here, pid {stale_pid}, is gone without a goodbye; its data is kept.")
    broker.start()
    process = broker.process()
    said = "runs already" if before is not None and before == process else "started"
    click.echo(f"Kafka {said}: bootstrap.servers={broker.bootstrap_servers}, directory {broker.directory}")


@dev.command()
@_directory_option
def down(directory: Path | None) -> None:
    """Stops the broker and keeps its data. Not running is fine."""
    broker = DevBroker(directory or _default_directory(), detached=True)
    process = broker.process()
    broker.stop()
    click.echo(
        f"Kafka stopped (pid {process.pid}); its data is kept in {broker.directory}"
        if process
        else f"No broker runs in {broker.directory}"
    )


@dev.command()
@click.argument("names", nargs=-1, required=True)
@click.option(
    "--partitions", "partition_count", type=click.IntRange(min=1), default=4, show_default=True, metavar="N"
)
@_directory_option
def topic(names: Sequence[str], partition_count: int, directory: Path | None) -> None:
    """Makes topics on the broker, for a job's inputs and outputs. One that is there stays as it is.

    \b
    Example:
      samzapy dev topic flights flights-by-aircraft --partitions 4
    """
    broker = DevBroker(directory or _default_directory(), detached=True)
    if broker.process() is None:
        raise RejectedError(f"wanted a broker in {broker.directory}, found none that runs; samzapy dev up starts it")
    there = topic_names(broker.bootstrap_servers)
    wanted = [name for name in dict.fromkeys(names) if name not in there]
    make_topics(broker.bootstrap_servers, dict.fromkeys(wanted, partition_count))
    for name in dict.fromkeys(names):
        click.echo(f"{name}: {f'made with {partition_count} partitions' if name in wanted else 'is there already'}")


@dev.command()
@_directory_option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def status(context: click.Context, directory: Path | None, output: str) -> None:
    """Whether the broker runs, and where. Exit code 3 when it does not."""
    broker = DevBroker(directory or _default_directory(), detached=True)
    facts = _facts(broker)
    if output == "json":
        click.echo(json.dumps(facts, indent=2))
    else:
        table = Table("", "broker")
        for name, value in facts.items():
            table.add_row(name, "-" if value is None else str(value))
        Console().print(table)
    context.exit(ExitCode.OK if facts["state"] == "running" else ExitCode.REJECTED)


@dev.command()
@click.option("--seed", type=int, required=True, help="The number that the history is made from.")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="Histories, from that seed on.")
@click.option("--events", type=click.IntRange(1), default=EVENT_COUNT, show_default=True, help="Events of each.")
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in Kind]),
    help="What the job is like; by default the seed chooses.",
)
@click.pass_context
def simulate(context: click.Context, seed: int, count: int, events: int, kind: str | None) -> None:
    """Lives through a job's history made from a seed, with all its faults, and judges it.

    One history is told line by line; of several, each that breaks a law or ends in an error is named. Exit code 1 then.
    """
    broken = 0
    for number in range(seed, seed + count):
        try:
            history = a_history(
                number, events, click.echo if count == 1 else None, None if kind is None else Kind(kind)
            )
        except BrokenLawError as error:
            broken += 1
            click.echo(f"seed {number}: {error}")
        except Exception as error:
            # No law, but the product cannot go on; the others are lived through all the same.
            broken += 1
            if count == 1:
                click.echo("".join(traceback.format_exception(error)), err=True)
            click.echo(f"seed {number}: {_error_text(error)}")
        else:
            figures = (
                f"{history.kind}, {history.events} events, {sum(history.faults.values())} faults, "
                f"{history.terms} terms, {history.grants} grants, {history.commits} commits"
            )
            click.echo(f"seed {number}: {figures}, {history.virtual_ms // 1000} s, digest {history.digest}")
    context.exit(ExitCode.FAILED if broken else ExitCode.OK)


def _error_text(error: Exception) -> str:
    """What ended a history, where, and how to see it again."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    said = f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno}, in {place.name})"
    return "\n".join((said, *getattr(error, "__notes__", ())))


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


def _default_directory() -> Path:
    return cache_root() / "dev-broker"
