from __future__ import annotations

import pyspark
import pytest

from samzapy.adapters.installed_spark import RELEASES
from samzapy.adapters.maven.locks import KAFKA_BROKER, KAFKA_TOOLS, connector_lock, parse_lock, read_lock
from samzapy.errors import ConfigError

SHA256 = "0123456789abcdef" * 4


def test_a_line_is_coordinates_and_a_hash() -> None:
    (jar,) = parse_lock(f"# why\n\norg.a:b-c_2.13:1.2 {SHA256}  # here\n", origin="x.lock")

    assert ("org.a", "b-c_2.13", "1.2", None, SHA256) == (
        jar.group,
        jar.artifact,
        jar.version,
        jar.classifier,
        jar.sha256,
    )
    assert "b-c_2.13-1.2.jar" == jar.file_name


def test_a_classifier_ends_the_file_name() -> None:
    (jar,) = parse_lock(f"org.a:b:1:linux-x86_64 {SHA256}", origin="x.lock")

    assert "b-1-linux-x86_64.jar" == jar.file_name
    assert "org.a:b:1:linux-x86_64" == jar.coordinates


@pytest.mark.parametrize("line", ["org.a:b:1", f"org.a:b {SHA256}", f"org.a:b:1 {SHA256[1:]}", "org.a:b:1 latest"])
def test_a_line_that_pins_no_bytes_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(ConfigError, match=r"x\.lock, line 2: wanted .* found"):
        parse_lock(f"# heading\n{line}\n", origin="x.lock")


def test_an_unknown_list_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="'spark'; there are: kafka-broker, kafka-tools, spark-kafka-4.0, "):
        read_lock("spark")


@pytest.mark.parametrize("release", RELEASES)
def test_the_connector_of_each_spark_release_is_locked_with_its_own_version(release: str) -> None:
    jars = {jar.artifact: jar for jar in read_lock(f"spark-kafka-{release}")}

    assert {
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
        "kafka-clients",
        "commons-pool2",
    } == set(jars)
    of_spark = [jar.version for name, jar in jars.items() if name.startswith("spark-")]
    assert [release, release] == [version.rpartition(".")[0] for version in of_spark]


def test_the_lock_is_that_of_the_installed_pyspark() -> None:
    assert f"spark-kafka-{'.'.join(pyspark.__version__.split('.')[:2])}" == connector_lock()


@pytest.mark.parametrize("lock", [*(f"spark-kafka-{release}" for release in RELEASES), KAFKA_BROKER, KAFKA_TOOLS])
def test_no_jar_is_locked_twice(lock: str) -> None:
    names = [(jar.group, jar.artifact, jar.classifier) for jar in read_lock(lock)]

    assert len(set(names)) == len(names)


def test_the_broker_brings_no_logging_of_its_own() -> None:
    """Its slf4j has no binding and would hide pyspark's.

    The reason of a failed start would be lost with it.
    """
    assert not [jar for jar in read_lock(KAFKA_BROKER) if jar.artifact.startswith(("slf4j", "log4j"))]
