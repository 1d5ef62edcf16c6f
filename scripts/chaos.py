"""Three processors of a stateful job join, leave, are killed and return, under a ledger; every rule at the end.

    scripts/chaos [--seconds 600] [--seed N]

Ends with 0 when nothing was lost, doubled or out of order, nothing was granted twice, and whoever kept its grants kept
its query; with 1 otherwise, naming each violation. The seed is printed, and repeats who does what when. Logs and data
are kept when it fails.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from integration_tests.comings_and_goings import RECORDS_PER_S, ComingsAndGoings
from samzapy.testing.ledger import told

SECONDS = 600.0


def main(arguments: Sequence[str]) -> int:
    """Run, print, and give the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long processors come and go [600]")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="samzapy-chaos-"))
    print(f"chaos: --seconds {options.seconds:g} --seed {options.seed}, in {directory}", flush=True)
    begun_s = time.monotonic()
    with ComingsAndGoings(directory, seed=options.seed) as run:
        run.feed(RECORDS_PER_S)
        run.start_all()
        run.disturb(options.seconds)
        violations = run.finish()
        print(f"chaos: {time.monotonic() - begun_s:.0f} s, {run.told()}", flush=True)
    if violations:
        print(f"chaos: --seed {options.seed}: {told(violations)}\nlogs and data are in {directory}", file=sys.stderr)
        return 1
    shutil.rmtree(directory)
    print("chaos: 0 lost, 0 twice, 0 out of order, nothing granted twice; whoever kept its grants kept its query")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
