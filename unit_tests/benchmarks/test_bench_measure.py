"""The steady state, percentiles, and the reading of Spark's offsets."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from bench_measure import (
    Look,
    Others,
    Steady,
    cpu_of,
    machine_cpu_s,
    memory_of,
    percentile,
    steady_state,
    tree_of,
)
from bench_subjects import offsets_sum


def looks(*records: int) -> list[Look]:
    """A batch end for each figure, each one second and two CPU-seconds after the last."""
    return [
        Look(at_s=float(number), records=done, cpu_s={"JVM": 2.0 * number}) for number, done in enumerate(records)
    ]


def test_the_steady_state_begins_at_the_first_batch_end_after_the_warm_up() -> None:
    steady = steady_state(looks(100, 200, 300, 400), 200)

    assert (200, 2.0, 4.0) == (steady.records, steady.wall_s, steady.cpu_s["JVM"])


def test_the_steady_state_ends_with_the_last_full_batch() -> None:
    steady = steady_state(looks(100, 200, 300, 400, 410), 100)

    assert 300 == steady.records


def test_several_small_batches_at_the_end_are_left_out() -> None:
    steady = steady_state(looks(100, 200, 300, 400, 430, 440), 100)

    assert 300 == steady.records


def test_figures_are_per_record_and_per_second() -> None:
    steady = steady_state(looks(0, 100, 200), 0)

    assert (50.0, 100.0, 20_000.0) == (steady.per_cpu_s, steady.per_wall_s, steady.cpu_us_per_record("JVM"))


def test_the_time_of_jvm_compilers_is_start_up_and_is_not_counted() -> None:
    steady = Steady(records=100, wall_s=1.0, cpu_s={"JVM": 1.5, "JIT": 7.0, "workers": 0.5})

    assert (50.0, 70_000.0) == (steady.per_cpu_s, steady.cpu_us_per_record("JIT"))


def test_batches_that_are_a_few_records_short_are_the_warm_up_all_the_same() -> None:
    steady = steady_state(looks(199, 398, 597, 600), 400)

    assert 199 == steady.records


@pytest.mark.parametrize("batches", [(), (300,), (50, 300), (100, 200, 300, 303)])
def test_fewer_than_two_full_batches_after_the_warm_up_are_no_steady_state(batches: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="wanted two ends of full batches"):
        steady_state(looks(*batches), 300)


def test_a_percentile_is_one_of_the_values() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]

    assert [1.0, 3.0, 5.0] == [percentile(values, percent) for percent in (0, 50, 99)]


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="found none"):
        percentile([], 50)


def test_the_end_offsets_of_all_partitions_are_added_up() -> None:
    text = 'v1\n{"batchWatermarkMs":0}\n{"a":{"0":3,"1":4},"b":{"0":5}}'

    assert 12 == offsets_sum(text)


def test_this_process_has_used_time_and_memory() -> None:
    tree = tree_of(os.getpid())

    assert os.getpid() in tree
    assert sum(cpu_of(tree).values()) > 0
    assert sum(memory_of(tree).values()) > 1


def test_the_time_of_a_process_and_its_children_is_not_counted_as_that_of_others() -> None:
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    before_s, begun_s = machine_cpu_s(), time.monotonic()
    others = Others()

    subprocess.run([sys.executable, "-c", burn], check=True)
    of_others_s = others.cores() * (time.monotonic() - begun_s)

    # Looks that are a moment apart see changes of others in between.
    assert machine_cpu_s() - before_s - of_others_s > 0.4
