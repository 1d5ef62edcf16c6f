"""The bill of materials: its contents, and the licenses that it refuses."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

import pytest
from sbom import Licenses, bill_of_materials, installed_packages
from wheel_locks import DEV, RUNTIME, installed_version, pins

from samzapy.adapters.installed_spark import RELEASES
from samzapy.adapters.maven.locks import KAFKA_BROKER, KAFKA_TOOLS, connector_lock, parse_lock, read_lock
from samzapy.errors import ConfigError
from samzapy.version import __version__

MOMENT = datetime(2026, 11, 27, tzinfo=UTC)
LICENSES = """
[accepted]
licenses = MIT Apache-2.0
[accepted for one package]
weak = MPL-2.0
[packages]
unclear = Apache-2.0
[jars]
org.a = MIT
org.b = GPL-3.0-only
"""


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(bill_of_materials(MOMENT))
    return content


@pytest.fixture
def licenses(tmp_path: Path) -> Licenses:
    (tmp_path / "licenses.cfg").write_text(LICENSES)
    return Licenses.read(tmp_path / "licenses.cfg")


def a_package(directory: Path, name: str, *metadata: str) -> Distribution:
    folder = directory / f"{name}-1.dist-info"
    folder.mkdir()
    lines = ["Metadata-Version: 2.4", f"Name: {name}", "Version: 1", *metadata]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")
    return Distribution.at(folder)


def test_the_bill_has_each_package_that_is_installed_with_samzapy_and_its_license(bill: dict[str, Any]) -> None:
    packages = {
        part["purl"]: part for part in [bill["metadata"]["component"], *bill["components"]] if "group" not in part
    }

    installed = installed_packages("samzapy")
    versions = {name: package.version for name, (package, _) in installed.items()} | {"samzapy": __version__}
    assert {f"pkg:pypi/{name}@{version}" for name, version in versions.items()} == set(packages)
    # Packages that run jobs, and not those that test them.
    assert {"pyspark", "py4j", "confluent-kafka", "h11"} <= set(installed)
    assert set() == {"pytest", "mypy", "ruff"} & set(installed)
    assert [] == [purl for purl, part in packages.items() if len(part["licenses"]) != 1]


def test_the_bill_has_each_jar_of_the_lists_with_its_hash(bill: dict[str, Any]) -> None:
    jars = {part["purl"]: part for part in bill["components"] if "group" in part}

    for lock, scope in ((connector_lock(), "required"), (KAFKA_BROKER, "optional"), (KAFKA_TOOLS, "optional")):
        for jar in read_lock(lock):
            part = jars.pop(f"pkg:maven/{jar.group}/{jar.artifact}@{jar.version}?type=jar")
            assert [{"alg": "SHA-256", "content": jar.sha256}] == part["hashes"]
            assert scope == part["scope"]
            assert 1 == len(part["licenses"])
    assert {} == jars


def test_the_bill_lists_the_requirements_of_each_package(bill: dict[str, Any]) -> None:
    requires = {
        entry["ref"].partition("@")[0]: {ref.partition("@")[0] for ref in entry.get("dependsOn", ())}
        for entry in bill["dependencies"]
    }

    assert {"pkg:pypi/py4j"} == requires["pkg:pypi/pyspark"]
    assert {"pkg:pypi/pyspark", "pkg:maven/org.apache.kafka/kafka-clients"} <= requires["pkg:pypi/samzapy"]


def test_one_environment_and_one_moment_give_the_same_bytes() -> None:
    first, second = bill_of_materials(MOMENT), bill_of_materials(MOMENT)

    assert first == second
    assert json.loads(first)["metadata"]["timestamp"].startswith("2026-11-27T00:00:00")


def test_each_package_that_is_locked_has_a_license_that_is_accepted() -> None:
    licenses = Licenses.read()
    names = [name for name in pins(DEV, "3.11") if installed_version(name) is not None]

    assert {"pyspark", "hypothesis"} <= set(names)
    assert [] == [name for name in names if not licenses.of_package(distribution(name))]


@pytest.mark.parametrize("lock", [*(f"spark-kafka-{release}" for release in RELEASES), KAFKA_BROKER, KAFKA_TOOLS])
def test_each_jar_of_a_lock_list_has_a_license_that_is_accepted(lock: str) -> None:
    licenses = Licenses.read()

    assert [] == [jar.coordinates for jar in read_lock(lock) if not licenses.of_jar(jar)]


def test_no_license_is_listed_for_a_package_or_a_jar_that_is_not_locked() -> None:
    licenses = Licenses.read()
    lists = [*(f"spark-kafka-{release}" for release in RELEASES), KAFKA_BROKER, KAFKA_TOOLS]

    assert {jar.group for lock in lists for jar in read_lock(lock)} == set(licenses.jars)
    assert set() == {*licenses.packages, *licenses.accepted_for} - set(pins(DEV, "3.11"))


def test_no_package_that_jobs_run_with_needs_an_exception() -> None:
    assert set() == set(Licenses.read().accepted_for) & set(pins(RUNTIME, "3.11"))


@pytest.mark.parametrize(
    ("metadata", "license_text"),
    [
        (("License-Expression: MIT OR Apache-2.0", "License: whatever"), "MIT OR Apache-2.0"),
        (("License: MIT",), "MIT"),
        (("Classifier: License :: OSI Approved :: Apache Software License",), "Apache-2.0"),
        (("License: see the file", "Classifier: License :: OSI Approved :: MIT License"), "MIT"),
    ],
)
def test_a_license_is_read_from_metadata_old_and_new(
    licenses: Licenses, tmp_path: Path, metadata: tuple[str, ...], license_text: str
) -> None:
    assert license_text == licenses.of_package(a_package(tmp_path, "any", *metadata))


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        ("License: BSD",),
        ("Classifier: License :: OSI Approved :: BSD License",),
        (
            "Classifier: License :: OSI Approved :: MIT License",
            "Classifier: License :: OSI Approved :: ISC License (ISCL)",
        ),
    ],
)
def test_a_license_that_metadata_leaves_open_is_asked_for_by_name(
    licenses: Licenses, tmp_path: Path, metadata: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match=r"^any 1: wanted a license with an SPDX identifier .*, found none; read"):
        licenses.of_package(a_package(tmp_path, "any", *metadata))

    assert "Apache-2.0" == licenses.of_package(a_package(tmp_path, "unclear", *metadata))


@pytest.mark.parametrize("text", ["GPL-3.0-or-later", "MIT AND AGPL-3.0-only", "MIT OR LGPL-2.1-only", "MPL-2.0"])
def test_a_license_that_is_not_accepted_is_refused(licenses: Licenses, tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"^any: wanted a license that is accepted .*, found \S*(GPL|MPL)"):
        licenses.of_package(a_package(tmp_path, "any", f"License-Expression: {text}"))


def test_weak_copyleft_is_accepted_for_the_listed_package_alone(licenses: Licenses, tmp_path: Path) -> None:
    assert "MPL-2.0" == licenses.of_package(a_package(tmp_path, "weak", "License-Expression: MPL-2.0"))

    (tmp_path / "later").mkdir()
    with pytest.raises(ConfigError, match="found GPL-3.0-only"):
        licenses.of_package(a_package(tmp_path / "later", "weak", "License-Expression: GPL-3.0-only"))


@pytest.mark.parametrize(("group", "reason"), [("org.b", "found GPL-3.0-only"), ("org.c", "found none; read")])
def test_a_jar_with_an_unknown_or_another_license_is_refused(licenses: Licenses, group: str, reason: str) -> None:
    (jar,) = parse_lock(f"{group}:b:1 {'0' * 64}", origin="x.lock")

    with pytest.raises(ConfigError, match=f"^{group}:b:1: wanted .*{reason}"):
        licenses.of_jar(jar)
