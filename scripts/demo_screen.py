"""The progress of the demo: a bar on a terminal, plain lines where there is none.

(A rich progress bar prints nothing at all without a terminal.)
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

FLIGHTS = 336_776
_LINE_EVERY_S = 2.0
_STARTING_LINE_EVERY_S = 10.0
_RATE_OVER_S = 5.0
_ANSWER_WITHIN_S = 2.0
_STARTING = "Spark starts, which takes 10 to 20 s"


@dataclass(frozen=True, slots=True)
class Runner:
    """The container that all tasks of a processor are at work in."""

    execution_id: str
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The figures of `GET /status`.

    `lag` and `ends` (the inputs' ends, summed) are None until they are known. `records_out` counts the records of the
    containers that run, since each began. `partitions` are those of the inputs that a task reads. `runners` has, by
    processor, the container in which all its tasks work.
    """

    records_in: int
    records_out: int
    lag: int | None
    ends: int | None
    partitions: int = 0
    runners: Mapping[str, Runner] = field(default_factory=dict)

    def has_read(self, count: int) -> bool:
        """Whether the inputs hold `count` records and all are processed and committed."""
        return self.lag == 0 and self.ends is not None and self.ends >= count


def ask_status(url: str) -> Status | None:
    """`GET /status`; None while no coordinator answers as the leader."""
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_WITHIN_S) as answer:
            return parse_status(json.load(answer))
    except (urllib.error.URLError, OSError, ValueError):
        return None


def parse_status(body: Any) -> Status:
    """The figures of an answer.

    Positions count when every task has some; before that, a sum would be too small.
    """
    tasks, lag = body["tasks"], body["totals"]["lag"]
    # Several tasks may share a partition, each with its part of the keys.
    ends = {
        position["ssp"].partition(":")[0]: position["offsetEnd"] for task in tasks for position in task["positions"]
    }
    is_known = bool(tasks) and all(task["positions"] for task in tasks) and None not in ends.values()
    end = sum(ends.values()) if is_known else None
    # The counts of a container are lost with it; positions stay.
    is_whole = body["factorFinest"] == 1 and end is not None and lag is not None
    return Status(
        records_in=end - lag if is_whole else body["totals"]["recordsIn"],
        records_out=body["totals"]["recordsOut"],
        lag=lag,
        ends=end,
        partitions=len(ends),
        runners=_runners(body),
    )


def _runners(body: Any) -> Mapping[str, Runner]:
    """The container of each processor: a task is at work where it has positions."""
    running = {row["executionId"]: row["host"] for row in body["containers"] if row["phase"] == "RUNNING"}
    owners: dict[str, set[str]] = {}
    for task in body["tasks"]:
        has_ends = all(position["offsetEnd"] is not None for position in task["positions"])
        owner = task["owner"] if has_ends and task["owner"] in running else ""
        owners.setdefault(task["processorId"], set()).add(owner)
    runners = {processor_id: of.pop() for processor_id, of in sorted(owners.items()) if len(of) == 1}
    return {
        processor_id: Runner(execution_id, running[execution_id])
        for processor_id, execution_id in runners.items()
        if execution_id
    }


class Show(Protocol):
    """One phase of the work as it goes on."""

    def published(self, count: int) -> None: ...
    def starting(self, now_s: float) -> None: ...
    def processed(self, status: Status, now_s: float) -> None: ...


class Screen(Protocol):
    """Where phases are shown."""

    def phase(self, name: str) -> AbstractContextManager[Show]: ...


def make_screen() -> Screen:
    """A bar where it can be seen, lines elsewhere."""
    console = Console()
    return _Bars(console) if console.is_terminal and not console.is_dumb_terminal else _Lines()


class _Rate:
    """Records per second over the last seconds.

    Batches end in one moment, so a shorter time says nothing.
    """

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()

    def of(self, count: int, now_s: float) -> float:
        self._looks.append((now_s, count))
        while now_s - self._looks[0][0] > _RATE_OVER_S:
            self._looks.popleft()
        began_s, before = self._looks[0]
        return 0.0 if now_s <= began_s else (count - before) / (now_s - began_s)


def _text(status: Status, rate: float) -> str:
    lag = "?" if status.lag is None else f"{status.lag:,}"
    return f"in {status.records_in:,}  out {status.records_out:,}  lag {lag}  {rate:,.0f} rec/s"


class _Bars:
    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def phase(self, name: str) -> Iterator[Show]:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[detail]}"),
        )
        with Progress(*columns, console=self._console, transient=True) as progress:
            yield _Bar(progress, progress.add_task(name, total=FLIGHTS, detail=""))


class _Bar:
    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task, self._rate = progress, task, _Rate()

    def published(self, count: int) -> None:
        self._progress.update(self._task, completed=count, detail=f"{count:,} flights")

    def starting(self, now_s: float) -> None:
        self._progress.update(self._task, detail=_STARTING)

    def processed(self, status: Status, now_s: float) -> None:
        detail = _text(status, self._rate.of(status.records_in, now_s))
        self._progress.update(self._task, completed=status.records_in, detail=detail)


class _Lines:
    @contextmanager
    def phase(self, name: str) -> Iterator[Show]:
        yield _PlainLines(name)


class _PlainLines:
    def __init__(self, name: str) -> None:
        self._name, self._rate = name, _Rate()
        self._began_s = self._line_at_s = time.monotonic()
        self._starting_lines = 0

    def published(self, count: int) -> None:
        if self._is_due(time.monotonic()):
            print(f"  {self._name}: {count:,} flights")

    def starting(self, now_s: float) -> None:
        if self._starting_lines == 0 or self._is_due(now_s, _STARTING_LINE_EVERY_S):
            self._starting_lines += 1
            self._line(now_s, _STARTING)

    def processed(self, status: Status, now_s: float) -> None:
        rate = self._rate.of(status.records_in, now_s)
        if self._is_due(now_s) or status.lag == 0:
            self._line(now_s, _text(status, rate))

    def _line(self, now_s: float, text: str) -> None:
        print(f"  {self._name}: {now_s - self._began_s:4.1f} s  {text}")

    def _is_due(self, now_s: float, every_s: float = _LINE_EVERY_S) -> bool:
        if now_s - self._line_at_s < every_s:
            return False
        self._line_at_s = now_s
        return True
