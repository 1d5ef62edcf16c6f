"""Rules that all commands keep, checked by a walk over them."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from samzapy.cli.container.place_container import place_container
from samzapy.cli.main import samzapy
from samzapy.cli.output.option import FORMATS

WITHOUT_OUTPUT = {
    "run": "becomes spark-submit, whose output is the job's",
    "job submit": "leads the job until its run is over, and writes a log",
    "completion": "prints a script for a shell",
    "container logs": "prints a log as its container wrote it",
}
"""Commands that print neither facts nor a result, with their output."""


def commands(group: click.Group = samzapy, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield f"{path}{name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")


def options(command: click.Command) -> dict[str, click.Parameter]:
    return {name: option for option in command.params for name in (*option.opts, *option.secondary_opts)}


ALL = {**dict(commands()), "place-container": place_container}


@pytest.mark.parametrize("name", sorted(ALL.keys() - WITHOUT_OUTPUT))
def test_every_command_that_prints_facts_or_a_result_has_all_formats(name: str) -> None:
    option = options(ALL[name]).get("-o")

    assert option is not None, f"{name} has no -o; use output_option()"
    assert isinstance(option.type, click.Choice)
    assert set(FORMATS) <= {*option.type.choices}


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_command_about_a_job_takes_a_profile(name: str) -> None:
    has = options(ALL[name])

    if name not in ("run", "job submit", "profile set") and {"--config", "--job"} & has.keys():
        assert {"--config", "--set", "--profile"} <= has.keys()
        assert ("--job" in has) <= ("--bootstrap-servers" in has)
