"""Scratch directories are in memory: the files of a killed execution must go."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from samzapy.adapters.boot import boot_id
from samzapy.adapters.host import scratch
from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.adapters.host.scratch import scratch_directories, scratch_directory
from samzapy.errors import EnvironmentMissingError

OWN = ProcessIdentity.of(os.getpid())


def an_execution() -> str:
    return f"container-0-{uuid.uuid4().hex}"


@pytest.fixture(autouse=True)
def _without_logind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(scratch, "_LOGIND", tmp_path / "no-logind")


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch_directory(an_execution()) as path:
        yield path.parent


def left_behind(root: Path, owner: str | None, *, age_s: float = 3600.0) -> Path:
    """The remains of an execution in its directory; None leaves the owner's name out."""
    path = root / an_execution()
    root.mkdir(mode=0o700, exist_ok=True)
    (path / "spark").mkdir(parents=True)
    if owner is not None:
        (path / "owner").write_text(owner)
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def dead() -> str:
    with subprocess.Popen(["true"]) as child:
        child.wait()
    return f"{boot_id()} {child.pid} 1"


def test_only_unused_scratch_directories_are_removed(root: Path) -> None:
    gone = [
        left_behind(root, dead()),
        left_behind(root, f"the-boot-before {OWN.pid} {OWN.started_ms}"),
        left_behind(root, f"{boot_id()} {OWN.pid} {OWN.started_ms + 1000}"),
        left_behind(root, None),
        left_behind(root, "no name at all"),
    ]
    kept = [
        left_behind(root, f"{boot_id()} {OWN.pid} {OWN.started_ms}"),
        # Being made this moment.
        left_behind(root, None, age_s=0.0),
    ]

    with scratch_directory(an_execution()) as own:
        assert ["owner"] == [path.name for path in own.iterdir()]
        assert own in scratch_directories()

    assert [False] * 5 == [path.exists() for path in gone]
    assert [True] * 2 == [path.exists() for path in kept]
    assert not own.exists()
    for path in kept:
        shutil.rmtree(path)


@contextmanager
def another_execution(*wrapper: str) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """An execution of another process, and its directory."""
    code = (
        "from samzapy.adapters.host.scratch import scratch_directory\n"
        f"with scratch_directory({an_execution()!r}) as path:\n"
        "    print(path, flush=True)\n"
        "    input()\n"
    )
    command = [*wrapper, sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        yield Path(child.stdout.readline().strip()), child
        if child.poll() is None:
            child.stdin.write("\n")


def test_the_scratch_directory_of_an_execution_in_another_pid_namespace_stays() -> None:
    """Its pid is 1 to itself, and here that is another process."""
    apart = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("no namespace of pids can be made here")

    with another_execution(*apart) as (path, child):
        assert "1" == (path / "owner").read_text().split()[1]
        with scratch_directory(an_execution()):
            assert path.exists()

    assert 0 == child.returncode
    assert not path.exists()


def test_the_deletion_of_old_files_frees_no_used_scratch_directory(root: Path) -> None:
    with another_execution() as (path, _):
        (path / "owner").unlink()
        os.utime(path, (time.time() - 3600,) * 2)
        with scratch_directory(an_execution()):
            assert path.exists()


def test_the_scratch_directory_of_a_killed_execution_is_removed_at_the_next_start() -> None:
    with another_execution() as (path, child):
        child.kill()
        child.wait()
        assert path.exists()

    with scratch_directory(an_execution()):
        assert not path.exists()


def test_with_little_memory_scratch_is_on_disk_which_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scratch, "_MEMORY_FREE_MIN_BYTES", 1 << 60)
    monkeypatch.setattr(scratch.tempfile, "gettempdir", lambda: str(tmp_path))
    gone = left_behind(tmp_path / f"samzapy-{os.getuid()}", dead())

    with scratch_directory(an_execution()) as path:
        assert path.is_relative_to(tmp_path)
        assert path in scratch_directories()

    assert not gone.exists()
    assert re.search(rf"/dev/shm has \d+ MiB free, less than .*: scratch is in {tmp_path}", caplog.text)


