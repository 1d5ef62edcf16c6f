"""A run of the ledger tests: a feed, a watching reader, a job, and all rules.

The job is `jobs/running_sums.py`, or another `Subject` that does more. A run owns its broker. Its steps: `start`,
faults of the test's choosing, `finish`.
"""

from __future__ import annotations

import json
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import lmdb
import xxhash
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from integration_tests.support import coordinator_audit as audit
from integration_tests.support.job_process import LONG_DRAIN, JobProcess
from integration_tests.support.ledger import (
    Fed,
    Feed,
    Ledger,
    Output,
    Place,
    Position,
    Violation,
    check_outputs,
    check_positions,
    check_readers,
    check_state,
    output_of,
    sums_of,
    value_of,
)
from integration_tests.support.tails import records_in_tails
from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.adapters.host.scratch import scratch_directories
from samzapy.adapters.kafka.errors import translate
from samzapy.coordinator.assignment.grants import owners
from samzapy.coordinator.replay import replay
from samzapy.errors import DeadlineError, TemporaryError
from samzapy.stream.codec import decode
from samzapy.stream.log import LogRecord
from samzapy.stream.records import ContainerPut, Record
from samzapy.testing.broker import DevBroker
from samzapy.testing.broker_cluster import DevCluster
from samzapy.testing.topics import grow_topic, make_topics
from samzapy.testing.waiting import wait_until

T = TypeVar("T")

JOBS = Path(__file__).parent / "jobs"
INPUT, OUTPUT, OUTPUT_WITHOUT_KEY = "fed", "sums", "without-key"
PARTITIONS = 4
Inputs = Mapping[str, int]
"""Partition counts by topic."""
_BY_KEY = -1
_NOT_NOW = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
# A job that ends by itself this often in a row is not being disturbed, it is broken.
_ENDS_IN_A_ROW_MAX = 4
_ANSWERS_WITHIN_S = 300.0
_LOOKS_MIN = 15
_MOVES_WITHIN_S = 30.0
_LAG_MAX, _LAG_MAX_S = 12_000, 40
_LOOK_FOR_TAILS_EVERY_S = 1.0

PROBE = b"probe"
"""Key and value of the last record of each partition at the end; no record of a job."""
TAILS = {"task.batch.interval.ms": "0", "task.batch.offsets.max": "20000", "task.tail.ms": "10000"}
"""Overrides of a run whose workers tail, again and again for up to ten seconds; see `await_work`."""


