"""The job that a command is about, and its credentials."""

from __future__ import annotations

from pathlib import Path

from samzapy.model.credential import Scope, credential
from samzapy.runtime.job_address import address_of


def test_credentials_of_a_job_that_is_named_by_option_are_for_that_job(tmp_path: Path) -> None:
    secret = tmp_path / "job.secret"
    secret.touch(0o600)
    secret.write_text("s" * 32)

    address = address_of(None, [f"job.coordinator.secret=file:{secret}"], "flights-by-day-1", "localhost:1")

    assert address.job == "flights-by-day-1"
    assert address.signing() == credential("s" * 32, address.job, Scope.OPERATE, "commands")
