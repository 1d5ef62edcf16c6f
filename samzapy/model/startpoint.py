"""A startpoint: an operator's order to read a part of an input from an offset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from samzapy.model.grant import Grant
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Startpoint:
    """The messages of `ssp_kb` are processed from `offset_next` on.

    Earlier progress is ignored.

    `epoch` is a number of the counter that grants have theirs from. A grant with a lower one is older: it is to be let
    go. One with a higher one begins where this says, or behind that. `uuid` is that of the request.
    """

    ssp_kb: SspKeyBucket
    offset_next: int
    epoch: int
    uuid: str


class StartpointIndex:
    """Startpoints by SSP and reader.

    Most of the time there is none, and a look-up costs nothing.
    """

    def __init__(self, startpoints: Iterable[Startpoint] = ()) -> None:
        self._by_ssp: dict[tuple[SystemStreamPartition, str], dict[SspKeyBucket, Startpoint]] = {}
        for startpoint in startpoints:
            self.add(startpoint)

    def add(self, startpoint: Startpoint) -> None:
        """Of one SSPKb the last word counts."""
        place = startpoint.ssp_kb.ssp, startpoint.ssp_kb.reader
        self._by_ssp.setdefault(place, {})[startpoint.ssp_kb] = startpoint

    def discard(self, ssp_kb: SspKeyBucket) -> None:
        self._by_ssp.get((ssp_kb.ssp, ssp_kb.reader), {}).pop(ssp_kb, None)

    def overlapping(self, ssp_kb: SspKeyBucket) -> Sequence[Startpoint]:
        """Those for messages of `ssp_kb`, the oldest first."""
        startpoints = self._by_ssp.get((ssp_kb.ssp, ssp_kb.reader), {}).values()
        return sorted((item for item in startpoints if item.ssp_kb.overlaps(ssp_kb)), key=lambda item: item.epoch)

    def newer_than(self, grant: Grant) -> Sequence[Startpoint]:
        """Those that came after `grant` and are for something that it gives.

        If there are any, it is to be let go.
        """
        if not self._by_ssp:
            return ()
        return [
            startpoint
            for start in grant.starts
            for startpoint in self.overlapping(start.ssp_kb)
            if startpoint.epoch > grant.epoch
        ]
