"""A stateful job on a Spark cluster: moves, a stopped container, a dead leader.

`scripts/chaos --cluster` has all kinds of faults, and any number of them.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from integration_tests.chaos_cluster import RECORDS_PER_S, disturb
from integration_tests.chaos_plan import plan_of
from integration_tests.seeds import printed_seed
from integration_tests.sizes import sized
from integration_tests.support.ledger import describe_violations

# A sleeper's tasks go to its standby, so that is also a failover.
KINDS = ("move", "zombie", "coordinator")
# A short run has one of them, of the seed's choice.
COUNT = sized(len(KINDS), short=1)


@pytest.mark.ledger
@pytest.mark.timeout(2400)
def test_each_fault_is_followed_by_a_whole_job_and_no_record_is_lost_or_doubled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = printed_seed("faults on a cluster", "SAMZAPY_CLUSTER_SEED", capsys)

    with capsys.disabled():
        kinds = plan_of(seed, COUNT, KINDS)
        violations = disturb(tmp_path, kinds, seed=seed, records_per_s=RECORDS_PER_S, seconds=math.inf)

    assert not violations, f"SAMZAPY_CLUSTER_SEED={seed}: {describe_violations(violations)}"
