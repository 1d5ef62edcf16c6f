"""Where an audit reads a coordinator stream from: the job's topic, or files that were exported from it. Read-only."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import Any

import click

from samzapy.cli.target.address import with_address
from samzapy.errors import ConfigError
from samzapy.runtime.job_address import address_of
from samzapy.runtime.stream_source import StreamSource, source_of_files, source_of_topic
from samzapy.stream.audit import LATEST_VALUE_ONLY
from samzapy.stream.position import Position, Reading

_COLLECT_EVERY = 50_000
"""Objects made and not freed yet, at which Python looks for cycles; 700 by default. A fold makes none, and holds so
much that looking took a fifth of the time (measured)."""


class PositionParam(click.ParamType[Position]):
    """`TIME|OFFSET` on the command line."""

    name = "TIME|OFFSET"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Position:
        if isinstance(value, Position):
            return value
        try:
            return Position.parse(value)
        except ValueError as error:
            self.fail(str(error), param, context)


def print_horizon(source: StreamSource, reading: Reading) -> None:
    """Say so where compaction may have removed what was true at the moment up to which `reading` has read."""
    if not source.is_whole(reading):
        click.echo(
            f"{LATEST_VALUE_ONLY}: before offset {source.extent.whole_from} compaction may have taken what was "
            "overwritten or removed since, so this is not all that was true then"
        )


def of_a_stream(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that name a job or files, and hand it the `source` they stand for."""

    @click.option(
        "--from",
        "files",
        multiple=True,
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Read a file of `stream export` in place of the topic; may be repeated, for one history in several files.",
    )
    @wraps(command)
    def sourced(
        *args: Any,
        files: Sequence[Path],
        config_file: Path | None,
        overrides: Sequence[str],
        job: str | None,
        bootstrap_servers: str | None,
        **options: Any,
    ) -> None:
        with ExitStack() as stack:
            stack.callback(gc.set_threshold, *gc.get_threshold())
            gc.set_threshold(_COLLECT_EVERY)
            if files:
                if config_file is not None or bootstrap_servers is not None or job is not None:
                    raise ConfigError("wanted --from FILE, or a job; found both: a file says itself whose it is")
                source = source_of_files(files, stack)
            else:
                source = source_of_topic(address_of(config_file, overrides, job, bootstrap_servers))
            command(*args, source=source, **options)

    return with_address(sourced)
