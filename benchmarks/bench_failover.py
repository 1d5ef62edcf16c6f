"""The time without a leader: `kill -9` until the next decision is committed.

Three candidates of one job on a development broker, without Spark. Measured are the election, the fence, the
replay, the first commit of the next term, and the first decision in it. Each round kills the leader, asks for
something at once, waits until the next leader has decided on that, and starts a candidate in the place of the killed
one. The ends are the times at which the broker took the term record and the decision, by the clock of the same machine.
Figures go to docs/internals/performance.md by hand, with the conditions.

    PYTHONPATH=. python benchmarks/bench_failover.py [kills]
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

from bench_conditions import PRODUCTION_JVM

from integration_tests.candidates import CandidateProcess, Contest
from samzapy.placement import ANY_HOST, ContainerPlacementMetadataStore
from samzapy.stream.codec import parse_headers
from samzapy.testing.broker import DevBroker
from samzapy.testing.waiting import wait_until

CANDIDATES = 3
KILLS = 20
WANTED_P95_S = 8.0


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and end with 1 when it took too long."""
    kills = int(arguments[0]) if arguments else KILLS
    with DevBroker(jvm_options=PRODUCTION_JVM) as broker, Contest(broker.bootstrap_servers) as contest:
        rounds = _rounds(contest, kills)
    print(f"kill -9 of the leader, {kills} kills, {CANDIDATES} candidates; load {os.getloadavg()[0]:.1f}")
    _print_times("to the next committed decision", [round_.decided_s for round_ in rounds])
    _print_times("to the record of the next term", [round_.begun_s for round_ in rounds])
    p95_s = _p95([round_.decided_s for round_ in rounds])
    print(f"wanted p95 <= {WANTED_P95_S} s: {'pass' if p95_s <= WANTED_P95_S else 'FAIL'}")
    return 0 if p95_s <= WANTED_P95_S else 1


class Round(NamedTuple):
    """The times from the kill to the next term, and to its first decision."""

    begun_s: float
    decided_s: float


def _print_times(title: str, took_s: Sequence[float]) -> None:
    ordered = sorted(took_s)
    print(f"{title}, s: {', '.join(f'{duration_s:.2f}' for duration_s in took_s)}")
    print(f"  p50 {ordered[len(ordered) // 2]:.2f} s, p95 {_p95(took_s):.2f} s, longest {ordered[-1]:.2f} s")


def _p95(took_s: Sequence[float]) -> float:
    return sorted(took_s)[math.ceil(0.95 * len(took_s)) - 1]


def _rounds(contest: Contest, kills: int) -> list[Round]:
    with ContainerPlacementMetadataStore(contest.bootstrap_servers, job=f"{contest.job_name}-1") as store:
        return _rounds_with(contest, kills, store)


def _rounds_with(contest: Contest, kills: int, store: ContainerPlacementMetadataStore) -> list[Round]:
    candidates = {candidate.pid: candidate for candidate in [contest.candidate() for _ in range(CANDIDATES)]}
    rounds = []
    for number in range(1, kills + 1):
        term = contest.wait_for_term(number, deadline_s=60)
        leader = candidates.pop(term.pid)
        _settled(leader)
        killed_s = time.time()
        leader.kill()
        # Of no run of the job, so it is refused, which is a decision like any other.
        request = store.write_container_placement_request_message("0-00000000", "0", ANY_HOST)
        decided_ms = wait_until(partial(_decided_ms, contest, number + 1, request), 60, "the next leader to decide")
        begun_ms = contest.wait_for_term(number + 1).timestamp_ms
        rounds.append(Round(begun_ms / 1000 - killed_s, decided_ms / 1000 - killed_s))
        replacement = contest.candidate()
        candidates[replacement.pid] = replacement
    assert [term.term for term in contest.terms()] == list(range(1, kills + 2)), "a term began without a kill"
    return rounds


def _decided_ms(contest: Contest, term: int, request: UUID) -> int | None:
    """The broker's time of the term's first decision; None while there is none."""
    for record in contest.records():
        headers = parse_headers(record.headers)
        if headers is not None and headers.term == term and str(request) in str(record.key):
            return record.timestamp_ms
    return None


def _settled(leader: CandidateProcess) -> None:
    """Wait until one candidate leads and the others queue."""
    wait_until(leader.leads, 30, "the leader to answer")
    since_s = time.monotonic()
    wait_until(lambda: time.monotonic() - since_s > 2.0, 5, "the others to be in the queue")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
