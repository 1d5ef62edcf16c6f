"""Finds the message that kills worker processes, by processing suspects alone.

A message may kill the process that handles it: a fault in a C library, `os._exit`, the kernel's OOM killer. Then no
error is raised that names the message, and a process that was killed from outside looks the same. So:

1. After a death, the workers of the next queries note their current message (`ports.SlotGuard.note`), for `NOTES_MS`.
2. After the second death, each noted message is a suspect and has a trial. A first query reads the messages before it
   in its SSPKb. The next query reads only the suspect. Both commit as usual.
3. If a suspect kills its worker `ALONE_DEATHS` times when it is processed alone, it is the cause. Workers then refuse
   it like a message that raises an error, and `task.error.policy` decides how. A suspect that is handled is cleared.

A trial is a normal query with fewer routes, so exactly-once semantics hold throughout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from samzapy.container.task.work_plan import Refusal, Route
from samzapy.model.ssp import SspKeyBucket

ALONE_DEATHS: Final = 3
NOTES_MS: Final = 300_000
MessageInHand = tuple[SspKeyBucket, int]
"""The SSPKb and the offset of the message that a worker handled when it died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A message that may have killed its worker.

    Attributes:
        is_next: all messages before it are processed.
        deaths: how often it killed its worker when it was processed alone.
    """

    ssp_kb: SspKeyBucket
    offset: int
    is_next: bool = False
    deaths: int = 0

    @property
    def offset_end(self) -> int:
        """The end offset of the trial: before the message, or after it."""
        return self.offset + 1 if self.is_next else self.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDeaths:
    """The deaths of workers of one execution, and the messages under suspicion.

    Attributes:
        suspects: the messages under suspicion; the next query is a trial of the first one.
        refusals: the messages that kill workers and were not committed yet.
        notes_until_ms: the time until which workers note their current message; monotonic.
    """

    suspects: tuple[Suspect, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notes_until_ms: int = 0

    def died(self, in_hand: Sequence[MessageInHand], reason: str, now_ms: int) -> WorkerDeaths:
        """The deaths after one more; `in_hand` is empty if no message was noted."""
        after = replace(self, notes_until_ms=now_ms + NOTES_MS)
        if not self.suspects:
            refused = {(refusal.ssp_kb, refusal.offset) for refusal in self.refusals}
            new = sorted(set(in_hand) - refused)
            return replace(after, suspects=tuple(Suspect(ssp_kb=ssp_kb, offset=offset) for ssp_kb, offset in new))
        tried, *others = self.suspects
        offsets = [offset for ssp_kb, offset in in_hand if ssp_kb == tried.ssp_kb]
        if not offsets:
            return after  # The worker died before it had a message, so this is no evidence against the suspect.
        if offsets[0] != tried.offset:
            return replace(after, suspects=(replace(tried, offset=offsets[0], is_next=False, deaths=0), *others))
        if tried.deaths + 1 < ALONE_DEATHS:
            return replace(after, suspects=(replace(tried, deaths=tried.deaths + 1), *others))
        text = f"its worker process ended {ALONE_DEATHS} times when it handled this message alone; the last time: "
        refusal = Refusal(ssp_kb=tried.ssp_kb, offset=tried.offset, reason=text + reason)
        return replace(after, suspects=tuple(others), refusals=(*self.refusals, refusal))

    def at(self, starts: Mapping[SspKeyBucket, int]) -> WorkerDeaths:
        """The deaths without messages that were committed or are read elsewhere."""

        def is_ahead(ssp_kb: SspKeyBucket, offset: int) -> bool:
            return ssp_kb in starts and starts[ssp_kb] <= offset

        return replace(
            self,
            suspects=tuple(
                replace(suspect, is_next=suspect.is_next or starts[suspect.ssp_kb] == suspect.offset)
                for suspect in self.suspects
                if is_ahead(suspect.ssp_kb, suspect.offset)
            ),
            refusals=tuple(refusal for refusal in self.refusals if is_ahead(refusal.ssp_kb, refusal.offset)),
        )

    @property
    def trial(self) -> Suspect | None:
        """The message that the next query processes alone; None: it reads everything."""
        return self.suspects[0] if self.suspects else None

    def limited(self, routes: Sequence[Route]) -> tuple[Route, ...]:
        """The routes that the next query reads."""
        trial = self.trial
        if trial is None:
            return tuple(routes)
        return tuple(
            replace(route, offset_end=min(trial.offset_end, route.offset_end or trial.offset_end), is_trial=True)
            for route in routes
            if route.ssp_kb == trial.ssp_kb
        )

    def is_passed(self, positions: Mapping[SspKeyBucket, int]) -> bool:
        """True if the current trial reached its end, and no worker died."""
        trial = self.trial
        return trial is not None and positions.get(trial.ssp_kb, -1) >= trial.offset_end

    def passed(self) -> WorkerDeaths:
        """The deaths after a trial that reached its end."""
        tried, *others = self.suspects
        return replace(self, suspects=tuple(others) if tried.is_next else (replace(tried, is_next=True), *others))
