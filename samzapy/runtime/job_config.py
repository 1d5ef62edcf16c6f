"""Reads a job's configuration: properties file, environment and `--set`."""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from samzapy.adapters.spark.java_properties import java_properties
from samzapy.config import (
    JobConfig,
    Secret,
    Setting,
    Source,
    in_force,
    is_reference,
    merge,
    parse_config,
    properties_text,
    read_properties,
)
from samzapy.errors import ConfigError
from samzapy.runtime.declared_names import check_names
from samzapy.task import TaskFactory, load_task_factory

_LOG = logging.getLogger(__name__)
PROPERTIES_BYTES_MAX: Final = 1024 * 1024
_OTHERS: Final = 0o077
_NAMES: Final = ("job.name", "job.id")


def config_path(job_file: Path, config_file: Path | None) -> Path:
    """The path of the properties file.

    It is `config_file`, else the file beside the given path of the job file.
    """
    return config_file or job_file.with_suffix(".properties")


def log_files_read(job_file: Path | None, config_file: Path | None) -> None:
    """Log the files that a job is read from.

    With links and working directories, a name alone does not identify a file.
    """
    names = [] if job_file is None else [f"job file {job_file.absolute()}"]
    if job_file is not None or config_file is not None:
        names.append(f"properties {config_path(job_file or Path(), config_file).absolute()}")
    _LOG.info("reads %s", ", ".join(names))


def read_config(
    job_file: Path, config_file: Path | None, overrides: Sequence[str], environment: Mapping[str, str]
) -> JobConfig:
    """Read the job's configuration from the properties file, environment, overrides.

    If they name no inputs, the job file beside the properties file declares them.

    Raises:
        ConfigError: the file cannot be read, or has a wrong value.
        TaskModuleError: the job file does not import.
    """
    path = config_path(job_file, config_file)
    file = _read_file(path)
    settings = merge(file=file, environment=environment, overrides=overrides)
    if all(setting.key != "task.inputs" for setting in settings):
        settings = merge(file=file, environment=environment, overrides=overrides, declared=declared_beside(path))
    return _config_of(settings)


def config_of_options(
    config_file: Path | None, overrides: Sequence[str], environment: Mapping[str, str]
) -> JobConfig:
    """The configuration of a properties file, or without one of the overrides alone.

    Raises: as `read_config` and `config_of_overrides`.
    """
    if config_file is not None:
        return read_config(config_file, config_file, overrides, environment)
    return config_of_overrides(overrides, environment)


def config_of_overrides(overrides: Sequence[str], environment: Mapping[str, str]) -> JobConfig:
    """The configuration for a job that a command knows by name only.

    It has the cluster's settings and those of the coordinator's HTTP port. The names in it stand for none.

    Raises:
        ConfigError: an override or a variable is malformed, or an override renames the job.
    """
    settings = merge(file=(), environment=environment, overrides=overrides)
    for setting in settings:
        if setting.source is Source.SET and setting.key in _NAMES:
            raise ConfigError(
                f"--set {setting.key}: wanted the job's name from --job, found it set here; leave this --set out"
            )
    properties = {key: value for key, value in in_force(settings).items() if key not in _NAMES}
    return parse_config({"task.inputs": "kafka.unknown", **properties, "job.name": "unknown"})


def load_job(
    job_file: Path, config_file: Path | None, overrides: Sequence[str], environment: Mapping[str, str]
) -> tuple[JobConfig, TaskFactory]:
    """The configuration of a job, with the declarations of its job file, and its task.

    Raises:
        ConfigError: the file cannot be read, has a wrong value, or contradicts a declaration.
        TaskModuleError: the job file does not import, has no task, or has undeclared inputs.
    """
    # First, because a job file without its properties is mostly another file.
    path = config_path(job_file, config_file)
    file = _read_file(path)
    _note_open_secrets(path, file)
    factory = load_task_factory(job_file.absolute())
    declared = factory.declared
    config = _config_of(merge(file=file, environment=environment, overrides=overrides, declared=declared.settings()))
    declared.check(config)
    return config, factory


def load_config(
    config_file: Path, job_file: Path | None, overrides: Sequence[str], environment: Mapping[str, str]
) -> JobConfig:
    """The configuration that a start reads, for a command that starts nothing.

    Args:
        job_file: None for the one beside the properties file. If that does not exist, the properties are read alone.

    Raises: as `load_job`, `check_names` and `read_config`.
    """
    task_file = (job_file or _job_file_beside(config_file)).absolute()
    if not task_file.is_file():
        return read_config(config_file, config_file, overrides, environment)
    config, _ = load_job(task_file, config_file, overrides, environment)
    check_names(task_file, config)
    return config


def _config_of(settings: Sequence[Setting]) -> JobConfig:
    config = parse_config(in_force(settings))
    # A property that the Java client does not have is refused here, before that client exists.
    java_properties(config.client_properties(config.default_system))
    return config


def declared_beside(config_file: Path) -> tuple[Setting, ...]:
    """The settings that the job file beside a properties file declares.

    None without such a file.

    Raises:
        TaskModuleError: it does not import, or has no task.
    """
    job_file = _job_file_beside(config_file)
    return load_task_factory(job_file).declared.settings() if job_file.is_file() else ()


def _job_file_beside(config_file: Path) -> Path:
    # Not with_suffix, which fails for a path without a name, such as /.
    return config_file.parent / f"{config_file.stem}.py"


def read_settings(
    path: Path, overrides: Sequence[str], environment: Mapping[str, str], declared: Sequence[Setting] = ()
) -> tuple[Setting, ...]:
    """All settings, the weaker ones before the stronger.

    They come from the job file, the properties file, the environment and `--set`.

    Raises:
        ConfigError: the file cannot be read, or one of the sources is malformed.
    """
    return merge(file=_read_file(path), environment=environment, overrides=overrides, declared=declared)


def _read_file(path: Path) -> tuple[Setting, ...]:
    try:
        with path.open("rb") as file:
            raw = file.read(PROPERTIES_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"wanted the job's properties in {path}, found {error.strerror}; name another file with --config"
            f"{_home_hint(path)}"
        ) from error
    if len(raw) > PROPERTIES_BYTES_MAX:
        raise ConfigError(
            f"{path}: wanted a properties file of at most {PROPERTIES_BYTES_MAX} bytes, found a larger file; name "
            "another one with --config"
        )
    return read_properties(properties_text(raw, str(path)), str(path))


def _note_open_secrets(path: Path, settings: Iterable[Setting]) -> None:
    """Log a warning if other users of the host may read a secret in the file."""
    mode = stat.S_IMODE(path.stat().st_mode)
    keys = [
        setting.key for setting in settings if isinstance(setting.value, Secret) and not is_reference(setting.value)
    ]
    if keys and mode & _OTHERS:
        _LOG.warning(
            "%s has secrets (%s) and mode %o, so other users of this host may read them; set mode 600, or write "
            "${env:NAME} for each",
            path,
            ", ".join(keys),
            mode,
        )


def _home_hint(path: Path) -> str:
    """A hint for `--config=~/job.properties`, in which a shell does not expand `~`."""
    return "; ~ is not expanded, write $HOME" if str(path).startswith("~") else ""
