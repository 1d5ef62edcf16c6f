"""Jars that Spark can add and read from; that it does is seen where a real job is submitted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from samzapy.adapters.spark.session import readable_jar


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
    """Spark 4.2 imports `pyspark.testing` when it makes its first SparkConf, and that warns."""
    ran = subprocess.run(
        [sys.executable, "-c", "import samzapy.adapters.spark.session, pyspark.testing"],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert (0, "") == (ran.returncode, ran.stderr)
