"""Timers fire once while the job is scaled, moved, killed, and cut off.

It has more than 100,000 messages and 17 faults, and is run by `scripts/soak ledgers` only.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from integration_tests.crash_points_run import Points
from integration_tests.seeds import printed_seed
from integration_tests.sizes import FULL
from integration_tests.support.holding_proxy import HoldingProxy
from integration_tests.support.ledger import describe_violations
from integration_tests.timers_walk import POINTS, TimersWalk, differences_from_the_kit
from samzapy.testing.container_broker import wants_containers

ROUNDS = 4
RECORDS_PER_S = 300
RECORDS_MIN = 100_000
FAULTS_MIN = 17
REFUSED = {47, 90}
"""INVALID_PRODUCER_EPOCH and PRODUCER_FENCED, the answers to an end of a transaction that is over."""


@pytest.mark.ledger
@pytest.mark.timeout(3000)
@pytest.mark.skipif(not FULL, reason="needs SAMZAPY_LEDGERS=full")
def test_timers_fire_once_through_all_faults_and_leave_the_state_of_the_kit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if wants_containers():
        pytest.skip("the broker must advertise the proxy's port: needs the local broker")
    seed = printed_seed("walk with timers", "SAMZAPY_WALK_SEED", capsys)
    points = Points(tmp_path, POINTS)
    with HoldingProxy() as proxy, TimersWalk(tmp_path, seed=seed, proxy=proxy, points=points) as run:
        run.feed(RECORDS_PER_S)
        run.start_all()

        run.stroll(ROUNDS)
        run.wait(lambda: not points.missing(), 300.0, "every crash point to fire")
        run.wait(lambda: len(run.ledger.acked) >= RECORDS_MIN, 600.0, f"{RECORDS_MIN} acknowledged records")
        violations = [*run.finish(), *differences_from_the_kit(run)]

        with capsys.disabled():
            answers = f"late ends of transactions were answered {run.late_answers}"
            print(f"walk with timers: {run.summary()}, {answers}", file=sys.stderr, flush=True)
        assert not violations, f"SAMZAPY_WALK_SEED={seed}: {describe_violations(violations)}"
        of_broker = run.figures.faults["broker"] + run.figures.faults["late end of a transaction"]
        assert run.deaths + len(POINTS) + of_broker >= FAULTS_MIN
        assert {*run.late_answers} <= REFUSED
