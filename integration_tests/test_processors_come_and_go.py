"""A short run of `scripts/chaos`: processors join, leave, are killed and return."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from integration_tests.comings_and_goings import RECORDS_PER_S, ComingsAndGoings
from integration_tests.seeds import printed_seed
from integration_tests.sizes import sized
from integration_tests.support.ledger import describe_violations

DISTURBED_S = sized(180.0, short=70.0)


@pytest.mark.ledger
@pytest.mark.timeout(2400)
def test_processors_come_and_go_and_no_record_is_lost_or_doubled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = printed_seed("comings and goings", "SAMZAPY_CHAOS_SEED", capsys)
    with ComingsAndGoings(tmp_path, seed=seed) as run:
        run.feed(RECORDS_PER_S)
        run.start_all()

        run.disturb(DISTURBED_S)
        violations = run.finish()

        with capsys.disabled():
            print(f"comings and goings: {run.summary()}", file=sys.stderr, flush=True)
        assert not violations, f"SAMZAPY_CHAOS_SEED={seed}: {describe_violations(violations)}"
        assert run.comings.kills_of_the_leader > 0
        assert run.comings.leaves > 0
        assert run.comings.returns > 0
