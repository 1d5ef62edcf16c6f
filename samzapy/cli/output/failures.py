"""The end of a command.

An error is one message on stderr, and the exit code of its branch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from samzapy.cli.output.terminal import printable_lines
from samzapy.errors import SamzapyError
from samzapy.runtime.failures import machine_error


def run_command(command: click.Command, name: str, args: Sequence[str] | None) -> None:
    """Runs one command and ends the process with its exit code (`errors.ExitCode`)."""
    try:
        command.main(args=args, prog_name=name)  # Ends the process itself: 0, or 2 for wrong usage.
    except SamzapyError as error:
        click.echo(f"{name}: {printable_lines(str(error))}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        failure = machine_error(error)
        if failure is None:
            raise
        click.echo(f"{name}: {printable_lines(str(failure))}", err=True)
        sys.exit(failure.exit_code)