def test_scratch_of_a_person_is_not_where_a_logout_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd-logind empties /dev/shm of a user's files with their last session.

    It does so while a job of the user still runs.
    """
    logind, lingering, disk = tmp_path / "users", tmp_path / "linger", tmp_path / "disk"
    for directory in (lingering, disk):
        directory.mkdir()
    monkeypatch.setattr(scratch, "_LOGIND", logind)
    monkeypatch.setattr(scratch, "_LINGERING", lingering)
    monkeypatch.setattr(scratch.tempfile, "gettempdir", lambda: str(disk))
    uid_max = scratch._SYSTEM_UID_MAX

    def is_on_disk() -> bool:
        with scratch_directory(an_execution()) as path:
            return path.is_relative_to(disk)

    monkeypatch.setattr(scratch, "_SYSTEM_UID_MAX", -1)  # The user that runs the tests is a person.
    assert not is_on_disk(), "no user is logged out where there is no logind"
    logind.mkdir()
    assert is_on_disk()
    (lingering / pwd.getpwuid(os.getuid()).pw_name).touch()
    assert not is_on_disk(), "a user that lingers is spared"
    (lingering / pwd.getpwuid(os.getuid()).pw_name).unlink()
    monkeypatch.setattr(scratch, "_SYSTEM_UID_MAX", max(uid_max, os.getuid()))
    assert not is_on_disk(), "system users are spared"


def test_without_a_temporary_directory_scratch_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_usable() -> str:
        raise FileNotFoundError("No usable temporary directory")

    monkeypatch.setattr(scratch, "_MEMORY_FREE_MIN_BYTES", 1 << 60)
    monkeypatch.setattr(scratch.tempfile, "gettempdir", none_usable)

    with scratch_directory(an_execution()) as path:
        assert path.is_relative_to("/dev/shm")


@pytest.mark.parametrize("is_link", [False, True])
def test_a_root_in_which_another_user_may_swap_directories_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_link: bool
) -> None:
    """Nor is it swept."""
    root, target = tmp_path / f"samzapy-{os.getuid()}", tmp_path / "target"
    target.mkdir(mode=0o700)
    if is_link:
        root.symlink_to(target)
    else:
        root.mkdir()
        root.chmod(0o777)
    monkeypatch.setattr(scratch, "_MEMORY", tmp_path)
    monkeypatch.setattr(scratch, "_MEMORY_FREE_MIN_BYTES", 0)
    kept = left_behind(target if is_link else root, dead())
    mode = "lrwxrwxrwx" if is_link else "drwxrwxrwx"

    with (
        pytest.raises(
            EnvironmentMissingError, match=rf"{root} to be a directory of user .*, found {mode} of user .*; remove"
        ),
        scratch_directory(an_execution()),
    ):
        pass

    assert kept.exists() and kept not in scratch_directories()


def test_a_root_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"samzapy-{os.getuid()}").mkdir(mode=0o700)
    monkeypatch.setattr(scratch, "_MEMORY", tmp_path)
    monkeypatch.setattr(scratch, "_MEMORY_FREE_MIN_BYTES", 0)
    monkeypatch.setattr(scratch.os, "geteuid", lambda: os.getuid() + 1)

    with (
        pytest.raises(EnvironmentMissingError, match=rf"found drwx------ of user {os.getuid()};"),
        scratch_directory(an_execution()),
    ):
        pass


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"samzapy-{os.getuid()}").write_text("of somebody else")
    monkeypatch.setattr(scratch, "_MEMORY", tmp_path)

    with (
        pytest.raises(EnvironmentMissingError, match=r"wanted a scratch directory at .*, found File exists"),
        scratch_directory(an_execution()),
    ):
        pass
