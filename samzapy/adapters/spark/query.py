"""The streaming query, with one Spark job per micro-batch.

It has a Kafka source, a route lookup, Python workers and reports. The direct path has one Spark partition per Kafka
partition, so the order per SSP is the order of the log. It is used while every task has one SSP and no SSP feeds
several tasks here.

Otherwise a shuffle brings the rows together by task: to one Spark partition per core, each with whole tasks, sorted by
(route, offset). The shuffle keeps the order of the rows of one Kafka partition, but not the order among partitions, and
it mixes the rows of several tasks. After the sort, each task's rows come in one piece, in the order of
`WorkPlan.routes`, with any timing.

Spark's checkpoint directory is scratch, and empty at each start (law L8): with an old one Spark would silently ignore
our starting offsets.
"""

from __future__ import annotations

import importlib
import json
import logging
import queue
import re
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from samzapy import errors
from samzapy.adapters.spark.arrow_bound import ArrowBound
from samzapy.adapters.spark.batch_tails import BatchTails, has_failed
from samzapy.adapters.spark.ends_file import EndsWriter
from samzapy.adapters.spark.exact_times import (
    EXACT,
    SPARKS_OWN,
    add_exact_source,
    is_of_a_time,
    may_be_of_a_time,
    time_column,
)
from samzapy.adapters.spark.keyhash import KeyhashCost
from samzapy.adapters.spark.lookup import is_ours, one_row_per_route, route_column, worker_column
from samzapy.adapters.spark.partitioning import repartition_by_id
from samzapy.adapters.spark.rows import REPORT_TYPE, as_text, headers_column, report_of
from samzapy.adapters.spark.tail_board import TailFile
from samzapy.config import Text, revealed
from samzapy.container.ports import BatchDone, EndsSeen, QueryEvent, QueryFailed
from samzapy.container.task.lookup_table import lookup_table
from samzapy.container.task.work_plan import Report, WorkPlan
from samzapy.errors import SamzapyError
from samzapy.model.job import TaskName
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition

_LOG = logging.getLogger(__name__)
# The last line of a Python traceback: not indented, an exception's name, a colon; of one without a text its name alone.
_ERROR_LINE = re.compile(r"(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failed)(?:\b.*: |$)")
_OUR_ERROR = re.compile(r"samzapy\.errors\.(\w+): ")
# "Caused by: package.Class: text", or py4j's ": package.Class: text"; a cause without a text is useless.
_JVM_CAUSE = re.compile(r"^(?:Caused by)?: (?:[\w.$]+\.)?([\w$]+: .+)$", re.MULTILINE)


SOURCE_OPTIONS = {
    # Spark's own consumers would wait for a full fetch, which only adds latency.
    "kafka.fetch.max.wait.ms": "10",
    # Spark asks for positions at each poll; with the default of 500 records that took a quarter of the reading time.
    "kafka.max.poll.records": "20000",
    "kafka.receive.buffer.bytes": str(1024 * 1024),
    # Otherwise a consumer creates its topic again after an operator has deleted it.
    "kafka.allow.auto.create.topics": "false",
    # Spark asks for offsets up to this often, each time with a new client, while a partition has no leader.
    "fetchOffset.numRetries": "10",
}
_TIME_OUTS = {
    # Java's admin client waits for a broker that has left the cluster until the time-out, 60 s by default, and no
    # record is read meanwhile. A fetch is of one partition, so 1 MiB, and takes much less than that.
    "kafka.request.timeout.ms": "5000",
    "kafka.default.api.timeout.ms": "5000",
}
"""The second may not be shorter than the first, so an operator's setting of either replaces both."""


FAILED_OF_A_TIME = (
    "a record has a time before 1900 or after the year 294246, which Spark's source for Kafka cannot read; the query "
    "restarts with a source that can"
)


def source_options(given: Mapping[str, str]) -> dict[str, str]:
    """Options of Spark's source for Kafka.

    They are ours, under the operator's, which begin with `kafka.`.
    """
    time_outs = {} if given.keys() & _TIME_OUTS.keys() else _TIME_OUTS
    return {**SOURCE_OPTIONS, **time_outs, **given}


def without_checkpoint(directory: Path) -> Path:
    """Remove the checkpoint of an earlier query from `directory`.

    Returns `directory` (invariant L8). With an old checkpoint Spark would ignore the start offsets and read from its
    own.
    """
    shutil.rmtree(directory, ignore_errors=True)
    return directory


