"""Jars that Spark can add and read from.

That it reads from them is seen where a real job is submitted.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from samzapy.adapters.spark import jar_copies
from samzapy.adapters.spark.jar_copies import readable_directory, readable_jar
from samzapy.errors import EnvironmentMissingError


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


@pytest.mark.parametrize("directory", ["Jane Doe", "Zoë"])
def test_a_copy_is_elsewhere_if_the_scratch_directory_has_such_a_path_too(tmp_path: Path, directory: str) -> None:
    """The scratch directory is below TMPDIR where memory is short.

    The other one is removed with its process.
    """
    (tmp_path / directory).mkdir()
    jar = tmp_path / directory / "kafka.jar"
    jar.write_bytes(b"classes")
    program = (
        "import sys; from pathlib import Path; from samzapy.adapters.spark.jar_copies import *; "
        "jar = readable_jar(Path(sys.argv[1]), Path(sys.argv[1]).parent / 'jars'); "
        "print(jar, jar.read_bytes() == b'classes', jar.parent == readable_directory(Path(sys.argv[1]).parent))"
    )

    ran = subprocess.run([sys.executable, "-c", program, jar], capture_output=True, text=True, timeout=60, check=True)

    copy, *is_right = ran.stdout.split()
    assert ["True", "True"] == is_right and quote(copy) == copy
    assert not Path(copy).parent.exists()


def test_a_directory_with_a_plain_path_is_made_and_used(tmp_path: Path) -> None:
    assert tmp_path / "jars" == readable_directory(tmp_path / "jars") == readable_directory(tmp_path / "jars")
    assert (tmp_path / "jars").is_dir()


def test_a_host_without_a_place_for_jars_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar_copies._plain_directory.cache_clear()
    monkeypatch.setattr(os, "access", lambda *_: False)

    with pytest.raises(EnvironmentMissingError, match="set TMPDIR to a path without blanks"):
        readable_directory(tmp_path / "Jane Doe")
