"""`stream state` agrees with a fold of other code, at 1,000 moments among faults."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from simulation.world import EVENT_COUNT, World
from unit_tests.fixtures import independent_fold
from unit_tests.fixtures.audited_stream import a_file, check_states, rows_of, samzapy

pytestmark = pytest.mark.slow

SEEDS = range(20)
MOMENTS_OF_EACH = 50


def a_lived_stream(seed: int, directory: Path) -> Path:
    """The coordinator stream of the job of `seed`.

    It is compacted now and then, so records are missing.
    """
    world = World(seed)
    world.run(EVENT_COUNT)
    records, end = world.stream.read_stable(0)
    return a_file(directory / f"{seed}.avro", records, whole_from=end)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_state_of_any_moment_is_the_one_of_an_independent_fold(seed: int, tmp_path: Path) -> None:
    file = a_lived_stream(seed, tmp_path)

    check_states(file, MOMENTS_OF_EACH, Random(seed))

    verified = samzapy("stream", "verify", "--from", str(file), "-o", "jsonl")
    assert [] == rows_of(verified)
    assert 0 == verified.exit_code


def test_the_streams_have_failovers_and_rebalances(tmp_path: Path) -> None:
    records = [independent_fold.records_in(a_lived_stream(seed, tmp_path)) for seed in range(5)]

    last = [independent_fold.moment(stream, stream[-1][0])["records"] for stream in records]

    assert sum(moment["term"]["term"]["term"] for moment in last) > 10
    assert sum(moment["generation"]["generation"]["generation"] for moment in last) > 10
    assert sum(moment["epoch"]["epoch"]["epoch"] for moment in last) > 30


def test_the_independent_fold_is_independent_and_short() -> None:
    text = Path(independent_fold.__file__).read_text(encoding="utf-8")

    assert "samzapy" not in [part for line in text.splitlines() if "import" in line for part in line.split()]
    assert len(text.splitlines()) <= 150
