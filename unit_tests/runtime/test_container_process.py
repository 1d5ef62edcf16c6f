"""A process that should end does so, whatever its main thread waits for.

Its warnings about its directory are here too.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from samzapy.adapters.host.outputs_file import OutputsFile
from samzapy.adapters.spark import slots
from samzapy.errors import DeadlineError, EnvironmentMissingError, ExitCode, SamzapyError
from samzapy.runtime import container_process, container_start
from samzapy.runtime.signals import DrainRequest
from samzapy.testing.builders import a_config
from samzapy.testing.waiting import wait_until
from unit_tests.fixtures.container_run import a_container_run

# Before the fixture sets its parts.
ENDS_AFTER_S = {drain_ms: container_process._ends_after_s(drain_ms) for drain_ms in (0, a_config().drain_ms, 60_000)}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_END_GRACE_S", "_END_MIN_S", "_LOST_GRACE_S", "_END_LOOK_S"):
        monkeypatch.setattr(container_process, name, 0.01)


class Process:
    """One whose main thread does nothing."""

    def __init__(self, failing: Exception | None = None, disk: threading.Event | None = None) -> None:
        self.failing = failing
        self.disk = disk
        self.is_drained = False
        self.drain = DrainRequest()
        self.given_up: str | None = None
        self.done: list[object] = []
        self.kept: list[Exception] = []
        container_process._force_exit_after_deadline(
            self.drain,
            10,
            lambda: self.given_up,
            self.kill_workers,
            lambda: self.is_drained,
            self.keep,
            self.done.append,
        )

    def keep(self, error: Exception) -> None:
        self.kept.append(error)
        if self.disk is not None:
            self.disk.wait()
        if self.failing is not None:
            raise self.failing

    def kill_workers(self) -> None:
        self.done.append("workers killed")
        if self.failing is not None:
            raise self.failing

    def ends_with(self, code: int) -> bool:
        wait_until(lambda: len(self.done) == 2, 10.0, "the process to end")
        return self.done == ["workers killed", code]


def test_a_lost_process_ends_even_if_its_query_does_not_stop() -> None:
    process = Process()

    process.given_up = "term 3 does not count it among the living"

    assert process.ends_with(ExitCode.LOST)


def test_a_drained_process_ends_even_if_no_broker_answers(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()

    process.drain.ask("a test")

    assert process.ends_with(ExitCode.TIMED_OUT)
    # The main thread of this test waits in `wait_until`; in a container it is the line that hangs.
    assert re.search(r"it is at samzapy/testing/waiting.py:\d+ \(wait_until\)", caplog.text), caplog.text


@pytest.mark.parametrize(
    "failing", [DeadlineError("worker 7 still holds slot-0 10 s after it was killed"), PermissionError("not yours")]
)
@pytest.mark.parametrize("code", [ExitCode.LOST, ExitCode.TIMED_OUT])
def test_a_process_ends_even_if_a_worker_cannot_be_killed(
    caplog: pytest.LogCaptureFixture, failing: Exception, code: int
) -> None:
    process = Process(failing)

    if code == ExitCode.LOST:
        process.given_up = "term 3 does not count it among the living"
    else:
        process.drain.ask("a test")

    assert process.ends_with(code)
    assert f"not all workers could be killed, this process ends all the same: {failing}" in caplog.text


def test_a_drained_process_ends_in_good_order_although_spark_does_not_stop(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()

    process.is_drained = True
    process.drain.ask("a test")

    wait_until(lambda: bool(process.done), 10.0, "the process to end")
    # On a busy machine the bound of the log line ends it a second time.
    assert {ExitCode.OK} == set(process.done)
    wait_until(lambda: "this process did not stop in time after the drain" in caplog.text, 10.0, "the line")


# --- a disk or stderr that hangs ---


class _BlockedStderr(logging.Handler):
    """Takes no line until it is free, as a pipe that is full."""

    def __init__(self) -> None:
        super().__init__()
        self.is_free = threading.Event()

    def createLock(self) -> None:
        # The test's own lines must not wait for this lock.
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("samzapy.runtime"):
            self.is_free.wait()


@pytest.fixture
def _blocked_stderr(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.INFO)
    handler = _BlockedStderr()
    logging.getLogger("samzapy.runtime").addHandler(handler)
    yield
    handler.is_free.set()
    logging.getLogger("samzapy.runtime").removeHandler(handler)


@pytest.fixture
def _ends_at_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_FORCED_WITHIN_S", "_LOGGED_WITHIN_S"):
        monkeypatch.setattr(container_process, name, 0.01)


@pytest.mark.usefixtures("_ends_at_its_bounds")
@pytest.mark.parametrize("code", [ExitCode.LOST, ExitCode.TIMED_OUT])
def test_a_process_ends_although_the_disk_for_its_report_hangs(code: int) -> None:
    disk = threading.Event()
    process = Process(disk=disk)

    if code == ExitCode.LOST:
        process.given_up = "term 3 does not count it among the living"
    else:
        process.drain.ask("a test")

    wait_until(lambda: bool(process.done), 10.0, "the process to end")
    assert [code] == process.done
    disk.set()


@pytest.mark.usefixtures("_ends_at_its_bounds", "_blocked_stderr")
@pytest.mark.parametrize("code", [ExitCode.LOST, ExitCode.TIMED_OUT, ExitCode.OK])
def test_a_process_ends_although_its_stderr_is_blocked(code: int) -> None:
    process = Process()

    process.is_drained = code == ExitCode.OK
    if code == ExitCode.LOST:
        process.given_up = "term 3 does not count it among the living"
    else:
        threading.Thread(target=process.drain.ask, args=("a test",), daemon=True).start()

    wait_until(lambda: bool(process.done), 10.0, "the process to end")
    assert [code] == process.done


@pytest.mark.usefixtures("_blocked_stderr")
def test_a_stop_is_asked_for_although_stderr_is_blocked() -> None:
    request = DrainRequest()

    threading.Thread(target=request.ask, args=("a test",), daemon=True).start()

    assert request.wait(10.0)


def test_the_bound_of_a_forced_end_leaves_time_for_the_kill_of_workers() -> None:
    assert container_process._FORCED_WITHIN_S > slots._KILL_WAIT_S


@pytest.mark.parametrize(("fatal", "is_drained"), [(None, True), (SamzapyError("the coordinator failed"), False)])
def test_a_container_is_drained_before_its_coordinator_has_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fatal: SamzapyError | None, is_drained: bool
) -> None:
    """A coordinator that stops late does not make an orderly end one that timed out."""
    asked: list[Callable[[], bool]] = []
    seen: list[bool] = []
    part = SimpleNamespace(fatal=fatal, start=lambda: None, close=lambda _: seen.append(asked[0]()))
    nothing = SimpleNamespace(given_up=None, close=lambda: None, begin_soon=lambda: None)
    for name, replacement in (
        ("_force_exit_after_deadline", lambda *given: asked.append(given[4])),
        ("install_handlers", lambda *_: None),
        ("KafkaLeaderSearch", lambda *_: nothing),
        ("BackgroundArchive", lambda *_: nothing),
    ):
        monkeypatch.setattr(container_process, name, replacement)
    for name, result in (("_heartbeats", nothing), ("_coordination", part), ("_run_container", None)):
        monkeypatch.setattr(container_process._Run, name, lambda *_, result=result: result)
    monkeypatch.setattr(container_process._Run, "_keep_end", lambda *_: None)
    spark = SimpleNamespace(cores=lambda: 1, session=lambda: SimpleNamespace(sparkContext=None))
    with nullcontext() if fatal is None else pytest.raises(SamzapyError, match="the coordinator failed"):
        a_container_run(tmp_path)._run(cast(Any, spark), is_launched=False)

    assert [is_drained] == seen


def test_a_container_names_its_undeclared_outputs(tmp_path: Path) -> None:
    noted = OutputsFile.of(a_config(), tmp_path)
    for topic in ("orders", "sums", "__samzapy-checkpoint-flights-1", "alerts"):
        noted.note(topic)
    unused = cast(Any, None)

    with ExitStack() as clients:
        ports = a_container_run(tmp_path)._ports(unused, unused, unused, unused, clients)

        assert ["sums", "alerts"] == [*ports.outputs()]


def test_a_job_that_is_asked_to_stop_ends_within_ten_seconds_whatever_its_batch_does() -> None:
    """The program that stops a job often kills the remaining processes.

    Docker does so after ten seconds. A short drain leaves its time to the cancellation of the batch.
    """
    assert {0: 9.0, a_config().drain_ms: 9.0, 60_000: 63.0} == ENDS_AFTER_S


# --- where local state is ---

ROOT = "/dev/root / ext4 rw 0 0\n"


def warnings_about(directory: Path, mounts: str | bytes, caplog: pytest.LogCaptureFixture) -> str:
    """The warnings about a `local.store.dir` there."""
    table = directory.parent / "mounts"
    table.write_bytes(mounts.encode() if isinstance(mounts, str) else mounts)
    with caplog.at_level(logging.WARNING):
        container_start._check_store_directory(a_config(local_store_dir=str(directory)), table)
    return caplog.text


@pytest.fixture
def _nothing_is_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory of the test, made by now, counts as one that is kept."""
    monkeypatch.setattr(tempfile, "tempdir", "/somewhere/else")


