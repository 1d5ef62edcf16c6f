"""The configuration of a job, read from its properties file, the environment and `--set`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from samzapy.adapters.spark.java_properties import java_properties
from samzapy.config import (
    JobConfig,
    Setting,
    in_force,
    merge,
    parse_config,
    properties_text,
    read_properties,
)
from samzapy.errors import ConfigError

_LOG = logging.getLogger(__name__)


def config_path(job_file: Path, config_file: Path | None) -> Path:
    """The properties file: the one that was named, else the one beside the path by which the job file was named."""
    return config_file or job_file.with_suffix(".properties")


def log_files_read(job_file: Path | None, config_file: Path | None) -> None:
    """Log which files a job is read from: with links and working directories, a name alone does not tell."""
    names = [] if job_file is None else [f"job file {job_file.absolute()}"]
    if job_file is not None or config_file is not None:
        names.append(f"properties {config_path(job_file or Path(), config_file).absolute()}")
    _LOG.info("reads %s", ", ".join(names))


def read_config(
    job_file: Path, config_file: Path | None, overrides: Sequence[str], environment: Mapping[str, str]
) -> JobConfig:
    """The job's configuration: the properties file beside `job_file` unless another is named, and what is on top.

    Raises:
        ConfigError: the file cannot be read, or says something that cannot be.
    """
    settings = read_settings(config_path(job_file, config_file), overrides, environment)
    config = parse_config(in_force(settings))
    # What the other client cannot be told is refused here, before there is one.
    java_properties(config.client_properties(config.default_system))
    return config


def read_settings(path: Path, overrides: Sequence[str], environment: Mapping[str, str]) -> tuple[Setting, ...]:
    """Everything that is set in the properties file, the environment and with `--set`, the weaker before the stronger.

    Raises:
        ConfigError: the file cannot be read, or one of them says something that is no setting.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"wanted the job's properties in {path}, found {error.strerror}; name another file with --config"
            f"{_home_hint(path)}"
        ) from error
    file = read_properties(properties_text(raw, str(path)), str(path))
    return merge(file=file, environment=environment, overrides=overrides)


def _home_hint(path: Path) -> str:
    """A shell leaves `~` alone in `--config=~/job.properties`."""
    return "; ~ is not expanded, write $HOME" if str(path).startswith("~") else ""
