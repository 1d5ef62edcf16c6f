from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from samzapy.adapters.spark.class_archive import AUTO, USAGE_VARIABLE, VARIABLE
from samzapy.errors import EnvironmentMissingError
from samzapy.runtime import background_archive
from samzapy.runtime.background_archive import BackgroundArchive, environment_of_maker, free_memory, obstacle_to

GIB = 1 << 30


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The archive that is wanted, on a machine with room for it."""
    path = tmp_path / "cache" / "spark-1.jsa"
    monkeypatch.setattr(background_archive, "archive_path", lambda *_: path)
    monkeypatch.setattr(background_archive, "free_memory", lambda: 8 * GIB)
    return path


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The commands of the processes that would make it."""
    commands: list[Sequence[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: commands.append(command))
    return commands


def test_an_archive_is_made_once_when_a_container_ends_before_its_time(
    archive: Path, begun: list[Sequence[str]]
) -> None:
    maker = BackgroundArchive({USAGE_VARIABLE: AUTO})
    maker.begin_soon()
    assert [] == begun

    maker.close()
    maker.close()

    assert [["-m", "samzapy.runtime.background_archive"]] == [command[1:] for command in begun]


@pytest.mark.parametrize("environment", [{}, {USAGE_VARIABLE: "manual"}, {USAGE_VARIABLE: "off"}])
def test_no_archive_is_made_where_samzapy_did_not_start_spark_or_the_user_forbids_it(
    archive: Path, begun: list[Sequence[str]], environment: dict[str, str]
) -> None:
    maker = BackgroundArchive(environment)
    maker.begin_soon()
    maker.close()
    assert [] == begun


def test_a_process_that_cannot_be_started_does_no_harm(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    maker = BackgroundArchive({USAGE_VARIABLE: AUTO})
    maker.begin_soon()
    maker.close()


def test_each_obstacle_to_an_archive_is_named(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert obstacle_to(archive, {}) is None

    assert "names another archive" in str(obstacle_to(archive, {VARIABLE: "-XX:SharedArchiveFile=/own.jsa"}))
    with monkeypatch.context() as little:
        little.setattr(background_archive, "free_memory", lambda: GIB)
        assert "bytes of free memory, found 1073741824" in str(obstacle_to(archive, {}))
    with monkeypatch.context() as little:
        little.setattr(background_archive, "_DISK_MIN_BYTES", 1 << 60)
        assert "bytes of free disk" in str(obstacle_to(archive, {}))
    archive.touch()
    assert "exists" in str(obstacle_to(archive, {}))


def test_a_failure_is_noted_and_not_repeated_for_a_day(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise EnvironmentMissingError("wanted a JVM that makes archives")

    archive.parent.mkdir()
    monkeypatch.setattr(os, "sched_setscheduler", lambda *_: None)
    monkeypatch.setattr(background_archive, "make_archive", fail)
    background_archive.main()

    note = archive.with_suffix(".failed")
    assert "wanted a JVM that makes archives\n" == note.read_text()
    assert "failed less than a day ago" in str(obstacle_to(archive, {}))
    yesterday = note.stat().st_mtime - 25 * 3600
    os.utime(note, (yesterday, yesterday))
    assert obstacle_to(archive, {}) is None

    monkeypatch.setattr(background_archive, "make_archive", lambda *_, **__: None)
    background_archive.main()
    assert not note.exists()


def test_the_archive_maker_gets_the_settings_of_spark_and_nothing_of_the_job() -> None:
    given = {"PATH": "/bin", "JAVA_HOME": "/java", "SPARK_HOME": "/spark", "LC_ALL": "C", "SAMZAPY_CACHE_DIR": "/c"}
    of_job = {"PYSPARK_GATEWAY_SECRET": "s", "DB_PASSWORD": "p", "SAMZAPY_EXECUTION_ID": "e"}
    assert given == environment_of_maker({**given, **of_job})


def test_free_memory_is_that_of_the_host_and_of_the_control_group(tmp_path: Path) -> None:
    info, group = tmp_path / "meminfo", tmp_path / "group"
    assert free_memory(info, group) == 0, "the host does not show it"

    info.write_text("MemTotal: 4194304 kB\nMemAvailable:    2097152 kB\n")
    assert 2 * GIB == free_memory(info, group), "there is no control group"

    group.mkdir()
    (group / "memory.current").write_text(f"{GIB}\n")
    (group / "memory.max").write_text("max\n")
    assert 2 * GIB == free_memory(info, group)
    (group / "memory.max").write_text(f"{2 * GIB}\n")
    assert free_memory(info, group) == GIB


def test_free_memory_is_the_least_of_its_control_group_and_of_those_above_it(tmp_path: Path) -> None:
    """A unit of systemd with `MemoryMax=`, in a slice that has a limit too."""
    info, mount, own = tmp_path / "meminfo", tmp_path / "cgroup", tmp_path / "own"
    info.write_text(f"MemAvailable: {8 << 20} kB\n")
    own.write_text("1:name=systemd:/\n0::/system.slice/flights.service\n")
    unit = mount / "system.slice" / "flights.service"
    unit.mkdir(parents=True)

    def limit(group: Path, gibibytes: str) -> None:
        (group / "memory.current").write_text(f"{GIB}\n")
        (group / "memory.max").write_text(f"{gibibytes if gibibytes == 'max' else int(gibibytes) * GIB}\n")

    limit(unit, "3")
    limit(unit.parent, "max")
    assert 2 * GIB == free_memory(info, mount, own)
    limit(unit.parent, "2")
    assert GIB == free_memory(info, mount, own)

    # The name of a group may be any bytes.
    foreign = Path(os.fsdecode(os.fsencode(mount) + b"/caf\xe9"))
    foreign.mkdir()
    limit(foreign, "3")
    own.write_bytes(b"0::/caf\xe9\n")
    assert 2 * GIB == free_memory(info, mount, own)

    # A container that sees the host's path, but only its own group at the mount.
    own.write_text("0::/system.slice/docker-1.scope\n")
    limit(mount, "5")
    (unit.parent / "memory.max").unlink()
    assert 4 * GIB == free_memory(info, mount, own)
    own.unlink()
    assert 4 * GIB == free_memory(info, mount, own)
