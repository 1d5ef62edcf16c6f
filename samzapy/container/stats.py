"""Stats of this execution, for status, lag and metrics only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from samzapy.container.local_state.restore_progress import Restoring
from samzapy.container.ports import BatchDone, TailProgress, TopicBounds
from samzapy.container.task.work_plan import Report, Route
from samzapy.container.unreported import Unreported
from samzapy.container.watermarks import standing
from samzapy.model.job import TaskName
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition
from samzapy.model.store_size import sizes_json, total_sizes
from samzapy.model.task_stats import NOTHING_MEASURED, TaskStats

TASKS_LISTED_MAX: Final = 500
"""The number of busiest tasks that a heartbeat lists one by one; the others are one sum.

A listed task takes about 250 bytes, and 120 more if it keeps time, so the limit keeps a heartbeat small. Its positions
take as much again, and they are listed for all tasks.
"""


class OpenTransactions:
    """Open transactions that hold back the inputs.

    Attributes:
        for_ms: by input, for how long a transaction is open at its last stable offset, as far as it was seen.
    """

    def __init__(self) -> None:
        self.for_ms: Mapping[SystemStreamPartition, int] = {}
        # By input, the last stable offset of an open transaction, and when it was first seen.
        self._seen: Mapping[SystemStreamPartition, tuple[int, int]] = {}

    def note(
        self,
        bounds: Mapping[SystemStreamPartition, TopicBounds],
        high: Mapping[SystemStreamPartition, int],
        now_ms: int,
    ) -> None:
        """Note which inputs end at the last stable offset of an open transaction.

        Their high watermarks are above it. A transaction that ends moves the last stable offset, so the same offset
        means the same transaction.

        Args:
            now_ms: monotonic.
        """
        stable = {ssp: bounds[ssp].offset_end for ssp, end in high.items() if bounds[ssp].offset_end < end}
        known = self._seen
        self._seen = {
            ssp: known[ssp] if ssp in known and known[ssp][0] == offset else (offset, now_ms)
            for ssp, offset in stable.items()
        }
        self.for_ms = {ssp: now_ms - since_ms for ssp, (_, since_ms) in self._seen.items()}


class ContainerFigures:
    """Sums of one execution, and the positions of its tasks.

    Attributes:
        positions: the next offset of each SSPKb that is processed.
        ends: the last known ends of the inputs; empty before the first lookup.
        restoring: the progress of a long restore; None at other times.
        bootstrap_ends: by position of a bootstrap input, the offset until which the other inputs of its task wait.
        open_transactions: those at the last stable offsets of the inputs.
        tailing: the key buckets that workers read by themselves now.
        covered_ms: by the text of an SSPKb, up to which moment it is covered, of a job that keeps event time.
        event_time_idle_ms: of task.event.time.idle.ms.
        unreported: the costs of messages whose report is to come.
    """

    def __init__(self) -> None:
        self.positions: dict[SspKeyBucket, int] = {}
        self.ends: Mapping[SystemStreamPartition, TopicBounds] = {}
        self.restoring: Restoring | None = None
        self.bootstrap_ends: Mapping[SspKeyBucket, int] = {}
        self.open_transactions = OpenTransactions()
        self.tailing: Collection[SspKeyBucket] = frozenset()
        self.covered_ms: Mapping[str, int] = {}
        self.event_time_idle_ms = 0
        self.unreported = Unreported()
        self.recoveries = 0
        self.batches = 0
        self._sums = Counter[str]()
        self._records: Counter[SspKeyBucket] = Counter()
        self._tasks: dict[TaskName, TaskStats] = {}
        self._read_to: dict[SystemStreamPartition, int] = {}

    def begin(self, starts: Mapping[SspKeyBucket, int], restored: Mapping[TaskName, TaskStats]) -> None:
        """Set the starts of a query, and the stats of the restore of its tasks.

        So the local state of a task without messages is reported too.
        """
        self._keep_unreported()
        self.positions = dict(starts)
        self.tailing = frozenset()
        self._records = Counter({ssp_kb: self._records[ssp_kb] for ssp_kb in starts})
        self._tasks = {
            task: replace(
                self._tasks.get(task, NOTHING_MEASURED),
                store_identify_ns=stats.store_identify_ns,
                disk_bytes=stats.disk_bytes,
                stores=stats.stores,
            )
            for task, stats in restored.items()
        }
        self._read_to = {}
        for ssp_kb, offset in starts.items():
            self._read_to[ssp_kb.ssp] = min(offset, self._read_to.get(ssp_kb.ssp, offset))

    @property
    def records_in(self) -> int:
        """The number of records that were handled."""
        return self._sums["recordsIn"]

    def lag(self, ssp_kbs: Iterable[SspKeyBucket]) -> int:
        """The offsets between the positions and the known ends; 0 where no end is known."""
        known = [ssp_kb for ssp_kb in ssp_kbs if ssp_kb in self.positions and ssp_kb.ssp in self.ends]
        return sum(max(0, self.ends[ssp_kb.ssp].offset_end - self.positions[ssp_kb]) for ssp_kb in known)

    def caught_up(self, bounds: Mapping[SystemStreamPartition, TopicBounds]) -> list[SystemStreamPartition]:
        """The inputs that are read up to their last stable offset."""
        behind = {ssp_kb.ssp for ssp_kb, offset in self.positions.items() if offset < bounds[ssp_kb.ssp].offset_end}
        return sorted(bounds.keys() - behind)

    def keep(self, held: Collection[SspKeyBucket]) -> None:
        """Drop the positions of all other buckets; their new owners report them."""
        self.positions = {ssp_kb: offset for ssp_kb, offset in self.positions.items() if ssp_kb in held}

    def add(self, done: BatchDone, routes: tuple[Route, ...]) -> int:
        """Count a batch that ended; `routes` are the routes of its query.

        Returns:
            The number of offsets that it read, with those of broadcast inputs, as Spark counts them for its bound. Each
            offset counts once.
        """
        self.batches += 1
        self.unreported.reported(done, routes)
        self._sums["batchNs"] += done.duration_ns
        handled = 0
        self.tailing = frozenset()
        for report in done.reports:
            route = routes[report.route]
            self._add_report(report, route)
            handled += 0 if route.ssp_kb.reader else report.records_in
        broadcast = {ssp_kb.ssp for ssp_kb in self._records if ssp_kb.reader}
        passed_all = passed = 0
        for ssp in sorted(self._read_to.keys() & done.offsets_end.keys()):
            offsets = max(0, done.offsets_end[ssp] - self._read_to[ssp])
            passed_all += offsets
            # Every task handles each message of a broadcast input, so both sums leave broadcast inputs out.
            passed += 0 if ssp in broadcast else offsets
            self._read_to[ssp] = done.offsets_end[ssp]
        self._sums["offsetsRead"] += passed
        self._sums["keyhashNs"] += int(passed * done.keyhash_ns)
        self._sums["skipped"] += max(0, passed - handled)
        return passed_all

    def add_tails(self, progress: TailProgress, routes: tuple[Route, ...]) -> None:
        """Count the work of tails.

        The offsets that they read count with the next micro-batch, which reads them again.
        """
        self.unreported.reported(progress, routes)
        self._sums["batchNs"] += progress.duration_ns
        for report in progress.reports:
            self._add_report(report, routes[report.route])
        self.tailing = frozenset(routes[index].ssp_kb for index in progress.tailing)

    def _keep_unreported(self) -> None:
        """Count costs whose report will never come, so that no sum falls."""
        batch_ns, costs = self.unreported.take()
        self._sums["batchNs"] += batch_ns
        self._tasks = self._with(costs)

    def _with(self, costs: Mapping[TaskName, TaskStats]) -> dict[TaskName, TaskStats]:
        after = {task: self._tasks.get(task, NOTHING_MEASURED).followed_by(cost) for task, cost in costs.items()}
        return {**self._tasks, **after}

    def _add_report(self, report: Report, route: Route) -> None:
        self._sums["recordsIn"] += report.records_in
        self._sums["recordsOut"] += report.records_out
        self._sums["deadLetters"] += report.dead_letters
        self._sums["commits"] += report.commits
        self._records[route.ssp_kb] += report.records_in
        measured = report.measured or NOTHING_MEASURED
        self._sums["inputNs"] += measured.input_ns
        did = replace(
            measured,
            records_in=report.records_in,
            records_out=report.records_out,
            dead_letters=report.dead_letters,
        )
        self._tasks[route.task_name] = self._tasks.get(route.task_name, NOTHING_MEASURED).followed_by(did)

    def as_json(self, now_ms: int, wall_ms: int) -> dict[str, Any]:
        """The JSON of heartbeats (`coordinator.assignment.heartbeat_json`).

        Args:
            now_ms: monotonic.
        """
        all_tasks = self._with(self.unreported.stats)
        tasks = {task: self._standing(stats, wall_ms) for task, stats in all_tasks.items()}
        sums = {name: self._sums[name] for name in _SUMS}
        sums["batchNs"] += self.unreported.batch_ns
        figures: dict[str, Any] = {"atMs": now_ms, **sums, "batches": self.batches, "recoveries": self.recoveries}
        if self.restoring is not None:
            figures |= self.restoring.as_json()
        positions = {str(ssp_kb): self._position(ssp_kb) for ssp_kb in sorted(self.positions)}
        figures["positions"] = positions if self.ends else {}
        listed = self._listed(all_tasks)
        # Sizes of stores by task would make it large.
        figures["tasks"] = {task: replace(tasks[task], stores={}).as_json() for task in sorted(listed)}
        others = [tasks[task] for task in sorted(tasks.keys() - listed)]
        if others:
            figures["otherTasks"] = {"count": len(others), **TaskStats.total(others).as_json()}
        if stores := total_sizes(stats.stores for stats in tasks.values()):
            figures["stores"] = sizes_json(stores)
        return figures

    def _standing(self, stats: TaskStats, wall_ms: int) -> TaskStats:
        """The figures of a task with its watermark of now."""
        if stats.time is None:
            return stats
        idle_ms = self.event_time_idle_ms
        return replace(stats, time=standing(stats.time, self.covered_ms, idle_ms=idle_ms, wall_ms=wall_ms))

    def _position(self, ssp_kb: SspKeyBucket) -> dict[str, int | bool]:
        offset, end = self.positions[ssp_kb], self.ends.get(ssp_kb.ssp)
        position: dict[str, int | bool] = {
            "offsetNext": offset,
            "offsetEnd": offset if end is None else max(offset, end.offset_end),
        }
        if ssp_kb in self.bootstrap_ends:
            position["bootstrapEnd"] = self.bootstrap_ends[ssp_kb]
        if ssp_kb in self.tailing:
            position["tailing"] = True
        if open_ms := self.open_transactions.for_ms.get(ssp_kb.ssp):
            position["openForMs"] = open_ms
        return position | ({"recordsIn": self._records[ssp_kb]} if self._records[ssp_kb] else {})

    def _listed(self, tasks: Mapping[TaskName, TaskStats]) -> Collection[TaskName]:
        """The tasks that are listed one by one."""
        if len(tasks) <= TASKS_LISTED_MAX:
            return tasks.keys()
        # By their total cost, so that the list does not change from one heartbeat to the next.
        busiest = sorted(tasks, key=lambda task: (-tasks[task].busy_ns, task))
        return frozenset(busiest[:TASKS_LISTED_MAX])


_SUMS: Final = (
    "recordsIn",
    "recordsOut",
    "deadLetters",
    "commits",
    "batchNs",
    "inputNs",
    "keyhashNs",
    "offsetsRead",
    "skipped",
)
