"""With real processes, which the kernel names by their locks."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import permutations
from pathlib import Path

import pytest

from samzapy.adapters.spark.open_tasks import WorkersWithTasks

# At a request the worker says so, and does the test's act.
_WORKER = """
import signal, sys
from pathlib import Path
from samzapy.adapters.spark.open_tasks import CLOSE_SIGNAL, OpenTasks
tasks = OpenTasks(Path(sys.argv[1]))
def close(number, frame):
    print("closes", flush=True)
    {act}
signal.signal(CLOSE_SIGNAL, close)
print("is there", flush=True)
sys.stdin.readline()
tasks.note()
tasks.note()
print("has tasks", flush=True)
sys.stdin.read()
"""
_CLOSES, _HANGS = "tasks.clear()", "pass"


@contextmanager
def an_idle_worker(scratch_dir: Path, act: str = _CLOSES) -> Iterator[subprocess.Popen[str]]:
    """A worker process without tasks."""
    process = subprocess.Popen(
        [sys.executable, "-c", _WORKER.format(act=act), str(scratch_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert "is there\n" == process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def has_tasks(worker: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """Have the worker make tasks."""
    assert worker.stdin is not None and worker.stdout is not None
    worker.stdin.write("\n")
    worker.stdin.flush()
    assert "has tasks\n" == worker.stdout.readline()
    return worker


@contextmanager
def a_worker(scratch_dir: Path, act: str = _CLOSES) -> Iterator[subprocess.Popen[str]]:
    """A worker process that has tasks."""
    with an_idle_worker(scratch_dir, act) as worker:
        yield has_tasks(worker)


def test_each_worker_with_tasks_is_asked_once_and_awaited(tmp_path: Path) -> None:
    driver = WorkersWithTasks(tmp_path)
    with a_worker(tmp_path) as first, a_worker(tmp_path) as second:
        assert {first.pid, second.pid} == set(driver.pids())

        driver.close(60_000)
        driver.close(60_000)

        assert [] == list(driver.pids())
        assert ["closes\n", "closes\n"] == [worker.communicate(timeout=60)[0] for worker in (first, second)]


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_workers_are_known_in_whatever_order_they_made_their_tasks(tmp_path: Path, order: tuple[int, ...]) -> None:
    with ExitStack() as running:
        workers = [running.enter_context(an_idle_worker(tmp_path)) for _ in order]
        for number in order:
            has_tasks(workers[number])

        assert {worker.pid for worker in workers} == set(WorkersWithTasks(tmp_path).pids())


def test_a_close_that_hangs_does_not_hold_the_stop_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    driver = WorkersWithTasks(tmp_path)
    with a_worker(tmp_path, _HANGS) as hangs, a_worker(tmp_path):
        driver.close(3000)

        assert [hangs.pid] == list(driver.pids())
    assert [f"the tasks of Python workers {hangs.pid} were not closed within 3000 ms; the stop goes on"] == [
        record.getMessage() for record in caplog.records
    ]


def test_a_worker_that_was_killed_is_not_awaited(tmp_path: Path) -> None:
    driver = WorkersWithTasks(tmp_path)
    with a_worker(tmp_path, _HANGS) as killed:
        killed.send_signal(signal.SIGKILL)
        killed.wait(60)

        driver.close(60_000)

        assert [] == list(driver.pids())
