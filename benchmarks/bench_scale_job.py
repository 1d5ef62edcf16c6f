"""A job of one or several containers that is scaled while it is looked at. For the parts of `scripts/bench scale`.

What it did is asked of its leader (`GET /metrics`), what it used is read out of /proc. Records that it is measured with
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
from bench_subjects import BIN, Place, Running, samzapy_job
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
        seed: of what is drawn at random.
    """

    servers: str
    directory: Path
    is_quick: bool
    seed: int = 1

    def sized(self, whole: int, quick: int) -> int:
        return quick if self.is_quick else whole


class Told:
    """What `/metrics` told at one moment."""

    def __init__(self, text: str) -> None:
        self._samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def total(self, name: str, **labels: str) -> float:
        """The sum over all series of a metric, or over those with these labels. `name` without `samzapy_`."""
        return sum(
            sample.value
            for sample in self._samples
            if sample.name == f"samzapy_{name}"
            and all(sample.labels.get(at) == value for at, value in labels.items())
        )

    def by(self, label: str, name: str) -> Mapping[str, float]:
        """A metric's value by one of its labels."""
        found: dict[str, float] = {}
        for sample in self._samples:
            if sample.name == f"samzapy_{name}":
                found[sample.labels[label]] = found.get(sample.labels[label], 0.0) + sample.value
        return found

    def by_task(self, name: str) -> Mapping[tuple[str, str], float]:
        """A metric of tasks, by processor and task."""
        return {
            (sample.labels["processor"], sample.labels["task"]): sample.value
            for sample in self._samples
            if sample.name == f"samzapy_{name}"
        }

    def mean(self, name: str, since: Told | None = None) -> float:
        """The mean of a summary, all its series together; 0 of nothing. `since`: of what came after that moment."""
        sums, counts = (
            self.total(f"{name}_{kind}") - (0.0 if since is None else since.total(f"{name}_{kind}"))
            for kind in ("sum", "count")
        )
        return sums / counts if counts else 0.0


class ScaledJob:
    """A job of `benchmarks/jobs/` and its containers. As a context manager it is gone on exit, with what it left on
    disk.

    Args:
        name: of the job; its input is `<name>-in`.
        cores: of each container.
        settings: over what every job here has.
        verb: what `samzapy` is asked to do with the file.
        own_stores: whether each container has local stores of its own, as on a host of its own.
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
        self._cores = cores
        self._settings = {**_SOON, **(settings or {})}
        self._containers: list[Running] = []
        self._port = 0
        remove_topics(ground.servers, but=[])
        make_topics(ground.servers, {self.input: partitions, OUTPUT: partitions})

    def start(self, containers: int = 1, **settings: str) -> float:
        """Start containers until there are as many, the first of which will lead; returns the time of the last start.

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
            )
            self._port = self._port or port
            self._containers.append(Running(subject, self._place(number)))
        return self._containers[-1].started_s

    def stop(self) -> None:
        """End all containers in good order; what they left on topics and disk stays."""
        while self._containers:
            self._containers.pop().end(_ENDS_WITHIN_S)
        self._port = 0

    def forget_local_state(self) -> None:
        """As after a move to another host: the next start builds it from the changelog."""
        shutil.rmtree(self.directory / "state", ignore_errors=True)

    def told(self) -> Told | None:
        """What the leader tells; None before there is one. Raises SamzapyError when a container has ended."""
        for container in self._containers:
            container.check_alive()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=_ASKED_WITHIN_S) as answer:
                found = Told(answer.read().decode())
        except OSError:
            return None
        return found if found.total("coordinator_leads") else None

    def wait_at_work(self, deadline_s: float = BEGINS_WITHIN_S) -> Told:
        """Until every task has an owner and every container has its share."""

        def is_at_work() -> Told | None:
            told = self.told()
            if told is None or not told.total("job_tasks") or told.total("job_tasks_without_owner"):
                return None
            held = told.by("processor", "container_tasks")
            shares = len(held) == len(self._containers) and all(held.values())
            return told if shares and sum(held.values()) == told.total("job_tasks") else None

        return wait_until(is_at_work, deadline_s, f"{self.name} to be at work; see {self.directory}")

    def handled(self) -> int:
        """Records handled, as far as heartbeats told."""
        told = self.told()
        return 0 if told is None else int(told.total("container_records_in_total"))

    def wait_handled(self, records: int, deadline_s: float = HANDLED_WITHIN_S) -> Told:
        """Until so many records are handled since the containers were started."""

        def is_handled() -> Told | None:
            told = self.told()
            return told if told and told.total("container_records_in_total") >= records else None

        return wait_until(is_handled, deadline_s, f"{self.name} to have handled {records} records")

    def scale(self, factor: int) -> Mapping[str, int]:
        """Change the factor and wait until that is done; returns the pause of each key bucket that had one, in ms."""
        told = self.ask("job", "scale", "--factor", str(factor), "--timeout", "120", "-o", "json")
        self.factor = factor
        pauses: Mapping[str, int] = json.loads(told)["pausesMs"]
        return pauses

    def ask(self, *arguments: str) -> str:
        """A command of `samzapy` about this job; what it prints. Raises SamzapyError when it fails."""
        command = [str(BIN / "samzapy"), *arguments, "--job", f"{self.name}-1"]
        command += ["--bootstrap-servers", self.ground.servers]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            what = " ".join(arguments)
            raise SamzapyError(f"{self.name}: {what} failed: {done.stderr.strip()}; see {self.directory}")
        return done.stdout

    def times_said(self, pattern: str) -> int:
        """How often what matches stands in the containers' logs."""
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
        """Write to the input; what was written becomes visible when the context ends. Gives how many."""
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
            self._say_last_words(error)

    def _say_last_words(self, error: BaseException) -> None:
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
    """What some records cost at one factor.

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
    """What it takes to handle `records`, once the job has come to `factor` and has nothing else to do."""
    if factor != job.factor:
        job.scale(factor)
    before = job.wait_at_work()
    with job.held_back(records) as count:
        began = wait_until(job.told, _ASKED_WITHIN_S, "the leader to answer")
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
    """`steps` forwards and backwards, `rounds` times: what drifts evenly favours none of them."""
    return [*steps, *reversed(steps)] * rounds


def _added(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in parts:
        for role, value in part.items():
            found[role] = found.get(role, 0.0) + value
    return found
