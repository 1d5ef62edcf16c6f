"""The `samzapy` command line: the table of commands, and how an error is reported.

The commands are a table, so that `samzapy --help` imports none of them (pyspark and pyarrow alone take a
second). A `SamzapyError` ends as one message on stderr and the exit code of its branch. A stack trace is printed
only for a bug in samzapy.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

import click

from samzapy.cli.output.failures import run_command
from samzapy.version import __version__


class LazyCommand(NamedTuple):
    """The `module:attribute` of a command and its line in `--help`."""

    target: str
    summary: str


COMMANDS: Mapping[str, LazyCommand] = {
    "checkpoint": LazyCommand("samzapy.cli.checkpoint:checkpoint", "List the committed position of each key bucket."),
    "class-archive": LazyCommand(
        "samzapy.cli.class_archive:class_archive", "Make a class archive, so that jobs start faster on this machine."
    ),
    "config": LazyCommand("samzapy.cli.config:config", "Show effective configuration values and their sources."),
    "container": LazyCommand("samzapy.cli.container.group:container", "List, move and restart containers."),
    "dev": LazyCommand("samzapy.cli.dev.group:dev", "Run a Kafka broker on this machine, for development."),
    "doctor": LazyCommand("samzapy.cli.doctor:doctor", "Diagnose a job and suggest remedies."),
    "job": LazyCommand("samzapy.cli.job.group:job", "Submit, stop, scale and inspect a job."),
    "run": LazyCommand("samzapy.cli.run:run", "Run a job file with spark-submit."),
    "state": LazyCommand("samzapy.cli.state:state", "Read the entries of a store from its changelog."),
    "task": LazyCommand("samzapy.cli.stream.task:task", "Explain why a task runs on its processor."),
    "stream": LazyCommand(
        "samzapy.cli.stream.group:stream", "Read and verify the history of the coordinator's decisions."
    ),
}


class LazyGroup(click.Group):
    """A group that imports a command when it is called, not when it is listed."""

    def __init__(self, *, table: Mapping[str, LazyCommand], name: str, help: str) -> None:
        super().__init__(name=name, help=help)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        module, _, attribute = self._table[cmd_name].target.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), f"{self._table[cmd_name].target} is not a click command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._table[name].summary) for name in self.list_commands(ctx)])


samzapy = LazyGroup(
    table=COMMANDS,
    name="samzapy",
    help="Run streaming jobs on Spark Structured Streaming, coordinated through a Kafka topic.",
)
click.version_option(__version__, prog_name="samzapy", message="%(prog)s %(version)s")(samzapy)


def main(args: Sequence[str] | None = None) -> None:
    """Runs one `samzapy` command and ends the process with its exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="samzapy: %(message)s")
    run_command(samzapy, "samzapy", args)
