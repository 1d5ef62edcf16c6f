"""The tails of the worker in memory, with their inputs and signals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from samzapy.container.ports import EndsSeen, TailProgress
from samzapy.container.task.coverage import Coverage
from samzapy.container.task.ports import Place
from samzapy.container.task.tail import Tail, TailPorts
from samzapy.container.task.work_plan import InputRecord, Report, WorkPlan
from samzapy.model.ssp import SystemStreamPartition
from samzapy.testing.memory.kafka import MemoryKafka
from samzapy.testing.memory.slot import MemorySlot
from samzapy.testing.memory.tasks import MemoryTasks


def read(kafka: MemoryKafka, place: Place, offset: int, count_max: int) -> tuple[Sequence[InputRecord], int]:
    """Committed records of a partition from an offset on, and the offset to read next.

    It is behind the markers of transactions, too.
    """
    stable = kafka.offset_stable(*place)
    committed = kafka.committed(*place, offset, stable)
    records = [
        InputRecord(*place, record.offset, record.key, record.value, record.timestamp_ms, record.headers)
        for record in committed[:count_max]
    ]
    return records, max(offset, stable) if len(records) == len(committed) else records[-1].offset + 1


@dataclass(slots=True, kw_only=True)
class Pace:
    """How much a worker in memory handles at once.

    It may be changed while the job runs.

    Attributes:
        batch_max: the most records of a partition in a micro-batch, or in a transaction of a tail.
        tail_looks: how often a tail looks whether it must end, until it must. It looks before and behind each
            transaction, and before each timer and each run of messages. 0: no tail follows a micro-batch.
    """

    batch_max: int = 100
    tail_looks: int = 0


class MemoryTailInput:
    """Reads topics in memory (`container.task.ports.TailReader`).

    Args:
        bunch_max: the most records of a partition in one look.
    """

    def __init__(self, kafka: MemoryKafka, bunch_max: int) -> None:
        self._kafka = kafka
        self._bunch_max = bunch_max
        self._offsets: dict[Place, int] = {}

    def assign(self, offsets: Mapping[Place, int]) -> None:
        self._offsets = dict(offsets)

    def poll(self, timeout_s: float, count_max: int) -> Sequence[InputRecord]:
        records: list[InputRecord] = []
        for place, offset in sorted(self._offsets.items()):
            of_place, self._offsets[place] = read(self._kafka, place, offset, self._bunch_max)
            records += of_place
        return records

    def offsets_next(self) -> Mapping[Place, int]:
        return self._offsets

    def lag(self) -> int:
        return 0


class MemoryTailBoard:
    """The signals of tails, which end when one of them asks for it.

    A `container.task.ports.TailBoard`.

    Attributes:
        looks: after so many looks the tails end, too.
        reports, read_to: as they were published.
    """

    def __init__(self, looks: int = 100) -> None:
        self.looks = looks
        self.ended: list[str] = []
        self.reports: list[Report] = []
        self.read_to: dict[int, int] = {}

    def must_end(self) -> bool:
        self.looks -= 1
        return bool(self.ended) or self.looks < 0

    def end_all(self, reason: str) -> None:
        self.ended.append(reason)

    def publish(self, reports: Sequence[Report], read_to: Mapping[int, int]) -> None:
        self.reports.extend(reports)
        self.read_to = dict(read_to)


class MemoryInputEnds:
    """The ends of the inputs of one query, as its driver sees them.

    `container.task.tail.InputEnds`.
    """

    def __init__(self) -> None:
        self._coverage: Coverage[Place] = Coverage()
        self._has_news = False

    def note(self, seen: EndsSeen) -> None:
        """Note the ends that the driver gives the workers."""
        self._coverage.note_ends(seen.at_ms, {(ssp.stream, ssp.partition): end for ssp, end in seen.ends.items()})
        self._has_news = True

    def look(self) -> bool:
        had_news, self._has_news = self._has_news, False
        return had_news

    def covered_ms(self, place: Place, offset_next: int) -> int | None:
        return self._coverage.covered_ms(place, offset_next)


class MemoryTails:
    """The tails of one worker, which handle all tasks."""

    def __init__(self, kafka: MemoryKafka, tasks: MemoryTasks, slot: MemorySlot) -> None:
        self._kafka, self._tasks, self._slot = kafka, tasks, slot
        # By route, up to where the query's tails have handled everything.
        self._read_to: Sequence[int] = ()
        self._ends = MemoryInputEnds()

    def query_starts(self, plan: WorkPlan) -> None:
        """Begin anew, where the routes of a query begin."""
        self._read_to = () if plan.tail is None else plan.tail.starts
        self._ends = MemoryInputEnds()

    def note_ends(self, seen: EndsSeen) -> None:
        """Note the ends of the inputs, as the driver sees them."""
        self._ends.note(seen)

    def follow(self, plan: WorkPlan, batch_ends: Mapping[SystemStreamPartition, int], pace: Pace) -> TailProgress:
        """Read on from the end of a micro-batch until the tail must end.

        Args:
            batch_ends: the offset up to which micro-batches have read each partition.
        """
        read_from = [
            max(read_to, batch_ends.get(route.ssp_kb.ssp, read_to))
            for route, read_to in zip(plan.routes, self._read_to, strict=True)
        ]
        board, tasks = MemoryTailBoard(pace.tail_looks), self._tasks
        ports = TailPorts(
            reader=MemoryTailInput(self._kafka, pace.batch_max),
            board=board,
            slot=self._slot,
            crash_points=tasks.crash_points,
            now_s=tasks.now_s,
            wall_ms=tasks.clock.wall_ms,
            due_ms=partial(tasks.due_ms, plan) if tasks.declared.acts_by_time else None,
            ends=self._ends if tasks.declared.keeps_time else None,
        )
        Tail(plan, plan.tasks, read_from, ports, partial(tasks.run, plan, self._slot)).run()
        self._read_to = [max(offset, board.read_to.get(route, offset)) for route, offset in enumerate(read_from)]
        return TailProgress(reports=board.reports, read_to=board.read_to)
