"""The tails of a running job, read from the files of its execution.

The container removes the reports of a micro-batch when the next one begins, so all of this is about the current one.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from integration_tests.support.job_process import JobProcess
from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.adapters.spark.tail_board import TailFile, TailOrder
from samzapy.testing.waiting import wait_until


class TailedBatch(NamedTuple):
    """A micro-batch whose workers tail.

    Attributes:
        in_rows: how many records the workers handled of the rows that Spark brought.
        in_tails: how many they have reported of those that they read by themselves.
    """

    query: int
    batch: int
    in_rows: int
    in_tails: int

    def is_of_order(self, other: TailedBatch) -> bool:
        return (self.query, self.batch) == (other.query, other.batch)


class Tails:
    """The tails of a job's current start. Args: job: asked each time; it may change."""

    def __init__(self, job: Callable[[], JobProcess]) -> None:
        self._job = job
        # Each keeps a descriptor open.
        self._files: dict[Path, TailFile] = {}

    def batch(self) -> TailedBatch | None:
        """The micro-batch, once its rows are handled and all its groups have a tail."""
        directory = self._job().scratch_dir()
        try:
            order = None if directory is None else self._order(directory)
            if directory is None or order is None:
                return None
            documents = list(_documents(directory, order))
        except (FileNotFoundError, json.JSONDecodeError):  # Being made, written or removed right now.
            return None
        return TailedBatch(
            order.query, order.batch, _records_in(documents, "rows"), _records_in(documents, "reports")
        )

    def _order(self, directory: Path) -> TailOrder | None:
        if not (directory / "tail").exists():
            return None
        file = self._file(directory)
        order = file.order()
        if not order.end_ns:
            return None
        counts = file.counts()
        groups = order.groups(counts)
        has_tails = counts.done == order.spark_tasks and groups and all(file.seen_ns(groups))
        return order if has_tails else None

    def end(self) -> None:
        """End the tails of the micro-batch, as the driver does for a grant or a release."""
        directory = self._job().scratch_dir()
        assert directory is not None
        self._file(directory).end()

    def _file(self, directory: Path) -> TailFile:
        if directory not in self._files:
            self._files[directory] = TailFile(directory)
        return self._files[directory]


def records_in_tails(scratch_dir: Path) -> int:
    """How many records the tails of the current micro-batch have reported so far."""
    try:
        return sum(_records_in(list(_documents_in(path)), "reports") for path in scratch_dir.glob("tail-*-*-*"))
    except (FileNotFoundError, json.JSONDecodeError):  # Being written or removed right now.
        return 0


@contextmanager
def standing_still(processes: Sequence[ProcessIdentity]) -> Iterator[None]:
    """Stop processes (SIGSTOP), as the kernel confirms, and continue them at the end."""
    stopped = [process for process in processes if process.send(signal.SIGSTOP)]
    try:
        for process in stopped:
            wait_until(lambda p=process: p.is_stopped() or not p.is_alive(), 10.0, "a process to stop")  # type: ignore[misc]
        yield
    finally:
        for process in stopped:
            process.send(signal.SIGCONT)


def _documents(directory: Path, order: TailOrder) -> Iterator[Any]:
    for path in sorted(directory.glob(f"tail-{order.query}-{order.batch}-*")):
        yield from _documents_in(path)


def _documents_in(path: Path) -> Iterator[Any]:
    text = path.read_text()
    # Lines begin with a new line, too.
    return (json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines() if line)


def _records_in(documents: Sequence[Any], name: str) -> int:
    return sum(report["records_in"] for document in documents for report in document.get(name, ()))
