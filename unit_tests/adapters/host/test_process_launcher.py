"""Containers as processes of this machine, played by shells that sleep."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from samzapy.adapters.host.process_launcher import ProcessLauncher
from samzapy.adapters.host.processes import ProcessIdentity, processes_bearing, processes_with
from samzapy.config import HostSlots
from samzapy.errors import ConfigError, EnvironmentMissingError, LaunchError
from samzapy.model.credential import CREDENTIAL_VARIABLE
from samzapy.model.launch import (
    EXECUTION_VARIABLE,
    HOST_VARIABLE,
    Launch,
    Launched,
    LaunchedState,
    LaunchPhase,
    LaunchRole,
)
from samzapy.testing.builders import a_launch
from samzapy.testing.waiting import wait_until

WAIT_S = 20.0
SLEEPS = "sleep 600 & wait"


class Cluster:
    """Launchers of one directory, and the acts of their containers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.script = SLEEPS
        self.asked: list[tuple[str, Path]] = []

    def launcher(self, **hosts: int) -> ProcessLauncher:
        slots = [HostSlots(host=host, slot_count=count) for host, count in (hosts or {"h1": 2, "h2": 2}).items()]
        return ProcessLauncher(
            hosts=slots, directory=self.directory, command_of=self.command, environment=dict(os.environ)
        )

    def command(self, launch: Launch, store_dir: Path) -> Sequence[str]:
        self.asked.append((launch.execution_id, store_dir))
        return ["/bin/sh", "-c", self.script]

    def processes(self, launch: Launch) -> list[ProcessIdentity]:
        return list(processes_with(EXECUTION_VARIABLE, launch.execution_id))

    def end(self) -> None:
        def have_ended() -> bool:
            # A process that a shell starts just when it is killed is found the next time.
            left = processes_with("SAMZAPY_PROCESS_DIR", str(self.directory.resolve()))
            for process in left:
                process.send(signal.SIGKILL)
            return not left

        wait_until(have_ended, WAIT_S, "the processes of the containers to be gone")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path)
    yield started
    started.end()


def wanted_launch(name: str, processor_id: str = "0", host: str = "", role: LaunchRole = LaunchRole.ACTIVE) -> Launch:
    return a_launch(
        f"{name}-{os.getpid()}", processor_id=processor_id, host=host, role=role, phase=LaunchPhase.WANTED
    )


def launched(launch: Launch) -> Launch:
    return replace(launch, phase=LaunchPhase.LAUNCHED)


def seen(launcher: ProcessLauncher, launch: Launch) -> Launched | None:
    return launcher.look([launch]).get(launch.execution_id)


def test_a_container_runs_on_the_host_that_is_wanted_with_a_directory_of_its_own(cluster: Cluster) -> None:
    launcher, launch = cluster.launcher(), wanted_launch("e1", host="h2")

    launcher.launch(launch)

    observed = seen(launcher, launch)
    assert observed is not None
    assert (LaunchedState.RUNNING, "h2") == (observed.state, observed.host)
    assert [(launch.execution_id, cluster.directory / "h2" / "state")] == cluster.asked
    assert {"h2"} == {
        of[HOST_VARIABLE]
        for _, of in processes_bearing(EXECUTION_VARIABLE)
        if of[EXECUTION_VARIABLE] == launch.execution_id
    }
    assert (cluster.directory / "h2" / f"{launch.execution_id}.log").exists()


def test_a_container_gets_the_credential_of_its_execution_in_its_environment(cluster: Cluster) -> None:
    launcher = ProcessLauncher(
        hosts=[HostSlots(host="h1", slot_count=2)],
        directory=cluster.directory,
        command_of=cluster.command,
        environment=dict(os.environ),
        credential_of=lambda execution_id: f"heartbeat.{execution_id}.mac",
    )
    launches = [wanted_launch("a"), wanted_launch("b", "1")]
    for launch in launches:
        launcher.launch(launch)

    for launch in launches:
        own = f"heartbeat.{launch.execution_id}.mac"
        wait_until(
            lambda launch=launch, own=own: bears(cluster, launch, own), WAIT_S, f"{launch.execution_id} to bear it"
        )


