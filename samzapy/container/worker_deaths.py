"""Finds the message that ends worker processes, by trying.

A message may end the process that handles it: a fault in a C library, `os._exit`, the kernel's OOM killer. Nothing is
raised then, so nothing names the message, and a process that was killed from outside looks the same. So:

1. After a death the next queries let workers note the message in hand (`ports.SlotGuard.note`), for `NOTES_MS`.
2. After the second death each noted message is a suspect. It is tried alone: a query reads what stands before it in its
   SSPKb, and the next one reads that message and nothing else. What is handled on the way is committed as ever.
3. A suspect that ends its worker `ALONE_DEATHS` times when it is tried alone is to blame, and workers refuse it like a
   message that raises: `task.error.policy` says what becomes of it. A suspect that is handled was not to blame.

Every trial is a query as any other, with fewer routes, so exactly once holds all the way.
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
"""The SSPKb and the offset of a message that a worker had in hand when it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A message that may have ended its worker.

    Attributes:
        is_next: everything before it is done.
        deaths: how often it ended its worker when it was tried alone.
    """

    ssp_kb: SspKeyBucket
    offset: int
    is_next: bool = False
    deaths: int = 0

    @property
    def offset_end(self) -> int:
        """Where the trial ends: in front of the message, or behind it."""
        return self.offset + 1 if self.is_next else self.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDeaths:
    """The deaths of workers of one execution, and the messages under suspicion.

    Attributes:
        suspects: the first one is tried by the next query.
        refusals: the messages that are to blame and were not committed yet.
        notes_until_ms: until when workers note the message in hand; monotonic.
    """

    suspects: tuple[Suspect, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notes_until_ms: int = 0

    def died(self, in_hand: Sequence[MessageInHand], reason: str, now_ms: int) -> WorkerDeaths:
        """After a worker of a query died; `in_hand` is empty where nothing was noted."""
        after = replace(self, notes_until_ms=now_ms + NOTES_MS)
        if not self.suspects:
            refused = {(refusal.ssp_kb, refusal.offset) for refusal in self.refusals}
            new = sorted(set(in_hand) - refused)
            return replace(after, suspects=tuple(Suspect(ssp_kb=ssp_kb, offset=offset) for ssp_kb, offset in new))
        tried, *others = self.suspects
        offsets = [offset for ssp_kb, offset in in_hand if ssp_kb == tried.ssp_kb]
        if not offsets:
            return after  # It died before it had a message in hand, and says nothing of this one.
        if offsets[0] != tried.offset:
            return replace(after, suspects=(replace(tried, offset=offsets[0], is_next=False, deaths=0), *others))
        if tried.deaths + 1 < ALONE_DEATHS:
            return replace(after, suspects=(replace(tried, deaths=tried.deaths + 1), *others))
        text = f"its worker process ended {ALONE_DEATHS} times when it handled this message alone; the last time: "
        refusal = Refusal(ssp_kb=tried.ssp_kb, offset=tried.offset, reason=text + reason)
        return replace(after, suspects=tuple(others), refusals=(*self.refusals, refusal))

    def at(self, starts: Mapping[SspKeyBucket, int]) -> WorkerDeaths:
        """Drop messages that were committed, or are read elsewhere, at a start."""

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
            replace(route, offset_end=min(trial.offset_end, route.offset_end or trial.offset_end))
            for route in routes
            if route.ssp_kb == trial.ssp_kb
        )

    def is_passed(self, positions: Mapping[SspKeyBucket, int]) -> bool:
        """True if the trial that runs came to its end, and no worker died."""
        trial = self.trial
        return trial is not None and positions.get(trial.ssp_kb, -1) >= trial.offset_end

    def passed(self) -> WorkerDeaths:
        """After a trial that came to its end."""
        tried, *others = self.suspects
        return replace(self, suspects=tuple(others) if tried.is_next else (replace(tried, is_next=True), *others))