class Seen(NamedTuple):
    """A record of an output, as a consumer gives it."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


Topics = Mapping[tuple[str, int], Sequence[Seen]]
"""The records of topics, by topic and partition."""


class Subject:
    """The job under test, its further inputs, and the rules for it at the end.

    This one is `jobs/running_sums.py`. Another one extends it: it answers each fed record once too, to `sums` or
    `without-key`, and has the same sums in a store of this name.

    Attributes:
        name: of the job, `job.name-job.id`.
        topics: its topics beside the ledger's inputs, with partition counts.
        answers: where its answers to fed records come out.
        outputs: all its outputs.
        stores: their names.
    """

    file = JOBS / "running_sums.py"
    name = "running-sums-1"
    topics: ClassVar[Inputs] = {}
    answers: ClassVar[Inputs] = {OUTPUT: PARTITIONS, OUTPUT_WITHOUT_KEY: 1}
    outputs: ClassVar[Inputs] = answers
    stores: Sequence[str] = ("sums",)

    def feed(self, bootstrap_servers: str) -> None:
        """Begin to feed the inputs that the ledger does not feed."""

    def stop(self) -> None:
        """End that; all of it is acknowledged when this returns."""

    def close(self) -> None:
        """End it where it is."""

    def is_settled(self, run: LedgerRun) -> bool:
        """Whether nothing comes out any more, now that all fed records were answered."""
        return True

    def unsettled(self, run: LedgerRun) -> str:
        """The missing outputs, for the error of a run that does not settle."""
        return ""

    def check(self, run: LedgerRun, outputs: Topics) -> Iterator[Violation]:
        """Rules A to E of the outputs, and rule H of state. Args: outputs: all of them."""
        answers: list[Output] = []
        for (topic, number), records in sorted(outputs.items()):
            for record in records if topic in self.answers else ():
                try:
                    place = Place(topic, number, record.offset)
                    answers.append(output_of(place, record.key, record.value, record.headers))
                except ValueError as error:
                    yield Violation("B", str(error))
        yield from check_outputs(run.ledger, answers)
        # Without records in doubt the ledger is the whole truth.
        assert not run.ledger.maybe, f"{len(run.ledger.maybe)} records were never acknowledged"
        yield from run.check_keyed_store("sums", sums_of({*run.ledger.acked}))

    def summary(self) -> str:
        """The fed records, for the log; empty if there is nothing to add."""
        return ""


class Feeder:
    """Feeds the inputs at a pace, idempotently; the ledger notes acknowledgements.

    All records of a key go to one of the topics, so that they are in order.
    """

    def __init__(self, bootstrap_servers: str, ledger: Ledger, seed: int, inputs: Inputs) -> None:
        self._feed = Feed(seed)
        self._inputs = inputs
        self._ledger = ledger
        self._producer = feeding_producer(bootstrap_servers)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, records_per_s: float, lag: Callable[[], int], lag_max: int) -> None:
        """Feed until `stop`: at this pace, but wait while `lag` is above `lag_max`."""
        arguments = (records_per_s, lag, lag_max)
        self._thread = threading.Thread(target=self._run, args=arguments, name="feeder", daemon=True)
        self._thread.start()

    def feed_now(self, count: int, key: str | None = None) -> None:
        """Feed records at once, and wait for acknowledgements; not beside `start`.

        Args:
            key: of each of them; by default the feed chooses.
        """
        for _ in range(count):
            self._send(self._feed.next() if key is None else self._feed.next_of(key))
        flush(self._producer)

    def expand(self, topic: str, partitions: int) -> None:
        """One of the topics has more partitions now, which the producer notices by itself."""
        self._inputs = {**self._inputs, topic: partitions}

    def close(self) -> None:
        """End the feed where it is."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def pause(self) -> None:
        """End the feed without its last records; all acknowledged when this returns."""
        self.close()
        if self._error is not None:
            raise self._error
        flush(self._producer)

    def stop(self) -> None:
        """End the feed with one record per partition, with a key of its own each."""
        self.pause()
        for place in _partitions(self._inputs):
            self._send(self._feed.next_of(sentinel(*place)), place)
        flush(self._producer)

    def _run(self, records_per_s: float, lag: Callable[[], int], lag_max: int) -> None:
        try:
            paid_at_s, due = time.monotonic(), 0.0
            while not self._ended.wait(0.01):
                now_s = time.monotonic()
                due = 0.0 if lag() > lag_max else due + (now_s - paid_at_s) * records_per_s
                paid_at_s = now_s
                for _ in range(int(due)):
                    self._send(self._feed.next())
                due -= int(due)
                self._producer.poll(0)
        except BaseException as error:
            self._error = error

    def _send(self, fed: Fed, place: tuple[str, int] | None = None) -> None:
        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                place = Place(message.topic(), message.partition(), message.offset())
                self._ledger.acknowledged(fed, place)

        topics = sorted(self._inputs)
        topic, partition = topics[0], 0
        if place is not None:
            topic, partition = place
        elif fed.key is not None:
            topic, partition = topics[zlib.crc32(fed.key.encode()) % len(topics)], _BY_KEY
        self._ledger.sent(fed)
        while True:
            try:
                self._producer.produce(topic, value_of(fed), fed.key, partition, on_delivery=delivered)
                return
            except BufferError:
                self._producer.poll(0.1)


def feeding_producer(bootstrap_servers: str) -> Producer:
    """One whose records are all there in the end, each once and in order."""
    return Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 50,
            # No record is given up while the broker is away.
            "message.timeout.ms": 600_000,
            # A broker that does not have the log of a new partition yet refuses a request, and may take the one behind
            # it as the first: seen, and a refused record is then taken for a duplicate, so it is lost without an error.
            "max.in.flight.requests.per.connection": 1,
            "reconnect.backoff.max.ms": 500,
            # New partitions are used before the job takes them in, and a while after they were made.
            "topic.metadata.refresh.interval.ms": 1000,
            "logger": _Quiet(),
        }
    )


