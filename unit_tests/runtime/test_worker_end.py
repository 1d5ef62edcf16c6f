"""With real signals and a socket that Spark's task comes through."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BufferedReader

import pytest

from samzapy.adapters.spark.open_tasks import CLOSE_SIGNAL
from samzapy.runtime.worker_end import WorkerEnd
from samzapy.testing.waiting import wait_until


class AWorker:
    """A worker with open tasks in this process, and its socket to Spark."""

    def __init__(self, spark: socket.socket, infile: BufferedReader) -> None:
        self.spark = spark
        self.infile = infile
        self.has_lease = True
        self.closed = 0
        self.end = WorkerEnd(self._close, lambda: self.has_lease)

    def _close(self) -> None:
        self.closed += 1
        assert threading.current_thread() is threading.main_thread()

    def wait(self) -> None:
        self.end.await_task(self.infile)

    def wait_and_be_asked(self, send: Callable[[], None]) -> None:
        """Wait; the driver asks for a close meanwhile, and Spark sends a task after it."""

        def ask() -> None:
            try:
                wait_until(lambda: _waits(main), 10, "the worker to wait for a task", poll_interval_s=0.001)
                send()
                wait_until(lambda: self.closed, 10, "the tasks to be closed", poll_interval_s=0.001)
            finally:
                self.spark.sendall(b"task")

        main = threading.get_native_id()
        with ThreadPoolExecutor(1) as driver:
            asked = driver.submit(ask)
            self.wait()
            asked.result()


def _waits(thread: int) -> bool:
    """Whether a thread waits in `poll` or `ppoll`."""
    with open(f"/proc/self/task/{thread}/syscall") as file:
        return file.read().startswith(("7 ", "271 ", "73 "))


@pytest.fixture
def worker() -> Iterator[AWorker]:
    spark, ours = socket.socketpair()
    action = signal.getsignal(CLOSE_SIGNAL)
    # As PySpark's daemon reads the socket.
    with spark, ours, os.fdopen(os.dup(ours.fileno()), "rb") as infile:
        yield AWorker(spark, infile)
    signal.signal(CLOSE_SIGNAL, action)


def test_an_idle_worker_closes_its_tasks_as_soon_as_the_driver_asks(worker: AWorker) -> None:
    worker.wait_and_be_asked(lambda: os.kill(os.getpid(), CLOSE_SIGNAL))

    assert 1 == worker.closed
    assert b"task" == worker.infile.read(4)


def test_an_idle_worker_closes_its_tasks_if_the_signal_does_not_end_its_wait(worker: AWorker) -> None:
    # As a signal does that comes after the interpreter's last step before the wait.
    worker.wait_and_be_asked(lambda: signal.pthread_kill(threading.get_ident(), CLOSE_SIGNAL))

    assert 1 == worker.closed


def test_a_worker_in_the_middle_of_a_batch_closes_its_tasks_only_after_it(worker: AWorker) -> None:
    os.kill(os.getpid(), CLOSE_SIGNAL)
    assert 0 == worker.closed

    worker.spark.sendall(b"task")
    worker.wait()
    assert 1 == worker.closed
    assert b"task" == worker.infile.read(4)
    worker.spark.sendall(b"next")
    worker.wait()
    assert 1 == worker.closed


def test_a_worker_that_gets_another_task_keeps_its_tasks(worker: AWorker) -> None:
    worker.spark.sendall(b"task")
    worker.wait()

    assert 0 == worker.closed
    assert b"task" == worker.infile.read(4)


def test_a_worker_whose_socket_spark_closes_closes_its_tasks(worker: AWorker) -> None:
    worker.spark.close()
    worker.wait()

    assert 1 == worker.closed


def test_a_worker_whose_container_may_be_fenced_leaves_its_tasks(worker: AWorker) -> None:
    worker.has_lease = False
    worker.spark.close()
    worker.wait()

    assert 0 == worker.closed