def bears(cluster: Cluster, launch: Launch, credential: str) -> bool:
    """Whether the processes of the launch, and no others, have the credential."""
    bearing = {process.pid for process in processes_with(CREDENTIAL_VARIABLE, credential)}
    return bearing == {process.pid for process in cluster.processes(launch)} != set()


def test_a_repeated_launch_starts_nothing_from_any_coordinator(cluster: Cluster) -> None:
    first, second, launch = cluster.launcher(), cluster.launcher(), wanted_launch("e1")

    first.launch(launch)
    first.launch(launch)
    second.launch(launch)

    assert 1 == len(cluster.asked)
    assert seen(first, launch) == seen(second, launch)


def test_a_wanted_launch_that_was_not_started_is_unknown(cluster: Cluster) -> None:
    assert None is seen(cluster.launcher(), wanted_launch("e1"))


def test_a_container_that_was_started_and_is_not_there_has_ended(cluster: Cluster) -> None:
    observed = seen(cluster.launcher(), launched(wanted_launch("e1")))

    assert observed == Launched(state=LaunchedState.ENDED)


def test_the_launcher_that_started_a_container_knows_its_exit_code_and_last_line(cluster: Cluster) -> None:
    cluster.script = "echo first; echo 'samzapy: no such topic'; echo; exit 8"
    second = cluster.launcher()
    first, launch = launched_to_its_end(cluster)

    assert Launched(state=LaunchedState.ENDED, exit_code=8, reason="samzapy: no such topic") == seen(first, launch)
    assert Launched(state=LaunchedState.ENDED, reason="samzapy: no such topic") == seen(second, launched(launch))


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ("2026-11-29 01:33:25,123 INFO samzapy.container.batch_times: the first micro-batch ended", "first"),
        ('{"time": "2026-11-29T01:33:25.123Z", "level": "INFO", "logger": "samzapy.container.batch_times"}', "first"),
        ("26/11/29 01:33:25 INFO ShutdownHookManager: Shutdown hook called", "first"),
        ("26/11/29 01:33:25 ERROR Executor: no memory", "26/11/29 01:33:25 ERROR Executor: no memory"),
    ],
)
def test_a_line_of_the_log_that_tells_of_nothing_wrong_is_no_reason(cluster: Cluster, last: str, reason: str) -> None:
    cluster.script = f"echo first; echo '{last}'; exit 8"
    launcher, launch = launched_to_its_end(cluster)

    assert reason == seen(launcher, launch).reason


def test_a_line_of_the_log_without_its_beginning_is_no_reason(cluster: Cluster) -> None:
    line = f"2026-11-29 01:33:25,123 INFO samzapy.container.batch_times: {'a' * 100}"
    cluster.script = f"for number in $(seq 50); do echo '{line}'; done; exit 8"
    launcher, launch = launched_to_its_end(cluster)

    assert Launched(state=LaunchedState.ENDED, exit_code=8) == seen(launcher, launch)


def test_the_last_line_of_a_killed_container_is_no_reason(cluster: Cluster) -> None:
    cluster.script = "echo first; kill -9 $$"
    launcher, launch = launched_to_its_end(cluster)

    assert Launched(state=LaunchedState.ENDED, exit_code=137) == seen(launcher, launch)


def test_a_container_that_ended_before_a_look_is_not_started_again(cluster: Cluster) -> None:
    cluster.script = "exit 2"
    launcher, launch = launched_to_its_end(cluster)

    launcher.launch(launch)

    assert 1 == len(cluster.asked)


def launched_to_its_end(cluster: Cluster) -> tuple[ProcessLauncher, Launch]:
    """A launcher, and its container that has run the cluster's script."""
    launcher, launch = cluster.launcher(), wanted_launch("e1")
    launcher.launch(launch)
    wait_until(lambda: _has_ended(launcher, launch), WAIT_S, "the container to end")
    return launcher, launch


