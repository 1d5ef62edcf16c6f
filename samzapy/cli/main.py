"""The `samzapy` command line: the table of commands, and how an error is reported.

The commands are a table, so that `samzapy --help` imports none of them (pyspark and pyarrow alone take a
second). A `SamzapyError` ends as one message on stderr and the exit code of its branch. A stack trace is printed
only for a bug in samzapy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from samzapy.cli.output.failures import run_command
from samzapy.cli.output.groups import LazyCommand, LazyGroup
from samzapy.version import __version__

COMMANDS: Mapping[str, LazyCommand] = {
    "acl": LazyCommand("samzapy.cli.acl:acl", "Print the Kafka rights that a job needs, and check them."),
    "checkpoint": LazyCommand("samzapy.cli.checkpoint:checkpoint", "List the committed position of each key bucket."),
    "class-archive": LazyCommand(
        "samzapy.cli.class_archive:class_archive", "Make a class archive, so that jobs start faster on this machine."
    ),
    "completion": LazyCommand("samzapy.cli.completion:completion", "Print the completion script of a shell."),
    "config": LazyCommand("samzapy.cli.config:config", "Show effective configuration values and their sources."),
    "container": LazyCommand("samzapy.cli.container.group:container", "List, move and restart containers."),
    "dev": LazyCommand("samzapy.cli.dev.group:dev", "Run a Kafka broker on this machine, for development."),
    "doctor": LazyCommand("samzapy.cli.doctor.command:doctor", "Diagnose a job and suggest remedies."),
    "job": LazyCommand("samzapy.cli.job.group:job", "Submit, stop, scale and inspect a job."),
    "profile": LazyCommand("samzapy.cli.profile:profile", "Name the job and the cluster once for all commands."),
    "run": LazyCommand("samzapy.cli.run:run", "Run a job file with spark-submit."),
    "state": LazyCommand("samzapy.cli.state:state", "Read the entries of a store from its changelog."),
    "task": LazyCommand("samzapy.cli.stream.task:task", "Explain why a task runs on its processor."),
    "stream": LazyCommand(
        "samzapy.cli.stream.group:stream", "Read and verify the history of the coordinator's decisions."
    ),
}


samzapy = LazyGroup(
    table=COMMANDS,
    name="samzapy",
    help="Run streaming jobs on Spark Structured Streaming, coordinated through a Kafka topic.",
)
click.version_option(__version__, prog_name="samzapy", message="%(prog)s %(version)s")(samzapy)


def main(args: Sequence[str] | None = None) -> None:
    """Runs one `samzapy` command and ends the process with its exit code."""
    run_command(samzapy, "samzapy", args)
