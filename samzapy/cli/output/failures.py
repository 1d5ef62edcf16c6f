"""The end of a command.

An error is one message on stderr, and the exit code of its branch.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from samzapy.adapters.host.core_files import write_no_core_files
from samzapy.cli.output.process_start import own_start_s
from samzapy.cli.output.terminal import printable_lines
from samzapy.errors import SamzapyError
from samzapy.runtime.failures import machine_error
from samzapy.runtime.logs import log_to_stderr


def run_command(command: click.Command, name: str, args: Sequence[str] | None) -> None:
    """Runs one command and ends the process with its exit code (`errors.ExitCode`)."""
    write_no_core_files()
    _open_standard_streams()
    # Otherwise Python looks through all objects twice more when it ends: 40 of 280 ms of a short command (measured).
    atexit.register(gc.freeze)
    try:
        log_to_stderr(os.environ, f"{name}: %(message)s", logging.INFO)
        command.main(
            args=args, prog_name=name, obj=own_start_s()
        )  # Ends the process itself: 0, or 2 for wrong usage.
    except SamzapyError as error:
        for text in (str(error), *getattr(error, "__notes__", ())):
            click.echo(f"{name}: {printable_lines(text)}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        failure = machine_error(error)
        if failure is None:
            raise
        click.echo(f"{name}: {printable_lines(str(failure))}", err=True)
        sys.exit(failure.exit_code)


def _open_standard_streams() -> None:
    """Open closed standard streams as /dev/null.

    Python has None for a closed one, and the next socket would take its number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115  # for the whole process
