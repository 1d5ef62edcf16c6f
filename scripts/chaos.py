"""Processors of a stateful job join, leave, are killed and return, under a ledger; every rule at the end.

    scripts/chaos [--seconds 600] [--moves] [--seed N]
    scripts/chaos --scale [--job running_sums|rules] [--changes 30] [--expansions 3] [--seed N]

With `--scale` the job also changes its factor again and again and its input gets more partitions, while somebody dies
in each change, at a random moment or at a named crash point. The job `rules` has a broadcast input beside, whose
messages change what its tasks do: what each of them knows at any time, and keeps, must be right too.

Ends with 0 when nothing was lost, doubled or out of order, nothing was granted twice, and (without `--scale`) whoever
kept its grants kept its query; with 1 otherwise, naming each violation. The seed is printed, and repeats who does what
when. Logs and data are kept when it fails.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from integration_tests import quick_java
from integration_tests.comings_and_goings import RECORDS_PER_S, ComingsAndGoings
from integration_tests.factor_walk import FactorWalk
from integration_tests.subjects import SUBJECTS
from samzapy.testing.ledger import told

SECONDS = 600.0
CHANGES, EXPANSIONS = 30, 3


def main(arguments: Sequence[str]) -> int:
    """Run, print, and give the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long processors come and go [600]")
    parser.add_argument(
        "--moves", action="store_true", help="an operator moves processors meanwhile, without --scale"
    )
    parser.add_argument("--scale", action="store_true", help="change the factor and the partitions")
    parser.add_argument("--job", choices=sorted(SUBJECTS), default="running_sums", help="which job [running_sums]")
    parser.add_argument("--changes", type=int, default=CHANGES, help="of the factor, with --scale [30]")
    parser.add_argument("--expansions", type=int, default=EXPANSIONS, help="of the input, with --scale [3]")
    parser.add_argument("--rate", type=float, default=RECORDS_PER_S, help="records per second [300]")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args(arguments)
    os.environ.update(quick_java.environment())
    directory = Path(tempfile.mkdtemp(prefix="samzapy-chaos-"))
    print(f"chaos: {' '.join(arguments)} --seed {options.seed}, in {directory}", flush=True)
    begun_s = time.monotonic()
    subject = SUBJECTS[options.job]()
    kind = FactorWalk if options.scale else ComingsAndGoings
    with kind(directory, seed=options.seed, subject=subject) as run:
        run.feed(options.rate)
        run.start_all()
        if isinstance(run, FactorWalk):
            run.walk(options.changes, expansions=options.expansions)
        else:
            run.disturb(options.seconds, moves=options.moves)
        violations = run.finish()
        print(f"chaos: {time.monotonic() - begun_s:.0f} s, {run.told()}", flush=True)
    if violations:
        print(f"chaos: --seed {options.seed}: {told(violations)}\nlogs and data are in {directory}", file=sys.stderr)
        return 1
    shutil.rmtree(directory)
    kept = "" if options.scale else "; whoever kept its grants kept its query"
    print(f"chaos: 0 lost, 0 twice, 0 out of order, nothing granted twice{kept}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
