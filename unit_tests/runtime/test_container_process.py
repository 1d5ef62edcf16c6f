"""A process that should end does so, whatever its main thread waits for.

Its warnings about its directory are here too.
"""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from samzapy.adapters.host.outputs_file import OutputsFile
from samzapy.errors import EnvironmentMissingError, ExitCode, SamzapyError
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

    def __init__(self, given_up: str | None = None) -> None:
        self.is_drained = False
        self.drain = DrainRequest()
        self.given_up = given_up
        self.done: list[object] = []
        self.kept: list[Exception] = []
        container_process._force_exit_after_deadline(
            self.drain,
            10,
            lambda: self.given_up,
            lambda: self.done.append("workers killed"),
            lambda: self.is_drained,
            self.kept.append,
            self.done.append,
        )

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


def test_a_drained_process_ends_in_good_order_although_spark_does_not_stop(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()

    process.is_drained = True
    process.drain.ask("a test")

    wait_until(lambda: bool(process.done), 10.0, "the process to end")
    assert [ExitCode.OK] == process.done
    assert "this process did not stop in time after the drain" in caplog.text


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


def warnings_about(directory: Path, mounts: str, caplog: pytest.LogCaptureFixture) -> str:
    """The warnings about a `local.store.dir` there."""
    table = directory.parent / "mounts"
    table.write_text(mounts)
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


def test_a_directory_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").touch()

    with pytest.raises(
        EnvironmentMissingError, match=r"local\.store\.dir: wanted a writable directory at .*/state, found"
    ):
        container_start._check_store_directory(a_config(local_store_dir=str(tmp_path / "state")))
