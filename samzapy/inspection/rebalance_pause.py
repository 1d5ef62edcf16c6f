"""The pause of each key bucket during a change of the plan.

It is read off the positions committed around the change.

A bucket's pause lasts from the last committed position of its messages under an earlier grant to the first one under
its new grant. It begins with the plan at the earliest: an idle bucket waited for messages, and not for the change.
Times are the broker's (log append), so any reader sees the same. Buckets that had nothing to do are left out while
nothing was written for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from samzapy.model.grant import Grant
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition
from samzapy.stream.records import CheckpointPut, ProgressPut, Record


class Pauses:
    """The pauses of granted buckets, record by record.

    A reader may go on as the topic grows.

    Args:
        grants: the grants in force after the change.
        epoch_before: the last one before the change; a bucket with an older grant waited for another reason.
        planned_ms: when the plan took effect.
    """

    def __init__(self, grants: Sequence[Grant], epoch_before: int, planned_ms: int = 0) -> None:
        self._planned_ms = planned_ms
        self._epoch_of = {
            start.ssp_kb: grant.epoch for grant in grants if grant.epoch > epoch_before for start in grant.starts
        }
        self._of_ssp: dict[SystemStreamPartition, list[SspKeyBucket]] = {}
        for ssp_kb in self._epoch_of:
            self._of_ssp.setdefault(ssp_kb.ssp, []).append(ssp_kb)
        self._last: dict[SspKeyBucket, int] = {}
        self._found: dict[SspKeyBucket, int] = {}

    @property
    def found_ms(self) -> Mapping[SspKeyBucket, int]:
        """The pause of each bucket, as far as it is over."""
        return self._found

    @property
    def are_over(self) -> bool:
        """Whether that is all of them."""
        return self._found.keys() == self._epoch_of.keys()

    def add(self, at_ms: int, record: Record) -> None:
        """The next record of the checkpoint topic, and its time."""
        match record:
            case CheckpointPut(checkpoint=position):
                ssp_kb, epoch = position.ssp_kb, position.epoch
            case ProgressPut(progress=progress):
                ssp_kb, epoch = progress.ssp_kb, progress.epoch
            case _:
                return
        for wanted in self._of_ssp.get(ssp_kb.ssp, ()):
            if wanted in self._found or not wanted.overlaps(ssp_kb):
                continue
            if wanted == ssp_kb and epoch == self._epoch_of[wanted]:
                if wanted in self._last:
                    self._found[wanted] = at_ms - max(self._last[wanted], self._planned_ms)
            elif epoch < self._epoch_of[wanted]:
                self._last[wanted] = at_ms
