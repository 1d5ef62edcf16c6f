"""The composition root of Spark's Python workers.

A worker gets a plan and Arrow batches, and returns reports. A worker process serves any task and lives over many
batches and queries, so its objects are keyed: producers by slot and instance (`adapters.spark.slots`), environments and
task instances by query. Only connections outlive their query.
"""

from __future__ import annotations

import gc
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from samzapy.adapters.faults import note_faults
from samzapy.adapters.host.crash_points import crash_points
from samzapy.adapters.host.interrupts import Interrupts
from samzapy.adapters.host.outputs_file import OutputsFile
from samzapy.adapters.host.threads import HostThreads
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.hanging import written_by_workers
from samzapy.adapters.kafka.reading import read_to_end
from samzapy.adapters.kafka.transactions import TransactionalProducer, new_owner
from samzapy.adapters.lmdb.store import LmdbEnvironment, faults_directory
from samzapy.adapters.spark.ends_file import EndsFile
from samzapy.adapters.spark.open_tasks import OpenTasks
from samzapy.adapters.spark.rows import RowBytes, reports_batch, rows_of, runs
from samzapy.adapters.spark.slots import HeldSlot, WorkerSlots, boottime_ns
from samzapy.adapters.spark.tail_board import WorkerTailBoard
from samzapy.container.orders import Orders, read_on
from samzapy.container.task.clocks import ended
from samzapy.container.task.commit_trace import CommitTraces
from samzapy.container.task.joint_transaction import JointTransaction
from samzapy.container.task.measures import Stopwatch, with_input
from samzapy.container.task.runner import TaskRunner
from samzapy.container.task.so_far import NOTED_AFTER_S, SoFar
from samzapy.container.task.tail import TaskRows
from samzapy.container.task.transaction import TransactionLimits
from samzapy.container.task.work_plan import Report, WorkPlan, any_failed
from samzapy.errors import LostContainerError
from samzapy.model.container import slot_transactional_id
from samzapy.model.topics import coordinator_topic
from samzapy.runtime import tracing, worker_end
from samzapy.runtime.slow_message_watch import SlowMessageWatch
from samzapy.runtime.worker_tail import WorkerCrashPoints, WorkerTails
from samzapy.task import load_task_factory

_LOG = logging.getLogger(__name__)
_SLOT_WAIT_S = 30.0
_process: _WorkerProcess | None = None


def run(plan: WorkPlan, batches: Iterable[Any]) -> Iterator[Any]:
    """Handle the rows of one Spark partition.

    Yields one Arrow batch of reports, or nothing if there are no rows.
    """
    global _process
    if _process is None or _process.execution_id != plan.execution_id:
        _process = _WorkerProcess(plan)
    measured = RowBytes(batches)
    reports = _process.run(plan, measured)
    if reports:
        yield reports_batch(reports, measured.most)


def tick(plan: WorkPlan, batches: Iterable[Any]) -> Iterator[Any]:
    """Fire the timers of this Spark partition's share of the tasks.

    As `run`, but without rows. The partition's only row is its number.
    """
    global _process
    if _process is None or _process.execution_id != plan.execution_id:
        _process = _WorkerProcess(plan)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            reports = _process.tick(plan, number)
            if reports:
                yield reports_batch(reports, 0)


class _Producers:
    """Makes the producers of an execution's slots."""

    def __init__(self, plan: WorkPlan, connection: KafkaConnection, crash_points: WorkerCrashPoints) -> None:
        self._job = plan.config.job
        self._execution_id = plan.execution_id
        self._connection = connection
        self._crash_points = crash_points
        self._transaction_timeout_ms = plan.config.transaction_timeout_ms
        self._outputs = OutputsFile.of(plan.config, Path(plan.scratch_dir))
        self._written = written_by_workers(plan.config, self._outputs.topics)
        self.enter_query(plan)

    def enter_query(self, plan: WorkPlan) -> None:
        """Look at the coordinator stream from the plan's offset on."""
        self._stream_offset = plan.stream_offset
        self._stream_numbering = plan.stream_numbering

    def make(self, slot: int) -> TransactionalProducer:
        """Make a producer that owns the slot's transactional id.

        Kafka lets the latest initialiser of an id win. So a worker of a lost execution could take its id back from the
        coordinator that fenced it. Hence this checks that the execution is not lost after the id is taken, never
        before.
        """
        self._crash_points.hit("before-init")
        make = partial(
            TransactionalProducer,
            self._connection,
            slot_transactional_id(self._job, self._execution_id, slot),
            transaction_timeout_ms=self._transaction_timeout_ms,
            written=self._written,
            on_output=self._outputs.note,
        )
        producer = new_owner(make)
        try:
            self._check_not_given_up()
        except BaseException:
            producer.close()
            raise
        return producer

    def _check_not_given_up(self) -> None:
        topic = coordinator_topic(self._job)
        records = read_to_end(self._connection, topic, 0, self._stream_offset)
        known = Orders(execution_id=self._execution_id, numbering=self._stream_numbering)
        orders = read_on(known, records, 0, topic=topic)
        if orders.is_given_up:
            raise LostContainerError(
                f"execution {self._execution_id} was given up by the coordinator ({orders.reason}); "
                "this worker begins nothing more"
            )


