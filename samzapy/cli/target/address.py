"""The job that a command is about: options, environment and profile.

Each command gets its target here, so that all commands take the same options and prefer the same source. The Kafka
client is imported when a target is used: a help page and a completion use none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from samzapy.cli.output.process_start import began_s
from samzapy.cli.output.seconds import Seconds
from samzapy.cli.output.terminal import printable
from samzapy.cli.target.lazy_completion import completes
from samzapy.cli.target.profiles import profiles_path, read_profiles
from samzapy.errors import ConfigError, SamzapyError

if TYPE_CHECKING:
    from samzapy.adapters.kafka.clients import KafkaConnection
    from samzapy.runtime.job_address import JobAddress

TIMEOUT_S = 10.0

CONFIG: Final = "SAMZAPY_CONFIG"
BOOTSTRAP_SERVERS: Final = "SAMZAPY_BOOTSTRAP_SERVERS"
PROFILE: Final = "SAMZAPY_PROFILE"
"""The variables of a target."""

timeout_option = click.option(
    "--timeout",
    "timeout_s",
    type=Seconds(0.1),
    default=TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="Give up after this time without an answer of a broker.",
)
"""The option of each command that only reads from Kafka."""


class Layer(NamedTuple):
    """The part of a target that one source gives."""

    source: str
    config_file: Path | None = None
    job: str | None = None
    bootstrap_servers: str | None = None
    overrides: Sequence[str] = ()

    def is_whole(self, *, wants_job: bool) -> bool:
        """Whether it names a target by itself."""
        if self.config_file is not None:
            return True
        return self.bootstrap_servers is not None and (self.job is not None or not wants_job)

    def filled_from(self, weaker: Layer) -> Layer:
        """This layer, with the parts that it lacks.

        Its overrides come after those of the weaker layer.
        """
        return self._replace(
            config_file=self.config_file or weaker.config_file,
            job=self.job or weaker.job,
            bootstrap_servers=self.bootstrap_servers or weaker.bootstrap_servers,
            overrides=[*weaker.overrides, *self.overrides],
        )

    def missing_parts(self, weaker: Layer) -> str:
        """The parts that this layer takes from a weaker one, as text."""
        parts = {
            "properties file": self.config_file is None and weaker.config_file,
            "job": self.job is None and weaker.job,
            "cluster": self.bootstrap_servers is None and weaker.bootstrap_servers,
            "--set": ", ".join(weaker.overrides),
        }
        return ", ".join(f"{name} {value}" for name, value in parts.items() if value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The job that the sources name, before anything is read.

    Attributes:
        overrides: of the profile, then of `--set`.
        is_given: the command line itself names a file, a job, a cluster or a profile.
        is_asked_for: the same without a file.
        sources: the sources besides the command line, with what each gives.
    """

    config_file: Path | None
    overrides: Sequence[str]
    job: str | None
    bootstrap_servers: str | None
    is_given: bool
    is_asked_for: bool
    sources: Sequence[str]

    def address(self) -> JobAddress:
        """The address of the job. Raises as `address_of`."""
        from samzapy.runtime.job_address import address_of

        return address_of(self.config_file, self.overrides, self.job, self.bootstrap_servers)

    def address_to_read(self, timeout_s: float) -> JobAddress:
        """The address for a command that only reads. Raises as `address_of`."""
        address = self.address()
        return replace(address, connection=connection_to_read(address.connection, timeout_s))

    def address_to_write(self) -> JobAddress:
        """The address for a command that writes. Raises as `address_of`."""
        address = self.address()
        return replace(address, connection=connection_to_write(address.connection))

    def cluster(self) -> KafkaConnection:
        """The cluster alone. Raises as `connection_of`."""
        from samzapy.runtime.job_address import connection_of

        return connection_of(self.config_file, self.overrides, self.bootstrap_servers)

    def file(self) -> Path:
        """The properties file. Raises ConfigError if no source names one."""
        if self.config_file is None:
            raise ConfigError(
                f"wanted --config FILE, the variable {CONFIG}, or a profile with a properties file; found none"
            )
        return self.config_file


def resolved(layers: Sequence[Layer], *, wants_job: bool = True) -> Target:
    """The target that the layers give together, the strongest layer first.

    A weaker layer only fills what is missing. A target that is whole takes nothing from weaker layers.
    """
    strongest, *weaker = layers
    filled, sources = strongest, []
    for layer in weaker:
        if filled.is_whole(wants_job=wants_job):
            break
        if parts := filled.missing_parts(layer):
            sources.append(f"{layer.source}: {parts}")
        filled = filled.filled_from(layer)
    return Target(
        config_file=filled.config_file,
        overrides=[*filled.overrides],
        job=filled.job,
        bootstrap_servers=filled.bootstrap_servers,
        is_given=bool(strongest.config_file or strongest.job or strongest.bootstrap_servers),
        is_asked_for=bool(strongest.job or strongest.bootstrap_servers),
        sources=sources,
    )


