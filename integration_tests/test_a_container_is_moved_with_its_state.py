"""A stateful job on logical hosts: it moves with a warm reserve, gets a standby, and that takes over after a kill."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from integration_tests.launched_run import LaunchedRun
from integration_tests.seeds import told_seed
from samzapy.model.launch import LaunchRole
from samzapy.testing.ledger import told

RECORDS_PER_S = 200
_WAITS = ("--expiry", "300", "--timeout", "300")


@pytest.mark.ledger
@pytest.mark.timeout(900)
def test_a_move_finds_the_state_there_and_so_does_who_takes_over_after_a_kill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = told_seed("warm containers", "SAMZAPY_WARM_SEED", capsys)
    with LaunchedRun(tmp_path, seed=seed, containers=1, hosts={"h1": 2, "h2": 2}) as run:
        run.feed(RECORDS_PER_S)
        run.job.start()
        first = run.wait_runners(1)["0"]
        run.wait(lambda: run.watcher.count() > 0, 120, "the first output")
        other = {"h1": "h2", "h2": "h1"}[first.host]

        # The state is there before the one that runs stops.
        moved = run.samzapy("container", "place", "--processor", "0", "--host", other, *_WAITS)
        assert 0 == moved.returncode, (moved.stderr, run._last_words())
        assert "RESTORING" in moved.stderr
        second = run.wait_runners(1, without=[first.execution_id])["0"]
        assert other == second.host
        run.wait(lambda: not run.processes(first.execution_id), 60, "the one before to end")

        # A standby comes, on the host that is free of the processor, and is level.
        stands_by = run.samzapy("container", "standby", "--processor", "0", "--start", *_WAITS)
        assert 0 == stands_by.returncode, (stands_by.stderr, run._last_words())
        assert f"0-0 on {first.host}" in stands_by.stdout
        launches = run.state().launches.values()
        (standby,) = [found.execution_id for found in launches if found.role is LaunchRole.STANDBY]

        # Who runs the tasks is killed: nobody is started for it.
        begun_s = time.monotonic()
        run.kill_container(second.execution_id)
        third = run.wait_runners(1, without=[second.execution_id])["0"]
        took_s = time.monotonic() - begun_s
        assert (standby, first.host) == (third.execution_id, third.host)

        # Both had tried their query out by then, and that found nothing wrong.
        for execution_id in (second.execution_id, standby):
            assert "the query was tried out in" in run.log_of(execution_id)
            assert "tried out, and failed" not in run.log_of(execution_id)
            assert "could not be tried out" not in run.log_of(execution_id)

        lost = run.lost()
        violations = run.finish()

        with capsys.disabled():
            text = f"warm: {run.figures}; {moved.stdout.strip()}; taken over after {took_s:.1f} s"
            print(text, file=sys.stderr, flush=True)
        assert not violations, f"SAMZAPY_WARM_SEED={seed}: {told(violations)}"
        assert {second.execution_id} == lost