def flush(producer: Producer) -> None:
    """Wait until all that was fed is acknowledged."""
    left = producer.flush(60)
    assert left == 0, f"{left} fed records were not acknowledged within 60 s"


def sentinel(topic: str, partition: int) -> str:
    """The key of a partition's last record."""
    return f"the-last-of-{topic}-{partition}"


def _partitions(inputs: Inputs) -> list[tuple[str, int]]:
    return [(topic, number) for topic in sorted(inputs) for number in range(inputs[topic])]


class Watcher:
    """Reads the outputs along, read_committed, through all faults.

    Attributes:
        seen: the records of each output.
        arrivals_s: when answers of each output partition arrived, by `time.monotonic`; once for those that arrived
            together.
        keys: those of all outputs.
    """

    def __init__(self, bootstrap_servers: str, subject: Subject) -> None:
        places = _partitions(subject.outputs)
        self.seen: dict[tuple[str, int], list[Seen]] = {place: [] for place in places}
        self.arrivals_s: dict[tuple[str, int], list[float]] = {place: [] for place in _partitions(subject.answers)}
        self.keys: set[bytes | None] = set()
        self._answers = subject.answers
        self._consumer = Consumer(_reader_settings(bootstrap_servers))
        self._consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in places])
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self._thread.start()

    def count(self) -> int:
        """How many answers were seen so far."""
        self.check()
        return sum(len(records) for (topic, _), records in self.seen.items() if topic in self._answers)

    def check(self) -> None:
        """Let a run end at once that has no watcher any more."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()
        self.check()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                arrived = set[tuple[str, int]]()
                for message in self._consumer.consume(1000, 0.1):
                    _check(message)
                    if message.error() is None:
                        topic, partition = message.topic(), message.partition()
                        assert topic is not None and partition is not None
                        self.seen[topic, partition].append(_seen(message))
                        self.keys.add(message.key())
                        arrived.add((topic, partition))
                now_s = time.monotonic()
                for place in arrived & self.arrivals_s.keys():
                    self.arrivals_s[place].append(now_s)
        except BaseException as error:
            self._error = error


@dataclass(slots=True)
class Figures:
    """The counts of a run, for the log."""

    seed: int
    records: int = 0
    records_per_s: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    hit_open_transactions: int = 0
    in_tails: int = 0
    """Records that the first tail seen had reported then."""
    starts: int = 0
    ended_by_itself: list[int] = field(default_factory=list)
    runtime_s: float = 0.0


class LedgerRun:
    """One run: broker, job, feed, watcher. A job that ends is started again.

    Args:
        inputs: the inputs of the job, as in its configuration.
        task_count: into how many tasks the job's configuration makes of them, with factor 1.
        subject: the job.
        broker: one that runs; by default the run starts its own. It is killed at the end in any case.
    """

    def __init__(
        self,
        directory: Path,
        *,
        seed: int,
        inputs: Inputs = {INPUT: PARTITIONS},  # noqa: B006  # no code writes to it
        task_count: int = PARTITIONS,
        environment: Mapping[str, str] | None = None,
        overrides: Mapping[str, str] | None = None,
        subject: Subject | None = None,
        broker: DevBroker | DevCluster | None = None,
    ) -> None:
        self.directory = directory
        self.seed = seed
        self.subject = subject or Subject()
        self.inputs = self.inputs_at_start = inputs
        self.task_count = task_count
        self.factor = 1
        self.broker = broker or DevBroker(directory / "broker")
        self.broker.start()
        self._make_topics()
        self.ledger = Ledger()
        self.feeder = Feeder(self.broker.bootstrap_servers, self.ledger, seed, inputs)
        self.watcher = Watcher(self.broker.bootstrap_servers, self.subject)
        self.figures = Figures(seed)
        self._begun_s = self._fed_since_s = time.monotonic()
        self._ends_in_a_row = 0
        self._seen_at_last_end = 0
        self._killed = False
        self._overrides = dict(overrides or {})
        self._environment = dict(environment or {})
        self.job = self.another_job("job")

    def another_job(
        self,
        log_dir: str,
        *,
        overrides: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        spark_options: Sequence[str] = ("--master", "local[2]"),
        command: Sequence[str] = ("run",),
    ) -> JobProcess:
        """The same job in another set of processes, not started yet."""
        return JobProcess(
            self.subject.file,
            log_dir=self.directory / log_dir,
            overrides={
                "systems.kafka.bootstrap.servers": self.broker.bootstrap_servers,
                **self._where_state_is(),
                **LONG_DRAIN,
                **self._overrides,
                **(overrides or {}),
            },
            spark_options=spark_options,
            environment={"SAMZAPY_TEST": "1", **self._environment, **(environment or {})},
            command=command,
        )

    def _where_state_is(self) -> Mapping[str, str]:
        return {"local.store.dir": str(self.directory / "state")}

    def feed(self, records_per_s: float, lag_max: int | None = None) -> None:
        """Start the feed. It waits for a job that is far behind.

        Args:
            lag_max: in records; by default those of 40 s, longer than the restart of a query takes.
        """
        lag_max = max(_LAG_MAX, int(_LAG_MAX_S * records_per_s)) if lag_max is None else lag_max
        self._fed_since_s = time.monotonic()
        self.feeder.start(records_per_s, lambda: len(self.ledger.acked) - self.watcher.count(), lag_max)
        self.subject.feed(self.broker.bootstrap_servers)

    def expand(self, topic: str, partitions: int) -> None:
        """Give an input more partitions, while it is fed and read."""
        grow_topic(self.broker.bootstrap_servers, topic, partitions)
        self.inputs = {**self.inputs, topic: partitions}
        self.feeder.expand(topic, partitions)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.feeder.close()
        self.subject.close()
        self.job.kill_everything()
        self.watcher.close()
        self.broker.kill()

    def compact_eagerly(self) -> None:
        """Let the cleaner compact checkpoints and changelog within seconds."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        eager = {"segment.ms": "3000", "min.cleanable.dirty.ratio": "0.01"}
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in eager.items()
        ]
        topics = [self.checkpoint, *map(self.changelog, self.subject.stores)]
        resources = [ConfigResource("topic", topic, incremental_configs=entries) for topic in topics]
        for done in admin.incremental_alter_configs(resources).values():
            done.result(30)

    def keep_running(self) -> None:
        """Start the job if it is not running; complain when it keeps ending by itself."""
        if self.job.is_running():
            return
        code = self.job.exit_code()
        if code is not None and not self._killed:
            self.figures.ended_by_itself.append(code)
            has_worked = self.watcher.count() > self._seen_at_last_end
            self._ends_in_a_row = 1 if has_worked else self._ends_in_a_row + 1
            self._seen_at_last_end = self.watcher.count()
            assert self._ends_in_a_row < _ENDS_IN_A_ROW_MAX, (
                f"the job ended by itself {self._ends_in_a_row} times in a row, at last with {code}:\n"
                f"{self.job.log_text()[-4000:]}"
            )
        self._killed = False
        self.job.start()

    def fault(self, kind: str, hit_open_transaction: bool = False) -> None:
        """Note a fault that was proven to have happened."""
        self.figures.faults[kind] = self.figures.faults.get(kind, 0) + 1
        self.figures.hit_open_transactions += hit_open_transaction

    def was_killed(self) -> None:
        """To be called when the next end of the job is the test's doing."""
        self._killed = True

    def wait(
        self, condition: Callable[[], T | None], deadline_s: float, what: str, *, poll_interval_s: float = 0.05
    ) -> T:
        """`wait_until`, with the job kept running meanwhile."""

        def asked() -> T | None:
            self.keep_running()
            self.watcher.check()
            return condition()

        try:
            return wait_until(asked, deadline_s, what, poll_interval_s=poll_interval_s)
        except Exception as error:
            error.add_note(f"seed {self.seed}; the end of the job's log:\n{self.job.log_text()[-4000:]}")
            raise

    def await_work(self, *, in_tails: bool) -> None:
        """Wait for the first output, and with `in_tails` for the first report of a tail.

        A run of `TAILS` in which no tail handled a record would prove nothing of tails.
        """
        self.wait(lambda: self.watcher.count() > 0 or None, _ANSWERS_WITHIN_S, "the first output")
        if in_tails:
            self.figures.in_tails = self.wait(
                self._records_in_tails,
                _ANSWERS_WITHIN_S,
                "a tail to handle records",
                poll_interval_s=_LOOK_FOR_TAILS_EVERY_S,
            )

    def _records_in_tails(self) -> int:
        """The count of records that the tails of the current micro-batches have reported."""
        executions = {record.container.execution_id for record in self.stream() if isinstance(record, ContainerPut)}
        return sum(records_in_tails(path) for path in scratch_directories() if path.name in executions)

    def finish(self) -> list[Violation]:
        """End the feed, wait for its last outputs, stop the job, and apply all rules."""
        self.subject.stop()
        self.feeder.stop()
        self.figures.records_per_s = round(len(self.ledger.acked) / (time.monotonic() - self._fed_since_s), 1)
        last = {sentinel(*place).encode() for place in _partitions(self.inputs)}
        self.wait(
            lambda: last <= self.watcher.keys, _ANSWERS_WITHIN_S, "the last record of each partition to come out"
        )
        self.wait(lambda: self._is_level() or None, _ANSWERS_WITHIN_S, "the job to have written all its positions")
        self.wait_until_settled()
        violations = [*self._check_owners()]
        self._stop()
        violations += self._orphans()
        self.watcher.close()
        violations += self._check_outputs()
        violations += self._check_positions()
        violations += self._check_coordinator()
        violations += self._open_transactions()
        self.figures.records = len(self.ledger.acked)
        self.figures.starts = self.job.starts
        self.figures.runtime_s = round(time.monotonic() - self._begun_s, 1)
        return violations

    def wait_until_settled(self) -> None:
        """Wait for the outputs after the answers.

        Raises:
            DeadlineError: its note says which are missing.
        """
        try:
            self.wait(
                lambda: self.subject.is_settled(self) or None, _ANSWERS_WITHIN_S, "the outputs after the answers"
            )
        except DeadlineError as error:
            error.add_note(self._unsettled())
            raise

    def _unsettled(self) -> str:
        """The missing outputs, and whether an open transaction or the watcher hides them."""
        text = self.subject.unsettled(self)
        unseen = {
            f"{topic}-{number}": len(self.read(topic, number, isolation="read_uncommitted")) - len(records)
            for (topic, number), records in self.watcher.seen.items()
        }
        text += f"; records or aborted records that the watcher has not seen: {unseen}"
        return text + "; ".join(["", *map(str, self._open_transactions())])

    # --- the rules that ask the broker and the machine ---

    def _check_outputs(self) -> Iterator[Violation]:
        afterwards = {(topic, number): self.read(topic, number) for topic, number in self.watcher.seen}
        yield from check_readers(self.watcher.seen, afterwards)
        yield from self.subject.check(self, afterwards)

    def _check_positions(self) -> Iterator[Violation]:
        in_force = self._in_force()
        yield from check_positions(self._positions(), self._ends(in_force), in_force)

    def _positions(self) -> list[Position]:
        schemas = audit.schemas()
        positions = []
        for record in self.read(self.checkpoint, 0):
            assert record.key is not None
            if record.value is None:
                continue  # A position of a factor that is no more.
            value = audit.decode(record.value, schemas)
            kind = record.key.decode().partition("/")[0]
            positions.append(Position(record.offset, kind, value["ssp_kb"], value["offset_next"], value["epoch"]))
        return positions

    def _is_level(self) -> bool:
        """Whether all readers of every input partition have committed up to its end."""
        reached: dict[str, tuple[int, int]] = {}
        for position in self._positions():
            # Progress may be written behind a checkpoint that is further.
            reached[position.ssp_kb] = max(
                (position.epoch, position.offset_next), reached.get(position.ssp_kb, (0, 0))
            )
        in_force = self._in_force()
        ends = self._ends(in_force)
        return all(reached.get(ssp_kb, (0, 0))[1] == ends[audit.Bucket.of(ssp_kb).ssp] for ssp_kb in in_force)

    def _in_force(self) -> list[str]:
        """The SSPKbs of the plan in force, those of broadcast inputs too."""
        return [ssp_kb for positions in self._audit().planned_positions().values() for ssp_kb in positions]

    def _ends(self, in_force: Sequence[str]) -> dict[str, int]:
        """The end of each input partition, also of inputs that the ledger does not feed."""
        ssps = {audit.Bucket.of(ssp_kb).ssp for ssp_kb in in_force}
        ssps |= {f"kafka.{topic}.{number}" for topic, number in _partitions(self.inputs)}
        places = {ssp: ssp.removeprefix("kafka.").rsplit(".", 1) for ssp in sorted(ssps)}
        return {ssp: self._end(topic, int(number)) for ssp, (topic, number) in places.items()}

    def check_keyed_store(self, store: str, wanted: Mapping[str, int]) -> Iterator[Violation]:
        """Rule H for a store of numbers by key, in which nothing is ever removed."""
        changelog: dict[str, int] = {}
        for key, value in self.changelog_records(store):
            assert value is not None, key
            changelog[_message_key(key)] = json.loads(value)
        stores: dict[str, int] = {}
        planned = self.planned_buckets()
        # Beside the tasks there are the kept ids of processors, under a name with a dot, and the state of tasks of
        # other factors left; a store that was made of another may hold more than its task's keys.
        for task_name in sorted(planned):
            bucket = audit.Bucket.of(planned[task_name][0])
            entries = self.local_entries(task_name, store)
            held = {_message_key(key): json.loads(value) for key, value in entries.items()}
            held = {
                key: value
                for key, value in held.items()
                if xxhash.xxh64_intdigest(key.encode(), seed=42) % bucket.factor == bucket.bucket
            }
            for twice in sorted(held.keys() & stores.keys()):
                yield Violation("H", f"{twice} is in the stores of two tasks, one of them {task_name}")
            stores |= held
        yield from check_state(wanted, changelog, stores)

    def planned_buckets(self) -> Mapping[str, list[str]]:
        """The tasks of the plan in force, and their SSPKbs."""
        return self._audit().planned_buckets()

    def changelog_records(self, store: str) -> Iterator[tuple[bytes, bytes | None]]:
        """All entries of a store's changelog, by compaction key, each partition in order."""
        for number in range(self.task_count):
            for record in self.read(self.changelog(store), number):
                assert record.key is not None
                yield record.key, record.value

    def local_entries(self, task_name: str, store: str) -> Mapping[bytes, bytes]:
        """A task's local store by changelog key, read without samzapy's own store."""
        directories = (self.directory / "state" / self.subject.name / task_name).iterdir()
        newest = max((path for path in directories if path.name.isdigit()), key=lambda path: int(path.name))
        with (
            lmdb.open(str(newest), max_dbs=8, readonly=True, lock=False) as environment,
            environment.begin() as transaction,
        ):
            entries = environment.open_db(store.encode(), transaction, create=False)
            # The first byte distinguishes whole keys from digests; the first eight of a value are its checksum.
            return {key[1:]: value[8:] for key, value in transaction.cursor(entries)}

    def _check_owners(self) -> Iterator[Violation]:
        """The owners of tasks at this moment."""
        yield from self._check_owners_of(self.read(self.coordinator, 0))

    def _check_owners_of(self, stream: Sequence[Seen]) -> Iterator[Violation]:
        """The owners of tasks: the auditor's answer and that of samzapy's own fold.

        Args:
            stream: one reading of the stream, so that a change of owners is no disagreement.
        """
        audited = self._audit(stream).owners()
        records = [
            LogRecord(offset=r.offset, timestamp_ms=0, key=r.key, value=r.value, headers=r.headers) for r in stream
        ]
        state = replay(records, topic=self.coordinator).state
        folded = {name: grant.execution_id for name, grant in owners(state).items()}
        if audited != folded or len(audited) != self.task_count * self.factor:
            yield Violation("I", f"the auditor finds the owners {audited}, samzapy {folded}")

    def _check_coordinator(self) -> Iterator[Violation]:
        for complaint in self._audit().finish():
            yield Violation("I", complaint)

    def _audit(self, stream: Sequence[Seen] | None = None) -> audit.Audit:
        read = self.read(self.coordinator, 0) if stream is None else stream
        records = [audit.Audited(r.offset, r.key or b"", r.value, r.headers) for r in read]
        return audit.Audit().read(records)

    def _open_transactions(self) -> Iterator[Violation]:
        """Rule J: a plain record of each partition becomes readable, so none hides it."""
        changelogs = {self.changelog(store): self.task_count for store in self.subject.stores}
        own = _partitions({self.coordinator: 1, self.checkpoint: 1, **changelogs})
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers, "logger": _Quiet()})
        probes: dict[tuple[str, int], int] = {}

        def delivered(error: KafkaError | None, message: Any) -> None:
            assert error is None, error
            probes[message.topic(), message.partition()] = message.offset()

        for topic, number in [*_partitions(self.subject.outputs), *own]:
            producer.produce(topic, PROBE, PROBE, number, on_delivery=delivered)
        assert producer.flush(60) == 0
        for (topic, number), offset in sorted(probes.items()):
            if not self._becomes_readable(topic, number, offset, 5.0):
                yield Violation("J", f"{topic}-{number}: a plain record at {offset} is hidden by an open transaction")

    def _becomes_readable(self, topic: str, number: int, offset: int, within_s: float) -> bool:
        with self._consumer([TopicPartition(topic, number, offset)]) as consumer:
            give_up_at_s = time.monotonic() + within_s
            polls = 0
            # Where this process or the broker stalls, the time may be over after a look or two.
            while polls < _LOOKS_MIN or time.monotonic() < give_up_at_s:
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    return True
                polls += 1
        return False

    def _stop(self) -> None:
        self.was_killed()
        code = self.job.terminate()
        assert 0 == code, f"wanted SIGTERM to end the job with 0, found {code}:\n{self.job.log_text()[-4000:]}"

    def _orphans(self) -> Iterator[Violation]:
        """Rule K: no process of any start, and no scratch directory of any execution."""
        try:
            self.job.wait_gone(60)
        except Exception as error:
            yield Violation("K", str(error))
        for execution in self._audit().phases:
            if any(path.name == execution for path in scratch_directories()):
                yield Violation("K", f"the scratch directory of {execution} was left behind")

    # --- reading ---

    def _make_topics(self) -> None:
        make_topics(self.broker.bootstrap_servers, {**self.inputs, **self.subject.topics, **self.subject.outputs})

    @property
    def coordinator(self) -> str:
        return f"__samzapy-coordinator-{self.subject.name}"

    @property
    def checkpoint(self) -> str:
        return f"__samzapy-checkpoint-{self.subject.name}"

    def changelog(self, store: str) -> str:
        return f"__samzapy-changelog-{self.subject.name}-{store}"

    def _end(self, topic: str, number: int) -> int:
        with self._consumer([], {"isolation.level": "read_uncommitted"}) as consumer:
            place, give_up_at_s = TopicPartition(topic, number), time.monotonic() + _MOVES_WITHIN_S
            while True:
                try:
                    return int(consumer.get_watermark_offsets(place, timeout=10, cached=False)[1])
                except KafkaException as error:
                    # The partition has a new leader, or none yet, and the client has not heard of it.
                    if not isinstance(translate(error, "asking"), TemporaryError) or time.monotonic() > give_up_at_s:
                        raise

    def read(self, topic: str, number: int, *, start: int = 0, isolation: str = "read_committed") -> list[Seen]:
        """All committed records of a partition, which has no open transaction any more.

        Args:
            start: an offset that is there.
            isolation: `read_uncommitted` gives open and aborted records too, and waits for no transaction.
        """
        end, records = self._end(topic, number), list[Seen]()
        settings = {"enable.partition.eof": True, "isolation.level": isolation}
        with self._consumer([TopicPartition(topic, number, start)], settings) as consumer:
            give_up_at_s = time.monotonic() + 60
            while end > start:
                assert time.monotonic() < give_up_at_s, f"{topic}-{number} could not be read to {end}"
                for message in consumer.consume(5000, 0.2):
                    error = message.error()
                    if error is not None and error.code() == KafkaError._PARTITION_EOF:
                        if (message.offset() or 0) >= end:
                            return records
                        continue
                    _check(message)
                    if error is None:
                        records.append(_seen(message))
        return records

    def stream(self) -> list[object]:
        """The coordinator stream; nothing before the first process has made it."""
        return [record for _, record in self.stream_by_offset()]

    def stream_by_offset(self) -> list[tuple[int, Record]]:
        """`stream`, with the offset of each record."""
        try:
            records = self.read(self.coordinator, 0)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:
                return []
            raise
        return [
            (
                seen.offset,
                decode(
                    LogRecord(
                        offset=seen.offset, timestamp_ms=0, key=seen.key, value=seen.value, headers=seen.headers
                    ),
                    topic=self.coordinator,
                ),
            )
            for seen in records
        ]

    @contextmanager
    def _consumer(
        self, at: Sequence[TopicPartition], settings: Mapping[str, Any] | None = None
    ) -> Iterator[Consumer]:
        consumer = Consumer({**_reader_settings(self.broker.bootstrap_servers), **(settings or {})})
        try:
            consumer.assign(list(at))
            yield consumer
        finally:
            consumer.close()