def target_of(command_line: Layer, profile: str | None, environment: Mapping[str, str], *, wants_job: bool) -> Target:
    """The target of a command line in an environment.

    Raises:
        ConfigError: the file of the profiles is wrong.
        RejectedError: there is no such profile.
    """
    if profile is not None:
        chosen = _layer_of_profile(profile, "--profile", environment)
        given = command_line._replace(overrides=[*chosen.overrides, *command_line.overrides])
        target = resolved([given, chosen._replace(overrides=())], wants_job=wants_job)
        return replace(target, is_given=True, is_asked_for=True, sources=target.sources or [chosen.source])
    file = environment.get(CONFIG)
    variables = Layer(
        source="environment",
        config_file=Path(file) if file else None,
        bootstrap_servers=environment.get(BOOTSTRAP_SERVERS) or None,
    )
    target = resolved([command_line, variables], wants_job=wants_job)
    if target.config_file is not None or (target.bootstrap_servers and (target.job or not wants_job)):
        return target
    name, source = environment.get(PROFILE), f"${PROFILE}"
    if not name:
        name, source = read_profiles(profiles_path(environment)).current, "current profile"
    if not name:
        return target
    return resolved([command_line, variables, _layer_of_profile(name, source, environment)], wants_job=wants_job)


def _layer_of_profile(name: str, source: str, environment: Mapping[str, str]) -> Layer:
    path = profiles_path(environment)
    profile = read_profiles(path).named(name, source)
    return Layer(
        source=f"profile {name} ({path})",
        config_file=profile.config_file,
        job=profile.job,
        bootstrap_servers=profile.bootstrap_servers,
        overrides=[f"{key}={value}" for key, value in profile.overrides.items()],
    )


def with_target(
    command: Callable[..., None], *, has_job: bool = True, has_servers: bool = True
) -> Callable[..., None]:
    """Add the options that name a target to a command, which receives it as `target`.

    An error of the command gets a note with the sources that are not on the command line.
    """

    @wraps(command)
    def targeted(
        *args: Any,
        config_file: Path | None,
        overrides: Sequence[str],
        profile: str | None,
        job: str | None = None,
        bootstrap_servers: str | None = None,
        **options: Any,
    ) -> None:
        given = Layer("command line", config_file, job, bootstrap_servers, overrides)
        target = target_of(given, profile, os.environ, wants_job=has_job)
        try:
            command(*args, target=target, **options)
        except SamzapyError as error:
            for source in target.sources:
                error.add_note(f"the target comes from {source}")
            raise

    decorated: Callable[..., None] = targeted
    for option, is_there in (
        (_PROFILE, True),
        (_SERVERS, has_servers),
        (_JOB, has_job),
        (_SET, True),
        (_CONFIG, True),
    ):
        decorated = option(decorated) if is_there else decorated
    return decorated


_PROFILE = click.option(
    "--profile",
    metavar="PROFILE",
    shell_complete=completes("profiles"),
    help=f"Use this target of `samzapy profile` [default: variable {PROFILE}, else the one in use].",
)
_SERVERS = click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT",
    help=f"Connect to this cluster, if there is no properties file [default: variable {BOOTSTRAP_SERVERS}].",
)
_JOB = click.option(
    "--job",
    "job",
    metavar="NAME-ID",
    shell_complete=completes("jobs"),
    help="Name the job, if there is no properties file.",
)
_SET = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=completes("keys"),
    help="Set one config key; may be repeated.",
)
_CONFIG = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help=f"Read this properties file of the job [default: variable {CONFIG}].",
)


def of_a_job(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a job to a command that writes.

    The command receives them as `address`, with the connection of `connection_to_write`.
    """

    @wraps(command)
    def addressed(*args: Any, target: Target, **options: Any) -> None:
        command(*args, address=target.address_to_write(), **options)

    return with_target(addressed)


def read_of_a_job(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a job, and `--timeout`, to a command that only reads.

    The command receives them as `address`.
    """

    @wraps(command)
    def addressed(*args: Any, target: Target, timeout_s: float, **options: Any) -> None:
        command(*args, address=target.address_to_read(timeout_s), **options)

    return with_target(timeout_option(addressed))


def connection_to_read(connection: KafkaConnection, timeout_s: float) -> KafkaConnection:
    """The connection of a command that only reads, with one wait for all questions."""
    from samzapy.adapters.kafka.broker_wait import CommandWait

    wait = CommandWait(timeout_s, lambda text: _say(f"{text} (--timeout)"), began_s=began_s())
    return replace(connection, command_wait=wait)


def connection_to_write(connection: KafkaConnection) -> KafkaConnection:
    """The connection of a command that writes.

    Its first question waits for `TIMEOUT_S`. Later ones have deadlines of their own, because the command may wait for
    longer than a broker needs to start again.
    """
    from samzapy.adapters.kafka.broker_wait import CommandWait

    wait = CommandWait(TIMEOUT_S, _say, began_s=began_s(), is_for_first_answer=True)
    return replace(connection, command_wait=wait)


def _say(text: str) -> None:
    click.echo(f"samzapy: {printable(text)}", err=True)


job_file_option = click.option(
    "--job-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Load the task from this file, and its own groupers from beside it [default: beside the properties file].",
)
