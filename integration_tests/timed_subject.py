"""The job `jobs/timed_sums.py` under a ledger.

Each timer fires once, and a window counts each record once. A span of event time does so too, and no record is late.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from integration_tests.ledger_run import JOBS, OUTPUT, Inputs, LedgerRun, Subject, Topics
from integration_tests.support.ledger import Violation

FIRED = "fired"
COUNTED = "counted"
PER_SPAN = "per-span"
_SHOWN_MAX = 5


class TimedSubject(Subject):
    """Running sums, a timer for each record with a key, and windows that count them.

    Attributes:
        late_ms: how late the timers fired that were set for a moment.
    """

    file = JOBS / "timed_sums.py"
    name = "timed-sums-1"
    outputs: ClassVar[Inputs] = {**Subject.answers, FIRED: 4, COUNTED: 4, PER_SPAN: 4}
    stores = ("sums", "count", "since", "spans", "_timers", "_window", "_clocks")

    def __init__(self) -> None:
        self.late_ms: list[int] = []
        self._spans = 0
        # By partition of `COUNTED` and `PER_SPAN`, how many of its records were added up, and their sum.
        self._added: dict[tuple[str, int], tuple[int, int]] = {}
        self._ticks: set[int] = set()

    def is_settled(self, run: LedgerRun) -> bool:
        """Whether timers fired and records were counted for all records with keys."""
        answers = _count(run, OUTPUT)
        return not self.left(run) and answers == self._counted(run, COUNTED) == self._counted(run, PER_SPAN)

    def unsettled(self, run: LedgerRun) -> str:
        figures = f"{_count(run, OUTPUT)} answers, {self.left(run)} timers left"
        for topic in (COUNTED, PER_SPAN):
            figures += f", {self._counted(run, topic)} records in {topic}"
        set_timers = self._set_timers(run)
        return f"{figures}; {len(set_timers)} timers are set: {set_timers[:_SHOWN_MAX]}"

    @staticmethod
    def _set_timers(run: LedgerRun) -> list[bytes]:
        left = dict(run.changelog_records("_timers"))
        return [key for key, value in left.items() if value is not None]

    def _counted(self, run: LedgerRun, topic: str) -> int:
        """How many records the results on a topic have counted."""
        for place, records in run.watcher.seen.items():
            if place[0] == topic:
                index, total = self._added.get(place, (0, 0))
                new = records[index:]
                total += sum(json.loads(record.value or b"").get("count", 1) for record in new)
                self._added[place] = index + len(new), total
        return sum(total for (name, _), (_, total) in self._added.items() if name == topic)

    def left(self, run: LedgerRun) -> int:
        """The count of timers that have not fired yet, with those of unhandled messages."""
        return sum(fed.key is not None for fed in run.ledger.acked) - _count(run, FIRED)

    def waiting(self, run: LedgerRun) -> int:
        """How many timers are set, and have not fired yet."""
        return _count(run, OUTPUT) - _count(run, FIRED)

    def check(self, run: LedgerRun, outputs: Topics) -> Iterator[Violation]:
        yield from super().check(run, outputs)
        counts: Counter[bytes | None] = Counter()
        fired: Counter[str] = Counter()
        for (topic, _), records in sorted(outputs.items()):
            for record in records if topic == FIRED else ():
                value = json.loads(record.value or b"")
                counts[record.key] += 1
                if counts[record.key] != value["count"]:
                    yield Violation("C", f"timer {counts[record.key]} of {record.key!r} counts {value['count']}")
                fired[value["src"]] += 1
                self.late_ms.append(value["lateMs"])
        wanted = {str(place) for fed, place in run.ledger.acked.items() if fed.key is not None}
        twice = [src for src, count in fired.items() if count > 1]
        for fault, srcs in (
            ("never fired", wanted - fired.keys()),
            ("were never set", fired.keys() - wanted),
            ("fired twice", twice),
        ):
            if srcs:
                yield Violation("C", f"{len(srcs)} timers {fault}: {', '.join(sorted(srcs)[:_SHOWN_MAX])}")
        yield from self._check_windows(run, outputs)
        yield from self._check_spans(run, outputs)
        still_set = self._set_timers(run)
        if still_set:
            yield Violation("D", f"{len(still_set)} timers are still set: {still_set[:_SHOWN_MAX]}")

    def _check_windows(self, run: LedgerRun, outputs: Topics) -> Iterator[Violation]:
        counts: Counter[bytes | None] = Counter()
        ticks: set[tuple[bytes | None, int]] = set()
        for (topic, _), records in sorted(outputs.items()):
            for record in records if topic == COUNTED else ():
                value = json.loads(record.value or b"")
                counts[record.key] += value["count"]
                if (record.key, value["tick"]) in ticks:
                    yield Violation("C", f"window {value['tick']} came twice for {record.key!r}")
                ticks.add((record.key, value["tick"]))
        self._ticks = {tick for _, tick in ticks}
        wanted = Counter(fed.key.encode() for fed in run.ledger.acked if fed.key is not None)
        if counts != wanted:
            wrong = sorted(str(key) for key in counts.keys() | wanted.keys() if counts[key] != wanted[key])
            yield Violation("C", f"windows have counted {len(wrong)} keys wrong: {', '.join(wrong[:_SHOWN_MAX])}")

    def _check_spans(self, run: LedgerRun, outputs: Topics) -> Iterator[Violation]:
        counts: Counter[bytes | None] = Counter()
        spans: Counter[tuple[bytes | None, int]] = Counter()
        late = []
        for (topic, _), records in sorted(outputs.items()):
            for record in records if topic == PER_SPAN else ():
                value = json.loads(record.value or b"")
                counts[record.key] += value.get("count", 1)
                if "late" in value:
                    late.append(value)
                else:
                    spans[record.key, value["start"]] += 1
        self._spans = len({start for _, start in spans})
        twice = [place for place, count in spans.items() if count > 1]
        if twice:
            yield Violation("C", f"{len(twice)} spans came twice: {twice[:_SHOWN_MAX]}")
        # A partition that came while the job ran may have records from before the job read it.
        late = [value for value in late if not _came_late(value["late"], run.inputs_at_start)]
        if late:
            yield Violation("C", f"{len(late)} records were late: {late[:_SHOWN_MAX]}")
        wanted = Counter(fed.key.encode() for fed in run.ledger.acked if fed.key is not None)
        if counts != wanted:
            wrong = sorted(str(key) for key in counts.keys() | wanted.keys() if counts[key] != wanted[key])
            yield Violation("C", f"spans have counted {len(wrong)} keys wrong: {', '.join(wrong[:_SHOWN_MAX])}")

    def summary(self) -> str:
        late_ms = sorted(self.late_ms)
        timers = f"{len(late_ms)} timers, late by {late_ms[len(late_ms) // 2]} ms (p50), {late_ms[-1]} ms at most"
        return f"{timers}, {len(self._ticks)} windows, {self._spans} spans of event time"


def _came_late(src: str, at_start: Inputs) -> bool:
    """Whether the partition of a record came while the job ran."""
    topic, partition, _ = src.rsplit("-", 2)
    return int(partition) >= at_start[topic]


def _count(run: LedgerRun, output: str) -> int:
    return sum(len(records) for (topic, _), records in run.watcher.seen.items() if topic == output)
