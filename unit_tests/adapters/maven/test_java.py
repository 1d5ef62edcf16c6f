from __future__ import annotations

from pathlib import Path

import pytest

from samzapy.adapters.maven.java import find_java, parse_major_version
from samzapy.errors import EnvironmentMissingError


def a_java(directory: Path, *, version: str = "17.0.15", exit_code: int = 0) -> Path:
    """An executable that prints the text of `java -version`."""
    directory.mkdir(parents=True, exist_ok=True)
    java = directory / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\nexit {exit_code}\n")
    java.chmod(0o755)
    return java


@pytest.fixture(autouse=True)
def _no_java_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def test_java_on_path_is_found(tmp_path: Path) -> None:
    java = a_java(tmp_path / "bin")

    assert java == find_java()


def test_java_home_wins_over_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_java(tmp_path / "bin")
    java = a_java(tmp_path / "home" / "bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))

    assert java == find_java()


def test_java_home_that_points_nowhere_is_refused_although_path_has_a_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_java(tmp_path / "bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))

    with pytest.raises(EnvironmentMissingError, match=r"JAVA_HOME is .*gone.* not an executable"):
        find_java()


def test_without_java_the_error_names_the_version_to_install() -> None:
    with pytest.raises(EnvironmentMissingError, match=r"no java is on PATH\. Install a Java runtime 17 or newer"):
        find_java()


def test_java_that_is_too_old_is_refused_with_its_version_and_place(tmp_path: Path) -> None:
    java = a_java(tmp_path / "bin", version="11.0.22")

    with pytest.raises(EnvironmentMissingError, match=rf"Java 17 or newer is needed, found Java 11 at {java}"):
        find_java()


def test_java_that_does_not_run_is_refused(tmp_path: Path) -> None:
    a_java(tmp_path / "bin", exit_code=1)

    with pytest.raises(EnvironmentMissingError, match="does not run"):
        find_java()


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('java version "1.8.0_392"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21-ea" 2023-09-19', 21),
    ],
)
def test_the_version_is_read_from_the_banner(banner: str, version: int) -> None:
    assert version == parse_major_version(banner, Path("java"))


def test_a_banner_without_a_version_is_shown_unchanged() -> None:
    with pytest.raises(EnvironmentMissingError, match="prints no version that samzapy can read: 'hello'"):
        parse_major_version("hello\n", Path("java"))
