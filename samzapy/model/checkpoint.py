"""Positions of record (law L8), by SSPKb, as on the checkpoint topic."""

from __future__ import annotations

from dataclasses import dataclass

from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.ssp import SspKeyBucket


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Processed up to, not including, `offset_next`.

    A position, never a count: offsets have gaps.

    Written in the transaction of the outputs and the changelog, under the grant's epoch. A checkpoint is valid only
    under the epoch of the grant in force (the start rule, `container.start_rules`).
    """

    ssp_kb: SspKeyBucket
    offset_next: int
    epoch: int
    task_name: TaskName
    execution_id: ExecutionId


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A bucket that committed nothing in a batch was still read up to `offset_next`."""

    ssp_kb: SspKeyBucket
    offset_next: int
    epoch: int
    execution_id: ExecutionId
