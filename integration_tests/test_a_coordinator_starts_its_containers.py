"""A stateful job on two logical hosts is killed in parts, scaled, and restarted."""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from integration_tests.launched_run import LaunchedRun
from integration_tests.seeds import printed_seed
from integration_tests.support.ledger import describe_violations
from samzapy.adapters.web.access import Access
from samzapy.adapters.web.client import HttpCoordinatorClient
from samzapy.adapters.web.tls import TlsFiles, client_context
from samzapy.errors import RejectedError
from samzapy.model.credential import Scope, credential
from unit_tests.fixtures.certificates import Authority

RECORDS_PER_S = 200
JOB = "running-sums-1"
OLD_SECRET, NEW_SECRET = secrets.token_hex(32), secrets.token_hex(32)


class SecuredRun(LaunchedRun):
    """A run whose coordinators speak TLS and want credentials."""

    def _cluster_settings(self, hosts: Mapping[str, int]) -> Mapping[str, str]:
        directory = self.cluster_dir.parent
        self.authority = Authority.made(directory)
        certificate, key = self.authority.certificate("node", "IP:127.0.0.1")
        self.secret_file = directory / "job.secret"
        self.token = ""
        self.replace_secret(OLD_SECRET)
        return {
            **super()._cluster_settings(hosts),
            "job.coordinator.secret": f"file:{self.secret_file}",
            "job.coordinator.tls.certificate": str(certificate),
            "job.coordinator.tls.key": str(key),
            "job.coordinator.tls.ca": str(self.authority.ca),
        }

    def replace_secret(self, *lines: str) -> None:
        new = self.secret_file.with_suffix(".new")
        new.touch(0o600)
        new.write_text("\n".join(lines))
        new.rename(self.secret_file)
        self.token = credential(lines[0], JOB, Scope.READ, "operator")

    def _commands_environment(self) -> Mapping[str, str]:
        return {"SAMZAPY_COORDINATOR_TOKEN": self.token, "SAMZAPY_COORDINATOR_CA": str(self.authority.ca)}


@pytest.mark.ledger
@pytest.mark.timeout(2400)
def test_a_job_whose_coordinator_starts_its_containers_survives_kills_of_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = printed_seed("launched containers", "SAMZAPY_LAUNCHED_SEED", capsys)
    with SecuredRun(tmp_path, seed=seed, containers=2, hosts={"h1": 2, "h2": 2}) as run:
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

        # The coordinator is killed: another one adopts the running containers.
        run.fail_over()
        adopted = run.samzapy("container", "list", "-o", "json")
        assert 0 == adopted.returncode, adopted.stderr
        assert second == run.wait_runners(2)
        assert {container.execution_id for container in second.values()} == {
            row["container"] for row in json.loads(adopted.stdout)
        }
        (job,) = json.loads(run.samzapy("job", "list", "-o", "json").stdout)
        assert ("running-sums-1", "runs", "2 of 2") == (job["job"], job["state"], job["containers"])

        # The secret is replaced while containers of the old one run.
        url = leader_url(run)
        assert url.startswith("https://")
        run.replace_secret(NEW_SECRET, OLD_SECRET)

        # More containers, another process for one, fewer containers.
        more = run.samzapy("job", "scale", "--containers", "3", "--expiry", "300", "--timeout", "300")
        assert 0 == more.returncode, more.stderr
        third = run.wait_runners(3)
        replaced = run.samzapy("job", "restart", "--processor", "0")
        assert 0 == replaced.returncode, replaced.stderr
        fourth = run.wait_runners(3, without=[third["0"].execution_id])
        assert third["0"].host == fourth["0"].host
        assert (third["1"], third["2"]) == (fourth["1"], fourth["2"])
        run.replace_secret(NEW_SECRET)
        assert JOB == client(run, NEW_SECRET).status(url, JOB, 20_000)["job"]
        with pytest.raises(RejectedError, match="wanted a credential of this job"):
            client(run, OLD_SECRET).status(url, JOB, 20_000)
        fewer = run.samzapy("job", "scale", "--containers", "2", "--expiry", "300", "--timeout", "300", "-o", "json")
        assert 0 == fewer.returncode, fewer.stderr
        assert json.loads(fewer.stdout)["response"]
        run.wait_runners(2)
        assert not run.processes(third["2"].execution_id)

        lost = run.lost()
        violations = run.finish()

        with capsys.disabled():
            print(f"launched: {run.figures}, back after {took_s:.1f} s", file=sys.stderr, flush=True)
        assert not violations, f"SAMZAPY_LAUNCHED_SEED={seed}: {describe_violations(violations)}"
        assert {killed.execution_id} == lost


def leader_url(run: LaunchedRun) -> str:
    term = run.state().term
    assert term is not None
    return term.url


def client(run: SecuredRun, secret: str) -> HttpCoordinatorClient:
    files = TlsFiles(ca=str(run.authority.ca))
    token = credential(secret, JOB, Scope.READ, "operator")
    return HttpCoordinatorClient(Access(read=lambda: token, tls=client_context(files).context))
