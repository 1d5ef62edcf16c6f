from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from samzapy.adapters.spark.arrow_bound import BYTES_MAX, BYTES_SETTING, ROWS_MAX, ROWS_SETTING, ArrowBound

SMALL_ROW = 2 * BYTES_MAX // ROWS_MAX
PASSED = "OutOfMemoryException: Unable to allocate buffer of size 8 due to memory limit. Current allocation: 1"
LEFT_BEHIND = 1000
BOTH, ROWS_ALONE = (BYTES_MAX, 2**63 - 1), (2**31 - 1, LEFT_BEHIND + 2 * 8 * BYTES_MAX)


class ASession:
    """The settings of a session, whose Arrow holds the setting of an earlier query."""

    def __init__(self, **settings: str) -> None:
        self.settings: dict[str, Any] = {ROWS_SETTING: str(ROWS_MAX), BYTES_SETTING: str(BYTES_MAX), **settings}
        self.held_max = 0
        self.conf = SimpleNamespace(get=self.settings.get, set=self.settings.__setitem__)
        allocator = SimpleNamespace(setLimit=self._limit, getAllocatedMemory=lambda: LEFT_BEHIND)
        utils = SimpleNamespace(rootAllocator=lambda: allocator)
        spark = SimpleNamespace(sql=SimpleNamespace(util=SimpleNamespace(ArrowUtils=utils)))
        self._jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(spark=spark)))

    def _limit(self, held_max: int) -> None:
        self.held_max = held_max


class AContainer:
    """Queries with a bound; `session` is that of their settings, and each has a copy."""

    def __init__(self, **settings: str) -> None:
        self.session = ASession(**settings)
        self.bound = ArrowBound.of(cast(SparkSession, self.session), cores=2)
        self.starts()

    def starts(self) -> None:
        self.bound.begin(cast(SparkSession, self.session))
        self.query = ASession(**self.session.settings)
        self.query.held_max = self.session.held_max

    def reads(self, *row_bytes: int) -> None:
        for record_bytes in row_bytes:
            self.bound.apply(cast(SparkSession, self.query))
            self.bound.ended(record_bytes)
        self.bound.apply(cast(SparkSession, self.query))

    @property
    def rows(self) -> int:
        return int(self.query.settings[ROWS_SETTING])

    @property
    def bounds(self) -> tuple[int, int]:
        return int(self.query.settings[BYTES_SETTING]), self.query.held_max


def test_the_bound_on_bytes_is_left_out_when_ten_micro_batches_had_small_records() -> None:
    container = AContainer()

    container.reads(*[SMALL_ROW] * 9)
    assert BOTH == container.bounds
    container.reads(1)
    assert ROWS_ALONE == container.bounds


def test_a_large_record_restores_the_bound_on_bytes_until_ten_small_batches() -> None:
    container = AContainer()
    container.reads(*[1] * 10)

    container.reads(SMALL_ROW + 1, *[1] * 9)
    assert BOTH == container.bounds
    container.reads(1)
    assert ROWS_ALONE == container.bounds


def test_a_query_begins_with_both_bounds() -> None:
    container = AContainer()
    container.reads(*[1] * 10)

    container.starts()
    container.reads()

    assert BOTH == container.bounds


@pytest.mark.parametrize("text", [PASSED, "OutOfMemoryException: Failure allocating buffer."])
def test_the_bound_on_bytes_remains_after_records_became_large_all_at_once(text: str) -> None:
    container = AContainer()
    container.reads(*[1] * 10)

    assert "found large ones all at once" in (container.bound.failed(text) or "")
    container.starts()
    container.reads(*[1] * 100)

    assert BOTH == container.bounds


def test_other_failures_do_not_count_as_large_records() -> None:
    container = AContainer()
    assert container.bound.failed(PASSED) is None
    container.reads(*[1] * 10)
    assert container.bound.failed("ValueError: wanted a slot") is None

    container.starts()
    container.reads(*[1] * 10)

    assert ROWS_ALONE == container.bounds


def test_a_users_own_bound_on_bytes_is_kept_and_ours_without_a_bound_on_rows() -> None:
    own, rowless = AContainer(**{BYTES_SETTING: "1000"}), AContainer(**{ROWS_SETTING: "0"})

    own.reads(*[1] * 20)
    rowless.reads(*[1] * 20)

    assert (1000, BYTES_MAX) == (own.bounds[0], rowless.bounds[0])


def test_without_the_bound_on_bytes_the_rows_fit_into_caches() -> None:
    container = AContainer()

    container.reads(*[SMALL_ROW] * 9)
    assert ROWS_MAX == container.rows
    container.reads(1024)
    assert 2048 == container.rows
    container.reads(100)
    assert ROWS_MAX == container.rows


def test_with_both_bounds_a_batch_has_the_configured_rows() -> None:
    container = AContainer(**{ROWS_SETTING: "5000"})
    container.reads(*[1024] * 10)
    assert 2048 == container.rows

    container.reads(100)
    assert 5000 == container.rows
    container.reads(1024)
    container.reads(4 * BYTES_MAX)
    assert 5000 == container.rows
    container.reads(*[1024] * 10)
    container.starts()
    container.reads()
    assert 5000 == container.rows


def test_a_record_larger_than_the_caches_is_a_batch_of_its_own() -> None:
    """Spark takes 0 rows for any number."""
    container = AContainer(**{ROWS_SETTING: "4"})

    container.reads(*[3 * 1024 * 1024] * 10)

    assert ROWS_ALONE == container.bounds
    assert 1 == container.rows