def stopped_worker(job: JobProcess) -> tuple[ProcessIdentity, bool] | None:
    """A stopped worker in a slot, and whether its transaction is open.

    It is stopped, so that it dies in the state that the slot shows.
    """
    for slot in job.slots():
        # While it recovers, the driver holds all slots.
        workers = () if slot.holder is None else job.workers()
        worker = next((worker for worker in workers if worker.pid == slot.holder), None)
        if worker is None or not worker.send(signal.SIGSTOP):
            continue
        wait_until(lambda w=worker: w.is_stopped() or not w.is_alive(), 10.0, "the worker to stop")  # type: ignore[misc]
        if worker.is_alive():
            return worker, any(seen.is_open and seen.holder == worker.pid for seen in job.slots())
    return None


def stopped_in_a_transaction(job: JobProcess) -> ProcessIdentity | None:
    """The same, if its transaction is open; else the worker continues."""
    stopped = stopped_worker(job)
    if stopped is not None and not stopped[1]:
        stopped[0].send(signal.SIGCONT)
    return stopped[0] if stopped is not None and stopped[1] else None


def _reader_settings(bootstrap_servers: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "ledger-reader",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "reconnect.backoff.max.ms": 500,
        "fetch.wait.max.ms": 100,
        "logger": _Quiet(),
    }


def _seen(message: Any) -> Seen:
    return Seen(message.offset(), message.key(), message.value(), tuple(message.headers() or ()))


def _check(message: Any) -> None:
    error = message.error()
    if error is not None and error.code() not in _NOT_NOW and not error.retriable():
        raise AssertionError(f"reading {message.topic()}-{message.partition()}: {error}")


def owner_and_name(key: bytes) -> tuple[str, bytes]:
    """The owner and the name of a changelog key's entry.

    The key has a length of one byte, the owner (a message's key, or a task's name), and the name.
    """
    length = key[0]
    assert length < 0x80 and len(key) >= 1 + length, key
    return key[1 : 1 + length].decode(), key[1 + length :]


def _message_key(key: bytes) -> str:
    """The message's key in a changelog key; the default entry has no name."""
    owner, name = owner_and_name(key)
    assert name == b"", key
    return owner


class _Quiet:
    """Takes librdkafka's log lines: brokers come and go here."""

    def log(self, *_: object) -> None:
        pass
