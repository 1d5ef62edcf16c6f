"""Options that choose the source of an audit: the job's topic, or exported files."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from samzapy.cli.target.address import Target, timeout_option, with_target
from samzapy.errors import ConfigError
from samzapy.stream.position import Position, Reading

if TYPE_CHECKING:
    from samzapy.runtime.stream_source import StreamSource

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
    """Warn if compaction may have removed a part of the state.

    `reading` has read up to that state.
    """
    from samzapy.stream.audit import LATEST_VALUE_ONLY

    if not source.is_whole(reading):
        click.echo(
            f"{LATEST_VALUE_ONLY}: before offset {source.extent.whole_from} compaction may have removed values that "
            "were overwritten since, so this state may be incomplete"
        )


def of_a_stream(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a job or files to a command.

    The command receives them as `source`.
    """

    @click.option(
        "--from",
        "files",
        multiple=True,
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Read a file of `stream export` instead of the topic; may be repeated, for a history in several files.",
    )
    @wraps(command)
    def sourced(
        *args: Any,
        files: Sequence[Path],
        target: Target,
        timeout_s: float,
        **options: Any,
    ) -> None:
        from samzapy.runtime.stream_source import source_of_files, source_of_topic

        with ExitStack() as stack:
            stack.callback(gc.set_threshold, *gc.get_threshold())
            gc.set_threshold(_COLLECT_EVERY)
            if files:
                if target.is_given:
                    raise ConfigError(
                        "wanted --from FILE, or a job; found both: leave the job out, the file names it"
                    )
                source = source_of_files(files, stack)
            else:
                source = source_of_topic(target.address_to_read(timeout_s))
            command(*args, source=source, **options)

    return with_target(timeout_option(sourced))