class BatchFailedError(Exception):
    """Ends the query; the service has the reason already."""


class SparkQuery:
    """The query of a container (`container.ports.Query`).

    Args:
        worker_entry: dotted name of `(plan, batches) -> batches`, called in Python workers; the composition root
            of the workers, which this adapter does not know.
        kafka_options: options of Java's client, with the credentials (`java_properties`), without the `kafka.` prefix;
            they override the tuning here.
    """

    def __init__(
        self,
        session: SparkSession,
        *,
        worker_entry: str,
        bootstrap_servers: str,
        kafka_options: Mapping[str, Text],
        scratch_dir: Path,
    ) -> None:
        self._session = session
        self._worker_entry = worker_entry
        self._bootstrap_servers = bootstrap_servers
        self._kafka_options = kafka_options
        self._scratch_dir = scratch_dir
        self._query: StreamingQuery | None = None
        self._run: _Run | None = None
        self._warm_up_query: StreamingQuery | None = None
        self._keyhash = KeyhashCost()
        self._bound: ArrowBound | None = None
        self._source_format = SPARKS_OWN
        self._tail_file: TailFile | None = None
        self._ends = EndsWriter(scratch_dir)
        self._failed_start: QueryFailed | None = None

    def start(self, plan: WorkPlan, starts: Mapping[SspKeyBucket, int]) -> None:
        """Start reading at `starts`; the query before, if any, must have ended.

        A failure of the machine, such as a full disk, is an event of the query, so that it is retried like others.
        """
        self._failed_start = None
        try:
            self._start(plan, starts)
        except ConnectionError:
            raise  # The JVM is gone, and no other start has one.
        except (OSError, Py4JJavaError) as error:
            self._failed_start = _failed(reason_of(str(error)))

    def _start(self, plan: WorkPlan, starts: Mapping[SspKeyBucket, int]) -> None:
        self._end_warm_up()
        checkpoint_dir = without_checkpoint(self._scratch_dir / "checkpoint")
        self._bound = self._bound or ArrowBound.of(self._session, plan.slot_count)
        self._bound.begin(self._session)
        self._read_exact_times_if_needed()
        run = _Run(
            plan,
            self._worker_entry,
            checkpoint_dir,
            self._bound,
            self._source_format,
            self._tails(plan, starts),
        )
        self._run = run
        writer = run.reports(self._source(plan, first_offsets(starts)), starts).writeStream.foreachBatch(run.on_batch)
        if plan.config.batch_interval_ms:
            writer = writer.trigger(processingTime=f"{plan.config.batch_interval_ms} milliseconds")
        self._query = writer.option("checkpointLocation", str(checkpoint_dir)).start()
        if run.hashes_keys:
            self._keyhash.measure_once(self._session)

    def start_warm_up(self, plan: WorkPlan, ssp: SystemStreamPartition, offset: int) -> None:
        """Warm the query up: no route takes a record.

        This is like `start`, but the workers start and get no row.
        """
        self._end_warm_up()
        checkpoint_dir = without_checkpoint(self._scratch_dir / "warm-up")
        try:
            # With one input the lookup table does not look at the topic, and would take these for messages.
            none = self._source(plan, {ssp: offset}).where(F.col("topic") != F.lit(ssp.stream))
            rows = rows_by_task(none, plan, {route.ssp_kb: 0 for route in plan.routes}, self._source_format)
            # One partition is read, but every worker must start.
            work = worker_function(self._worker_entry, plan)
            reports = rows.repartition(plan.slot_count).mapInArrow(work, REPORT_TYPE)
            writer = reports.writeStream.foreachBatch(_collected).trigger(availableNow=True)
            self._warm_up_query = writer.option("checkpointLocation", str(checkpoint_dir)).start()
        except Exception as error:  # A failure here is harmless; the query itself would show its cause.
            _LOG.warning("query warm-up did not start: %s", reason_of(str(error)))

    def is_warming_up(self) -> bool:
        """Whether a warm-up is running."""
        if self._warm_up_query is None or self._warm_up_query.isActive:
            return self._warm_up_query is not None
        error = self._warm_up_query.exception()
        if error is not None:
            _LOG.warning("query warm-up failed: %s", reason_of(str(error)))
        self._warm_up_query = None
        return False

    def next_event(self, timeout_ms: int) -> QueryEvent | None:
        """The next event: a batch that ran to its end, or the end of the query.

        Returns None if there is none in time.
        """
        if self._failed_start is not None:
            return self._failed_start
        if self._run is None or self._query is None:
            return None
        try:
            return self._measured(self._run.events.get(timeout=timeout_ms / 1000))
        except queue.Empty:
            pass
        if self._run.poll_tails():
            return self._measured(self._run.events.get())
        if self._query.isActive or not self._run.events.empty():
            return None
        error = self._query.exception()
        return _failed("the query ended" if error is None else reason_of(str(error)))

    def _measured(self, event: QueryEvent) -> QueryEvent:
        assert self._run is not None
        if isinstance(event, BatchDone) and self._run.hashes_keys:
            return replace(event, keyhash_ns=self._keyhash.ns)
        return event

    def tick(self, tasks: Collection[TaskName]) -> bool:
        """Begin a tick, unless a micro-batch runs (`container.ports.Query`).

        It runs in a thread of its own.
        """
        return self._run is not None and self._query is not None and self._run.tick(self._session, tasks)

    def note_ends(self, seen: EndsSeen) -> None:
        """Give the workers the ends of the inputs (`container.ports.Query`)."""
        if self._run is not None:
            self._ends.write(self._run.query_number, seen)

    def must_restart(self) -> bool:
        """Whether a new query is to begin behind the tails, which are far ahead."""
        return self._run is not None and self._run.must_restart

    def batch_runs_ms(self) -> int:
        """For how long the rows of the current micro-batch have been in work.

        0 between two, during tails, and during a tick.
        """
        return 0 if self._run is None else self._run.rows_run_ms()

    def drain(self, timeout_ms: int) -> bool:
        """Let the running batch finish, start no other, and stop.

        Returns False if it did not finish in time.
        """
        self._end_warm_up()
        if self._run is None:
            return True
        self._run.end_early()
        finished = self._run.lock.acquire(timeout=timeout_ms / 1000)
        if finished:
            self._run.lock.release()
        self.stop()
        return finished

    def stop(self) -> None:
        """End the query now; a running batch is cancelled, not drained."""
        self._end_warm_up()
        if self._run is not None:
            self._run.end_early()
            self._run.cancel_tick(self._session)
        if self._query is not None:
            _stop(self._query)

    def _tails(self, plan: WorkPlan, starts: Mapping[SspKeyBucket, int]) -> BatchTails | None:
        if plan.tail is None:
            return None
        self._tail_file = self._tail_file or TailFile(self._scratch_dir)
        return BatchTails(
            plan,
            plan.tail,
            self._tail_file,
            first_offsets(starts),
            has_task_each=is_direct(plan),
            before=None if self._run is None else self._run.tails,
        )

    def _read_exact_times_if_needed(self) -> None:
        """Change to the exact source if the last batch failed because of a time.

        It may also have failed for another reason that Spark did not give.
        """
        if self._source_format == EXACT or self._run is None or not self._run.may_have_failed_of_a_time:
            return
        # Not in `scratch_dir / "spark"`, which is Spark's.
        add_exact_source(self._session, self._scratch_dir)
        self._source_format = EXACT
        _LOG.warning(
            "the query failed because of a record with a time before 1900 or after the year 294246 (for instance in "
            "nanoseconds), which Spark's source for Kafka cannot read, or for a reason that Spark did not give; from "
            "now on this container reads records with a source of its own"
        )

    def _end_warm_up(self) -> None:
        if self._warm_up_query is not None:
            _stop(self._warm_up_query)
            self._warm_up_query = None

    def _source(self, plan: WorkPlan, first: Mapping[SystemStreamPartition, int]) -> DataFrame:
        """The records of the partitions, each from its first offset on."""
        assign: dict[str, list[int]] = {}
        offsets: dict[str, dict[str, int]] = {}
        for ssp in sorted(first):
            assign.setdefault(ssp.stream, []).append(ssp.partition)
            offsets.setdefault(ssp.stream, {})[str(ssp.partition)] = first[ssp]
        given = {f"kafka.{name}": revealed(value) for name, value in sorted(self._kafka_options.items())}
        reader = self._session.readStream.format(self._source_format).options(**source_options(given))
        return (
            reader.option("kafka.bootstrap.servers", self._bootstrap_servers)
            .option("kafka.isolation.level", "read_committed")
            .option("assign", json.dumps(assign))
            .option("startingOffsets", json.dumps(offsets))
            .option("failOnDataLoss", "true")
            .option("includeHeaders", "true")
            .option("groupIdPrefix", f"samzapy-{plan.config.job}")
            .option("maxOffsetsPerTrigger", str(plan.batch_offsets_max))
            .load()
        )


