"""The contents of `pip install samzapy`, and its requirements."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest

from samzapy.version import __version__
from unit_tests.fixtures.wheel import make_wheel

ROOT = Path(__file__).parents[1]


def test_the_packages_that_spark_asks_for_at_the_first_batch_come_with_a_plain_install() -> None:
    """`mapInArrow` ends a query without pandas, though it hands over Arrow batches."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")

    names = re.findall(r"^([a-z][a-z0-9-]*)", setup["options"]["install_requires"], re.MULTILINE)

    assert {"pandas", "pyarrow", "pyspark"} <= set(names)


@pytest.mark.parametrize(
    ("banner", "expected"),
    [
        (None, "none"),
        ('java version "1.8.0_392"', "8"),
        ('openjdk version "16.0.1" 2021-04-20', "16"),
        ("no words that mean anything", "none"),
    ],
)
def test_setup_asks_for_java_before_it_fetches_anything(tmp_path: Path, banner: str | None, expected: str) -> None:
    tree, java = tmp_path / "tree", tmp_path / "java" / "bin" / "java"
    lists = ("requirements/dev.txt", "samzapy/adapters/maven/spark-kafka-4.2.lock")
    for name in ("scripts/setup", "setup.cfg", "pyproject.toml", *lists):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    if banner is not None:
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
        java.chmod(0o755)

    result = subprocess.run(
        [tree / "scripts/setup"],
        env={**os.environ, "JAVA_HOME": str(tmp_path / "java")},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert 2 == result.returncode
    assert result.stderr.startswith(f"scripts/setup: wanted Java 17 or newer, found {expected} as '{java}'. Install ")
    assert not (tree / ".venv").exists()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    return ZipFile(make_wheel(tmp_path_factory.mktemp("wheel")))


def metadata_of(wheel: ZipFile) -> tuple[str, Message]:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return name.removesuffix("METADATA"), message_from_bytes(wheel.read(name))


def below(directory: Path, pattern: str) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob(pattern)}


def test_the_wheel_has_every_schema_of_this_release_and_of_those_before_it(wheel: ZipFile) -> None:
    in_wheel = {name.removeprefix("samzapy/schemas/") for name in wheel.namelist() if name.endswith(".avsc")}

    assert below(ROOT / "samzapy" / "schemas", "*.avsc") == in_wheel
    assert "0.1.0/grant.avsc" in in_wheel


def test_the_wheel_has_every_module_the_pinned_jars_and_the_mark_of_its_types(wheel: ZipFile) -> None:
    expected = {f"samzapy/{name}" for pattern in ("*.py", "*.lock") for name in below(ROOT / "samzapy", pattern)}

    assert set() == {*expected, "samzapy/py.typed"} - {*wheel.namelist()}
    assert {"kafka-broker.lock", "kafka-tools.lock", "spark-kafka-4.0.lock"} <= {Path(name).name for name in expected}


def test_the_wheel_has_its_license_and_nothing_of_the_tests(wheel: ZipFile) -> None:
    directory, metadata = metadata_of(wheel)

    assert __version__ == metadata["Version"]
    # Links of a page in the repository lead nowhere from the package index.
    assert "](" not in str(metadata.get_payload())
    assert ("Apache-2.0", "LICENSE") == (metadata["License"], metadata["License-File"])
    assert f"{directory}licenses/LICENSE" in wheel.namelist()
    assert {"samzapy", directory.rstrip("/")} == {name.partition("/")[0] for name in wheel.namelist()}
