"""The texts of steps of a start that others than the container read.

A container sends its step in heartbeats. The coordinator compares steps, and shows them.
"""

from __future__ import annotations

from typing import Final

RESTORING_STEP: Final = "bringing local state level"
_WAITING: Final = "waiting for a transaction of another producer"


def transaction_step(where: str, offset: int, further_count: int = 0) -> str:
    """The step of a restore that waits for an open transaction.

    Args:
        where: the partition of the changelog, `topic-partition`.
        offset: of the first record of the transaction.
        further_count: how many other changelog partitions of this start have one.
    """
    further = f", and on {further_count} more" if further_count else ""
    return (
        f"{_WAITING}, open on {where} from offset {offset} on{further}; `samzapy doctor --patience 5` has the commands "
        "that name the producer and end it"
    )


def waits_for_transaction(step: str) -> bool:
    """Whether `step` is of `transaction_step`."""
    return step.startswith(_WAITING)
