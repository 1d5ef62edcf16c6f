"""The kinds of simulated jobs, and their configurations."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from samzapy.config import JobConfig
from samzapy.testing.builders import a_config
from simulation.state import BROADCAST, KEYED

SETTLE_MS = 3_000
"""A producer may write by the old partition count for so long after a topic has grown."""

PROCESSORS = ("0", "1", "2")
_TIMES = {
    "job_debounce_time_ms": "1500",
    "job_processor_grace_ms": "5000",
    "job_release_timeout_ms": "20000",
    "job_expansion_settle_ms": str(SETTLE_MS),
    "job_placement_expiry_ms": "20000",
    "job_placement_retention_ms": "30000",
    "job_placement_uuids_max": "4",
}


class Kind(StrEnum):
    """A kind of job: the kinds differ in their state, and in their inputs."""

    STATELESS = "stateless"
    KEYED = "keyed"
    RULES = "rules"
    """Keeps keyed state, and reads two partitions of rules in every task, of which each keeps a copy."""
    BOUNDED = "bounded"
    """Keeps keyed state, reads its inputs to where they end, and ends by itself; its next run begins anew."""
    WALK = "walk"
    """As RULES, scaled up and down all the time while its inputs grow and its processes die."""
    FOREIGN = "foreign"
    """As KEYED, while another program writes to the coordinator stream."""
    LAUNCHED = "launched"
    """Keeps keyed state, in containers that its coordinator starts, moves and has standbys for (`launched_world`)."""


_WITHOUT_STATE: tuple[JobConfig, ...] = (
    a_config(**_TIMES),
    a_config(task_inputs="kafka.refunds,kafka.orders", **_TIMES),
    a_config(job_container_lost_ms="20000", job_elasticity_factor="2", **_TIMES),
)
Changing = tuple[JobConfig, ...]
"""Configurations of one job: the operator brings one or the other."""


def _keeping(**more: str) -> tuple[Changing, ...]:
    """A job with state under each of the schemes; its inputs and scheme stay."""
    kinds = []
    for scheme in ("max", "cogroup", "group-by-partition"):
        of_inputs = {"task_inputs": "kafka.orders,kafka.refunds", "task_partition_scheme": scheme}
        of_inputs["local_store_dir"] = "/state"
        given = {f"stores_{KEYED}_scope": "key", **of_inputs, **_TIMES, **more}
        kinds.append((a_config(**given), a_config(job_container_lost_ms="20000", **given)))
    return tuple(kinds)


_LAUNCHED = {
    "cluster-manager_container_request_timeout_ms": "20000",
    "cluster-manager_container_retry_count": "3",
    "cluster-manager_container_retry_window_ms": "30000",
    "job_shutdown_drain_ms": "2000",
    "job_placement_expiry_ms": "60000",
}
_GOES_ON = {
    "cluster-manager_container_retry_count": "1",
    "cluster-manager_container_fail_job_after_retries": "false",
}
"""Without one of its processors, until that is tried again."""
_WITH_RULES = _keeping(**{"task_broadcast_inputs": "kafka.rules#[0-1]", f"stores_{BROADCAST}_scope": "broadcast"})
CONFIGS: Mapping[Kind, tuple[Changing, ...]] = {
    Kind.STATELESS: (_WITHOUT_STATE,),
    Kind.KEYED: _keeping(),
    Kind.RULES: _WITH_RULES,
    Kind.BOUNDED: _keeping(systems_kafka_samza_offset_end="head"),
    Kind.WALK: _WITH_RULES,
    Kind.FOREIGN: _keeping(),
    Kind.LAUNCHED: (
        *_keeping(**_LAUNCHED, job_standbytasks_replication_factor="2"),
        *_keeping(**_LAUNCHED | _GOES_ON),
    ),
}
KINDS = (Kind.STATELESS, Kind.KEYED, Kind.RULES, Kind.RULES, Kind.BOUNDED)
"""The kinds of a history, if the caller names none."""
RULES = "kafka.rules"
