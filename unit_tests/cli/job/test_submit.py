from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from samzapy.adapters.host import process_launcher
from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.adapters.spark.class_archive import own_python
from samzapy.cli.job.submission import _is_led, _until_signal, launcher_of
from samzapy.cli.job.submit import submit
from samzapy.coordinator.lifecycle.submission import refuse_self_managed
from samzapy.coordinator.state import INITIAL, CoordinatorState, committed, evolve
from samzapy.errors import ConfigError, DeadlineError, ExitCode, RejectedError
from samzapy.model.job import ExecutionId
from samzapy.model.launch import LaunchPhase
from samzapy.runtime.spark_submit import QUIET_SPARK
from samzapy.stream.records import LaunchPut, RunPut
from samzapy.testing.builders import a_config, a_launch

JOB_FILE = Path("/jobs/flights.py")
# The options of spark-submit, of which samzapy's own come first.
OWN_OPTIONS_END = 1 + len((*QUIET_SPARK, *own_python()))


def test_a_job_without_a_cluster_manager_is_refused_with_the_possible_ones() -> None:
    with pytest.raises(ConfigError, match="one of process"):
        launcher_of(a_config(), JOB_FILE, None, (), ())


def test_processes_need_a_directory() -> None:
    with pytest.raises(ConfigError, match=r"cluster\.process\.dir"):
        launcher_of(a_config(cluster_manager="process"), JOB_FILE, None, (), ())


def test_a_container_gets_the_jobs_settings_and_then_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def start(command: list[str], log_path: Path, environment: dict[str, str]) -> ProcessIdentity:
        started.append([*command, environment["EXECUTION_ENV_CONTAINER_ID"], environment["SAMZAPY_HOST"]])
        return ProcessIdentity(pid=2**22 + 1, started_ticks=1, boot_id="b")

    monkeypatch.setattr(process_launcher, "start_in_own_session", start)
    config = a_config(cluster_manager="process", cluster_process_dir=str(tmp_path), cluster_process_hosts="h1:1")
    launcher = launcher_of(
        config, JOB_FILE, Path("/jobs/x.properties"), ["local.store.dir=/dev/null"], ["--master", "local[2]"]
    )

    launcher.launch(a_launch("e1", processor_id="3", phase=LaunchPhase.WANTED, host=""))

    (command,) = started
    assert "spark-submit" == Path(command[0]).name
    given = command[OWN_OPTIONS_END:]
    assert ["--master", "local[2]", str(JOB_FILE), "--config", "/jobs/x.properties"] == given[:5]
    own = ["--set", "processor.id=3", "--set", f"local.store.dir={tmp_path}/h1/state", "e1", "h1"]
    assert ["--set", "local.store.dir=/dev/null", *own] == given[5:]


def test_a_submission_is_refused_while_self_managed_containers_run() -> None:
    state = evolve(INITIAL, committed([LaunchPut(launch=a_launch("e1"))], 0))

    refuse_self_managed(state, [ExecutionId("e1")], "flights-1")
    with pytest.raises(RejectedError, match="found self-managed ones: e2"):
        refuse_self_managed(state, [ExecutionId("e1"), ExecutionId("e2")], "flights-1")


