"""Which processor a process is, and when another one is in its way."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from samzapy.adapters.boot import boot_id
from samzapy.adapters.web.client import HttpCoordinatorClient
from samzapy.coordinator.state import INITIAL, committed, evolve
from samzapy.errors import RejectedError
from samzapy.model.container import ContainerPhase
from samzapy.runtime.container_start import _processor_id
from samzapy.runtime.leadership import advertised_host
from samzapy.runtime.submission import refuse_second, running_containers
from samzapy.runtime.this_host import Here, HostProcesses
from samzapy.stream.records import ContainerPut, TermPut
from samzapy.testing.builders import a_config, a_container

HERE = Here.now()
GONE_PID = 2**22 + 1
"""No kernel gives it away."""


def own(execution_id="e1", **kwargs):
    """A container whose process is this one, so it surely lives."""
    started_ms = kwargs.pop("process_started_ms", HERE.process_started_ms)
    container = a_container(execution_id, **({"host": HERE.host, "boot_id": HERE.boot_id, "pid": HERE.pid} | kwargs))
    return replace(container, process_started_ms=started_ms)


def elsewhere(execution_id="e1", **kwargs):
    return own(execution_id, host="host-b", boot_id="boot-b", **kwargs)


def state_of(*containers, leader="http://127.0.0.1:9"):
    term = TermPut(
        term=1,
        coordinator_id="a",
        host="host-b",
        boot_id="boot-b",
        pid=1,
        process_started_ms=1,
        url=leader,
        started_at_ms=1,
    )
    return evolve(INITIAL, committed([term, *(ContainerPut(container=container) for container in containers)], 0))


def refuse(container):
    refuse_second(a_config(), running_containers(a_config(), state_of(container), HERE), HERE, "0")


def test_a_processor_that_lives_on_this_host_is_refused_a_second_time():
    with pytest.raises(RejectedError, match=rf"processor 0 .* on this host, as process {os.getpid()}; stop that one"):
        refuse(own())


@pytest.mark.parametrize(
    "container",
    [
        own(processor_id="1"),
        own(pid=GONE_PID),
        own(process_started_ms=1),
        own(phase=ContainerPhase.STOPPED),
        own(phase=ContainerPhase.LOST),
        own(boot_id="before-the-reboot"),
    ],
    ids=["another processor", "gone", "pid used again", "stopped", "given up", "rebooted, and no leader"],
)
def test_another_processor_or_an_ended_process_does_not_prevent_a_start(container):
    refuse(container)


def test_a_container_on_another_host_is_refused_while_it_sends_heartbeats(monkeypatch):
    monkeypatch.setattr(
        HttpCoordinatorClient,
        "status",
        lambda *_: {
            "containers": [{"executionId": "e2", "heartbeatAgeMs": 5}, {"executionId": "e1", "heartbeatAgeMs": 700}]
        },
    )
    with pytest.raises(RejectedError, match="runs already on host-b"):
        refuse(elsewhere())


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        {"containers": [{"executionId": "e1", "heartbeatAgeMs": 15_001}]},
        {"containers": [{"executionId": "e1", "heartbeatAgeMs": None}]},
        {"containers": [{"executionId": "e2", "heartbeatAgeMs": 1}]},
    ],
    ids=["no leader", "odd answer", "silent", "unknown to it", "another"],
)
def test_a_silent_container_on_another_host_does_not_prevent_a_start(monkeypatch, answer):
    monkeypatch.setattr(HttpCoordinatorClient, "status", lambda *_: answer)

    refuse(elsewhere())


def test_the_configured_id_wins(tmp_path):
    with _processor_id(a_config(processor_id="north", local_store_dir=str(tmp_path))) as processor_id:
        assert "north" == processor_id
    assert [] == list(tmp_path.iterdir())


def test_an_id_is_kept_per_job_beside_the_local_state(tmp_path):
    config, other = (a_config(local_store_dir=str(tmp_path), job_name=name) for name in ("one", "other"))
    with _processor_id(config) as first:
        pass
    with _processor_id(config) as again, _processor_id(other) as of_other:
        assert first == again != of_other
    assert (tmp_path / "one-1" / ".processors" / "0").read_text() == first


def test_without_a_directory_each_start_is_a_new_processor():
    with _processor_id(a_config()) as one, _processor_id(a_config()) as two:
        assert one != two


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "127.0.0.1"),
        ({"job_coordinator_host": "10.0.0.7"}, "10.0.0.7"),
        ({"job_coordinator_host": "0.0.0.0"}, HERE.host),
        ({"job_coordinator_host": "0.0.0.0", "job_coordinator_advertised_host": "node7"}, "node7"),
    ],
)
def test_the_address_in_the_term_record_is_one_that_others_can_use(settings, expected):
    assert expected == advertised_host(a_config(**settings, job_coordinator_insecure="true"), HERE)


def test_a_process_of_another_container_of_the_machine_is_not_looked_for_here():
    """Both have one boot, and each has a process 1."""
    code = (
        "from samzapy.runtime.this_host import Here\n"
        "here = Here.now()\n"
        "print(here.boot_id, here.pid, here.process_started_ms)\n"
    )
    apart = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code]
    output = subprocess.run(apart, capture_output=True, text=True)
    if output.returncode:
        pytest.skip(f"no namespace of pids can be made here: {output.stderr.strip()[-100:]}")
    there, pid, started_ms = output.stdout.split()

    assert ("1", boot_id()) == (pid, there.partition(".")[0])
    processes = HostProcesses(HERE.boot_id)
    assert processes.is_alive(there, int(pid), int(started_ms)) is None
    assert processes.is_alive(HERE.boot_id, HERE.pid, HERE.process_started_ms) is True