class _WorkerProcess:
    """The objects that this process keeps for one execution."""

    def __init__(self, plan: WorkPlan) -> None:
        self.execution_id = plan.execution_id
        # First: a job file may do anything.
        tracing.end_at_hangup()
        self._tracer = tracing.tracer_of(plan.config, os.environ, execution_id=plan.execution_id, is_quiet=True)
        connection = KafkaConnection.of(plan.config)
        self._crash_points = WorkerCrashPoints(crash_points(os.environ))
        self._producers = _Producers(plan, connection, self._crash_points)
        self._tails = WorkerTails(Path(plan.scratch_dir), connection, self._crash_points)
        self._ends = EndsFile(Path(plan.scratch_dir))
        self._interrupts = Interrupts()
        self._new_task = load_task_factory(Path(plan.job_file))
        self._slots: WorkerSlots[TransactionalProducer] = WorkerSlots(
            Path(plan.scratch_dir),
            plan.slot_count,
            make_producer=self._producers.make,
            must_renew=lambda producer: producer.must_be_renewed,
            close=lambda producer: producer.close(),
        )
        # pyspark's daemon collects garbage after every task, and walks all modules each time: half of a worker's time.
        # Loaded modules stay for good, so the collector need not see them.
        gc.collect()
        gc.freeze()
        self._query_number = -1
        self._runners: dict[int, TaskRunner] = {}
        self._environments: dict[str, LmdbEnvironment] = {}
        self._slow = SlowMessageWatch(
            self._in_hand, lambda: boottime_ns() // 1_000_000, so_far=lambda: self._so_far(time.monotonic())
        )
        # When the worker began with the rows of a micro-batch; None in a tail.
        self._rows_since_s: float | None = None
        self._open_tasks = OpenTasks(Path(plan.scratch_dir))
        worker_end.close_at_end(self._close_tasks, may_close=self._slots.has_lease)

    def run(self, plan: WorkPlan, batches: Iterable[Any]) -> Sequence[Report]:
        """Handle the rows of one Spark partition, then tail if the driver ordered it.

        Returns:
            The reports of the rows; those of a tail go another way.
        """
        waited = Stopwatch(time.monotonic)
        tasks = (
            (routes, (rows_of(route, batch) for route, batch in group))
            for routes, group in waited.waiting(groupby(runs(batches), key=_task_of(plan)))
        )
        # Other inputs may have messages among the rows.
        return self._run(plan, tasks, waited, ended(self._covered_ms(plan)))

    def tick(self, plan: WorkPlan, number: int) -> Sequence[Report]:
        """Fire the timers of one Spark partition's tasks, then tail as after rows.

        Returns:
            A report for each task, with the moment of its next timer.
        """
        tasks = ((routes, ()) for routes in plan.tasks[number :: plan.slot_count])
        # Without rows everything that the driver knows as read is handled.
        with self._crash_points.during("tick"):
            return self._run(plan, tasks, Stopwatch(time.monotonic), self._covered_ms(plan))

    def _covered_ms(self, plan: WorkPlan) -> Mapping[int, int]:
        """By route, up to which moment everything is handled, as the driver knows it."""
        return self._ends.covered_ms(plan) if self._new_task.declared.keeps_time else {}

    def _run(
        self,
        plan: WorkPlan,
        tasks: Iterable[TaskRows],
        waited: Stopwatch,
        covered_ms: Mapping[int, int],
    ) -> Sequence[Report]:
        board = self._tails.board(plan)
        # A tail needs a slot, also without rows before it.
        held = None if board is None else self._enter(plan)
        traces = CommitTraces.of(self._tracer, plan, is_tail=False)
        reports: list[Report] = []
        try:
            for routes, chunks in tasks:
                held = held or self._enter(plan)
                runner = self._runner(plan, routes)
                runner.covered(covered_ms)
                reports.extend(runner.run(chunks, held, traces))
                if any_failed(reports):
                    break
            done = with_input(reports, waited.total_ns)
            self._slow.report()
            if board is not None and held is not None:
                self._tail(plan, board, done, held)
        except BaseException:
            if board is not None:
                board.end_all("a worker failed")
            raise
        finally:
            if board is not None:
                board.close()
            if held is not None:
                self._slow.end()
                held.release()
        return done

    def _in_hand(self) -> tuple[int, int] | None:
        """Route and offset of the message that a task handles now."""
        in_hand = (runner.in_hand for runner in tuple(self._runners.values()))
        return next((message for message in in_hand if message is not None), None)

    def _so_far(self, now_s: float) -> Sequence[SoFar]:
        """The costs that are not reported yet, once they are large."""
        since_s = self._rows_since_s
        noted = [(route, runner.so_far(only_open=since_s is None)) for route, runner in tuple(self._runners.items())]
        elapsed_ns = 0 if since_s is None else int((now_s - since_s) * 1e9)
        if max([elapsed_ns, *(stats.busy_ns for _, stats in noted)]) < NOTED_AFTER_S * 1e9:
            return ()
        return [SoFar(route=route, elapsed_ns=elapsed_ns, stats=stats) for route, stats in noted if stats.busy_ns]

    def _enter(self, plan: WorkPlan) -> HeldSlot[TransactionalProducer]:
        self._crash_points.hit("before-slot")
        self._interrupts.install()
        held = self._slots.take(plan.query_number, _SLOT_WAIT_S)
        self._enter_query(plan)
        self._rows_since_s = time.monotonic()
        self._slow.begin(held)
        return held

    def _tail(
        self,
        plan: WorkPlan,
        board: WorkerTailBoard,
        reports: Sequence[Report],
        held: HeldSlot[TransactionalProducer],
    ) -> None:
        if any_failed(reports):
            board.end_all("a task failed")

        traces = CommitTraces.of(self._tracer, plan, is_tail=True)

        def run_tasks(tasks: Sequence[TaskRows], must_end: Callable[[], bool]) -> Sequence[Report]:
            self._rows_since_s = None
            joint = JointTransaction(held, self._crash_points, time.monotonic, must_end, traces)
            reports = joint.run(self._runner(plan, routes).work(chunks, joint) for routes, chunks in tasks)
            self._slow.report()
            return reports

        def due_ms(routes: Sequence[int], covered_ms: Mapping[int, int]) -> int:
            runner = self._runner(plan, routes)
            runner.covered(covered_ms)
            return runner.due_ms()

        declared = self._new_task.declared
        self._tails.follow(
            plan,
            board,
            reports,
            held,
            run_tasks,
            due_ms if declared.acts_by_time else None,
            self._ends if declared.keeps_time else None,
        )

    def _enter_query(self, plan: WorkPlan) -> None:
        """Close the objects of an older query.

        Its environments may have been replaced since.
        """
        self._producers.enter_query(plan)
        if plan.query_number == self._query_number:
            for runner in self._runners.values():
                runner.begin_batch()
            return
        self._tails.close()
        self._close_tasks()
        for environment in self._environments.values():
            environment.close()
        self._environments, self._query_number = {}, plan.query_number

    def _close_tasks(self) -> None:
        # Forgotten first, so that none is closed twice.
        runners, self._runners = self._runners, {}
        for runner in runners.values():
            runner.close()
        self._open_tasks.clear()

    def _runner(self, plan: WorkPlan, routes: Sequence[int]) -> TaskRunner:
        first = routes[0]
        if first not in self._runners:
            self._open_tasks.note()
            config = plan.config
            self._runners[first] = TaskRunner(
                plan=plan,
                routes=routes,
                new_task=self._new_task,
                environment=self._environment(plan, plan.routes[first].environment_dir),
                limits=TransactionLimits(
                    duration_max_s=config.transaction_max_ms / 1000,
                    bytes_max=config.transaction_max_bytes,
                    now_s=time.monotonic,
                    wall_ms=lambda: time.time_ns() // 1_000_000,
                    boot_ms=lambda: boottime_ns() // 1_000_000,
                ),
                crash_points=self._crash_points,
                is_interrupted=lambda: self._interrupts.was_interrupted,
                threads=HostThreads(),
            )
        return self._runners[first]

    def _environment(self, plan: WorkPlan, directory: str) -> LmdbEnvironment:
        if directory not in self._environments:
            note_faults(faults_directory(Path(directory).parent.parent))
            self._environments[directory] = LmdbEnvironment(Path(directory), plan.config.stores, makes_it=False)
        return self._environments[directory]


def _task_of(plan: WorkPlan) -> Callable[[tuple[int, Any]], Sequence[int]]:
    """The routes of a run's task."""
    routes_of = {route: routes for routes in plan.tasks for route in routes}
    return lambda run: routes_of[run[0]]
