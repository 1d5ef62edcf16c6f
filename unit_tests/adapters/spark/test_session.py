from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from samzapy.adapters.spark import session
from samzapy.adapters.spark.session import SETTINGS, _check, _cores, weakened
from samzapy.errors import ConfigError


def test_a_container_does_not_show_sparks_warning_of_pandas_3() -> None:
    """Spark 4.2 imports `pyspark.testing` for its first SparkConf, which warns."""
    ran = subprocess.run(
        [sys.executable, "-c", "import samzapy.adapters.spark.session, pyspark.testing"],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert (0, "") == (ran.returncode, ran.stderr)


def test_a_session_authenticates_and_shows_nothing_unless_the_user_configures_it() -> None:
    assert ("true", "false", "127.0.0.1") == (
        SETTINGS["spark.authenticate"],
        SETTINGS["spark.ui.enabled"],
        SETTINGS["spark.driver.bindAddress"],
    )
    assert [] == weakened({"spark.app.name": "a"}, {})
    assert [] == weakened({"spark.authenticate": "TRUE", "spark.ui.enabled": "false"}, {})


@pytest.mark.parametrize(
    ("name", "value", "consequence"),
    [
        ("spark.authenticate", "false", "each user of this host can send requests"),
        ("spark.ui.enabled", "true", "has no password"),
        ("spark.driver.bindAddress", "0.0.0.0", "other hosts can reach"),
    ],
)
def test_a_setting_that_protects_less_is_named_with_its_consequence(name: str, value: str, consequence: str) -> None:
    (text,) = weakened({name: value}, {"SPARK_LOCAL_IP": "127.0.0.1"})

    assert f"{name}={value}, and not " in text
    assert consequence in text


@pytest.mark.parametrize("address", ["", "10.0.0.7"])
def test_a_ui_that_listens_beyond_loopback_is_named_with_its_address(address: str) -> None:
    texts = weakened({"spark.ui.enabled": "true"}, {"SPARK_LOCAL_IP": address} if address else {})

    assert f"listens on {address or 'every address of this host'}" in texts[-1]
    assert "SPARK_LOCAL_IP=127.0.0.1" in texts[-1]


@pytest.mark.parametrize(("master", "cores"), [("local[*]", 2), ("local[*,1]", 2), ("local[3]", 3), ("local", 1)])
def test_all_cores_are_those_that_the_process_may_use_and_not_those_of_the_host(
    master: str, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may have two cores of a host that has 64."""
    runtime = SimpleNamespace(availableProcessors=lambda: 2)
    java = SimpleNamespace(lang=SimpleNamespace(Runtime=SimpleNamespace(getRuntime=lambda: runtime)))
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(session.SparkContext, "_jvm", SimpleNamespace(java=java))
    monkeypatch.setattr(session, "_given_settings", lambda: {"spark.master": master})

    assert cores == session.checked_settings().cores


@pytest.mark.parametrize(("master", "available", "cores"), [("local[513]", 4, 513), ("local[*]", 768, 768)])
def test_more_cores_than_a_coordinator_accepts_are_refused(master: str, available: int, cores: int) -> None:
    with pytest.raises(ConfigError) as refused:
        _cores(master, available)

    assert str(refused.value) == (
        f"--master {master}: wanted at most 512 cores for a container, found {cores}; give local[512], and start "
        "another container"
    )
    assert 512 == _cores("local[512]", available)


def test_a_limit_of_a_workers_address_space_is_refused_by_name() -> None:
    """Spark makes it RLIMIT_AS, so each worker would fail to open its stores."""
    with pytest.raises(
        ConfigError, match=r"--conf spark\.executor\.pyspark\.memory: .*stores\.<name>\.size\.max\.bytes"
    ):
        _check({"spark.executor.pyspark.memory": "2g"})


@pytest.mark.parametrize(("name", "value"), [("spark.remote", "sc://spark:15002"), ("spark.api.mode", "connect")])
def test_a_session_of_spark_connect_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"--conf {name}: .*found {value}; .*Spark Connect"):
        _check({name: value})

    _check({"spark.api.mode": "Classic"})
