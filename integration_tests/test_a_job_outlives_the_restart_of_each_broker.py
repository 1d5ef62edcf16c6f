"""A stateful job on three brokers is scaled while each broker restarts.

Each broker in turn is stopped in order, comes back, is killed with SIGKILL, and comes back again. All replicas are in
sync before the next fault, and each partition is given back to its preferred leader by hand. The job is scaled
meanwhile, by a request that is written right before the fault. The last broker is away for a while.

How long no output came after each fault is printed, with the time that the cluster took to elect leaders.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from itertools import cycle
from pathlib import Path

import pytest

from integration_tests.ledger_run import LedgerRun
from integration_tests.seeds import printed_seed
from integration_tests.support.ledger import describe_violations
from samzapy.placement import ContainerPlacementMetadataStore, StatusCode
from samzapy.stream.records import RunPut
from samzapy.testing.broker_cluster import DevCluster

RECORDS_PER_S = 200
FACTORS = (2, 4, 1)
AWAY_S = 60.0
_WITHIN_S = 180.0
_OUTPUTS_ARE_BACK = 20


class RollingRun(LedgerRun):
    """A ledger run on a cluster whose brokers come and go."""

    def __init__(self, directory: Path, *, seed: int) -> None:
        self.cluster = DevCluster(directory / "broker")
        super().__init__(directory, seed=seed, broker=self.cluster)
        self._factors = cycle(FACTORS)
        self.pauses: list[str] = []

    def disturb(self, kind: str, node_id: int, fault: Callable[[], None]) -> None:
        """One fault during a change of the factor; returns when the job has the new one."""
        factor = next(self._factors)
        with ContainerPlacementMetadataStore(self.cluster.bootstrap_servers, job=self.subject.name) as store:
            request = store.write_scale_request(self._run_id(), factor, request_expiry=timedelta(seconds=_WITHIN_S))
        begun_s = time.monotonic()
        fault()
        assert self.cluster.node(node_id).process() is None, "the broker was not ended: no fault was injected"
        self.fault(kind)
        wanted = self.watcher.count() + _OUTPUTS_ARE_BACK
        elected_s = self.wait(lambda: self._led_without(node_id) and time.monotonic() - begun_s, _WITHIN_S, "leaders")
        self.wait(lambda: self.watcher.count() >= wanted, _WITHIN_S, f"outputs after the {kind} of broker {node_id}")
        self.pauses.append(f"{kind} {node_id}: {time.monotonic() - begun_s:.1f} s, leaders after {elected_s:.1f} s")
        self.wait(lambda: self._has_succeeded(request), _WITHIN_S, f"factor {factor} to be at work")
        self.factor = factor

    def bring_back(self, node_id: int) -> None:
        """Start the broker again, wait for its replicas, and let it lead its partitions."""
        self.cluster.node(node_id).start()
        self.cluster.wait_in_sync()
        self.cluster.elect_preferred_leaders()

    def _led_without(self, node_id: int) -> bool:
        topics = (*self.inputs, *self.subject.outputs, self.coordinator, self.checkpoint)
        leaders = {leader for topic in topics for leader in self.cluster.leaders(topic).values()}
        return not leaders & {node_id, -1}

    def _has_succeeded(self, request: uuid.UUID) -> bool:
        with ContainerPlacementMetadataStore(self.cluster.bootstrap_servers, job=self.subject.name) as store:
            response = store.read_container_placement_response_message(request)
        if response is None or not response.status_code.is_terminal:
            return False
        assert response.status_code is StatusCode.SUCCEEDED, response.response_message
        return True

    def _run_id(self) -> str:
        return [record.run_id for record in self.stream() if isinstance(record, RunPut)][-1]


@pytest.mark.ledger
@pytest.mark.timeout(900)
def test_no_record_is_lost_or_doubled_while_each_broker_is_restarted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = printed_seed("rolling restart", "SAMZAPY_LEDGER_SEED", capsys)
    with RollingRun(tmp_path, seed=seed) as run:
        run.feed(RECORDS_PER_S)
        run.wait(lambda: run.watcher.count() > 0, _WITHIN_S, "the first output")

        for node_id in run.cluster.nodes:
            run.disturb("stop", node_id, run.cluster.node(node_id).stop)
            run.bring_back(node_id)
            run.disturb("kill", node_id, run.cluster.node(node_id).kill)
            if node_id == max(run.cluster.nodes):
                back_at_s = time.monotonic() + AWAY_S
                run.wait(lambda at_s=back_at_s: time.monotonic() >= at_s, _WITHIN_S, "the end of the absence")  # type: ignore[misc]
            run.bring_back(node_id)
        violations = run.finish()

        with capsys.disabled():
            print(f"rolling restart: {run.pauses}, {run.figures}", file=sys.stderr, flush=True)
        assert not violations, f"SAMZAPY_LEDGER_SEED={seed}: {describe_violations(violations)}"
        assert {"stop": 3, "kill": 3} == run.figures.faults
        assert (1, []) == (run.figures.starts, run.figures.ended_by_itself), "a container was replaced"
