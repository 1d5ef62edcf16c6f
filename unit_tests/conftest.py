"""Settings of all property tests, and fixtures that several packages use."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says nothing on a machine that is shared.
settings.register_profile("samzapy", deadline=None)
settings.load_profile("samzapy")


@pytest.fixture
def job_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a job's own code stands; what is imported from there is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path
