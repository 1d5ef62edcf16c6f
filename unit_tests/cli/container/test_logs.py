"""`samzapy container logs`: which log it is, and where it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from samzapy.adapters.host.log_file import log_path
from samzapy.cli.container import logs as module
from samzapy.cli.container.logs import launch_of, log_of, logs
from samzapy.coordinator.state import INITIAL, CoordinatorState, committed, evolve
from samzapy.errors import ConfigError, RejectedError
from samzapy.model.job import ExecutionId
from samzapy.model.launch import Launch, LaunchRole
from samzapy.stream.records import ContainerPut, CoordinatorRecord, LaunchPut
from samzapy.testing.builders import a_config, a_container
from samzapy.testing.builders import a_launch as any_launch


def a_launch(
    execution_id: str, *, processor_id: str = "0", handle: str = "4711@99", number: int = 0, standby: int = 0
) -> Launch:
    role = LaunchRole.STANDBY if standby else LaunchRole.ACTIVE
    launch = any_launch(execution_id, processor_id=processor_id, wanted_at_ms=number, role=role, standby=standby)
    return replace(launch, host_found="h1", handle=handle)


def a_state(*records: CoordinatorRecord) -> CoordinatorState:
    return evolve(INITIAL, committed(records, 0))


def test_the_log_is_that_of_the_newest_launch_of_a_processor_or_standby() -> None:
    state = a_state(
        LaunchPut(launch=a_launch("e1", processor_id="4", number=1)),
        LaunchPut(launch=a_launch("e2", processor_id="4", number=2)),
        LaunchPut(launch=a_launch("e3", processor_id="4", number=3, standby=1)),
    )

    assert "e2" == launch_of(state, "4").execution_id
    assert "e3" == launch_of(state, "4-1").execution_id


def test_a_container_that_no_launcher_started_is_named_with_its_process() -> None:
    state = a_state(ContainerPut(container=a_container("e1", processor_id="4", pid=4711)))

    with pytest.raises(RejectedError, match="no launcher started its container e1; .* process 4711 on host host-a"):
        launch_of(state, "4")


def test_an_unknown_processor_is_refused_with_the_known_ones() -> None:
    state = a_state(
        LaunchPut(launch=a_launch("e1", processor_id="4")),
        ContainerPut(container=a_container("e2", processor_id="7")),
    )

    with pytest.raises(RejectedError, match="of processor 5, found those of 4, 7"):
        launch_of(state, "5")
    with pytest.raises(RejectedError, match="found those of no processor"):
        launch_of(INITIAL, "5")


def test_a_launch_that_was_not_started_has_no_log_yet() -> None:
    with pytest.raises(RejectedError, match="e1, found that its launcher has not started it yet"):
        log_of(a_launch("e1", handle=""), a_config())


@pytest.mark.parametrize(
    ("handle", "key"), [("4711@99", "cluster.process.dir"), ("driver-1", "cluster.standalone.page.url")]
)
def test_a_missing_key_of_the_launcher_is_named(handle: str, key: str) -> None:
    with pytest.raises(ConfigError, match=f"wanted {key} to read the log of e1 on host h1, found nothing"):
        log_of(a_launch("e1", handle=handle), a_config())


def test_a_log_that_is_on_another_machine_is_named_with_file_and_host(tmp_path: Path) -> None:
    log = log_of(a_launch("e1"), a_config(cluster_process_dir=str(tmp_path)))

    with pytest.raises(RejectedError, match=rf"{tmp_path}/h1/e1\.log of host h1, found: No such file"):
        log.length()


def test_the_command_prints_the_last_lines_without_control_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = log_path(tmp_path, "h1", ExecutionId("e1"))
    path.parent.mkdir()
    path.write_bytes("first\nsecond \x1b[2J\n\tat ä\n".encode())
    state = a_state(LaunchPut(launch=a_launch("e1", processor_id="0")))
    monkeypatch.setattr(module, "recorded_state", lambda address: state)
    target = ["--job", "flights-1", "--bootstrap-servers", "127.0.0.1:1"]

    ran = CliRunner().invoke(
        logs, ["0", *target, "--lines", "2", "--set", f"cluster.process.dir={tmp_path}"], catch_exceptions=False
    )

    assert (0, "second \\x1b[2J\n    at ä\n") == (ran.exit_code, ran.output)


def test_following_prints_appended_lines_until_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = log_path(tmp_path, "h1", ExecutionId("e1"))
    path.parent.mkdir()
    path.write_bytes("one\nä".encode()[:-1])
    state = a_state(LaunchPut(launch=a_launch("e1", processor_id="0")))
    monkeypatch.setattr(module, "recorded_state", lambda address: state)
    waits = iter(["ä\ntwo\n".encode()[1:], None])

    def wait(seconds: float) -> None:
        more = next(waits)
        if more is None:
            raise KeyboardInterrupt
        with path.open("ab") as file:
            file.write(more)

    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=wait))
    target = ["--job", "flights-1", "--bootstrap-servers", "127.0.0.1:1"]

    ran = CliRunner().invoke(logs, ["0", *target, "--follow", "--set", f"cluster.process.dir={tmp_path}"])

    assert (0, "one\nä\ntwo\n") == (ran.exit_code, ran.output)
