"""A stateful job on two logical hosts: containers and coordinators are killed, it is scaled, restarted, stopped."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from integration_tests.launched_run import LaunchedRun
from integration_tests.seeds import told_seed
from integration_tests.support.ledger import told

RECORDS_PER_S = 200


@pytest.mark.ledger
@pytest.mark.timeout(1200)
def test_a_job_whose_coordinator_starts_its_containers_survives_kills_of_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = told_seed("launched containers", "SAMZAPY_LAUNCHED_SEED", capsys)
    with LaunchedRun(tmp_path, seed=seed, containers=2, hosts={"h1": 2, "h2": 2}) as run:
        run.feed(RECORDS_PER_S)
        run.job.start()
        first = run.wait_runners(2)
        run.await_work(in_tails=True)
        assert {"h1", "h2"} == {container.host for container in first.values()}

        # A container is killed: it comes back on its host, and the other one never stopped.
        killed, begun_s = first["1"], time.monotonic()
        run.kill_container(killed.execution_id)
        second = run.wait_runners(2, without=[killed.execution_id])
        took_s = time.monotonic() - begun_s
        assert killed.host == second["1"].host
        assert first["0"] == second["0"]
        assert not run.processes(killed.execution_id)

        # The coordinator is killed: another one adopts what runs.
        run.fail_over()
        adopted = run.samzapy("container", "list", "-o", "json")
        assert 0 == adopted.returncode, adopted.stderr
        assert second == run.wait_runners(2)
        assert {container.execution_id for container in second.values()} == {
            row["container"] for row in json.loads(adopted.stdout)
        }
        (job,) = json.loads(run.samzapy("job", "list", "-o", "json").stdout)
        assert ("running-sums-1", "runs", "2 of 2") == (job["job"], job["state"], job["containers"])

        # More containers, another process for one, fewer containers.
        more = run.samzapy("job", "scale", "--containers", "3", "--expiry", "300", "--timeout", "300")
        assert 0 == more.returncode, more.stderr
        third = run.wait_runners(3)
        replaced = run.samzapy("job", "restart", "--processor", "0")
        assert 0 == replaced.returncode, replaced.stderr
        fourth = run.wait_runners(3, without=[third["0"].execution_id])
        assert third["0"].host == fourth["0"].host
        assert (third["1"], third["2"]) == (fourth["1"], fourth["2"])
        fewer = run.samzapy("job", "scale", "--containers", "2", "--expiry", "300", "--timeout", "300", "-o", "json")
        assert 0 == fewer.returncode, fewer.stderr
        assert json.loads(fewer.stdout)["response"]
        run.wait_runners(2)
        assert not run.processes(third["2"].execution_id)

        lost = run.lost()
        violations = run.finish()

        with capsys.disabled():
            print(f"launched: {run.figures}, back after {took_s:.1f} s", file=sys.stderr, flush=True)
        assert not violations, f"SAMZAPY_LAUNCHED_SEED={seed}: {told(violations)}"
        assert {killed.execution_id} == lost
