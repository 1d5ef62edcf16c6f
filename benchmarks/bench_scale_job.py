"""A job of one or more containers that is scaled and measured.

Its leader is asked for its work (`GET /metrics`), its resources are read out of /proc. Records that it is measured with
are written in a transaction that is committed when the measuring begins: writing them costs a core, and a
`read_committed` job sees them all at one moment.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from bench_input import bulk_producer, remove_topics, send
from bench_measure import cpu_of, memory_of, tree_of
from bench_subjects import BIN, Place, Running, environment_of, samzapy_job
from prometheus_client.parser import text_string_to_metric_families

from samzapy.errors import SamzapyError
from samzapy.testing.ports import free_port
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until

OUTPUT = "bench-output"
BEGINS_WITHIN_S = 240.0
HANDLED_WITHIN_S = 300.0
_ASKED_WITHIN_S = 5.0
_ENDS_WITHIN_S = 60.0
# Joins and leaves are planned for at once; figures are as new as half a second.
_SOON = {
    "job.debounce.time.ms": "1000",
    "job.processor.grace.ms": "2000",
    "job.container.heartbeat.ms": "500",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where and how a part is measured.

    Attributes:
        servers: the broker; empty for a part that needs none.
        is_quick: small sizes, to see that it works; the figures mean nothing.
        seed: of random choices.
    """

    servers: str
    directory: Path
    is_quick: bool
    seed: int = 1

    def sized(self, whole: int, quick: int) -> int:
        return quick if self.is_quick else whole


class Metrics:
    """The samples of `/metrics` at one moment."""

    def __init__(self, text: str) -> None:
        self._samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def total(self, name: str, **labels: str) -> float:
        """The sum over a metric's series with these labels. `name` without `samzapy_`."""
        return sum(
            sample.value
            for sample in self._samples
            if sample.name == f"samzapy_{name}"
            and all(sample.labels.get(at) == value for at, value in labels.items())
        )

    def by(self, label: str, name: str) -> Mapping[str, float]:
        """A metric's value by one of its labels."""
        values: dict[str, float] = {}
        for sample in self._samples:
            if sample.name == f"samzapy_{name}":
                values[sample.labels[label]] = values.get(sample.labels[label], 0.0) + sample.value
        return values

    def by_task(self, name: str) -> Mapping[tuple[str, str], float]:
        """A metric of tasks, by processor and task."""
        return {
            (sample.labels["processor"], sample.labels["task"]): sample.value
            for sample in self._samples
            if sample.name == f"samzapy_{name}"
        }

    def mean(self, name: str, since: Metrics | None = None) -> float:
        """The mean of a summary over all its series, after `since`; 0 without samples."""
        sums, counts = (
            self.total(f"{name}_{kind}") - (0.0 if since is None else since.total(f"{name}_{kind}"))
            for kind in ("sum", "count")
        )
        return sums / counts if counts else 0.0