def test_a_coordinator_goes_to_the_background_only_where_the_launcher_has_a_directory_for_its_log(
    tmp_path: Path,
) -> None:
    job_file = tmp_path / "job.py"
    job_file.write_text("import samzapy\n\n\n@samzapy.task\ndef job(envelope, collector, context): ...\n")
    (tmp_path / "job.properties").write_text(
        "job.name=flights\ntask.inputs=kafka.orders\nsystems.kafka.bootstrap.servers=127.0.0.1:1\n"
    )
    samzapy = (sys.executable, "-c", "from samzapy.cli.main import main; main()")

    ended = subprocess.run(
        [*samzapy, "job", "submit", str(job_file), "--no-wait", "--cluster", "standalone"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ended.returncode == ExitCode.USAGE
    assert (
        "--no-wait: wanted --cluster process" in ended.stderr and "found cluster.manager=standalone" in ended.stderr
    )


class Candidate:
    """A candidate that sees these states of its own leadership, one at each look."""

    def __init__(self, *states: CoordinatorState | None) -> None:
        self.left = list(states)

    def state(self) -> CoordinatorState | None:
        return self.left.pop(0)


def test_a_submission_is_led_once_its_coordinator_leads_a_run_that_is_not_over_or_another_one_answers() -> None:
    def with_run(run_id: str) -> CoordinatorState:
        return evolve(INITIAL, committed([RunPut(run_id=run_id, ended=False)], 0))

    own = Candidate(None, INITIAL, with_run("over"), with_run("new"), None)
    assert _is_led(own, threading.Event(), "over", lambda: False, 60)
    assert own.left == [None]

    waiting, answers = Candidate(None, None, None), [False, True]
    assert _is_led(waiting, threading.Event(), "", lambda: answers.pop(0), 60)
    assert waiting.left == [None]

    ended = threading.Event()
    ended.set()
    assert not _is_led(Candidate(), ended, "", lambda: True, 60)


def test_a_submission_that_no_coordinator_leads_ends_in_time() -> None:
    with pytest.raises(DeadlineError, match=r"leads the job within 0.001 s \(--timeout\), found none"):
        _is_led(Candidate(None), threading.Event(), "", lambda: False, 0.001)


@pytest.fixture
def _ignored_interrupt() -> Iterator[None]:
    """As a shell starts a command in its background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ignored_interrupt")
def test_an_interrupt_that_the_shell_ignores_does_not_end_a_coordinator_in_the_background() -> None:
    with _until_signal() as ended:
        os.kill(os.getpid(), signal.SIGINT)

        assert not ended.wait(0.1)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_coordinator_ends_by_a_signal_wherever_its_main_thread_is() -> None:
    """The main thread holds the event's lock for moments of each wait.

    A signal may come in one of them.
    """
    with _until_signal() as ended:
        # Not in the main thread: a handler that waits fails the test, and does not hang it.
        handler = threading.Thread(target=cast(Any, signal.getsignal(signal.SIGTERM)), args=(signal.SIGTERM, None))
        with ended._cond:  # type: ignore[attr-defined]
            handler.start()
            handler.join(10.0)
            is_done = not handler.is_alive()

        assert is_done
        assert ended.wait(10.0)


def test_a_wrong_option_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    job_file = tmp_path / "job.py"
    job_file.write_text("")
    job_file.with_suffix(".properties").write_text("job.name=flights\ntask.inputs=kafka.orders\n")

    result = CliRunner().invoke(submit, [str(job_file), "--containers", "0"])
    wrong = CliRunner().invoke(submit, [str(job_file), "--set", "job.nam=x"])

    assert 2 == result.exit_code
    assert isinstance(wrong.exception, ConfigError)


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ((), ["--driver-memory", "2048m", "--master", "local[3,1]"]),
        (("--master", "local[2]"), ["--driver-memory", "2048m", "--master", "local[2]"]),
        (("--master=local[2]", "--driver-memory", "1g"), ["--master=local[2]", "--driver-memory", "1g"]),
        (
            ("--conf", "spark.driver.memory=1g", "--conf=spark.master=local[2]"),
            ["--conf", "spark.driver.memory=1g", "--conf=spark.master=local[2]"],
        ),
    ],
)
def test_a_container_has_the_configured_size_unless_spark_options_set_it(
    options: tuple[str, ...], size: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def start(command: list[str], log_path: Path, environment: dict[str, str]) -> ProcessIdentity:
        started.append(command)
        return ProcessIdentity(pid=2**22 + 1, started_ticks=1, boot_id="b")

    monkeypatch.setattr(process_launcher, "start_in_own_session", start)
    config = a_config(
        cluster_manager="process",
        cluster_process_dir=str(tmp_path),
        **{"cluster-manager.container.memory.mb": "2048", "cluster-manager.container.cpu.cores": "3"},
    )

    launcher_of(config, JOB_FILE, None, (), options).launch(a_launch("e1", phase=LaunchPhase.WANTED, host=""))

    (command,) = started
    assert size == command[OWN_OPTIONS_END : command.index(str(JOB_FILE))]
