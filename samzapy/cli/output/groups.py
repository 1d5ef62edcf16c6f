"""Groups of commands: loaded when called, with hints for a mistyped name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class LazyCommand(NamedTuple):
    """The `module:attribute` of a command and its line in `--help`."""

    target: str
    summary: str


class HintingGroup(click.Group):
    """A group that names the nearest command, of its own or of another group."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            near = _hints(name, self, ctx)
            text = f" Did you mean {' or '.join(f'`{hint}`' for hint in near)}?" if near else ""
            ctx.fail(f"No such command {name!r}.{text}")
        return super().resolve_command(ctx, args)


class LazyGroup(HintingGroup):
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

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        # Not as `click.Group`, which asks each command for its summary, and so would import it.
        of_commands = [CompletionItem(name, help=self._table[name].summary) for name in names]
        return [*of_commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._table[name].summary) for name in self.list_commands(ctx)])


def _hints(name: str, group: click.Group, context: click.Context) -> list[str]:
    """The commands that `name` may stand for, as they are typed."""
    near = [f"{context.command_path} {close}" for close in get_close_matches(name, group.list_commands(context), 1)]
    root = context.find_root()
    same = [path for path, last in _paths(root) if last == name]
    if near or same:
        return [*near, *same]
    paths = dict(_paths(root))
    return [
        path
        for close in get_close_matches(name, sorted({*paths.values()}), 1)
        for path in paths
        if paths[path] == close
    ]


def _paths(context: click.Context) -> Iterator[tuple[str, str]]:
    """Each command of each group below the root, with its own name."""
    root = context.command
    if not isinstance(root, click.Group):
        return
    for name in root.list_commands(context):
        group = root.get_command(context, name)
        if isinstance(group, click.Group):
            for verb in group.list_commands(context):
                yield f"{context.command_path} {name} {verb}", verb
