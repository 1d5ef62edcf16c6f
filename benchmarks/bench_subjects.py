"""Subjects of the benchmark: how each is started, how far it is, how it is ended.

Progress of everything on Spark is read off its checkpoint directory: a file under `commits/` means that the batch ran
to its end (for samzapy: that all its transactions are committed), the file of the same number under `offsets/` says
where. So nothing is asked of the subject, and at the moment of a look no batch is in flight.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench_measure import Look, cpu_of, tree_of

from samzapy.adapters.host.scratch import scratch_directories
from samzapy.adapters.spark.query import SOURCE_OPTIONS
from samzapy.adapters.spark.session import SETTINGS as SESSION_SETTINGS
from samzapy.errors import DeadlineError, SamzapyError

ROOT = Path(__file__).resolve().parent.parent
JOBS = ROOT / "benchmarks" / "jobs"
BIN = Path(sys.executable).parent
LOOK_EVERY_S = 0.02
_QUIET = ("--conf", "spark.log.level=ERROR", "--conf", "spark.ui.showConsoleProgress=false")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a run works: the broker, its topics, a directory of its own."""

    servers: str
    topic: str
    output: str
    partitions: int
    directory: Path
    name: str
    offsets_max: int
    cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A measured program: its name in the table, its command, its checkpoint."""

    name: str
    command: Callable[[Place], Sequence[str]]
    checkpoint: Callable[[Place], Path | None]
    prints_progress: bool = False
    """Prints its progress instead."""


def samzapy_job(
    name: str,
    job: str,
    settings: Mapping[str, str] | None = None,
    *,
    verb: Sequence[str] = ("run",),
    declares: bool = False,
) -> Subject:
    """A job of `benchmarks/jobs/`.

    Args:
        verb: the command of `samzapy` for its file.
        declares: whether the file declares its streams, by the names in `environment_of`.
    """

    def command(place: Place) -> Sequence[str]:
        properties = {
            "job.name": place.name,
            **({} if declares else {"task.inputs": f"kafka.{place.topic}"}),
            "systems.kafka.bootstrap.servers": place.servers,
            "task.batch.offsets.max": str(place.offsets_max),
            "local.store.dir": str(place.directory / "state"),
            **(settings or {}),
        }
        config = ["--config", str(JOBS / ("declared.properties" if declares else "bench.properties"))]
        return [
            str(BIN / "samzapy"),
            *verb,
            str(JOBS / job),
            *config,
            *_repeated("--set", properties),
            "--master",
            f"local[{place.cores}]",
        ]

    def checkpoint(place: Place) -> Path | None:
        # The directory of a dead execution is removed when the next one starts: the living one has the newest.
        checkpoints = sorted(
            (checkpoint_path for path in scratch_directories() for checkpoint_path in path.glob("checkpoint")),
            key=lambda checkpoint_path: checkpoint_path.stat().st_mtime,
        )
        return next((path for path in reversed(checkpoints) if _owned_by(path.parent, place)), None)

    return Subject(name=name, command=command, checkpoint=checkpoint)


def environment_of(place: Place) -> Mapping[str, str]:
    """The names of the topics for a job whose file declares its streams."""
    return {"BENCH_TOPIC": place.topic, "BENCH_OUTPUT": place.output}


def _owned_by(scratch: Path, place: Place) -> bool:
    """Whether this scratch directory is of the run's job, and not of another one."""
    try:
        _, pid, _ = (scratch / "owner").read_text().split()
        return f"job.name={place.name}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return False


def plain_spark(
    name: str, title: str, *, source_is_ours: bool = False, session_is_ours: bool = False, compression: str = "lz4"
) -> Subject:
    """Spark alone, with its defaults or samzapy's settings."""

    def command(place: Place) -> Sequence[str]:
        session = {"spark.ui.enabled": "false"}
        if session_is_ours:
            session = {**SESSION_SETTINGS, "spark.sql.adaptive.enabled": "false"}
        source = SOURCE_OPTIONS if source_is_ours else {}
        return [
            *(str(BIN / "spark-submit"), *_QUIET, *_repeated("--conf", session)),
            *("--master", f"local[{place.cores}]"),
            *(str(JOBS / "plain_spark.py"), title, "--servers", place.servers, "--topic", place.topic),
            *("--output", place.output, "--checkpoint", str(_plain_checkpoint(place, session_is_ours))),
            *("--offsets-max", str(place.offsets_max), *_repeated("--source-option", source)),
            *_repeated("--sink-option", {"kafka.compression.type": compression}),
        ]

    return Subject(name=name, command=command, checkpoint=lambda place: _plain_checkpoint(place, session_is_ours))


def _repeated(option: str, settings: Mapping[str, str]) -> list[str]:
    return [part for key, value in settings.items() for part in (option, f"{key}={value}")]


