"""A stateful job on three brokers is scaled while each broker restarts.

Each broker in turn is stopped in order, comes back, is killed with SIGKILL, and comes back again. All replicas are in
sync before the next fault, and each partition is given back to its preferred leader by hand. The job is scaled
meanwhile, by a request that is written right before the fault. The last broker is away for a while. Besides, a broker
is stopped and killed while the job is not scaled: one of the seed's choice, in long runs each.

The longest silence of outputs after each fault is printed. In one beside a scale the query is started again, too.
"""

from __future__ import annotations

import os
import random
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
from integration_tests.sizes import FULL
from integration_tests.support.ledger import describe_violations
from integration_tests.support.silence import longest_silence
from samzapy.placement import ContainerPlacementMetadataStore, StatusCode
from samzapy.stream.records import RunPut
from samzapy.testing.broker_cluster import DevCluster

RECORDS_PER_S = 200
FACTORS = (2, 4, 1)
AWAY_S = 60.0
_WITHIN_S = 180.0
_WATCHED_S = 8.0
"""For how long after a fault outputs are waited for at least."""
_SILENT_MAX_S = 40.0
"""A client that waits for a time-out of its own is silent for longer. It is no measure of speed: where the job itself
takes longer to start, a query that is started again may take as long."""


class RollingRun(LedgerRun):
    """A ledger run on a cluster whose brokers come and go."""

    def __init__(self, directory: Path, *, seed: int) -> None:
        self.cluster = DevCluster(directory / "broker")
        super().__init__(directory, seed=seed, broker=self.cluster)
        self._factors = cycle(FACTORS)
        self._silent_max_s = _SILENT_MAX_S
        self.silences: list[str] = []

    def start_and_feed(self) -> None:
        """Start the job, and feed it once it answers.

        A start takes minutes on a busy machine, and a backlog of them minutes more.
        """
        begun_s = time.monotonic()
        self.feeder.feed_now(1)
        self.await_work(in_tails=False)
        self._silent_max_s = max(self._silent_max_s, time.monotonic() - begun_s)
        self.feed(RECORDS_PER_S)
        self.wait(self.keeps_pace, _WITHIN_S, "the job to keep pace with the feed")

    def disturb(self, kind: str, node_id: int, fault: Callable[[], None], *, scaled: bool = True) -> None:
        """One fault, during a change of the factor or alone.

        It returns when all outputs have come again, and the job has the new factor.
        """
        request = self._request_scale() if scaled else None
        fault_at_s = time.monotonic()
        fault()
        assert self.cluster.node(node_id).process() is None, "the broker was not ended: no fault was injected"
        self.fault(kind)
        what = f"the {kind} of broker {node_id}{' beside a scale' if scaled else ''}"
        self.wait(lambda: self._led_without(node_id) or None, _WITHIN_S, f"leaders after {what}")
        elected_at_s = time.monotonic()
        self.wait(lambda: self._all_answer_since(elected_at_s) or None, _WITHIN_S, f"outputs after {what}")
        if request is not None:
            self.wait(lambda: self._has_succeeded(request) or None, _WITHIN_S, "the factor to be at work")
        self.wait(lambda: time.monotonic() > fault_at_s + _WATCHED_S or None, _WITHIN_S, f"the time after {what}")
        silence = longest_silence(self.watcher.arrivals_s.values(), fault_at_s, time.monotonic())
        elected_s, load = elected_at_s - fault_at_s, os.getloadavg()[0]
        self.silences.append(f"{what}: {silence}; leaders elsewhere after {elected_s:.1f} s; load {load:.1f}")
        assert silence.length_s < self._silent_max_s, self.silences

    def bring_back(self, node_id: int) -> None:
        """Start the broker again, wait for its replicas, and let it lead its partitions."""
        self.cluster.node(node_id).start()
        self.cluster.wait_in_sync()
        self.cluster.elect_preferred_leaders()

    def keeps_pace(self) -> bool:
        """Whether the job has answered all but the records of the last second."""
        answered = self.watcher.count()
        return 0 < answered and len(self.ledger.acked) < answered + RECORDS_PER_S

    def _led_without(self, node_id: int) -> bool:
        topics = (*self.inputs, *self.subject.outputs, self.coordinator, self.checkpoint)
        leaders = {leader for topic in topics for leader in self.cluster.leaders(topic).values()}
        return not leaders & {node_id, -1}

    def _all_answer_since(self, since_s: float) -> bool:
        return all(arrivals and arrivals[-1] > since_s for arrivals in self.watcher.arrivals_s.values())

    def _request_scale(self) -> uuid.UUID:
        self.factor = next(self._factors)
        with ContainerPlacementMetadataStore(self.cluster.bootstrap_servers, job=self.subject.name) as store:
            return store.write_scale_request(self._run_id(), self.factor, request_expiry=timedelta(seconds=_WITHIN_S))

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
@pytest.mark.timeout(2400)
def test_no_record_is_lost_or_doubled_while_each_broker_is_restarted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = printed_seed("rolling restart", "SAMZAPY_LEDGER_SEED", capsys)
    with RollingRun(tmp_path, seed=seed) as run:
        run.start_and_feed()

        nodes = sorted(run.cluster.nodes)
        for node_id in nodes if FULL else [random.Random(seed).choice(nodes)]:
            run.disturb("stop", node_id, run.cluster.node(node_id).stop, scaled=False)
            run.bring_back(node_id)
            run.disturb("kill", node_id, run.cluster.node(node_id).kill, scaled=False)
            run.bring_back(node_id)
        for node_id in nodes:
            run.disturb("stop", node_id, run.cluster.node(node_id).stop)
            run.bring_back(node_id)
            run.disturb("kill", node_id, run.cluster.node(node_id).kill)
            if node_id == nodes[-1]:
                back_at_s = time.monotonic() + AWAY_S
                run.wait(lambda at_s=back_at_s: time.monotonic() >= at_s, _WITHIN_S, "the end of the absence")  # type: ignore[misc]
            run.bring_back(node_id)
        violations = run.finish()

        with capsys.disabled():
            print("rolling restart:", *run.silences, run.figures, sep="\n  ", file=sys.stderr, flush=True)
        assert not violations, f"SAMZAPY_LEDGER_SEED={seed}: {describe_violations(violations)}"
        each = 2 * len(nodes) if FULL else len(nodes) + 1
        assert {"stop": each, "kill": each} == run.figures.faults
        assert (1, []) == (run.figures.starts, run.figures.ended_by_itself), "a container was replaced"