class _TickJobs:
    """The Spark jobs of a query's ticks."""

    def __init__(self, plan: WorkPlan, worker_entry: str) -> None:
        # In the module of the entry.
        self._call = worker_function(f"{worker_entry.partition(':')[0]}:tick", plan)
        self._slot_count = plan.slot_count
        self._share_of = {
            plan.routes[routes[0]].task_name: number % plan.slot_count for number, routes in enumerate(plan.tasks)
        }
        self._group = f"samzapy-tick-{plan.query_number}"
        self._frames: dict[range, DataFrame] = {}
        self._count = 0

    def begin(self) -> int:
        """The number of the next tick."""
        self._count += 1
        return self._count

    def shares_of(self, tasks: Collection[TaskName]) -> range:
        """The one share that has all of `tasks`; all shares if there is no such one.

        Half of the cost of a tick with two shares is each share's Spark task.
        """
        # A query that reads bootstrap inputs, or tries a message alone, has a part of the tasks.
        shares = {self._share_of[task] for task in tasks if task in self._share_of}
        if len(shares) != 1:
            return range(self._slot_count)
        (share,) = shares
        return range(share, share + 1)

    def run(self, session: SparkSession, shares: range) -> tuple[Report, ...]:
        """Run one tick, and return the reports of its workers."""
        session.sparkContext.setJobGroup(self._group, "timers", interruptOnCancel=True)
        return tuple(map(report_of, self._frame_of(session, shares).collect()))

    def _frame_of(self, session: SparkSession, shares: range) -> DataFrame:
        """A row for each share, its number, and the worker's reports of it.

        It is made once, so that a tick has nothing to plan.
        """
        if shares not in self._frames:
            numbers = session.range(shares.start, shares.stop, 1, len(shares))
            self._frames[shares] = numbers.mapInArrow(self._call, REPORT_TYPE)
        return self._frames[shares]

    def cancel(self, session: SparkSession) -> None:
        """Cancel the tick that runs, if there is one."""
        if self._count:
            session.sparkContext.cancelJobGroup(self._group)


