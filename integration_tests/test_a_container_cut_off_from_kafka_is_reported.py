"""A container without Kafka for more than 40 s continues its heartbeats.

The coordinator hears it all the time, so it is not lost. It reads and commits nothing, which status and metrics show
until the network is whole again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from integration_tests.launched_run import LaunchedRun
from integration_tests.seeds import printed_seed
from integration_tests.support.cutting_proxy import Address, CuttingProxy
from integration_tests.support.ledger import describe_violations
from samzapy.errors import ExitCode
from samzapy.model.launch import EXECUTION_VARIABLE
from samzapy.testing.broker import DevBroker
from samzapy.testing.ports import LOOPBACK, free_port

RECORDS_PER_S = 100
SILENT_MS = 40_000
_REPORTED_WITHIN_S = 120.0


class ProxiedRun(LaunchedRun):
    """Two containers that reach the broker, and not the coordinator, through a proxy."""

    def __init__(self, directory: Path, *, seed: int) -> None:
        port_number = free_port()
        self.kafka = CuttingProxy(Address(LOOPBACK, port_number))
        self.kafka.start()
        super().__init__(
            directory,
            seed=seed,
            containers=2,
            hosts={"h1": 1, "h2": 1},
            broker=DevBroker(
                directory / "broker", port_number=port_number, advertised_port=self.kafka.address.port_number
            ),
        )

    def _cluster_settings(self, hosts: Mapping[str, int]) -> Mapping[str, str]:
        # The direct port would answer the first requests of each client.
        proxied = f"{LOOPBACK}:{self.kafka.address.port_number}"
        return {**super()._cluster_settings(hosts), "systems.kafka.bootstrap.servers": proxied}

    def __exit__(self, *error: object) -> None:
        try:
            super().__exit__(*error)
        finally:
            self.kafka.close()

    def status(self) -> Mapping[str, Any]:
        """The answer of `samzapy job status`."""
        answer = self.samzapy("job", "status", "-o", "json")
        assert answer.returncode in (ExitCode.OK, ExitCode.DEGRADED), answer.stderr
        return dict(json.loads(answer.stdout))

    def silent_ms(self, execution_id: str) -> int | None:
        """The time without a broker's answer in the status; None without such a container."""
        rows = self.status().get("containers", [])
        return next((row["kafkaSilentMs"] for row in rows if row["executionId"] == execution_id), None)

    def cut_off(self) -> Sequence[str]:
        """The subjects of the findings about containers that no broker answers."""
        findings = self.status().get("findings", [])
        return [finding["subject"] for finding in findings if finding["code"] == "container-cut-off"]

    def silent_s_by_processor(self) -> Mapping[str, float]:
        """Its sample in `/metrics` of the coordinator."""
        term = self.state().term
        assert term is not None
        with urlopen(f"{term.url}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        rows = re.findall(r"^samzapy_container_kafka_silent_seconds{(.*)} (\S+)$", text, re.M)
        return {re.findall(r'processor="(.*?)"', labels)[0]: float(value) for labels, value in rows}


@pytest.mark.ledger
@pytest.mark.timeout(1500)
def test_status_and_metrics_report_a_cut_off_container_until_the_network_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = printed_seed("a container cut off from Kafka", "SAMZAPY_CUT_OFF_SEED", capsys)
    with ProxiedRun(tmp_path, seed=seed) as run:
        run.feed(RECORDS_PER_S)
        run.job.start()
        before = run.wait_runners(2)
        run.wait(lambda: run.watcher.count() > 0, 300, "the first output")
        container = before["1"].execution_id
        assert [] == run.cut_off()

        run.kafka.cut(EXECUTION_VARIABLE, container)
        run.fault("container cut off from Kafka")
        run.wait(
            lambda: (run.silent_ms(container) or 0) > SILENT_MS,
            _REPORTED_WITHIN_S,
            "a silence of 40 s to be reported",
        )
        assert run.kafka.held_count > 0, "its connections to the broker were held"
        assert [f"container {container}"] == run.cut_off()
        status = run.samzapy("job", "status")
        assert ExitCode.DEGRADED == status.returncode
        assert f"{container} (processor 1 on {before['1'].host}) sends heartbeats, and no broker" in status.stdout
        silent_s = run.silent_s_by_processor()
        assert (0, True) == (silent_s["0"], silent_s["1"] > SILENT_MS / 1000)

        run.kafka.heal()
        run.wait(lambda: run.silent_ms(container) == 0, _REPORTED_WITHIN_S, "the container to reach the broker again")
        assert [] == run.cut_off()
        assert {"0": 0, "1": 0} == run.silent_s_by_processor()
        assert before == run.wait_runners(2)
        lost = run.lost()
        violations = run.finish()

        assert not violations, f"SAMZAPY_CUT_OFF_SEED={seed}: {describe_violations(violations)}"
        assert set() == lost, "its heartbeats arrived all the time"
