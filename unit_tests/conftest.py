"""Settings of all property tests, and fixtures that several packages use."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import settings

# The time of an example proves little on a machine that is shared.
settings.register_profile("samzapy", deadline=None)
settings.load_profile("samzapy")


@pytest.fixture
def job_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a job's own code; its imports are forgotten afterwards."""
    # Not those of samzapy: a second copy of a module would not know the declarations of the first one.
    import_module("samzapy.declared_task")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path
