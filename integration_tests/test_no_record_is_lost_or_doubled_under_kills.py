"""The ledger test: a stateful job, killed in every part at random moments, and every record accounted for.

A seed decides what is fed and when which process is killed; it is printed, and SAMZAPY_LEDGER_SEED repeats it (the
machine's own timing stays its own). Each fault is proven: the process is gone. How many of them met an open
transaction is read off the slot files and printed: a run that met too few has proven too little, and fails.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from integration_tests.ledger_run import LedgerRun, stopped_in_a_transaction, stopped_worker
from integration_tests.seeds import told_seed
from integration_tests.sizes import sized
from integration_tests.support.job_process import kill
from integration_tests.support.ledger import told
from samzapy.errors import ExitCode

RECORDS_MIN = 100_000
CHAOS_MIN_S = 90.0
RECORDS_PER_S = 900
SAMZAPY = Path(sys.executable).with_name("samzapy")
FAULTS = {"worker": 4, "worker in a transaction": 6, "driver": 2, "jvm": 1, "jvm and disk": 1, "broker": 3}
HIT_OPEN_MIN = 6
# The shorter run, of a job whose tasks read several partitions each.
RECORDS_MIN_COGROUP = sized(20_000, short=10_000)
FAULTS_COGROUP = sized(
    {"worker in a transaction": 4, "driver": 1, "jvm and disk": 1, "restart by request": 2},
    short={"worker in a transaction": 2, "jvm and disk": 1, "restart by request": 1},
)
# Per message. It keeps the workers, not the processor, busy, so that most of a batch is an open transaction.
WORK_S = 0.0005
_APPEARS_WITHIN_S = 300.0


@pytest.mark.ledger
@pytest.mark.timeout(900)
def test_no_record_is_lost_or_doubled_under_kills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = told_seed("ledger test", "SAMZAPY_LEDGER_SEED", capsys)
    environment = {"RUNNING_SUMS_WORK_S": str(WORK_S)}
    # A batch of a partition takes several transactions, so that a kill also finds it half committed.
    overrides = {"task.transaction.max.ms": "100", "task.batch.interval.ms": "1000"}
    with LedgerRun(tmp_path, seed=seed, environment=environment, overrides=overrides) as run:
        run.feed(RECORDS_PER_S)
        run.wait(lambda: run.watcher.count() > 0, _APPEARS_WITHIN_S, "the first output")
        run.compact_eagerly()

        chaos_s = disturb(run, random.Random(seed), FAULTS, RECORDS_MIN, CHAOS_MIN_S)
        violations = run.finish()

        with capsys.disabled():
            print(f"ledger test: {chaos_s:.0f} s of chaos, {run.figures}", file=sys.stderr, flush=True)
        assert not violations, f"SAMZAPY_LEDGER_SEED={seed}: {told(violations)}"
        assert FAULTS == run.figures.faults
        # A start may give up while the broker is away; nothing else ends the job but the test.
        assert {*run.figures.ended_by_itself} <= {ExitCode.TIMED_OUT}, run.job.all_log_text()
        assert run.figures.records >= RECORDS_MIN
        assert chaos_s >= CHAOS_MIN_S
        assert run.figures.hit_open_transactions >= HIT_OPEN_MIN, "kills missed the transactions: invalid, not green"


@pytest.mark.ledger
@pytest.mark.timeout(900)
def test_nor_where_a_task_reads_partitions_of_several_inputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cogrouped inputs: rows go to their tasks by a shuffle, and one transaction moves several positions."""
    seed = told_seed("ledger test, cogroup", "SAMZAPY_LEDGER_SEED", capsys)
    overrides = {
        "task.inputs": "kafka.fed,kafka.fed-too",
        "task.partition.scheme": "cogroup",
        "task.transaction.max.ms": "100",
        "task.batch.interval.ms": "1000",
    }
    with LedgerRun(
        tmp_path,
        seed=seed,
        inputs={"fed": 4, "fed-too": 6},
        task_count=2,
        environment={"RUNNING_SUMS_WORK_S": str(WORK_S)},
        overrides=overrides,
    ) as run:
        run.feed(RECORDS_PER_S)
        run.wait(lambda: run.watcher.count() > 0, _APPEARS_WITHIN_S, "the first output")

        chaos_s = disturb(run, random.Random(seed), FAULTS_COGROUP, RECORDS_MIN_COGROUP)
        violations = run.finish()

        with capsys.disabled():
            print(f"ledger test, cogroup: {chaos_s:.0f} s of chaos, {run.figures}", file=sys.stderr, flush=True)
        assert not violations, f"SAMZAPY_LEDGER_SEED={seed}: {told(violations)}"
        assert FAULTS_COGROUP == run.figures.faults
        assert [] == run.figures.ended_by_itself, run.job.all_log_text()
        assert run.figures.records >= RECORDS_MIN_COGROUP


