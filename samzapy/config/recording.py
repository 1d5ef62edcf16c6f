"""The recorded part of a configuration, and the differences to another one.

Only the job's part is recorded. The part of one process (its id, its directory, its coordinator's address, an
operator's option at its start) is left out, and `***` takes the place of a secret. So a process may have another
password, and a changed one is no change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from samzapy.config.job_config import JobConfig
from samzapy.config.lookup import KEYS_OF_PROCESS
from samzapy.config.parsing import parse_recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A key of the job in which two configurations differ; None where it is not set."""

    key: str
    found: str | None
    recorded: str | None

    def __str__(self) -> str:
        return f"{self.key}={_or_not_set(self.found)} instead of {_or_not_set(self.recorded)}"


def recorded_properties(config: JobConfig) -> dict[str, str]:
    """The job's part of `config`, in key order, without secrets."""
    return {key: config.properties[key] for key in sorted(config.properties) if key not in KEYS_OF_PROCESS}


def differences(config: JobConfig, recorded: Mapping[str, str]) -> tuple[Difference, ...]:
    """The keys in which `config` differs from `recorded`, in key order.

    None differs while nothing is recorded.

    The streams that match a pattern are no setting: they grow while the job runs.
    """
    if not recorded:
        return ()
    given, before = _compared(config), _compared(parse_recorded(recorded))
    return tuple(
        Difference(key=key, found=given.get(key), recorded=before.get(key))
        for key in sorted(given.keys() | before.keys())
        if given.get(key) != before.get(key)
    )


def _compared(config: JobConfig) -> dict[str, str]:
    compared = recorded_properties(config)
    if config.input_patterns:
        compared |= {"task.inputs": ",".join((*config.inputs_named, *config.input_patterns))}
        compared.pop("task.inputs.patterns", None)
    return compared


def _or_not_set(value: str | None) -> str:
    return "(not set)" if value is None else value