def _has_ended(launcher: ProcessLauncher, launch: Launch) -> bool:
    observed = seen(launcher, launch)
    return observed is not None and observed.state is LaunchedState.ENDED


def test_the_launcher_that_started_a_container_finds_it_without_its_environment(cluster: Cluster) -> None:
    cluster.script = "sleep 600 & exec env -i sleep 600"
    launcher, launch = cluster.launcher(h1=1), wanted_launch("e1")
    launcher.launch(launch)

    def leaders_of_the_others() -> set[int]:
        running = cluster.processes(launch)
        return {os.getsid(process.pid) for process in running} - {process.pid for process in running}

    leader = wait_until(leaders_of_the_others, WAIT_S, "only the started processes to show an environment").pop()
    observed = seen(launcher, launch)

    assert observed is not None
    assert (LaunchedState.RUNNING, "h1") == (observed.state, observed.host)
    assert observed.handle.startswith(f"{leader}@"), "the started processes are not taken for the remains of it"
    assert {"h1": 0} == launcher.hosts()
    launcher.kill(launch)
    wait_until(lambda: _has_ended(launcher, launch), WAIT_S, "the container to end")


def test_a_kill_ends_all_processes_of_a_container(cluster: Cluster) -> None:
    launcher, other, launch = cluster.launcher(), cluster.launcher(), wanted_launch("e1")
    launcher.launch(launch)
    wait_until(lambda: len(cluster.processes(launch)) == 2, WAIT_S, "the shell and its child to run")

    other.kill(launch)
    other.kill(launch)

    wait_until(lambda: _has_ended(launcher, launch), WAIT_S, "the container to end")
    observed = seen(launcher, launch)
    assert observed is not None and 128 + signal.SIGKILL == observed.exit_code
    assert [] == cluster.processes(launch)


def test_processes_that_a_dead_container_leaves_behind_are_killed(cluster: Cluster) -> None:
    launcher, launch = cluster.launcher(), wanted_launch("e1")
    launcher.launch(launch)
    wait_until(lambda: len(cluster.processes(launch)) == 2, WAIT_S, "the shell and its child to run")
    shell = next(process for process in cluster.processes(launch) if os.getsid(process.pid) == process.pid)

    shell.send(signal.SIGKILL)

    wait_until(lambda: _has_ended(launcher, launch), WAIT_S, "the container to end")
    assert [] == cluster.processes(launch)


def test_a_host_takes_no_more_than_its_slots(cluster: Cluster) -> None:
    launcher = cluster.launcher(h1=1, h2=1)
    first, second, third = wanted_launch("e1", host="h1"), wanted_launch("e2", host="h1"), wanted_launch("e3")
    launcher.launch(first)

    with pytest.raises(LaunchError, match="free slot on h1"):
        launcher.launch(second)
    launcher.launch(third)
    with pytest.raises(LaunchError, match="any of h1, h2"):
        launcher.launch(replace(second, host=""))
    launcher.kill(first)
    wait_until(lambda: _has_ended(launcher, first), WAIT_S, "the first one to end")
    launcher.launch(second)

    hosts = [observed.host if (observed := seen(launcher, one)) else None for one in (second, third)]
    assert ["h1", "h2"] == hosts


def test_hosts_have_room_for_as_many_as_have_no_slot_yet(cluster: Cluster) -> None:
    launcher = cluster.launcher(h1=1, h2=3)
    for number, host in enumerate(("h1", "h2")):
        launcher.launch(wanted_launch(f"e{number}", str(number), host=host))

    assert {"h1": 0, "h2": 2} == launcher.hosts()
    assert {"h1": 0, "h2": 0} == cluster.launcher(h1=1, h2=1).hosts(), "whichever process started them"