@pytest.mark.usefixtures("_nothing_is_temporary")
@pytest.mark.parametrize("kind", ["tmpfs", "ramfs", "devtmpfs"])
def test_a_store_directory_in_memory_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    warnings = warnings_about(tmp_path / "state", f"{ROOT}none {tmp_path} {kind} rw 0 0\n", caplog)

    assert f"local.store.dir {tmp_path / 'state'} is not kept over reboots: state will be rebuilt" in warnings


def test_a_store_directory_for_temporary_files_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    assert "is not kept over reboots" in warnings_about(tmp_path / "state", ROOT, caplog)


@pytest.mark.usefixtures("_nothing_is_temporary")
def test_a_store_directory_on_disk_gives_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # The mount that is nearest to it counts, wherever it is in the table; a name with the same beginning is none.
    others = f"none {tmp_path}/sta tmpfs rw 0 0\nnone {tmp_path.parent} tmpfs rw 0 0\n"

    assert "" == warnings_about(tmp_path / "state", f"{ROOT}/dev/sda {tmp_path} ext4 rw 0 0\n{others}", caplog)


@pytest.mark.usefixtures("_nothing_is_temporary")
def test_a_link_to_memory_is_seen_through(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "memory")

    warnings = warnings_about(tmp_path / "state", f"{ROOT}none {tmp_path}/memory tmpfs rw 0 0\n", caplog)

    assert "is not kept over reboots" in warnings


