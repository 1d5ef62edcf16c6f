"""Keys of a sample that are in several tasks at once.

State by key is then kept several times, each part of the truth.

A key whose partitions all belong to one task harms no state, for instance after a topic was given more partitions. Key
buckets make no difference, because the same key is in the same bucket of each partition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from samzapy.model.job import JobModel
from samzapy.model.ssp import SystemStream, SystemStreamPartition
from samzapy.model.task_stats import key_text
from samzapy.plan.task_names import TaskNameParts

EXAMPLES_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadKeys:
    """Of one input the keys that several tasks get.

    Attributes:
        key_count: how many of the sampled keys.
        examples: some of them as people read them (`key_text`), each with its partitions; the most widely spread first.
    """

    system_stream: SystemStream
    key_count: int
    examples: tuple[tuple[str, tuple[int, ...]], ...]


def spread_keys(keys_of: Mapping[SystemStreamPartition, Collection[bytes]], plan: JobModel) -> tuple[SpreadKeys, ...]:
    """The inputs with a key in partitions of different tasks, in their order.

    Args:
        keys_of: the sampled keys of each partition. Partitions that `plan` does not divide among tasks are left out.
    """
    task_of = {ssp_kb.ssp: TaskNameParts.parse(task.name).base_name for task in plan.tasks for ssp_kb in task.ssp_kbs}
    places: dict[SystemStream, dict[bytes, list[SystemStreamPartition]]] = {}
    for ssp in sorted(keys_of.keys() & task_of.keys()):
        ssps_of_key = places.setdefault(ssp.system_stream, {})
        for key in keys_of[ssp]:
            ssps_of_key.setdefault(key, []).append(ssp)
    return tuple(
        SpreadKeys(
            system_stream=stream,
            key_count=len(spread),
            examples=tuple(
                (key_text(key), tuple(ssp.partition for ssp in spread[key]))
                for key in sorted(spread, key=lambda key: (-len(spread[key]), key))[:EXAMPLES_MAX]
            ),
        )
        for stream, ssps_of_key in places.items()
        if (spread := {key: ssps for key, ssps in ssps_of_key.items() if len({task_of[ssp] for ssp in ssps}) > 1})
    )
