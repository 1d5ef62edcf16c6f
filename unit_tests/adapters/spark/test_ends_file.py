"""The ends of the inputs, from the driver to its workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from samzapy.adapters.spark.ends_file import EndsFile, write_ends
from samzapy.container.ports import EndsSeen
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition
from unit_tests.fixtures.container_worlds import a_job, a_plan

A, B = SspKeyBucket.parse("kafka.orders.0:0/1"), SspKeyBucket.parse("kafka.orders.1:0/1")
PLAN = replace(a_plan(a_job(), ssp_kbs=(A, B)), query_number=3)


def ends(at_ms: int, **covered_ms: int) -> EndsSeen:
    of = {"a": A, "b": B}
    return EndsSeen(
        at_ms=at_ms,
        ends={SystemStreamPartition("kafka", "orders", 0): 5},
        covered_ms={of[name]: moment_ms for name, moment_ms in covered_ms.items()},
    )


def test_a_worker_knows_the_ends_that_the_driver_has_seen(tmp_path: Path) -> None:
    write_ends(tmp_path, 3, ends(1000, a=900))
    file = EndsFile(tmp_path)

    assert {0: 900} == file.covered_ms(PLAN)
    assert (1000, None) == (file.covered_at(("orders", 0), 5), file.covered_at(("orders", 0), 4))
    assert file.covered_at(("orders", 1), 99) is None


def test_a_file_is_news_once(tmp_path: Path) -> None:
    write_ends(tmp_path, 3, ends(1000))
    file = EndsFile(tmp_path)
    looks = [file.look(3), file.look(3)]

    write_ends(tmp_path, 3, ends(2000))

    assert [True, False, True, False] == [*looks, file.look(3), file.look(3)]


def test_the_ends_of_another_query_are_ignored(tmp_path: Path) -> None:
    """Its positions may have been further on, before a rewind."""
    write_ends(tmp_path, 2, ends(1000, a=900))
    file = EndsFile(tmp_path)

    assert not file.look(3) and {} == file.covered_ms(PLAN)

    write_ends(tmp_path, 3, ends(2000, a=1900))
    assert {0: 1900} == file.covered_ms(PLAN)
    assert not file.look(4) and file.covered_at(("orders", 0), 5) is None


def test_there_is_no_file_at_first(tmp_path: Path) -> None:
    file = EndsFile(tmp_path)

    assert not file.look(3) and {} == file.covered_ms(PLAN)