class _Run:
    """One start of the query, with the state of its batch callback."""

    def __init__(
        self,
        plan: WorkPlan,
        worker_entry: str,
        checkpoint_dir: Path,
        bound: ArrowBound,
        source_format: str = SPARKS_OWN,
        tails: BatchTails | None = None,
    ) -> None:
        self.draining = threading.Event()
        self.lock = threading.Lock()
        # No SimpleQueue: after a signal whose handler outlasts the time limit, its `get` waits for ever (CPython 3.11).
        self.events: queue.Queue[QueryEvent] = queue.Queue()
        # When the current micro-batch started. Not of a tick: smaller micro-batches would make it no shorter.
        self._begun_ns: int | None = None
        self.tails = tails
        self.hashes_keys = hashes_keys(plan)
        self.query_number = plan.query_number
        self._plan = plan
        self._call_worker = worker_function(worker_entry, plan)
        self._tick_jobs = _TickJobs(plan, worker_entry)
        self._checkpoint_dir = checkpoint_dir
        self._bound = bound
        self._source_format = source_format
        self.may_have_failed_of_a_time = False
        self.must_restart = False

    def reports(self, source: DataFrame, starts: Mapping[SspKeyBucket, int]) -> DataFrame:
        """The query from the source's records to the workers' reports.

        It is part of the query, not of the batch callback: planned in the callback, it cost the JVM and the driver
        together 200 ms of CPU more per batch.
        """
        rows = rows_by_task(source, self._plan, starts, self._source_format)
        return rows.mapInArrow(self._call_worker, REPORT_TYPE)

    def on_batch(self, frame: DataFrame, batch_id: int) -> None:
        """Run one micro-batch.

        A callback that finds the drain flag returns at once and counts as not run.
        """
        with self.lock:
            if self.draining.is_set():
                return
            self._begun_ns = begun_ns = time.monotonic_ns()
            try:
                self._bound.apply(frame.sparkSession)
                self._begin_tails(batch_id)
                rows = frame.collect()
                reports = tuple(map(report_of, rows))
            except Exception as error:
                raise self._failed(error) from None
            finally:
                self._begun_ns = None
            if rows:
                self._bound.ended(max(row["row_bytes"] for row in rows))
            done = BatchDone(
                reports=reports,
                offsets_end=self._offsets_end(batch_id),
                duration_ns=time.monotonic_ns() - begun_ns,
            )
            self._finish(done)

    def _finish(self, done: BatchDone) -> None:
        """Report a micro-batch that ran to its end.

        Where its tails have read far ahead, no other begins: the next query begins behind them.
        """
        if self.tails is None:
            self._put((done,))
            return
        self._put(self.tails.finish(done))
        if self.tails.is_far_ahead:
            self.must_restart = True
            self.end_early()

    def tick(self, session: SparkSession, tasks: Collection[TaskName]) -> bool:
        """Begin a tick; False while a micro-batch runs, and once the query is to end.

        Its Spark job reads no input, and holds the lock of micro-batches. It ends when its tails end.
        """
        if not self.lock.acquire(blocking=False):
            return False
        # Under the lock: the micro-batch that held it until now may have failed.
        if self.draining.is_set():
            self.lock.release()
            return False
        number = self._tick_jobs.begin()
        # The tails of a tick are of all tasks.
        shares = self._tick_jobs.shares_of(tasks if self.tails is None else ())
        threading.Thread(target=self._tick, args=(session, number, shares), name="tick", daemon=True).start()
        return True

    def _tick(self, session: SparkSession, number: int, shares: range) -> None:
        begun_ns = time.monotonic_ns()
        try:
            if self.tails is not None:
                self.tails.begin_tick(number)
                if self.draining.is_set():
                    # As in `_begin_tails`.
                    self.tails.end()
            reports = self._tick_jobs.run(session, shares)
            done = BatchDone(
                reports=reports, offsets_end={}, duration_ns=time.monotonic_ns() - begun_ns, is_tick=True
            )
            self._finish(done)
        except Exception as error:  # As for a micro-batch: the query ends by it.
            self._failed(error)
        finally:
            self.lock.release()

    def cancel_tick(self, session: SparkSession) -> None:
        """Cancel the tick that runs, if there is one."""
        self._tick_jobs.cancel(session)

    def _begin_tails(self, batch_id: int) -> None:
        if self.tails is None:
            return
        self.tails.begin(batch_id, self._offsets_end(batch_id))
        if self.draining.is_set():
            # `end_early` came before the order.
            self.tails.end()

    def _failed(self, error: Exception) -> BatchFailedError:
        """Report the error of a micro-batch or a tick, and begin no other.

        The query's own exception is this one in three wrappers.
        """
        # A worker may have died between Kafka's commit and the local one. Another worker would go on from the local
        # state before it, and commit the same messages and timers again. The next start brings the state level.
        self.draining.set()
        if self.tails is not None:
            self.tails.fail()
        text = str(error)
        if self._source_format != EXACT:
            self.may_have_failed_of_a_time = may_be_of_a_time(text)
        is_certain = self.may_have_failed_of_a_time and is_of_a_time(text)
        reason = FAILED_OF_A_TIME if is_certain else self._bound.failed(text) or reason_of(text)
        self.events.put(_failed(reason))
        # The text is short, because Spark searches it with a pattern that recurses: with a worker's traceback
        # in it, the JVM's stack has overflowed.
        return BatchFailedError(reason)

    def _put(self, events: Sequence[QueryEvent]) -> None:
        if has_failed(events):
            self.end_early()
        for event in events:
            self.events.put(event)

    def poll_tails(self) -> bool:
        """Look for events of tails. Returns True if there are any."""
        events = () if self.tails is None else self.tails.poll()
        self._put(events)
        return bool(events)

    def rows_run_ms(self) -> int:
        """For how long the rows of the current micro-batch have been in work.

        0 during a tick, which has none.
        """
        begun_ns = self._begun_ns
        if begun_ns is None or (self.tails is not None and self.tails.rows_are_done()):
            return 0
        return (time.monotonic_ns() - begun_ns) // 1_000_000

    def end_early(self) -> None:
        """Begin no other micro-batch, and end the tails of the current one."""
        self.draining.set()
        self._end_tails()

    def _end_tails(self) -> None:
        if self.tails is not None:
            self.tails.end()

    def _offsets_end(self, batch_id: int) -> Mapping[SystemStreamPartition, int]:
        """The end offsets of the batch, from Spark's own write-ahead log.

        Spark writes it before the batch runs.
        """
        *_, source = (self._checkpoint_dir / "offsets" / str(batch_id)).read_text().splitlines()
        by_topic: dict[str, dict[str, int]] = json.loads(source)
        system = self._plan.routes[0].ssp_kb.ssp.system
        return {
            SystemStreamPartition(system, topic, int(partition)): offset
            for topic, partitions in sorted(by_topic.items())
            for partition, offset in sorted(partitions.items())
        }


