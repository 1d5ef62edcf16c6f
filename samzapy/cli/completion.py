"""`samzapy completion`: the script that lets a shell complete commands and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

PROGRAM = "samzapy"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    It completes commands and options, and from the target jobs, processors, tasks, inputs and stores.

    \b
    Examples:
      samzapy completion bash > ~/.local/share/bash-completion/completions/samzapy
      samzapy completion zsh > "${fpath[1]}/_samzapy"
      samzapy completion fish > ~/.config/fish/completions/samzapy.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click has a class for each choice"
    click.echo(kind(context.find_root().command, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source())
