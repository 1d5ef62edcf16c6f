"""Where settings come from: the properties file, the environment, `--set`.

The later one wins.

A value is taken with the place where it stands, so that `samzapy config explain` can say it, and a secret becomes a
`Secret` here, before anything can go wrong with it. `${env:NAME}` in a value stands for an environment variable, as
with Kafka's own `EnvVarConfigProvider`: a secret need not stand in a file. On a command line none is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from samzapy.config.keys import KEYS, SCHEME_KEY
from samzapy.config.lookup import nearest
from samzapy.config.problems import Problems
from samzapy.config.properties_file import entries
from samzapy.config.secrets import (
    REFERENCE,
    Text,
    argument_without_secret,
    hidden,
    refuse_secret_arguments,
    revealed,
)
from samzapy.errors import ConfigError, UnknownConfigKeyError

VARIABLE_PREFIX: Final = "SAMZAPY_SET_"


class Source(StrEnum):
    """Where a value can come from; the weaker ones first."""

    DEFAULT = "default"
    JOB = "job file"
    FILE = "file"
    ENVIRONMENT = "environment"
    SET = "--set"
    STREAM = "coordinator stream"
    """The recorded value, with which a running job was started: neither stronger nor weaker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value as it was given, and its place.

    `place` is `flights.properties:12`, or a variable's name.
    """

    key: str
    value: Text
    source: Source
    place: str


def read_properties(text: str, source: str) -> tuple[Setting, ...]:
    """Read a Java properties file (`config.properties_file`).

    Raises:
        ConfigError: a line that is none, keys given twice, or a byte order mark; names `source` and the lines.
    """
    settings: dict[str, Setting] = {}
    problems = Problems()
    with problems.of_block():
        for entry in entries(text, source):
            place = f"{source}:{entry.number}"
            if entry.key in settings:
                problems.add(ConfigError(f"{place}: {entry.key} is set twice; keep one of the two lines"))
            value = hidden(entry.key, entry.value)
            settings[entry.key] = Setting(key=entry.key, value=value, source=Source.FILE, place=place)
    problems.raise_all()
    return tuple(settings.values())


def merge(
    *,
    file: Iterable[Setting],
    environment: Mapping[str, str],
    overrides: Iterable[str],
    declared: Sequence[Setting] = (),
) -> tuple[Setting, ...]:
    """All settings, the weaker before the stronger.

    They come from the job file, the properties file, the environment and `--set`.

    The environment names a key in capitals with underscores: SAMZAPY_SET_JOB_NAME for job.name. Only keys without a
    `<name>` part can be given there, since a dot and an underscore look the same. Any value may contain `${env:NAME}`.
    A value whose variable is not set stays as it is, and `check_filled` refuses it.

    Raises:
        ConfigError: overrides without `=` or with a secret, environment variables that name no key, and settings that
            contradict `declared`, all in one message.
    """
    problems = Problems()
    given = [*file, *_of_environment(environment, problems)]
    for override in overrides:
        with problems.of_block():
            given.append(_of_override(override))
    filled = [_filled(setting, environment) for setting in given]
    _check_declared(declared, filled, problems)
    problems.raise_all()
    return (*declared, *filled)


def _check_declared(declared: Sequence[Setting], given: Sequence[Setting], problems: Problems) -> None:
    """Note the settings that contradict the code.

    What the job file declares is what its code is written for, so no other source may change it. The scheme is only
    chosen for it.
    """
    by_key = {setting.key: setting for setting in declared if setting.key != SCHEME_KEY}
    for setting in given:
        own = by_key.get(setting.key)
        if own is not None and own.value != setting.value:
            problems.add(
                ConfigError(
                    f"{setting.key}: wanted {own.value}, as {own.place} declares, found {setting.value} "
                    f"({setting.place}); remove it there, or change the declaration"
                )
            )


def check_filled(key: str, text: Text) -> None:
    """Raise ConfigError if `text` still names a variable that is not set."""
    missing = REFERENCE.search(revealed(text))
    if missing is not None:
        raise ConfigError(
            f"{key}: wanted the environment variable {missing['name'] or '(no name)'}, named by {missing[0]}, "
            "found that it is not set; set it for this process"
        )


def in_force(settings: Iterable[Setting]) -> dict[str, Text]:
    """The effective setting of each key: the last one of `settings`."""
    return {setting.key: setting.value for setting in settings}


def variable_of(key: str) -> str | None:
    """The environment variable that sets `key`, if there is one."""
    return next((variable for variable, name in _VARIABLES.items() if name == key), None)


_VARIABLES: Final = {
    f"{VARIABLE_PREFIX}{spec.name.replace('.', '_').upper()}": spec.name for spec in KEYS if "<" not in spec.name
}


def _filled(setting: Setting, environment: Mapping[str, str]) -> Setting:
    """The setting with the environment's values in place of their names.

    The values themselves are not expanded again.
    """
    text = revealed(setting.value)
    names = [name for name in REFERENCE.findall(text) if name in environment]
    if not names:
        return setting
    filled = REFERENCE.sub(lambda match: environment.get(match["name"], match[0]), text)
    place = f"{setting.place}, with {', '.join(f'${name}' for name in names)}"
    return replace(setting, value=hidden(setting.key, filled), place=place)


def _of_environment(environment: Mapping[str, str], problems: Problems) -> Iterable[Setting]:
    for variable in sorted(environment):
        if not variable.startswith(VARIABLE_PREFIX):
            continue
        if variable not in _VARIABLES:
            problems.add(UnknownConfigKeyError(f"{variable} names no config key{nearest(variable, _VARIABLES)}"))
            continue
        key = _VARIABLES[variable]
        yield Setting(
            key=key, value=hidden(key, environment[variable]), source=Source.ENVIRONMENT, place=f"${variable}"
        )


def _of_override(override: str) -> Setting:
    key, equals, value = (part.strip() for part in override.partition("="))
    if not equals or not key:
        raise ConfigError(f"wanted --set key=value, found --set {argument_without_secret(override)}")
    refuse_secret_arguments([f"{key}={value}"])
    return Setting(key=key, value=hidden(key, value), source=Source.SET, place="--set")