def first_offsets(starts: Mapping[SspKeyBucket, int]) -> Mapping[SystemStreamPartition, int]:
    """The offset to read each partition from: the first start of its key buckets."""
    first: dict[SystemStreamPartition, int] = {}
    for ssp_kb, offset in starts.items():
        first[ssp_kb.ssp] = min(offset, first.get(ssp_kb.ssp, offset))
    return first


def hashes_keys(plan: WorkPlan) -> bool:
    """Whether the route of a record depends on its key.

    It does if a route or a floor is a part of a partition.
    """
    parts = [route.ssp_kb for route in plan.routes]
    parts += [floor.ssp_kb for route in plan.routes for floor in route.floors]
    return any(ssp_kb.factor > 1 for ssp_kb in parts)


def rows_by_task(
    source: DataFrame, plan: WorkPlan, starts: Mapping[SspKeyBucket, int], source_format: str = SPARKS_OWN
) -> DataFrame:
    """The source's records for the workers, with their routes.

    All rows of a task are in one Spark partition.

    Args:
        source: columns of Spark's Kafka source; the rows of one Kafka partition in one Spark partition, in order.
        source_format: the format of `source` (`exact_times`).
    """
    table = lookup_table([route.start_at(starts[route.ssp_kb]) for route in plan.routes])
    rows = source.select(
        route_column(table).alias("route"),
        F.col("offset"),
        as_text("key"),
        as_text("value"),
        time_column(source_format).alias("timestamp_ms"),
        headers_column(),
    ).where(is_ours(F.col("route")))
    if is_direct(plan):
        return rows
    worker = worker_column(plan.tasks, plan.slot_count)
    shuffled = repartition_by_id(one_row_per_route(rows, table), plan.slot_count, worker)
    return shuffled.sortWithinPartitions("route", "offset")


