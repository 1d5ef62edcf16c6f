"""The completions that a shell gets for a line, by the protocol of click."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from samzapy.cli.main import samzapy
from samzapy.cli.target import completion
from samzapy.errors import RejectedError
from samzapy.model.ssp import SystemStream

TARGET = ("--job", "flights-1", "--bootstrap-servers", "127.0.0.1:1")
STATE = SimpleNamespace(
    plan=[
        SimpleNamespace(processor_id="10", task_name="Partition_1"),
        SimpleNamespace(processor_id="2", task_name="Partition_0"),
    ],
    inputs={SystemStream("kafka", "flights"): None},
)


def completed(*words: str, incomplete: str = "") -> Sequence[str]:
    shell = ShellComplete(samzapy, {}, "samzapy", "_SAMZAPY_COMPLETE")
    return [item.value for item in shell.get_completions([*words], incomplete)]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "recorded_state", lambda address: STATE)
    # The first import of a command counts, too.
    monkeypatch.setattr(completion, "QUICK_S", 60.0)


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("words", "incomplete", "expected"),
    [
        (("container", "place", *TARGET, "--processor"), "", ["10", "2"]),
        (("job", "restart", *TARGET, "--processor"), "1", ["10"]),
        (("task", "explain", *TARGET), "Par", ["Partition_0", "Partition_1"]),
        (("job", "rewind", *TARGET, "--task"), "Partition_1", ["Partition_1"]),
        (("job", "rewind", *TARGET, "--stream"), "", ["kafka.flights"]),
    ],
)
def test_names_are_those_of_the_target(words: Sequence[str], incomplete: str, expected: Sequence[str]) -> None:
    assert expected == completed(*words, incomplete=incomplete)


def test_jobs_are_those_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = {"orders", "__samzapy-coordinator-a-1", "__samzapy-coordinator-b-1"}
    monkeypatch.setattr(completion, "QUICK_S", 60.0)
    monkeypatch.setattr(completion, "KafkaAdmin", lambda connection: SimpleNamespace(topic_names=lambda: topics))

    assert ["a-1", "b-1"] == completed("job", "status", "--bootstrap-servers", "127.0.0.1:1", "--job")


def test_keys_and_profiles_need_no_cluster() -> None:
    CliRunner().invoke(samzapy, ["profile", "set", "staging", "--job", "a-1"])

    assert ["job.container.lease.ms"] == completed("config", "explain", incomplete="job.container.le")
    assert ["job.container.lease.ms"] == completed("job", "status", "--set", incomplete="job.container.le")
    assert ["staging"] == completed("job", "status", "--profile")


def test_a_cluster_that_is_away_completes_nothing_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "QUICK_S", 0.5)
    began_s = time.monotonic()

    assert [] == completed("container", "place", *TARGET, "--processor")

    assert time.monotonic() - began_s < 5


def test_a_cluster_that_is_away_is_completed_in_silence() -> None:
    words = ["samzapy", "container", "place", *TARGET, "--processor"]
    asked = {"_SAMZAPY_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words))}

    # In its own process: the Kafka clients of other tests may write to stderr of this one.
    completing = subprocess.run(["samzapy"], capture_output=True, text=True, env={**environment(), **asked})

    assert (0, "", "") == (completing.returncode, completing.stdout.strip(), completing.stderr)


def test_an_answer_that_comes_too_late_is_not_waited_for() -> None:
    began_s = time.monotonic()

    assert [] == completion._within(0.1, lambda: [str(threading.Event().wait(30))])

    assert time.monotonic() - began_s < 20


def test_a_job_that_is_not_there_completes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: object) -> None:
        raise RejectedError("wanted the job")

    monkeypatch.setattr(completion, "recorded_state", refuse)

    assert [] == completed("container", "place", *TARGET, "--processor")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    script = CliRunner().invoke(samzapy, ["completion", shell])

    assert 0 == script.exit_code
    assert f"_SAMZAPY_COMPLETE={shell}_complete" in script.stdout


def test_bash_takes_the_script_and_completes_a_group() -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = CliRunner().invoke(samzapy, ["completion", "bash"]).stdout
    ask = "COMP_WORDS=(samzapy chec); COMP_CWORD=1; _samzapy_completion samzapy; echo ${COMPREPLY[@]}"

    completed = subprocess.run([bash, "-c", f"{script}\n{ask}"], capture_output=True, text=True, env=environment())

    assert "checkpoint" == completed.stdout.strip(), completed.stderr


def environment() -> dict[str, str]:
    """The environment, with the command of this installation first."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
