"""The seeds of tests with random faults."""

from __future__ import annotations

import os
import random
import sys

import pytest


def printed_seed(test: str, variable: str, capsys: pytest.CaptureFixture[str]) -> int:
    """A printed seed, so that a test that hangs shows it; `variable` repeats one."""
    seed = int(os.environ.get(variable) or random.SystemRandom().randrange(10**6))
    with capsys.disabled():
        print(f"\n{test}: {variable}={seed}", file=sys.stderr, flush=True)
    return seed
