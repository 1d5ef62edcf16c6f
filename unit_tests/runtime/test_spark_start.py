from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from samzapy.adapters.spark import session as session_module
from samzapy.adapters.spark.session import GivenSettings
from samzapy.errors import ConfigError, EnvironmentMissingError
from samzapy.runtime import spark_start
from samzapy.runtime.spark_start import SparkStart
from samzapy.testing.waiting import wait_until

_WITHIN_S = 30.0


class Session:
    """Spark's session, as far as a start touches it."""

    def __init__(self) -> None:
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The calls of a start; a session opens when `may_open` is set."""
    calls = SimpleNamespace(session=Session(), may_open=threading.Event(), opened=0, workers=[], loaders=[])

    def open_session(*_: object, **__: object) -> Session:
        assert calls.may_open.wait(_WITHIN_S)
        calls.opened += 1
        return calls.session

    monkeypatch.setattr(spark_start, "jar_paths", lambda _: ())
    monkeypatch.setattr(session_module, "checked_settings", lambda: GivenSettings(values={}, cores=2))
    monkeypatch.setattr(session_module, "open_session", open_session)
    monkeypatch.setattr(session_module, "class_loader_here", lambda _: "loader")
    monkeypatch.setattr(session_module, "use_class_loader", lambda _, loader: calls.loaders.append(loader))
    monkeypatch.setattr(session_module, "start_workers", lambda *given: calls.workers.append(given[1:]))
    return calls


def test_the_cores_are_known_before_the_session_is_open(spark: Any, tmp_path: Path) -> None:
    with SparkStart("flights-1", "p0", tmp_path) as start:
        start.begin()
        start.begin()
        assert start.cores() == 2
        assert spark.opened == 0
        spark.may_open.set()
        assert start.session() is spark.session
        # Jars that were added in the other thread are there in this one too.
        assert spark.loaders == ["loader"]
        assert not spark.session.is_stopped
        wait_until(lambda: bool(spark.workers), 30.0, "the workers to be started")

    assert spark.session.is_stopped
    assert spark.opened == 1
    assert [(2, "samzapy.runtime.worker_process")] == spark.workers


def test_a_refused_setting_is_raised_where_the_start_is_awaited(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> GivenSettings:
        raise ConfigError("wanted local[n]")

    monkeypatch.setattr(session_module, "checked_settings", refuse)
    with SparkStart("flights-1", "p0", tmp_path) as start:
        start.begin()
        for wait in (start.cores, start.session):
            with pytest.raises(ConfigError, match="wanted local"):
                wait()
    assert spark.opened == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("spark.ui.enabled should be boolean, but was maybe", "spark.ui.enabled should be boolean, but was maybe"),
        (
            "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
            ": java.net.BindException: Cannot assign requested address: Service 'sparkDriver' failed\n"
            "\tat java.base/sun.nio.ch.Net.bind0(Native Method)\n",
            "BindException: Cannot assign requested address: Service 'sparkDriver' failed",
        ),
    ],
)
def test_a_setting_that_spark_refuses_is_named_in_one_line(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    refused = open_with(PySparkException(text), tmp_path, monkeypatch)

    assert isinstance(refused, ConfigError)
    assert str(refused) == (
        f"wanted a Spark session with the settings given to spark-submit, found: {reason}; "
        "correct --conf or spark-defaults.conf"
    )


@pytest.mark.parametrize(
    "error", [EnvironmentMissingError("a jar"), OSError("a disk"), Py4JNetworkError("no JVM"), TypeError("of ours")]
)
def test_an_error_that_is_not_sparks_is_no_fault_of_a_setting(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    assert open_with(error, tmp_path, monkeypatch) is error


def open_with(error: Exception, scratch_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Exception:
    """The error of a start whose session fails to open with `error`."""

    def fail(*_: object, **__: object) -> Session:
        raise error

    monkeypatch.setattr(session_module, "open_session", fail)
    with SparkStart("flights-1", "p0", scratch_dir) as start:
        start.begin()
        with pytest.raises((ConfigError, type(error))) as raised:
            start.session()
    return raised.value


def test_a_session_that_opens_after_the_job_was_refused_is_stopped(spark: Any, tmp_path: Path) -> None:
    with SparkStart("flights-1", "p0", tmp_path) as start:
        start.begin()
        start.cores()
        spark.may_open.set()
    assert spark.session.is_stopped or spark.opened == 0


def test_workers_that_do_not_start_are_left_to_the_query(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Sequence[object]) -> None:
        raise RuntimeError("the session was stopped")

    monkeypatch.setattr(session_module, "start_workers", fail)
    spark.may_open.set()
    with SparkStart("flights-1", "p0", tmp_path) as start:
        start.begin()
        assert start.session() is spark.session


def test_a_start_that_never_began_ends_at_once(tmp_path: Path) -> None:
    with SparkStart("flights-1", "p0", tmp_path):
        pass