class ScaledJob:
    """A job of `benchmarks/jobs/` and its containers. On exit its data is removed.

    Args:
        name: of the job; its input is `<name>-in`.
        cores: of each container.
        settings: over those of every job here.
        verb: the command of `samzapy` that gets the file.
        own_stores: whether each container has local stores of its own, as on a host of its own.
        declares: whether the file declares its streams.
    """

    def __init__(
        self,
        ground: Ground,
        name: str,
        job_file: str,
        *,
        partitions: int,
        cores: int = 2,
        settings: Mapping[str, str] | None = None,
        verb: Sequence[str] = ("run",),
        own_stores: bool = False,
        declares: bool = False,
    ) -> None:
        self.ground = ground
        self.name = name
        self.input = f"{name}-in"
        self.partitions = partitions
        self.factor = 1
        self.directory = ground.directory / name
        self._job_file = job_file
        self._verb = verb
        self._own_stores = own_stores
        self._declares = declares
        self._cores = cores
        self._settings = {**_SOON, **(settings or {})}
        self._containers: list[Running] = []
        self._port = 0
        remove_topics(ground.servers, but=[])
        make_topics(ground.servers, {self.input: partitions, OUTPUT: partitions})

    def start(self, containers: int = 1, **settings: str) -> float:
        """Start containers up to a count; the first leads. Returns the last start's time.

        Args:
            settings: of those that are started now, with underscores for dots.
        """
        more = {name.replace("_", "."): value for name, value in settings.items()}
        while len(self._containers) < containers:
            number = len(self._containers)
            port = free_port()
            subject = samzapy_job(
                self.name,
                self._job_file,
                {
                    **self._settings,
                    **more,
                    "processor.id": f"p{number}",
                    "local.store.dir": str(self.directory / "state" / (f"p{number}" if self._own_stores else "")),
                    "job.coordinator.port": str(port),
                },
                verb=self._verb,
                declares=self._declares,
            )
            self._port = self._port or port
            place = self._place(number)
            self._containers.append(Running(subject, place, environment_of(place)))
        return self._containers[-1].started_s

    def stop(self) -> None:
        """End all containers in order; their topics and files stay."""
        while self._containers:
            self._containers.pop().end(_ENDS_WITHIN_S)
        self._port = 0

    def forget_local_state(self) -> None:
        """As after a move to another host: the next start builds it from the changelog."""
        shutil.rmtree(self.directory / "state", ignore_errors=True)

    def metrics(self) -> Metrics | None:
        """The leader's metrics; None without one. Raises SamzapyError: a container ended."""
        for container in self._containers:
            container.check_alive()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=_ASKED_WITHIN_S) as answer:
                metrics = Metrics(answer.read().decode())
        except OSError:
            return None
        return metrics if metrics.total("coordinator_leads") else None

    def wait_at_work(self, deadline_s: float = BEGINS_WITHIN_S) -> Metrics:
        """Until every task has an owner and every container has its share."""

        def is_at_work() -> Metrics | None:
            metrics = self.metrics()
            if metrics is None or not metrics.total("job_tasks") or metrics.total("job_tasks_without_owner"):
                return None
            held = metrics.by("processor", "container_tasks")
            shares = len(held) == len(self._containers) and all(held.values())
            return metrics if shares and sum(held.values()) == metrics.total("job_tasks") else None

        return wait_until(is_at_work, deadline_s, f"{self.name} to be at work; see {self.directory}")

    def disk_mib(self) -> float:
        """The local state of all tasks on disk."""
        metrics = self.metrics()
        return 0.0 if metrics is None else metrics.total("task_disk_usage_bytes") / (1 << 20)

    def handled(self) -> int:
        """Records handled, by the heartbeats."""
        metrics = self.metrics()
        return 0 if metrics is None else int(metrics.total("container_records_in_total"))

    def wait_handled(self, records: int, deadline_s: float = HANDLED_WITHIN_S) -> Metrics:
        """Until so many records are handled since the containers were started."""

        def is_handled() -> Metrics | None:
            metrics = self.metrics()
            return metrics if metrics and metrics.total("container_records_in_total") >= records else None

        return wait_until(is_handled, deadline_s, f"{self.name} to have handled {records} records")

    def scale(self, factor: int) -> Mapping[str, int]:
        """Change the factor and wait for it; returns the pauses of key buckets, in ms."""
        answer = self.ask("job", "scale", "--factor", str(factor), "--timeout", "120", "-o", "json")
        self.factor = factor
        pauses: Mapping[str, int] = json.loads(answer)["pausesMs"]
        return pauses

    def ask(self, *arguments: str) -> str:
        """The output of a command of `samzapy` about this job. Raises SamzapyError."""
        command = [str(BIN / "samzapy"), *arguments, "--job", f"{self.name}-1"]
        command += ["--bootstrap-servers", self.ground.servers]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            command_line = " ".join(arguments)
            raise SamzapyError(f"{self.name}: {command_line} failed: {done.stderr.strip()}; see {self.directory}")
        return done.stdout

    def count_in_logs(self, pattern: str) -> int:
        """How often the pattern matches in the containers' logs."""
        return sum(len(re.findall(pattern, path.read_text(errors="replace"))) for path in self._logs())

    def cpu_s(self) -> Mapping[str, float]:
        """CPU seconds so far, by role, of all containers."""
        return _added(cpu_of(tree_of(container.pid)) for container in self._containers)

    def memory_mib(self, kind: str = "Pss") -> Mapping[str, float]:
        """Memory by role, of all containers; `kind` as of `memory_of`."""
        return _added(memory_of(tree_of(container.pid), kind) for container in self._containers)

    def write(self, records: Iterable[tuple[bytes, bytes]], partition: int = -1) -> int:
        """Write to the input, visible at once; returns how many."""
        return send(bulk_producer(self.ground.servers), self.input, records, partition)

    @contextmanager
    def held_back(self, records: Iterable[tuple[bytes, bytes]]) -> Iterator[int]:
        """Write to the input, visible after the context; returns the count of records."""
        producer = bulk_producer(
            self.ground.servers, transactional_id=f"bench-{uuid.uuid4().hex}", transaction_timeout_ms=600_000
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        yield send(producer, self.input, records)
        producer.commit_transaction(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if error is None:
            shutil.rmtree(self.directory, ignore_errors=True)
        else:
            self._add_log_end(error)

    def _add_log_end(self, error: BaseException) -> None:
        for path in self._logs():
            error.add_note(f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-15:]))

    def _logs(self) -> Sequence[Path]:
        return sorted(self.directory.glob("*/*.log"))

    def _place(self, number: int) -> Place:
        return Place(
            servers=self.ground.servers,
            topic=self.input,
            output=OUTPUT,
            partitions=self.partitions,
            directory=self.directory / f"p{number}",
            name=self.name,
            offsets_max=int(self._settings.get("task.batch.offsets.max", "200000")),
            cores=self._cores,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The cost of some records at one factor.

    Attributes:
        batch_s: the time of the micro-batches, on the container where it was longest.
        read: offsets that containers read for each record handled.
    """

    factor: int
    records: int
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    batch_s: float = 0.0
    read: float = 1.0

    @property
    def cpu_s_per_million(self) -> float:
        return sum(self.cpu_s.values()) * 1e6 / self.records

    @property
    def per_s(self) -> float:
        return self.records / self.batch_s


def measure_phase(job: ScaledJob, factor: int, records: Iterable[tuple[bytes, bytes]]) -> Phase:
    """The cost of `records` for an idle job with `factor`."""
    if factor != job.factor:
        job.scale(factor)
    before = job.wait_at_work()
    with job.held_back(records) as count:
        began = wait_until(job.metrics, _ASKED_WITHIN_S, "the leader to answer")
        cpu_before_s = job.cpu_s()
    done = job.wait_handled(int(before.total("container_records_in_total")) + count)
    cpu_s = job.cpu_s()
    took_s = done.by("processor", "container_batch_seconds_total")
    took_before_s = began.by("processor", "container_batch_seconds_total")
    name = "container_offsets_read_total"
    return Phase(
        factor=factor,
        records=count,
        cpu_s={role: cpu_s[role] - cpu_before_s[role] for role in cpu_s},
        batch_s=max(took_s[processor] - took_before_s[processor] for processor in took_s),
        read=(done.total(name) - began.total(name)) / count,
    )


def there_and_back(steps: Sequence[int], rounds: int) -> list[int]:
    """`steps` forwards and backwards, `rounds` times: an even drift favours none."""
    return [*steps, *reversed(steps)] * rounds


def _added(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for part in parts:
        for role, value in part.items():
            sums[role] = sums.get(role, 0.0) + value
    return sums
