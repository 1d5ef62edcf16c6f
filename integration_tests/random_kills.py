"""Each part of a job under the ledger is killed, at moments of chance."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from integration_tests.ledger_run import LedgerRun, stopped_in_a_transaction, stopped_worker
from integration_tests.support.job_process import kill

RECORDS_PER_S = 900
# Per message. It keeps the workers, not the processor, busy, so that most of a batch is an open transaction.
WORK_S = 0.0005
APPEARS_WITHIN_S = 300.0
SAMZAPY = Path(sys.executable).with_name("samzapy")


def disturb(
    run: LedgerRun, chance: random.Random, faults: Mapping[str, int], records_min: int, chaos_min_s: float = 0.0
) -> float:
    """Inject each of `faults`, in random order at random moments; returns the seconds.

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
    """Kill the worker that has a slot at this moment."""
    worker, is_open = run.wait(lambda: stopped_worker(run.job), APPEARS_WITHIN_S, "a worker in its slot")
    kill(worker)
    run.fault("worker", is_open)


def kill_worker_in_a_transaction(run: LedgerRun) -> None:
    """Kill the worker that has an open transaction at this moment."""
    kill(run.wait(lambda: stopped_in_a_transaction(run.job), APPEARS_WITHIN_S, "a worker with an open transaction"))
    run.fault("worker in a transaction", True)


def kill_driver(run: LedgerRun) -> None:
    """The Python driver; spark-submit's JVM must end by itself then."""
    driver = run.wait(run.job.driver, APPEARS_WITHIN_S, "the driver")
    is_open = any(slot.is_open for slot in run.job.slots())
    run.was_killed()
    kill(driver)
    run.fault("driver", is_open)
    assert run.job.wait_ended(90.0) == 137


def kill_jvm(run: LedgerRun) -> None:
    """Kill spark-submit; the driver must end by itself, and is not waited for."""
    jvm = run.wait(run.job.jvm, APPEARS_WITHIN_S, "spark-submit")
    is_open = any(slot.is_open for slot in run.job.slots())
    run.was_killed()
    kill(jvm)
    run.fault("jvm", is_open)


def kill_jvm_and_disk(run: LedgerRun) -> None:
    """Kill the JVM and delete the local stores, as for a start on another host."""
    jvm = run.wait(run.job.jvm, APPEARS_WITHIN_S, "spark-submit")
    is_open = any(slot.is_open for slot in run.job.slots())
    run.was_killed()
    kill(jvm)
    run.job.wait_gone()
    shutil.rmtree(run.directory / "state")
    run.fault("jvm and disk", is_open)


def restart_by_request(run: LedgerRun) -> None:
    """Request a new query on the placement topic, and wait until it runs."""
    is_open = any(slot.is_open for slot in run.job.slots())
    deadline = time.monotonic() + APPEARS_WITHIN_S
    while "the plan gives it no task" in (answer := _ask_for_a_restart(run)) and time.monotonic() < deadline:
        pass  # A processor that died with its disk has tasks until its grace is over: another one has them then.
    assert "SUCCEEDED" in answer, answer
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
    run.wait(lambda: asked.poll() is not None, APPEARS_WITHIN_S, "the restart to be answered")
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