def test_without_a_requested_host_the_one_with_the_fewest_containers_is_chosen(cluster: Cluster) -> None:
    launcher = cluster.launcher(h1=3, h2=3)
    launches = [wanted_launch(f"e{number}", str(number)) for number in range(4)]

    for launch in launches:
        launcher.launch(launch)

    observed = launcher.look(launches)
    assert ["h1", "h2", "h1", "h2"] == [observed[launch.execution_id].host for launch in launches]


def test_a_standby_is_never_on_a_host_of_its_processor(cluster: Cluster) -> None:
    launcher = cluster.launcher(h1=3, h2=1)
    active, standby = wanted_launch("e1", host="h1"), wanted_launch("e2", role=LaunchRole.STANDBY)
    another = wanted_launch("e3", role=LaunchRole.STANDBY)
    launcher.launch(active)

    launcher.launch(standby)
    with pytest.raises(LaunchError):
        launcher.launch(another)
    launcher.launch(replace(another, role=LaunchRole.ACTIVE))

    hosts = [observed.host if (observed := seen(launcher, one)) else None for one in (active, standby, another)]
    assert ["h1", "h2", "h1"] == hosts


def test_a_launch_on_an_unknown_host_fails_at_once(cluster: Cluster) -> None:
    launcher, launch = cluster.launcher(), wanted_launch("e1", host="h9")

    launcher.launch(launch)

    observed = seen(launcher, launch)
    assert observed is not None
    assert LaunchedState.ENDED is observed.state
    assert "found h9" in observed.reason


def test_a_start_that_lacks_resources_is_retried(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(launch: Launch, store_dir: Path) -> Sequence[str]:
        raise EnvironmentMissingError("wanted spark-submit")

    launch = wanted_launch("e1")
    for command_of in (missing, lambda launch, store_dir: ["/no/such/program"]):
        with monkeypatch.context() as lacking:
            lacking.setattr(cluster, "command", command_of)
            launcher = cluster.launcher()
        with pytest.raises(LaunchError, match=r"spark-submit|/no/such/program"):
            launcher.launch(launch)
        assert None is seen(launcher, launch)
    file = cluster.directory / "file"
    file.touch()
    with pytest.raises(LaunchError, match="file"):
        Cluster(file).launcher().launch(launch)
    cluster.launcher().launch(launch)

    assert 1 == len(cluster.asked)


def test_a_launch_that_can_never_start_has_ended(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(launch: Launch, store_dir: Path) -> Sequence[str]:
        raise ConfigError("no such option")

    monkeypatch.setattr(cluster, "command", refused)
    launcher, launch = cluster.launcher(), wanted_launch("e1")

    launcher.launch(launch)

    assert Launched(state=LaunchedState.ENDED, reason="it cannot be started: no such option") == seen(
        launcher, launch
    )


def test_a_look_without_free_descriptors_is_retried(cluster: Cluster) -> None:
    launcher, launch = cluster.launcher(), wanted_launch("e1")
    launcher.launch(launch)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        for act in (lambda: launcher.launch(wanted_launch("e2")), launcher.hosts, lambda: launcher.look([launch])):
            with pytest.raises(LaunchError, match="Too many open files"):
                act()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert LaunchedState.RUNNING is launcher.look([launch])[launch.execution_id].state


def test_a_lock_that_another_coordinator_holds_is_not_waited_for(cluster: Cluster) -> None:
    launcher, launch = cluster.launcher(), wanted_launch("e1")
    with (cluster.directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(LaunchError, match="lock"):
            launcher.launch(launch)
    launcher.launch(launch)

    assert 1 == len(cluster.asked)


def test_containers_of_another_directory_belong_to_another_cluster(cluster: Cluster, tmp_path: Path) -> None:
    launch = wanted_launch("e1")
    cluster.launcher().launch(launch)
    other = Cluster(tmp_path / "other")

    observed = seen(other.launcher(), launched(launch))
    other.launcher().kill(launch)

    assert observed is not None and LaunchedState.ENDED is observed.state
    assert [] != cluster.processes(launch)
