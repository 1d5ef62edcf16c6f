"""Samza 1.8's names and SSPs as ours (`/unit_tests/samza_cases`): the names differ on purpose, see SEP-32."""

import json
import re
from pathlib import Path

from samzapy.model.job import TaskName
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition
from samzapy.plan.task_names import TaskNameParts

CASES = Path(__file__).parent.parent / "samza_cases"


def cases(file, op):
    return [case for case in map(json.loads, (CASES / file).read_text().splitlines()) if case["op"] == op]


def our_name(name, factor):
    """`Partition 3`, `Partition 3 1`, `SystemStreamPartition [kafka, a, 3, 1]` and `Task-0` as SEP-32 writes them."""
    numbers = [int(text) for text in re.findall(r"(?<=[ ,])\d+", name)]
    if name.startswith("Task-"):
        return name.replace("-", "_", 1)
    if name.startswith("Partition "):
        base, *bucket = numbers
    else:
        system, stream, *rest = name.removeprefix("SystemStreamPartition [").removesuffix("]").split(", ")
        partition, *bucket = map(int, rest)
        base = SystemStreamPartition(system, stream, partition)
    return TaskNameParts(base=base, bucket=bucket[0] if bucket else 0, factor=factor if bucket else 1).name


def our_ssp(fields):
    return SystemStreamPartition(*fields[:3])


def our_ssp_kb(fields, factor):
    bucket = fields[3] if len(fields) == 4 else 0
    return SspKeyBucket(our_ssp(fields), bucket, factor if len(fields) == 4 else 1)


def our_mapping(tasks):
    """The task of each SSP, out of Samza's SSPs of each task."""
    return {our_ssp(fields): TaskName(our_name(name, 1)) for name, found in tasks.items() for fields in found}
