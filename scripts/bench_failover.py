"""How long a job is without a leader: `kill -9` of the leader until the next decision is committed.

Three candidates of one job on a development broker, without Spark: what is measured is the election, the fence, the
replay and the first commit of the next term. Each round kills whoever leads, waits for the next term record, and
starts a candidate in the place of the killed one. The end is the time at which the broker took the record, by the
clock of the same machine. Figures go to docs/performance.md by hand, with the conditions.

    PYTHONPATH=. python scripts/bench_failover.py [kills]
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Sequence

from integration_tests.candidates import CandidateProcess, Contest
from samzapy.testing.broker import DevBroker
from samzapy.testing.waiting import wait_until

CANDIDATES = 3
KILLS = 20
WANTED_P95_S = 8.0


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and end with 1 when it took too long."""
    kills = int(arguments[0]) if arguments else KILLS
    with DevBroker() as broker, Contest(broker.bootstrap_servers) as contest:
        took_s = [round(found, 2) for found in _rounds(contest, kills)]
    load = os.getloadavg()[0]
    print(f"kill -9 of the leader to the next committed decision, {kills} kills, {CANDIDATES} candidates")
    print(f"each, s: {', '.join(f'{found:.2f}' for found in took_s)}")
    ordered = sorted(took_s)
    p95_s = ordered[math.ceil(0.95 * len(ordered)) - 1]
    print(f"p50 {ordered[len(ordered) // 2]:.2f} s, p95 {p95_s:.2f} s, max {ordered[-1]:.2f} s; load {load:.1f}")
    print(f"wanted p95 <= {WANTED_P95_S} s: {'pass' if p95_s <= WANTED_P95_S else 'FAIL'}")
    return 0 if p95_s <= WANTED_P95_S else 1


def _rounds(contest: Contest, kills: int) -> list[float]:
    candidates = {found.pid: found for found in [contest.candidate() for _ in range(CANDIDATES)]}
    took_s = []
    for number in range(1, kills + 1):
        term = contest.wait_for_term(number, deadline_s=60)
        leader = candidates.pop(term.pid)
        _settled(leader)
        killed_s = time.time()
        leader.kill()
        took_s.append(contest.wait_for_term(number + 1, deadline_s=60).timestamp_ms / 1000 - killed_s)
        replacement = contest.candidate()
        candidates[replacement.pid] = replacement
    assert [found.term for found in contest.terms()] == list(range(1, kills + 2)), "a term began without a kill"
    return took_s


def _settled(leader: CandidateProcess) -> None:
    """The leader leads, and the others have stood in the queue for a while, as in a job that has run for long."""
    wait_until(leader.leads, 30, "the leader to answer")
    since_s = time.monotonic()
    wait_until(lambda: time.monotonic() - since_s > 2.0, 5, "the others to be in the queue")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