@pytest.mark.usefixtures("_nothing_is_temporary")
def test_a_mount_point_with_a_blank_in_it_is_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    warnings = warnings_about(tmp_path / "my state", f"{ROOT}none {tmp_path}/my\\040state tmpfs rw 0 0\n", caplog)

    assert "is not kept over reboots" in warnings


@pytest.mark.usefixtures("_nothing_is_temporary")
@pytest.mark.parametrize(
    "name",
    [b"a\rb", "a\u00a0b".encode(), "a\u2028b".encode()],
    ids=["a carriage return", "a blank of Unicode", "a line separator of Unicode"],
)
def test_a_mount_point_may_have_any_name(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: bytes) -> None:
    point = os.fsencode(tmp_path) + b"/" + name

    warnings = warnings_about(Path(os.fsdecode(point)), ROOT.encode() + b"none " + point + b" tmpfs rw 0 0\n", caplog)

    assert "is not kept over reboots" in warnings


@pytest.mark.usefixtures("_nothing_is_temporary")
def test_another_mount_point_may_be_no_utf_8(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The warning does not have its name: a runner of parallel tests cannot take it."""
    table = ROOT.encode() + b"none /caf\xe9 tmpfs rw 0 0\n" + f"none {tmp_path} tmpfs rw 0 0\n".encode()

    warnings = warnings_about(tmp_path / "state", table, caplog)

    assert "is not kept over reboots" in warnings


def test_a_directory_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").touch()

    with pytest.raises(
        EnvironmentMissingError, match=r"local\.store\.dir: wanted a writable directory at .*/state, found"
    ):
        container_start._check_store_directory(a_config(local_store_dir=str(tmp_path / "state")))
