"""`samzapy profile`: name the job and the cluster once for all commands."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from samzapy.cli.output.groups import HintingGroup
from samzapy.cli.output.option import is_json, output_option, print_json
from samzapy.cli.output.table import print_rows
from samzapy.cli.target.lazy_completion import completes
from samzapy.cli.target.profiles import Profile, Profiles, profiles_path, read_profiles, write_profiles
from samzapy.errors import ConfigError

_COLUMNS = ("profile", "inUse", "job", "bootstrapServers", "config", "set")


@click.group(cls=HintingGroup)
def profile() -> None:
    """Name the job and the cluster once for all commands."""


@profile.command(name="list")
@output_option()
def list_profiles(output: str) -> None:
    """List the profiles, and mark the one that commands use.

    \b
    Example:
      samzapy profile list -o json
    """
    profiles = _read()
    _print([_row(name, profiles) for name in sorted(profiles.profiles)], output)


@profile.command()
@click.argument("name", required=False, shell_complete=completes("profiles"))
@output_option()
def show(name: str | None, output: str) -> None:
    """Show the profile NAME [default: the one in use].

    \b
    Example:
      samzapy profile show staging
    """
    profiles = _read()
    if name is None and profiles.current is None:
        raise ConfigError("wanted a profile in use, found none; name one, or choose it with `samzapy profile use`")
    chosen = name or profiles.current or ""
    profiles.named(chosen, "profile show")
    _print([_row(chosen, profiles)], output)


@profile.command(name="set")
@click.argument("name")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="Name a properties file of the job.")
@click.option("--job", metavar="NAME-ID", help="Name the job.")
@click.option("--bootstrap-servers", metavar="HOST:PORT", help="Name the cluster.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one config key; may be repeated.")
@output_option()
def set_profile(
    name: str,
    config_file: Path | None,
    job: str | None,
    bootstrap_servers: str | None,
    overrides: Sequence[str],
    output: str,
) -> None:
    """Make the profile NAME, or replace it.

    The first profile is in use at once. A secret is refused; write ${env:NAME} in its place.

    \b
    Examples:
      samzapy profile set staging --job flights-1 --bootstrap-servers kafka-1:9093
          --set systems.kafka.client.security.protocol=SASL_SSL
          --set 'systems.kafka.client.sasl.password=${env:KAFKA_PASSWORD}'
      samzapy profile set production --config /etc/flights/flights.properties
    """
    if not (config_file or job or bootstrap_servers):
        raise ConfigError("wanted --config, --job or --bootstrap-servers, found none of them; name one at least")
    given = Profile(
        config_file=None if config_file is None else config_file.absolute(),
        job=job,
        bootstrap_servers=bootstrap_servers,
        overrides=dict(_pair(text) for text in overrides),
    )
    profiles = _read().with_profile(name, given)
    write_profiles(profiles_path(os.environ), profiles)
    _print([_row(name, profiles)], output)


@profile.command()
@click.argument("name", shell_complete=completes("profiles"))
@output_option()
def use(name: str, output: str) -> None:
    """Let commands use the profile NAME, where no other target is named.

    \b
    Example:
      samzapy profile use production
    """
    profiles = _read()
    profiles.named(name, "profile use")
    profiles = Profiles(profiles=profiles.profiles, current=name)
    write_profiles(profiles_path(os.environ), profiles)
    _print([_row(name, profiles)], output)


@profile.command()
@click.argument("name", shell_complete=completes("profiles"))
@output_option()
def delete(name: str, output: str) -> None:
    """Delete the profile NAME.

    \b
    Example:
      samzapy profile delete staging
    """
    profiles = _read().without(name)
    write_profiles(profiles_path(os.environ), profiles)
    _print([_row(name, profiles) for name in sorted(profiles.profiles)], output)


def _read() -> Profiles:
    return read_profiles(profiles_path(os.environ))


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = (part.strip() for part in text.partition("="))
    if not key or not equals:
        # The text may be a mistyped secret, so it is not shown.
        raise ConfigError("wanted --set KEY=VALUE, found a --set without `=`; correct it")
    return key, value


def _row(name: str, profiles: Profiles) -> Mapping[str, object]:
    return {"profile": name, "inUse": name == profiles.current, **profiles.profiles[name].as_json()}


def _print(rows: Sequence[Mapping[str, object]], output: str) -> None:
    if is_json(output):
        print_json(rows, output)
        return
    shown = [{**row, "inUse": "yes" if row["inUse"] else "", "set": _set_text(row["set"])} for row in rows]
    print_rows(shown, _COLUMNS, nothing="0 profiles; `samzapy profile set NAME` makes one")


def _set_text(overrides: object) -> str:
    assert isinstance(overrides, Mapping), "of a profile"
    return ", ".join(f"{key}={value}" for key, value in overrides.items())
