"""The description of a cluster before it runs; an integration test runs one."""

from __future__ import annotations

import json
import os
import socket
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from integration_tests.support.spark_cluster import Ports, SparkCluster
from samzapy.adapters.host.processes import ProcessIdentity, start_in_own_session
from samzapy.errors import ConfigError, RejectedError


def test_nothing_runs_before_the_start_and_nothing_is_to_be_stopped(tmp_path: Path) -> None:
    cluster = SparkCluster(tmp_path, workers=2)

    assert {"master": None, "w1": None, "w2": None} == cluster.processes()
    assert ["w1", "w2"] == cluster.hosts()
    assert () == cluster.drivers()
    assert 0 == cluster.stop()
    with pytest.raises(RejectedError, match="No Spark cluster runs in .*: start it first"):
        _ = cluster.master_url
    with pytest.raises(RejectedError, match="w1 of the cluster in .* does not run"):
        cluster.kill_one("w1")


@pytest.mark.parametrize(
    ("ports", "whose"),
    [
        ("master_port", "Spark's master"),
        ("rest_port", "the REST server"),
        ("page_port", "the page of Spark's master"),
    ],
)
def test_a_taken_port_is_named_before_anything_is_started(tmp_path: Path, ports: str, whose: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"Port {port} .* is wanted for {whose}"):
            SparkCluster(tmp_path, ports=replace(Ports(), **{ports: port})).start()

    assert not (tmp_path / "cluster.json").exists()


def test_another_process_under_the_pid_of_an_ended_one_is_not_of_the_cluster(tmp_path: Path) -> None:
    own = ProcessIdentity.of(os.getpid())
    earlier = {"pid": own.pid, "started_ticks": own.started_ticks - 1, "boot_id": own.boot_id}
    shape = {"workers": 1, "slots": 2, "cores": 1, "memory_mib": 1}
    ports = {"master_port": 1, "rest_port": 2, "page_port": 3}
    state = {"mark": "m", "shape": shape, "ports": ports, "processes": {"master": earlier}}
    (tmp_path / "cluster.json").write_text(json.dumps(state))

    assert {"master": None, "w1": None} == SparkCluster(tmp_path).processes()


def test_a_cluster_that_is_killed_is_gone_at_once_with_all_that_runs_on_it(tmp_path: Path) -> None:
    cluster = SparkCluster(tmp_path)
    cluster.kill()  # Nothing runs yet.
    environment = {**os.environ, "SAMZAPY_SPARK_CLUSTER": uuid.uuid4().hex}
    deaf = start_in_own_session(["/bin/sh", "-c", "trap '' TERM; sleep 600"], tmp_path / "log", environment)
    shape = {"workers": 1, "slots": 2, "cores": 1, "memory_mib": 1}
    ports = {"master_port": 1, "rest_port": 2, "page_port": 3}
    state = {"mark": environment["SAMZAPY_SPARK_CLUSTER"], "shape": shape, "ports": ports, "processes": {}}
    cluster.record_path.write_text(json.dumps(state))

    cluster.kill()

    assert not deaf.is_alive()
    assert () == cluster.drivers()
    assert not cluster.record_path.exists()


@pytest.mark.parametrize("text", ["", "[]", '{"mark": "m"}'])
def test_a_file_without_processes_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)

    with pytest.raises(ConfigError, match="cluster.json does not say which processes a cluster has"):
        SparkCluster(tmp_path).processes()


def test_drivers_that_a_recovering_master_gave_up_are_read_from_its_log(tmp_path: Path) -> None:
    cluster = SparkCluster(tmp_path)
    (tmp_path / "master").mkdir()
    cluster.log_path("master").write_text(
        "26/11/30 01:53:04 WARN Master: Driver driver-20261130015118-0005 was not found after master recovery\n"
        "26/11/30 01:53:04 INFO Master: Removing driver: driver-20261130015118-0006 (FINISHED, Elapsed time: 9 ms)\n"
    )

    assert {"driver-20261130015118-0005"} == cluster.drivers_ended_by_recovery()


def test_a_worker_has_met_as_many_masters_as_its_log_names(tmp_path: Path) -> None:
    cluster = SparkCluster(tmp_path)
    (tmp_path / "w2").mkdir()
    cluster.log_path("w2").write_text(
        "26/11/30 01:52:46 INFO Worker: Retrying connection to master (attempt # 1)\n"
        "26/11/30 01:53:03 INFO Worker: Master has changed, new master is at spark://127.0.0.1:23053\n"
    )

    assert 1 == cluster.masters_met("w2")
