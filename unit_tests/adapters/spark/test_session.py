"""Jars that Spark can add and read from.

That it reads from them is seen where a real job is submitted.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from samzapy.adapters.spark.session import SETTINGS, readable_jar, weakened


def test_a_jar_under_a_plain_path_is_added_from_where_it_is(tmp_path: Path) -> None:
    jar = tmp_path / "kafka.jar"
    jar.touch()

    assert readable_jar(jar, tmp_path / "copies") == jar
    assert not (tmp_path / "copies").exists()


@pytest.mark.parametrize("directory", ["Jane Doe", "Zoë", "50%"])
def test_a_jar_under_a_path_that_a_url_cannot_hold_is_copied(tmp_path: Path, directory: str) -> None:
    """ADD JAR takes it, and then no class of it is found: seen with Spark 4.2."""
    (tmp_path / directory).mkdir()
    jar = tmp_path / directory / "kafka.jar"
    jar.write_bytes(b"classes")
    link = tmp_path / "link.jar"
    link.symlink_to(jar)

    for given in (jar, link):
        copy = readable_jar(given, tmp_path / "copies")
        assert copy == tmp_path / "copies" / given.name
        assert copy.read_bytes() == b"classes"


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
