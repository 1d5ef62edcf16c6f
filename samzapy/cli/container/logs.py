"""`samzapy container logs`: the log of a container that a launcher started."""

from __future__ import annotations

import os
import time
from codecs import getincrementaldecoder
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from samzapy.cli.container.log_text import FOLLOW_EVERY_S, Log, appended, last_lines
from samzapy.cli.output.terminal import printable_lines
from samzapy.cli.target.address import Target, timeout_option, with_target
from samzapy.cli.target.lazy_completion import completes
from samzapy.cli.target.requests import recorded_state
from samzapy.errors import ConfigError, RejectedError

if TYPE_CHECKING:
    from samzapy.config import JobConfig
    from samzapy.coordinator.state import CoordinatorState
    from samzapy.model.launch import Launch

_OF_PROCESS: Final = "@"
"""In the handles of the process launcher; no id of a driver of a Spark standalone cluster has it."""
_ANSWER_MS: Final = 5000
_ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024


@click.command()
@with_target
@timeout_option
@click.argument("processor", metavar="PROCESSOR", shell_complete=completes("processors"))
@click.option(
    "--lines",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    metavar="N",
    help="Print the last N lines.",
)
@click.option("--follow", is_flag=True, help="Print further lines as they are written, until Ctrl-C.")
def logs(target: Target, timeout_s: float, processor: str, lines: int, follow: bool) -> None:
    """Print the log of the container of PROCESSOR.

    PROCESSOR may name a standby too: 4-0. The log is read where the launcher of `samzapy job submit` left it: in
    cluster.process.dir on this machine, or from the page of a Spark worker (cluster.standalone.page.url). Both keys are
    read from the properties file or from --set. Exits with 3 if there is no such container, or no launcher started it.

    \b
    Example:
      samzapy container logs 0 --config flights.properties --follow
    """
    from samzapy.runtime.job_config import config_of_options

    address = target.address_to_read(timeout_s)
    launch = launch_of(recorded_state(address), processor)
    # The coordinator stream does not record the keys of a launcher.
    log = log_of(launch, config_of_options(target.config_file, target.overrides, os.environ))
    position = log.length()
    # A block may end within a letter.
    decode = getincrementaldecoder("utf-8")(errors="replace").decode
    _print(decode(last_lines(log, lines, position)))
    if follow:
        with suppress(KeyboardInterrupt):
            for block in appended(log, position, lambda: time.sleep(FOLLOW_EVERY_S)):
                _print(decode(block))


def launch_of(state: CoordinatorState, processor: str) -> Launch:
    """The newest launch of a processor or of a standby.

    Raises:
        RejectedError: the job has no such container, or its launcher did not start it.
    """
    from samzapy.coordinator.launching.standbys import standby_called

    named = {
        execution: standby_called(execution, state) or launch.processor_id
        for execution, launch in state.launches.items()
    }
    launches = [launch for execution, launch in state.launches.items() if named[execution] == processor]
    if launches:
        return max(launches, key=lambda launch: (launch.wanted_at_ms, launch.execution_id))
    by_hand = [item for item in state.containers_sorted if item.processor_id == processor]
    if by_hand:
        container = by_hand[-1]
        raise RejectedError(
            f"wanted the log of processor {processor}, found that no launcher started its container "
            f"{container.execution_id}; its log is the output of process {container.pid} on host {container.host}"
        )
    known = sorted({*named.values(), *(item.processor_id for item in state.containers.values())})
    raise RejectedError(
        f"wanted a container of processor {processor}, found those of {', '.join(known) or 'no processor'}; see "
        "`samzapy container list`"
    )


def log_of(launch: Launch, config: JobConfig) -> Log:
    """The log of a launch, where its launcher writes it.

    Raises:
        ConfigError: the configuration does not say where that is.
        RejectedError: the launch has not begun.
    """
    host = launch.host_found or launch.host
    if not launch.handle:
        raise RejectedError(
            f"wanted the log of {launch.execution_id}, found that its launcher has not started it yet; see "
            "`samzapy container list`"
        )
    if _OF_PROCESS not in launch.handle:
        from samzapy.adapters.spark.driver_log import DriverLog
        from samzapy.adapters.web.client import ask

        if config.standalone_page_url is None:
            raise _no_key(launch, host, "cluster.standalone.page.url")
        asking = partial(ask, timeout_ms=_ANSWER_MS, bytes_max=_ANSWER_BYTES_MAX)
        return DriverLog(config.standalone_page_url.rstrip("/"), launch.handle, host, asking)
    from samzapy.adapters.host.log_file import LogFile, log_path

    if config.process_dir is None:
        raise _no_key(launch, host, "cluster.process.dir")
    return LogFile(log_path(Path(config.process_dir), host, launch.execution_id), host)


def _no_key(launch: Launch, host: str, key: str) -> ConfigError:
    return ConfigError(
        f"wanted {key} to read the log of {launch.execution_id} on host {host}, found nothing; give the --config of "
        f"`samzapy job submit`, or --set {key}=..."
    )


def _print(text: str) -> None:
    # Stack traces of Java are indented by tabs, which `printable_lines` escapes.
    click.echo(printable_lines(text.expandtabs(4)), nl=False)
