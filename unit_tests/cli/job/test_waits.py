"""The commands that ask for something wait for it alike, and ask before a move."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from samzapy.cli.job import lifecycle
from samzapy.cli.job import rewind as module
from samzapy.cli.job.group import job
from samzapy.cli.output import confirm
from samzapy.cli.target.requests import WAIT_S
from samzapy.coordinator.state import INITIAL, CoordinatorState, committed, evolve
from samzapy.errors import RejectedError
from samzapy.stream.records import ContainerCountPut, RunPut
from unit_tests.cli.test_every_command import ALL

ADDRESS = ("--job", "flights-1", "--bootstrap-servers", "nowhere:1")
WAITING = (
    "job submit",
    "job stop",
    "job restart",
    "job scale",
    "job rewind",
    "container place",
    "container restart",
    "container standby",
)


@pytest.mark.parametrize("name", WAITING)
def test_a_command_that_asks_for_something_waits_for_it_by_default(name: str) -> None:
    options = {name: option for option in ALL[name].params for name in (*option.opts, *option.secondary_opts)}

    assert {"--wait", "--no-wait", "--timeout"} <= options.keys()
    assert isinstance(options["--wait"], click.Option) and options["--wait"].default is True


@pytest.mark.parametrize("name", [*WAITING, "job downgrade"])
def test_a_command_waits_as_long_as_each_other_by_default(name: str) -> None:
    (timeout,) = [option for option in ALL[name].params if "--timeout" in option.opts]

    assert isinstance(timeout, click.Option)
    assert timeout.default == WAIT_S
    assert (timeout.help or "").startswith("Set the maximum wait for ")


def a_job(*, ended: bool) -> CoordinatorState:
    return evolve(
        INITIAL, committed([RunPut(run_id="run", ended=ended, finished=True), ContainerCountPut(count=2)], 0)
    )


def stop(monkeypatch: pytest.MonkeyPatch, *options: str) -> Result:
    """Stop a job that has ended at the third look."""
    looks = iter([a_job(ended=False), a_job(ended=False), a_job(ended=True)])
    monkeypatch.setattr(lifecycle, "recorded_state", lambda address: next(looks))
    monkeypatch.setattr(lifecycle, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: None))
    return CliRunner().invoke(job, ["stop", *ADDRESS, *options])


def test_a_stop_returns_when_the_last_container_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "flights-1: stopped\n" == stop(monkeypatch).stdout


def test_a_stop_that_does_not_wait_returns_while_containers_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "flights-1: stopping\n" == stop(monkeypatch, "--no-wait").stdout


def test_a_restart_of_several_processors_cannot_be_sent_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "recorded_state", lambda address: a_job(ended=False))

    refused = CliRunner().invoke(job, ["restart", *ADDRESS, "--processor", "0,1", "--no-wait"])

    assert 2 == refused.exit_code
    assert "wanted one processor with --no-wait" in refused.stderr


def rewind(monkeypatch: pytest.MonkeyPatch, *options: str, at_terminal: bool, answer: str = "n") -> Result:
    def reached(address: Any) -> None:
        raise RuntimeError("the request is written")

    monkeypatch.setattr(module, "recorded_state", lambda address: a_job(ended=False))
    monkeypatch.setattr("samzapy.coordinator.requests.rewind.refused_rewind", lambda rewind, state: "")
    monkeypatch.setattr("samzapy.runtime.planned_changes.rewind_moves", lambda *_: [])
    monkeypatch.setattr(module, "placement_store", reached)
    for place in (module, confirm):
        monkeypatch.setattr(place, "is_at_terminal", lambda: at_terminal)
    arguments = ["rewind", *ADDRESS, "--stream", "kafka.flights", "--to", "oldest", *options]
    return CliRunner().invoke(job, arguments, input=f"{answer}\n")


def test_a_rewind_at_a_terminal_shows_its_plan_and_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = rewind(monkeypatch, at_terminal=True)

    assert "0 positions" in refused.stdout
    assert isinstance(refused.exception, RejectedError) and "nothing was written" in str(refused.exception)


def test_a_rewind_as_json_asks_on_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = rewind(monkeypatch, "-o", "json", at_terminal=True)

    assert not refused.stdout
    assert "0 positions" in refused.stderr


@pytest.mark.parametrize(
    ("options", "at_terminal", "answer"), [((), True, "y"), (("--yes",), True, ""), ((), False, "")]
)
def test_a_rewind_continues_after_yes_and_without_a_prompt(
    options: tuple[str, ...], at_terminal: bool, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = rewind(monkeypatch, *options, at_terminal=at_terminal, answer=answer)

    assert "the request is written" == str(result.exception)
