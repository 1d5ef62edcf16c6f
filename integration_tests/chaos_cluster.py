"""Faults of every kind on a job on a Spark cluster: `scripts/chaos --cluster`.

Each fault is proven to have happened, and the next one comes only when the job is whole again (`chaos_plan.whole_of`):
every task run, a standby ready, next to no lag. A container that was not hit must not be replaced meanwhile.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from integration_tests.chaos_cluster_run import ASKED_WITHIN_S, SLOTS, STANDBY_OF, ClusterRun
from integration_tests.chaos_plan import Seat, Whole, disturbed
from integration_tests.support.cutting_proxy import CuttingProxy
from integration_tests.support.job_process import kill
from integration_tests.support.ledger import Violation
from integration_tests.support.spark_cluster import MASTER
from samzapy.model.job import ExecutionId
from samzapy.model.launch import EXECUTION_VARIABLE
from samzapy.testing.waiting import wait_until

RECORDS_PER_S = 150.0
_MASTER_AWAY_S = (0.0, 20.0)
_CUT_FROM_KAFKA_S = 30.0
"""Longer than the broker leaves a transaction open, and than a lease."""
_ON_ITS_WAY_S = 3.0
"""By then the records that were under way at the cut have arrived."""
_STOPS_WITHIN_S = 10.0
_TAKES_OVER_WITHIN_S = 60.0
_ENDS_WITH_WORKER_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """A fault that has happened.

    Attributes:
        description: of the fault, for the log.
        hit: executions that are to be replaced.
        touched: executions that may be replaced.
        term: the least that leads afterwards.
        fits: a further condition for the job after its recovery.
    """

    description: str
    hit: Sequence[str] = ()
    touched: Sequence[str] = ()
    term: int = 0
    fits: Callable[[Whole], bool] = lambda after: True


class Faults:
    """The faults for a run. Each method injects one fault into a whole job.

    Args:
        chance: chooses the processor that is hit.
    """

    def __init__(self, run: ClusterRun, chance: random.Random) -> None:
        self._run = run
        self._chance = chance
        self._by_kind: Mapping[str, Callable[[Whole], Injected]] = {
            "move": self._move,
            "restart": self._restart,
            "failover": self._failover,
            "worker": self._worker,
            "master": self._master,
            "coordinator": self._coordinator,
            "cut-http": self._cut_http,
            "cut-kafka": self._cut_kafka,
            "cut-both": self._cut_both,
            "zombie": self._zombie,
        }

    def inject(self, kind: str, before: Whole) -> Whole:
        """Do it, and wait until the job is whole again; prints one line."""
        begun_s = time.monotonic()
        done = self._by_kind[kind](before)
        injected_s = time.monotonic() - begun_s
        after = self._run.await_whole(but=done.hit, term=done.term)
        whole_s = time.monotonic() - begun_s
        assert done.fits(after), (
            f"{done.description}: wanted something else of the job than {after}, which was {before}"
        )
        others = disturbed(before, after, [*done.hit, *done.touched])
        assert not others, f"{done.description}: processors {others} were replaced too: {before} became {after}"
        self._run.await_ended(done.hit)
        self._run.fault(kind)
        print(
            f"chaos: {kind}: {done.description}; whole after {whole_s:.1f} s, {injected_s:.1f} s of it the fault",
            flush=True,
        )
        return after

    def _any_runner(self, before: Whole) -> Seat:
        return self._chance.choice([before.runners[processor_id] for processor_id in sorted(before.runners)])

    # --- acts of an operator ---

    def _move(self, before: Whole) -> Injected:
        seat = self._any_runner(before)
        taken = [runner.host for runner in before.seats()]
        # A processor's standby stays apart from it: to where that is, the request would be refused.
        own = {runner.host for runner in before.seats() if runner.processor_id == seat.processor_id}
        hosts = [host for host in self._run.cluster.hosts() if host not in own and taken.count(host) < SLOTS]
        host = self._chance.choice(hosts)
        self._ask("container", "place", "--processor", seat.processor_id, "--host", host)
        return Injected(
            description=f"processor {seat.processor_id} from {seat.host} to {host}",
            hit=[seat.execution_id],
            fits=lambda after: after.runners[seat.processor_id].host == host,
        )

    def _restart(self, before: Whole) -> Injected:
        seat = self._any_runner(before)
        within = f"{ASKED_WITHIN_S:g}"
        asked = self._run.samzapy("job", "restart", "--processor", seat.processor_id, "--timeout", within)
        assert asked.returncode == 0, asked.stderr
        return Injected(
            description=f"processor {seat.processor_id} on {seat.host}",
            hit=[seat.execution_id],
            fits=lambda after: after.runners[seat.processor_id].host == seat.host,
        )

    def _ask(self, *request: str) -> None:
        within = ("--expiry", f"{ASKED_WITHIN_S:g}", "--timeout", f"{ASKED_WITHIN_S:g}")
        asked = self._run.samzapy(*request, *within, timeout_s=ASKED_WITHIN_S + 60)
        assert asked.returncode == 0, (asked.stdout, asked.stderr)

    # --- killed processes ---

    def _failover(self, before: Whole) -> Injected:
        seat, standby = before.runners[STANDBY_OF], before.standbys[STANDBY_OF]
        processes = self._run.processes(seat.execution_id)
        # All its processes have inherited the mark; the oldest is the driver that the worker has started.
        kill(min(processes, key=lambda process: (process.started_ticks, process.pid)))
        return Injected(
            description=f"the driver of processor {seat.processor_id} on {seat.host}, standby on {standby.host}",
            hit=[seat.execution_id],
            fits=lambda after: after.runners[STANDBY_OF] == standby,
        )

    def _worker(self, before: Whole) -> Injected:
        host = self._chance.choice(sorted({seat.host for seat in before.seats()}))
        on_it = [seat.execution_id for seat in before.seats() if seat.host == host]
        processes = [process for execution_id in on_it for process in self._run.processes(execution_id)]
        assert processes, f"nothing of {on_it} runs on {host}"
        self._run.cluster.kill_one(host)
        for process in processes:
            assert process.wait_gone(_ENDS_WITH_WORKER_S), f"process {process.pid} has outlived its worker"
        self._run.cluster.start_one(host)
        return Injected(description=f"{host} with {len(on_it)} containers", hit=on_it)

    def _master(self, before: Whole) -> Injected:
        cluster, launches = self._run.cluster, self._run.state().launches
        drivers = {seat.execution_id: launches[ExecutionId(seat.execution_id)].handle for seat in before.seats()}
        master, away_s = cluster.living(MASTER), self._chance.uniform(*_MASTER_AWAY_S)
        cluster.kill_one(MASTER)
        self._run.be_quiet(away_s)
        cluster.start_one(MASTER)
        assert master != cluster.living(MASTER)
        ended = cluster.drivers_ended_by_recovery()
        hit = [execution_id for execution_id, driver in drivers.items() if driver in ended]
        return Injected(description=f"away for {away_s:.1f} s and its start, which ended {len(hit)} drivers", hit=hit)

    def _coordinator(self, before: Whole) -> Injected:
        self._run.kill_leader()
        return Injected(description=f"the leader of term {before.term}", term=before.term + 1)

    # --- containers that are cut off ---

    def _cut_http(self, before: Whole) -> Injected:
        seat = self._any_runner(before)
        with self._cut(seat, self._run.fronts):
            self._await_given_up(seat)
        return Injected(description=f"processor {seat.processor_id} from the coordinator", hit=[seat.execution_id])

    def _cut_kafka(self, before: Whole) -> Injected:
        seat = self._any_runner(before)
        with self._cut(seat, [self._run.kafka]):
            self._run.be_quiet(_ON_ITS_WAY_S)
            start = self._run.positions_end()
            self._run.be_quiet(_CUT_FROM_KAFKA_S - _ON_ITS_WAY_S)
            wrote = {position.execution_id for position in self._run.written(start, "read_uncommitted")}
            others = {runner.execution_id for runner in before.runners.values()} - {seat.execution_id}
            assert seat.execution_id not in wrote, f"{seat} was not cut off"
            assert others <= wrote, f"wanted {others} to continue meanwhile, found that {wrote} wrote"
        # The outcome of the cut container does not matter: the others have continued.
        return Injected(description=f"processor {seat.processor_id} from Kafka", touched=[seat.execution_id])

    def _cut_both(self, before: Whole) -> Injected:
        seat = self._any_runner(before)
        with self._cut(seat, [*self._run.fronts, self._run.kafka]):
            self._await_given_up(seat)
            # No process could inform it.
            assert self._run.processes(seat.execution_id), f"{seat} was dead before it could be heard again"
        return Injected(description=f"processor {seat.processor_id} from all others", hit=[seat.execution_id])

    @contextmanager
    def _cut(self, seat: Seat, ways: Sequence[CuttingProxy]) -> Iterator[None]:
        """Cut it off from the servers of `ways`; its bytes arrive late."""
        for way in ways:
            way.cut(EXECUTION_VARIABLE, seat.execution_id)
        try:
            yield
        finally:
            held = {way: way.heal() for way in ways}
        kafka = held.pop(self._run.kafka, None)
        assert kafka != 0, f"{seat} had no connection to Kafka"
        assert not held or any(held.values()), f"{seat} had no connection to a coordinator"

    def _await_given_up(self, seat: Seat) -> None:
        reason = self._run.await_fenced(seat.execution_id).reason
        assert reason.startswith("no heartbeat"), f"{seat} was given up for another reason: {reason}"

    # --- processes that are stopped ---

    def _zombie(self, before: Whole) -> Injected:
        """Stop a container until a standby has its tasks, and continue it."""
        seat, standby = before.runners[STANDBY_OF], before.standbys[STANDBY_OF]

        def are_stopped() -> bool:
            # A process that was forked before its parent stopped is stopped in the next round.
            moving = [process for process in self._run.processes(seat.execution_id) if not process.is_stopped()]
            for process in moving:
                process.send(signal.SIGSTOP)
            return not moving

        begun_s = time.monotonic()
        wait_until(are_stopped, _STOPS_WITHIN_S, f"all of {seat.execution_id} to stop")
        self._run.await_fenced(seat.execution_id)
        self._run.wait(
            lambda: self._runs_all(standby), _TAKES_OVER_WITHIN_S, f"{standby.execution_id} to have the tasks"
        )
        processes = self._run.processes(seat.execution_id)
        assert processes and all(process.is_stopped() for process in processes), f"{seat} was dead before it woke up"
        for process in processes:
            process.send(signal.SIGCONT)
        stood_s = time.monotonic() - begun_s
        wait_until(lambda: not any(process.is_stopped() for process in processes), _STOPS_WITHIN_S, "it to continue")
        return Injected(
            description=f"processor {seat.processor_id} was stopped for {stood_s:.0f} s",
            hit=[seat.execution_id],
            fits=lambda after: after.runners[STANDBY_OF] == standby,
        )

    def _runs_all(self, seat: Seat) -> bool:
        tasks = (self._run.status() or {}).get("tasks", ())
        owners = {task["owner"] for task in tasks if task["processorId"] == seat.processor_id}
        return owners == {seat.execution_id}


def disturb(
    directory: Path, kinds: Sequence[str], *, seed: int, records_per_s: float, seconds: float
) -> list[Violation]:
    """A run with faults of these kinds in this order; returns its violations.

    Args:
        seconds: no fault begins later than that after the first.

    Raises:
        AssertionError, SamzapyError: the job did not become whole, or a fault did not happen.
    """
    begun_s = time.monotonic()
    with ClusterRun(directory, seed=seed, records_per_s=records_per_s) as run:
        run.feed(records_per_s)
        whole = run.start()
        run.await_work(in_tails=True)
        print(f"chaos: whole after {time.monotonic() - begun_s:.1f} s", flush=True)
        faults, begun_s = Faults(run, random.Random(seed)), time.monotonic()
        for kind in kinds:
            if time.monotonic() - begun_s > seconds:
                break
            whole = faults.inject(kind, whole)
        violations = run.finish()
        print(f"chaos: {run.figures}, {run.shut_out_count()} executions given up", flush=True)
    return violations
