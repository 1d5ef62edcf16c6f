"""Scratch directories live in memory, so what a killed execution leaves there must not stay."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from samzapy.cli.coordination import Here
from samzapy.cli.wiring import _scratch_directory
from samzapy.model.job import ExecutionId


@pytest.fixture
def root() -> Iterator[Path]:
    with _scratch_directory(Here.now(), ExecutionId(f"container-0-{uuid.uuid4().hex}")) as path:
        yield path.parent


def left_behind(root: Path, owner: str | None, *, age_s: float = 3600.0) -> Path:
    """What an execution left in its directory, the owner's name included unless it is None."""
    path = root / f"container-0-{uuid.uuid4().hex}"
    (path / "spark").mkdir(parents=True)
    if owner is not None:
        (path / "owner").write_text(owner)
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def dead(here: Here) -> str:
    with subprocess.Popen(["true"]) as child:
        child.wait()
    return f"{here.boot_id} {child.pid} 1"


def test_only_what_nobody_uses_is_removed(root: Path) -> None:
    here = Here.now()
    gone = [
        left_behind(root, dead(here)),
        left_behind(root, f"the-boot-before {here.pid} {here.process_started_ms}"),
        left_behind(root, None),
    ]
    kept = [
        left_behind(root, f"{here.boot_id} {here.pid} {here.process_started_ms}"),
        # Being made this moment.
        left_behind(root, None, age_s=0.0),
    ]

    with _scratch_directory(here, ExecutionId(f"container-0-{uuid.uuid4().hex}")) as own:
        assert ["owner"] == [path.name for path in own.iterdir()]

    assert [False] * 3 == [path.exists() for path in gone]
    assert [True] * 2 == [path.exists() for path in kept]
    assert not own.exists()
    for path in kept:
        shutil.rmtree(path)
