"""What of a configuration is written down, and in what another one differs from it.

Written down is the job's part. What belongs to one process (its id, its directory, where its coordinator listens, an
operator's word at its start) is left out, and in place of a secret stands `***`: so a process may have another
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
    """The job's part of `config`, as it is written down and shown: in key order, without secrets."""
    return {key: config.properties[key] for key in sorted(config.properties) if key not in KEYS_OF_PROCESS}


def differences(config: JobConfig, recorded: Mapping[str, str]) -> tuple[Difference, ...]:
    """In what `config` differs from `recorded`, in key order; nothing while nothing is recorded.

    What a pattern among the inputs matches is no setting: it grows while the job runs.
    """
    if not recorded:
        return ()
    found, before = _compared(config), _compared(parse_recorded(recorded))
    return tuple(
        Difference(key=key, found=found.get(key), recorded=before.get(key))
        for key in sorted(found.keys() | before.keys())
        if found.get(key) != before.get(key)
    )


def _compared(config: JobConfig) -> dict[str, str]:
    found = recorded_properties(config)
    if config.input_patterns:
        found |= {"task.inputs": ",".join((*config.inputs_named, *config.input_patterns))}
        found.pop("task.inputs.patterns", None)
    return found


def _or_not_set(value: str | None) -> str:
    return "(not set)" if value is None else value