def _plain_checkpoint(place: Place, in_memory: bool) -> Path:
    """On disk as a user would have it; with our settings in memory, as ours is."""
    memory = Path(f"/dev/shm/samzapy-bench-{os.getuid()}")  # on purpose
    return (memory if in_memory else place.directory) / f"checkpoint-{place.name}"


def plain_client(name: str) -> Subject:
    def command(place: Place) -> Sequence[str]:
        return [
            *(sys.executable, str(JOBS / "plain_client.py"), "--servers", place.servers, "--topic", place.topic),
            *("--partitions", str(place.partitions), "--output", place.output),
            *("--transaction", str(place.offsets_max // place.partitions)),
        ]

    return Subject(name=name, command=command, checkpoint=lambda place: None, prints_progress=True)


class Running:
    """A subject at work."""

    def __init__(self, subject: Subject, place: Place, environment: Mapping[str, str] | None = None) -> None:
        self._subject = subject
        self._place = place
        place.directory.mkdir(parents=True, exist_ok=True)
        self.log_path = place.directory / f"{place.name}.log"
        self.started_s = time.monotonic()
        with self.log_path.open("wb") as log:
            self._child = subprocess.Popen(
                list(subject.command(place)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
                    "PYSPARK_PYTHON": sys.executable,
                    **(environment or {}),
                },
                start_new_session=True,
            )
        self._tree: dict[int, str] = {}
        self._tree_at_s = 0.0
        self._checkpoint: Path | None = None
        self._batch = -1
        self._log_read = 0

    @property
    def pid(self) -> int:
        return self._child.pid

    def tree(self) -> Mapping[int, str]:
        """The living processes, listed at most every half second, because that is slow."""
        if time.monotonic() - self._tree_at_s > 0.5:
            self._tree, self._tree_at_s = tree_of(self._child.pid), time.monotonic()
        return self._tree

    def looks(self, records_total: int, deadline_s: float, first_offsets: int = 0) -> Iterator[Look]:
        """A look at each batch end until `records_total` are done."""
        records = 0
        while records < records_total:
            done = self._records_done()
            if done is not None and done - first_offsets > records:
                records = done - first_offsets
                self._tree_at_s = 0.0
                at_s = time.monotonic()
                yield Look(at_s=at_s, records=records, cpu_s=cpu_of(self.tree()))
                continue
            self.check_alive()
            if time.monotonic() - self.started_s > deadline_s:
                raise DeadlineError(
                    f"{self._subject.name}: {records} of {records_total} records; see {self.log_path}"
                )
            time.sleep(LOOK_EVERY_S)

    def check_alive(self) -> None:
        """Raises SamzapyError, with the end of its log, if it has ended by itself."""
        if self._child.poll() is not None:
            last = self.log_path.read_text(errors="replace").splitlines()[-20:]
            raise SamzapyError("\n".join([f"{self._subject.name} ended with {self._child.returncode}:", *last]))

    def _records_done(self) -> int | None:
        if self._subject.prints_progress:
            return self._records_printed()
        self._checkpoint = self._checkpoint or self._subject.checkpoint(self._place)
        checkpoint = self._checkpoint
        if checkpoint is None:
            return None
        batch = self._batch
        while (checkpoint / "commits" / str(batch + 1)).exists():
            batch += 1
        if batch == self._batch:
            return None
        self._batch = batch
        return offsets_sum((checkpoint / "offsets" / str(batch)).read_text())

    def _records_printed(self) -> int | None:
        with self.log_path.open() as log:
            log.seek(self._log_read)
            text = log.read()
        done, newline, _ = text.rpartition("\n")
        self._log_read += len(done) + len(newline)
        counts = [line.split()[1] for line in done.splitlines() if line.startswith("records ")]
        return int(counts[-1]) if counts else None

    def end(self, patience_s: float = 15.0) -> None:
        """Ends every process of it, by force after `patience_s`; removes its files."""
        tree = tree_of(self._child.pid) if self._child.poll() is None else {}
        self._child.send_signal(signal.SIGTERM)
        try:
            self._child.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait(15)
        time.sleep(0.5)
        for pid in tree:
            if pid != self._child.pid and _is_of_session(pid, self._child.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for in_memory in (False, True):
            shutil.rmtree(_plain_checkpoint(self._place, in_memory), ignore_errors=True)


def offsets_sum(offsets_file: str) -> int:
    """The sum of the end offsets in a file of `offsets/`: the records read from 0 on."""
    by_topic = json.loads(offsets_file.splitlines()[-1])
    return sum(offset for partitions in by_topic.values() for offset in partitions.values())


def _is_of_session(pid: int, leader: int) -> bool:
    try:
        return os.getsid(pid) == leader
    except ProcessLookupError:
        return False


@contextmanager
def running(subject: Subject, place: Place, environment: Mapping[str, str] | None = None) -> Iterator[Running]:
    process = Running(subject, place, environment)
    try:
        yield process
    finally:
        process.end()
