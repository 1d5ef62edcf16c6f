"""Windows of a whole job in memory: they meet crashes and scaling."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from samzapy.testing.job import CRASH_POINTS, DRIVER, MemoryJob

_JOB = """
import samzapy as sz

words = sz.Stream("kafka.words", key=sz.String, value=sz.String)
counts = sz.Stream("kafka.counts", key=sz.String, value=sz.Json())

@sz.task(inputs=[words], outputs=[counts], window_ms=sz.seconds(10))
class Words(sz.Task[str, str]):
    count = sz.counter()

    def process(self, message, out):
        self.count.add()

    def window(self, tick, out):
        for key in self.context.keys(self.count):
            out.send(counts, [tick.number, self.count.get()], key=key)
            self.count.clear()
"""
KEYS = "abcdefgh"


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "words.py"
    path.write_text(_JOB)
    path.with_suffix(".properties").write_text(
        "job.name=words\nsystems.kafka.bootstrap.servers=localhost:1\nlocal.store.dir=/data\n"
    )
    return path


def check(job: MemoryJob, each: int) -> None:
    """Each message was counted once, and no tick came twice for a key."""
    outputs = [(output.key, *output.value) for output in job.read("counts")]
    sums: Counter[str] = Counter()
    for key, _, count in outputs:
        sums[key] += count
    assert dict.fromkeys(KEYS, each) == sums
    assert len(outputs) == len({(key, number) for key, number, _ in outputs})
    assert {} == job.state("count")


@pytest.mark.parametrize("factors", [(2,), (4, 1), (2, 8, 1)])
def test_windows_count_each_message_once_while_the_job_is_scaled(job_file: Path, factors: tuple[int, ...]) -> None:
    with MemoryJob(job_file) as job:
        for factor in (1, *factors):
            job.scale(factor)
            for key in KEYS:
                job.send("words", "x", key=key)
            job.advance(seconds=7)
        job.advance(seconds=20)

        check(job, len(factors) + 1)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_clock_that_is_set_back_an_hour_repeats_no_tick(job_file: Path, restarts: bool) -> None:
    with MemoryJob(job_file) as job:
        for hours in (0, -1, 1, -1):
            job.jump_clock(hours=hours)
            if restarts:
                job.restart()
            for key in KEYS:
                job.send("words", "x", key=key)
            job.advance(seconds=25)
        # Until the clock is where it was, no tick comes.
        job.advance(hours=2)

        check(job, 4)


@pytest.mark.parametrize("point", [DRIVER, *CRASH_POINTS])
@pytest.mark.parametrize("factor", [1, 4])
def test_windows_count_each_message_once_where_workers_and_drivers_crash(
    job_file: Path, point: str, factor: int
) -> None:
    with MemoryJob(job_file, factor=factor, partitions=2) as job:
        for _ in range(3):
            for key in KEYS:
                job.send("words", "x", key=key)
            job.crash(point)
            job.advance(seconds=12)
        job.advance(seconds=20)

        check(job, 3)
        assert point == DRIVER or job.crashes >= 1


@pytest.mark.parametrize("factors", [(1, 2, 1), (2, 4, 2), (2, 1, 2), (1, 8, 2, 1), (4, 1, 2, 4)])
@pytest.mark.parametrize("begins_at_s", [1, 6])
def test_a_task_that_has_its_keys_again_repeats_and_leaves_out_no_tick(
    job_file: Path, factors: tuple[int, ...], begins_at_s: int
) -> None:
    """It finds its own old entry, while others have done later ticks of its keys."""
    with MemoryJob(job_file, factor=factors[0]) as job:
        job.advance(seconds=begins_at_s)
        for factor in factors:
            job.scale(factor)
            for _ in range(24):
                for key in KEYS:
                    job.send("words", "x", key=key)
                job.advance(seconds=1)
        job.advance(seconds=20)

        check(job, 24 * len(factors))
        for key in KEYS:
            ticks = [output.value[0] for output in job.read("counts") if output.key == key]
            assert list(range(ticks[0], ticks[-1] + 1)) == ticks
