"""A short run of `scripts/chaos`: processors of a stateful job join, leave, are killed and return, under a ledger."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from integration_tests.comings_and_goings import RECORDS_PER_S, ComingsAndGoings
from integration_tests.seeds import told_seed
from integration_tests.sizes import sized
from integration_tests.support.ledger import told

DISTURBED_S = sized(180.0, short=120.0)


@pytest.mark.ledger
@pytest.mark.timeout(1200)
def test_processors_come_and_go_and_no_record_is_lost_or_doubled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = told_seed("comings and goings", "SAMZAPY_CHAOS_SEED", capsys)
    with ComingsAndGoings(tmp_path, seed=seed) as run:
        run.feed(RECORDS_PER_S)
        run.start_all()

        run.disturb(DISTURBED_S)
        violations = run.finish()

        with capsys.disabled():
            print(f"comings and goings: {run.told()}", file=sys.stderr, flush=True)
        assert not violations, f"SAMZAPY_CHAOS_SEED={seed}: {told(violations)}"
        assert run.comings.kills_of_the_leader > 0
        assert run.comings.leaves > 0
        assert run.comings.returns > 0