def disturb(
    run: LedgerRun, chance: random.Random, faults: Mapping[str, int], records_min: int, chaos_min_s: float = 0.0
) -> float:
    """Every one of `faults`, in an order and at moments of chance; returns how long it took.

    The moments are drawn among the records that are fed, so the faults are spread over all of them, however fast the
    machine is. One may come while the job is still recovering from the one before.
    """
    kinds = [kind for kind, count in faults.items() for _ in range(count)]
    chance.shuffle(kinds)
    moments = sorted(chance.randrange(2_000, records_min) for _ in kinds)
    begun_s = time.monotonic()
    for kind, moment in zip(kinds, moments, strict=True):
        run.wait(lambda m=moment: len(run.ledger.acked) >= m, 300.0, f"{moment} acknowledged records")  # type: ignore[misc]
        KILLS[kind](run)
    run.wait(
        lambda: len(run.ledger.acked) >= records_min and time.monotonic() - begun_s >= chaos_min_s,
        300.0,
        f"{records_min} acknowledged records",
    )
    return time.monotonic() - begun_s


def kill_worker(run: LedgerRun) -> None:
    """Whoever works in a slot at this moment."""
    worker, is_open = run.wait(lambda: stopped_worker(run.job), _APPEARS_WITHIN_S, "a worker in its slot")
    kill(worker)
    run.fault("worker", is_open)


def kill_worker_in_a_transaction(run: LedgerRun) -> None:
    """Whoever has a transaction open at this moment."""
    kill(run.wait(lambda: stopped_in_a_transaction(run.job), _APPEARS_WITHIN_S, "a worker with an open transaction"))
    run.fault("worker in a transaction", True)


def kill_driver(run: LedgerRun) -> None:
    """The Python driver; spark-submit's JVM must end by itself then."""
    driver = run.wait(run.job.driver, _APPEARS_WITHIN_S, "the driver")
    is_open = any(slot.is_open for slot in run.job.slots())
    run.was_killed()
    kill(driver)
    run.fault("driver", is_open)
    assert run.job.wait_ended(30.0) == 137


def kill_jvm(run: LedgerRun) -> None:
    """spark-submit, the pid that people know; the driver must end by itself, and is not waited for."""
    jvm = run.wait(run.job.jvm, _APPEARS_WITHIN_S, "spark-submit")
    is_open = any(slot.is_open for slot in run.job.slots())
    run.was_killed()
    kill(jvm)
    run.fault("jvm", is_open)


def kill_jvm_and_disk(run: LedgerRun) -> None:
    """The same, and the local stores with it, as when the next start is on another host."""
    jvm = run.wait(run.job.jvm, _APPEARS_WITHIN_S, "spark-submit")
    is_open = any(slot.is_open for slot in run.job.slots())
    run.was_killed()
    kill(jvm)
    run.job.wait_gone()
    shutil.rmtree(run.directory / "state")
    run.fault("jvm and disk", is_open)


def restart_by_request(run: LedgerRun) -> None:
    """Nothing is killed: an operator asks for a new query, on the placement topic, and waits until it runs."""
    is_open = any(slot.is_open for slot in run.job.slots())
    deadline = time.monotonic() + _APPEARS_WITHIN_S
    while "the plan gives it no task" in (said := _ask_for_a_restart(run)) and time.monotonic() < deadline:
        pass  # A processor that died with its disk has tasks until its grace is over: another one has them then.
    assert "SUCCEEDED" in said, said
    run.fault("restart by request", is_open)


def _ask_for_a_restart(run: LedgerRun) -> str:
    address = ("--job", run.subject.name, "--bootstrap-servers", run.broker.bootstrap_servers)
    status = subprocess.run(
        [SAMZAPY, "job", "status", *address, "-o", "json"], capture_output=True, text=True, timeout=120
    )
    processor_id = json.loads(status.stdout)["tasks"][0]["processorId"]
    asked = subprocess.Popen(
        [
            *(SAMZAPY, "container", "restart", *address, "--processor-id", processor_id),
            *("--expiry", "300", "--timeout", "300"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    run.wait(lambda: asked.poll() is not None, _APPEARS_WITHIN_S, "the restart to be answered")
    return asked.communicate()[0]


def kill_broker(run: LedgerRun) -> None:
    """The broker; it comes back on the same data."""
    is_open = any(slot.is_open for slot in run.job.slots())
    run.broker.kill()
    assert run.broker.process() is None
    run.fault("broker", is_open)
    run.broker.start()


KILLS = {
    "worker": kill_worker,
    "worker in a transaction": kill_worker_in_a_transaction,
    "driver": kill_driver,
    "jvm": kill_jvm,
    "jvm and disk": kill_jvm_and_disk,
    "broker": kill_broker,
    "restart by request": restart_by_request,
}
