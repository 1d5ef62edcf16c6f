"""The command line: which verbs there are, and how a failure reaches the person who typed one.

The commands are a table, so that `samzapy --help` imports none of them (pyspark and pyarrow alone take a
second). What samzapy raises on purpose ends as one message on stderr and the exit code of its branch; a stack
trace is only ever printed for a fault of ours.
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
    """Where a command is and what `--help` says of it. `target` is `module:attribute`."""

    target: str
    summary: str


COMMANDS: Mapping[str, LazyCommand] = {
    "checkpoint": LazyCommand("samzapy.cli.checkpoint:checkpoint", "Positions of record."),
    "class-archive": LazyCommand("samzapy.cli.class_archive:class_archive", "Let jobs start sooner on this machine."),
    "config": LazyCommand("samzapy.cli.config:config", "What counts for a key, and where it comes from."),
    "container": LazyCommand(
        "samzapy.cli.container.group:container", "List containers, move or restart a processor."
    ),
    "dev": LazyCommand("samzapy.cli.dev:dev", "A Kafka broker on this machine, for development."),
    "doctor": LazyCommand("samzapy.cli.doctor:doctor", "What is wrong with a job, and what to do about it."),
    "job": LazyCommand("samzapy.cli.job.group:job", "Start, stop and scale a job; how it is."),
    "run": LazyCommand("samzapy.cli.run:run", "Run a job file through spark-submit."),
    "task": LazyCommand("samzapy.cli.stream.task:task", "Why a task is where it is."),
    "stream": LazyCommand("samzapy.cli.stream.group:stream", "What the coordinator decided, when and why."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, not when they are listed."""

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
    help="Streaming jobs on Spark Structured Streaming, with a Kafka topic as their only coordinator.",
)
click.version_option(__version__, prog_name="samzapy", message="%(prog)s %(version)s")(samzapy)


def main(args: Sequence[str] | None = None) -> None:
    """Runs one `samzapy` command and ends the process with its exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="samzapy: %(message)s")
    run_command(samzapy, "samzapy", args)
