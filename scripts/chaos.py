"""Processors of a stateful job join, leave, die and return, under a ledger.

    scripts/chaos [--seconds 600] [--moves] [--seed N]
    scripts/chaos --scale [--job running_sums|rules|repartition] [--changes 30] [--expansions 3] [--seed N]
    scripts/chaos --cluster [--faults 10] [--only KIND] [--seconds S] [--seed N]

Each rule of the ledger is checked at the end.

With `--scale` the job also changes its factor again and again, and its input gets more partitions. In each change one
process is killed at a random moment, and others die at named crash points. After each change every key bucket must have
exactly one owner. The job `rules` also has a broadcast input, whose messages change the answers of its tasks. The rules
that each task knows and keeps must be right at any time. The job `repartition` sends each record on through an
intermediate stream, by another key. The answers of its second step must be right too.

With `--cluster` the job's coordinator starts its containers on a Spark standalone cluster. Each part of the system is
killed, cut off, stopped or moved in turn. The next fault comes when the job is whole again
(`integration_tests/chaos_cluster.py`).

Ends with 0 when no record was lost, doubled or out of order, and no task was granted twice. Without `--scale` and
`--cluster`, each container that kept its grants must also have kept its query. Ends with 1 otherwise, and names each
violation. The printed seed repeats the faults and their times. Logs and data are kept when it fails.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from integration_tests import quick_java
from integration_tests.chaos_cluster import RECORDS_PER_S as CLUSTER_RATE
from integration_tests.chaos_cluster import disturb
from integration_tests.chaos_plan import KINDS, plan_of
from integration_tests.comings_and_goings import RECORDS_PER_S, ComingsAndGoings
from integration_tests.factor_walk import FactorWalk
from integration_tests.subjects import SUBJECTS
from integration_tests.support.ledger import Violation, describe_violations

SECONDS = 600.0
CHANGES, EXPANSIONS = 30, 3
SCALE_RATE = 2000
_ANY_NUMBER = 10_000


def main(arguments: Sequence[str]) -> int:
    """Run, print, and give the exit code."""
    options = _options(arguments)
    os.environ.update(quick_java.environment())
    directory = Path(tempfile.mkdtemp(prefix="samzapy-chaos-"))
    print(f"chaos: {' '.join(arguments)} --seed {options.seed}, in {directory}", flush=True)
    violations, kept = _on_a_cluster(options, directory) if options.cluster else _by_hand(options, directory)
    if violations:
        print(
            f"chaos: --seed {options.seed}: {describe_violations(violations)}\nlogs and data are in {directory}",
            file=sys.stderr,
        )
        return 1
    shutil.rmtree(directory)
    print(f"chaos: 0 lost, 0 twice, 0 out of order, nothing granted twice{kept}")
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--seconds",
        type=float,
        help="how long processors come and go [600]; with --cluster no fault begins later than that",
    )
    parser.add_argument(
        "--moves", action="store_true", help="an operator moves processors meanwhile, without --scale"
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--scale", action="store_true", help="change the factor and the partitions")
    mode.add_argument("--cluster", action="store_true", help="containers on a Spark standalone cluster")
    parser.add_argument(
        "--job", choices=sorted(SUBJECTS), default="running_sums", help="the job to run [running_sums]"
    )
    parser.add_argument("--changes", type=int, default=CHANGES, help="changes of the factor, with --scale [30]")
    parser.add_argument(
        "--expansions", type=int, default=EXPANSIONS, help="expansions of the input, with --scale [3]"
    )
    parser.add_argument("--faults", type=int, help="number of faults, with --cluster [each kind once]")
    parser.add_argument(
        "--only", choices=KINDS, action="append", help="only faults of this kind, with --cluster; may be repeated"
    )
    parser.add_argument(
        "--rate",
        type=float,
        help=f"records per second [{RECORDS_PER_S}; {SCALE_RATE} with --scale, {CLUSTER_RATE:g} with --cluster]; fewer "
        "while the job is far behind",
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    return parser.parse_args(arguments)


def _by_hand(options: argparse.Namespace, directory: Path) -> tuple[Sequence[Violation], str]:
    """Start processors one by one; return the violations, and a note for a good run."""
    begun_s = time.monotonic()
    subject = SUBJECTS[options.job]()
    kind = FactorWalk if options.scale else ComingsAndGoings
    with kind(directory, seed=options.seed, subject=subject) as run:
        run.feed(options.rate or (SCALE_RATE if options.scale else RECORDS_PER_S))
        # Behind a backlog there are no tails.
        run.start_all(in_tails=not options.scale)
        if isinstance(run, FactorWalk):
            run.walk(options.changes, expansions=options.expansions)
        else:
            run.disturb(options.seconds or SECONDS, moves=options.moves)
        violations = run.finish()
        if isinstance(run, FactorWalk):
            print(f"chaos: {run.deaths} killed, {len(run.changes.crash_points)} of them at named crash points")
        print(f"chaos: {time.monotonic() - begun_s:.0f} s, {run.summary()}", flush=True)
    return violations, "" if options.scale else "; a container that kept its grants kept its query"


def _on_a_cluster(options: argparse.Namespace, directory: Path) -> tuple[Sequence[Violation], str]:
    """Run containers that the coordinator starts; results as of `_by_hand`."""
    kinds = options.only or list(KINDS)
    count = options.faults or (_ANY_NUMBER if options.seconds else len(kinds))
    violations = disturb(
        directory,
        plan_of(options.seed, count, kinds),
        seed=options.seed,
        records_per_s=options.rate or CLUSTER_RATE,
        seconds=options.seconds or math.inf,
    )
    return violations, ", nothing written by a container that was given up, no process left"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
