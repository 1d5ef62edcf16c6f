"""Where a test of chance gets its chance from."""

from __future__ import annotations

import os
import random
import sys

import pytest


def told_seed(test: str, variable: str, capsys: pytest.CaptureFixture[str]) -> int:
    """A seed, also for whoever reads the output of a test that hangs; the environment's `variable` repeats one."""
    seed = int(os.environ.get(variable) or random.SystemRandom().randrange(10**6))
    with capsys.disabled():
        print(f"\n{test}: {variable}={seed}", file=sys.stderr, flush=True)
    return seed
