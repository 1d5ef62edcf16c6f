from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from samzapy.adapters.spark import query as query_module
from samzapy.adapters.spark.exact_times import EXACT, SPARKS_OWN, is_of_a_time
from samzapy.adapters.spark.query import FAILED_OF_A_TIME, BatchFailedError, SparkQuery, _Run
from samzapy.container.ports import QueryFailed
from samzapy.testing.builders import a_work_plan
from unit_tests.fixtures.unbounded_rows import NoBound

OVERFLOW = (
    "An error occurred while calling o99.collectToPython.\n: org.apache.spark.SparkException: Job aborted\n"
    "Caused by: java.lang.ArithmeticException: long overflow\n\tat java.base/java.lang.Math.multiplyExact(Math.java)"
)
TOO_OLD = "org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] SAMZAPY_TIME_BEFORE_1900 SQLSTATE: P0001"
UNTOLD = "Job aborted: Lost task 0.0 in stage 4.0 (TID 4) (127.0.0.1 executor driver): UnknownReason"


@pytest.mark.parametrize(
    ("failure", "is_one"), [(OVERFLOW, True), (TOO_OLD, True), ("java.lang.ArithmeticException: / by zero", False)]
)
def test_a_batch_that_failed_because_of_a_time_is_recognised_by_sparks_text(failure: str, is_one: bool) -> None:
    assert is_one is is_of_a_time(failure)


class Failing:
    sparkSession = None

    def __init__(self, text: str) -> None:
        self._text = text

    def collect(self) -> None:
        raise RuntimeError(self._text)


def a_run(tmp_path: Path, source_format: str, failure: str) -> _Run:
    """A start of the query whose first batch failed."""
    plan = a_work_plan(("a", "kafka.orders.0:0/1"))
    run = _Run(plan, "no.module:run", tmp_path, cast(Any, NoBound()), source_format)
    with pytest.raises(BatchFailedError):
        run.on_batch(cast(Any, Failing(failure)), 0)
    return run


@pytest.mark.parametrize(
    ("source_format", "failure", "reason"),
    [
        (SPARKS_OWN, OVERFLOW, FAILED_OF_A_TIME),
        (SPARKS_OWN, TOO_OLD, FAILED_OF_A_TIME),
        (SPARKS_OWN, UNTOLD, UNTOLD),
        (SPARKS_OWN, "ValueError: something else", "ValueError: something else"),
        (EXACT, OVERFLOW, "ArithmeticException: long overflow"),
    ],
)
def test_a_batch_that_failed_because_of_a_time_has_a_reason_of_one_line(
    tmp_path: Path, source_format: str, failure: str, reason: str
) -> None:
    event = a_run(tmp_path, source_format, failure).events.get_nowait()

    assert isinstance(event, QueryFailed)
    assert reason == event.reason


@pytest.mark.parametrize(
    ("failure", "formats"),
    [(OVERFLOW, [EXACT]), (TOO_OLD, [EXACT]), (UNTOLD, [EXACT]), ("ValueError: something else", [])],
)
def test_the_next_query_reads_times_by_the_exact_source_which_is_added_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str, formats: list[str]
) -> None:
    added: list[Mapping[str, object]] = []
    monkeypatch.setattr(query_module, "add_exact_source", lambda session, directory: added.append({}))
    query = SparkQuery(
        cast(SparkSession, None),
        worker_entry="no.module:run",
        bootstrap_servers="localhost:9092",
        kafka_options={},
        scratch_dir=tmp_path,
    )
    query._read_exact_times_if_needed()
    query._run = a_run(tmp_path, SPARKS_OWN, failure)

    query._read_exact_times_if_needed()
    query._read_exact_times_if_needed()

    assert len(formats) == len(added)
    assert query._source_format == (formats or [SPARKS_OWN])[0]
