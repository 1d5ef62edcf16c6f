from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from samzapy.adapters.installed_spark import RELEASES
from samzapy.adapters.maven.locks import read_lock
from samzapy.adapters.spark.jar_origins import check_origins
from samzapy.errors import ConfigError

CLIENTS = "kafka-clients-3.9.2.jar"


def a_jar(directory: Path, content: bytes = b"as locked") -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / CLIENTS
    path.write_bytes(content)
    return path


def resource_in(jar: Path) -> Callable[[str], str]:
    """The answer of a JVM whose class path has `jar` first."""
    return lambda resource: f"jar:file:{quote(str(jar))}!/{resource}"


@pytest.mark.parametrize("release", RELEASES)
def test_each_locked_jar_is_asked_for_by_a_class_of_its_own(release: str) -> None:
    jars = [Path("/cache", jar.file_name) for jar in read_lock(f"spark-kafka-{release}")]
    classes: list[str] = []

    def url_of(resource: str) -> str:
        classes.append(resource)
        return resource_in(jars[len(classes) - 1])(resource)

    check_origins(jars, url_of)

    assert 4 == len(jars) == len(set(classes))


def test_the_verified_jar_is_accepted_by_its_path_by_a_link_and_as_a_copy(tmp_path: Path) -> None:
    jar = a_jar(tmp_path / "cache")
    link = tmp_path / "link.jar"
    link.symlink_to(jar)

    for origin in (jar, link, a_jar(tmp_path / "an image")):
        check_origins([jar], resource_in(origin))


def test_another_jar_in_front_is_refused_with_both_files(tmp_path: Path) -> None:
    jar, other = a_jar(tmp_path / "cache"), a_jar(tmp_path / "other ones", b"as l0cked")

    with pytest.raises(ConfigError) as refused:
        check_origins([jar], resource_in(other))

    text = str(refused.value)
    assert text.startswith(
        f"org.apache.kafka.clients.consumer.KafkaConsumer: wanted it from the verified jar {jar}, "
    )
    assert f"found it in {other}; leave kafka-clients out of --packages" in text


@pytest.mark.parametrize(
    ("url", "shown"),
    [(None, "no jar"), ("file:/opt/classes/KafkaConsumer.class", "file:/opt/classes/KafkaConsumer.class")],
)
def test_a_class_that_is_in_no_jar_is_refused(tmp_path: Path, url: str | None, shown: str) -> None:
    with pytest.raises(ConfigError, match=f"found it in {shown}; leave"):
        check_origins([a_jar(tmp_path / "cache")], lambda _: url)
