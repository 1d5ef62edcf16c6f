"""A container that the coordinator starts: the request and its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from samzapy.model.job import ExecutionId, ProcessorId

EXECUTION_VARIABLE: Final = "EXECUTION_ENV_CONTAINER_ID"
"""In the environment of a container: which execution it is."""
HOST_VARIABLE: Final = "SAMZAPY_HOST"
"""In the environment of a container: the name of its host, if that is not the machine's name."""


class LaunchRole(StrEnum):
    """The purpose of an execution.

    ACTIVE: to run its processor's tasks. STANDBY: to keep their state at hand on another host. RESERVE: to have it at
    hand for one move. The latter two run tasks only once `placed/<processor>` names them.
    """

    ACTIVE = "ACTIVE"
    STANDBY = "STANDBY"
    RESERVE = "RESERVE"


class LaunchPhase(StrEnum):
    """WANTED -> LAUNCHED -> STOPPING -> ENDED.

    LAUNCHED: the cluster manager has it. STOPPING: it is to drain and end. ENDED: it is gone.
    """

    WANTED = "WANTED"
    LAUNCHED = "LAUNCHED"
    STOPPING = "STOPPING"
    ENDED = "ENDED"


UP: Final = frozenset({LaunchPhase.WANTED, LaunchPhase.LAUNCHED})
"""Phases of an execution that is to be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One execution that the coordinator starts.

    Recorded before the act, so that no start is ever forgotten.

    Attributes:
        standby: the number of a standby among those of its processor (`4-0`); 0 for others.
        host: where it is wanted; empty for any.
        host_found: the host that the cluster manager chose; empty until it is known.
        handle: the cluster manager's name for it; empty until it is known.
        wanted_at_ms: wall clock.
        expires_at_ms: wall clock, by when it must have begun to send heartbeats; else it is given up. Of one that is
            STOPPING, by when it must have ended; else it is killed.
        failures: how many executions of its kind for the processor failed in a row within the retry window, this one
            too once it has. Of an active one, also those that had taken over from it.
        window_began_ms: wall clock of the first of these; 0 without any.
        uuid: of the request that asked for it; empty where the job's own wants did.
        reason: why it is to stop, or ended; empty before.
    """

    execution_id: ExecutionId
    processor_id: ProcessorId
    role: LaunchRole
    phase: LaunchPhase
    standby: int = 0
    host: str = ""
    host_found: str = ""
    handle: str = ""
    wanted_at_ms: int
    expires_at_ms: int
    failures: int = 0
    window_began_ms: int = 0
    uuid: str = ""
    reason: str = ""


def by_age(launch: Launch) -> tuple[bool, int, str]:
    """The sort key by which executions of a kind followed one another."""
    return launch.phase in UP, launch.wanted_at_ms, launch.execution_id


class LaunchedState(StrEnum):
    """The state of an execution as a launcher knows it.

    UNKNOWN: nothing, now; silence of a cluster manager is no end.
    """

    UNKNOWN = "UNKNOWN"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    ENDED = "ENDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """An execution as its launcher sees it.

    Attributes:
        host, handle: as of `Launch`; empty while they are not known.
        exit_code: of one that has ended; None if it is not known.
        reason: for people, of one that has ended or is unknown.
    """

    state: LaunchedState
    host: str = ""
    handle: str = ""
    exit_code: int | None = None
    reason: str = ""


def standby_name(launch: Launch) -> str:
    """The name of a standby: `4-0` is the first one of processor 4."""
    return f"{launch.processor_id}-{launch.standby}"