def _collected(frame: DataFrame, _: int) -> None:
    try:
        frame.collect()
    except Exception as error:
        # As in `_Run.on_batch`: a long text kills Spark's thread, and a wait for its end would never return.
        raise BatchFailedError(reason_of(str(error))) from None


def _stop(query: StreamingQuery) -> None:
    try:
        query.stop()
    except Exception as error:  # Spark's stop may raise any error that the query failed with.
        _LOG.debug("stopping a query: %s", error)


def is_direct(plan: WorkPlan) -> bool:
    """Whether tasks and Kafka partitions belong together one by one.

    Each task reads one partition, and each partition is read by one task.
    """
    ssps = {route.ssp_kb.ssp for route in plan.routes}
    return len(ssps) == len(plan.routes) == len(plan.tasks)


def worker_function(entry: str, plan: WorkPlan) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function that Spark sends to its workers.

    It is small, and imports the function that it calls. A function that is sent by value takes a copy of its module's
    globals along, so everything that is kept between batches must live in an imported module.
    """
    module, _, name = entry.partition(":")

    def call(batches: Iterable[Any]) -> Iterator[Any]:
        yield from getattr(importlib.import_module(module), name)(plan, batches)

    return call


def _failed(reason: str) -> QueryFailed:
    return QueryFailed(reason=reason, kind=kind_of(reason))


def kind_of(reason: str) -> type[SamzapyError]:
    """The class of the error that a query failed with, if it was one of ours.

    It is read from the text, because Spark only passes on the text of a worker's error.
    """
    matched = _OUR_ERROR.match(reason)
    kind = None if matched is None else getattr(errors, matched[1], None)
    return kind if isinstance(kind, type) and issubclass(kind, SamzapyError) else SamzapyError


def reason_of(text: str) -> str:
    """The one line of Spark's text that has the reason of a query's failure.

    For an error in a Python worker it is the last line of its traceback, before the JVM's own trace. For an error in
    the JVM it is the innermost cause with a text. The whole text goes to the log at debug level.
    """
    _LOG.debug("the query failed: %s", text)
    python_part = re.split(r"\n\s+at [\w.$]+\(", text.strip(), maxsplit=1)[0]
    lines = [line.strip() for line in python_part.splitlines() if _ERROR_LINE.match(line)]
    if lines:
        return lines[-1]
    causes = _JVM_CAUSE.findall(text)
    return causes[-1].strip() if causes else text.strip().partition("\n")[0]
