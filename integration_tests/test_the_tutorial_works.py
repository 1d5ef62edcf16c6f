"""Every block of docs/tutorial/first-job.md, in order, on a broker of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.support.tutorial import blocks, run_blocks
from samzapy.testing.broker import DevBroker


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    DevBroker(tmp_path / "broker", detached=True).kill()


@pytest.mark.timeout(900)
def test_every_block_of_the_tutorial_works_as_described(directory: Path) -> None:
    assert 6 == run_blocks(blocks(), directory, Path(sys.executable).parent, within_s=850)
