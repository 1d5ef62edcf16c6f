"""`samzapy job token`: a credential for a person or a program."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from samzapy.cli.job.token import token
from samzapy.errors import ConfigError
from samzapy.model.credential import Caller, Scope, verified

SECRET = "s" * 32


def properties(directory: Path, secret: str | None) -> Path:
    lines = ["job.name=flights", "task.inputs=kafka.orders", "systems.kafka.bootstrap.servers=localhost:1"]
    if secret is not None:
        path = directory / "secret"
        path.touch(0o600)
        path.write_text(secret)
        lines.append(f"job.coordinator.secret=file:{path}")
    file = directory / "flights.properties"
    file.write_text("\n".join(lines))
    return file


@pytest.mark.parametrize("scope", [Scope.READ, Scope.OPERATE])
def test_a_credential_of_the_scope_and_the_name_is_printed_alone(tmp_path: Path, scope: Scope) -> None:
    arguments = ["--config", str(properties(tmp_path, SECRET)), "--scope", scope.text, "--name", "anna"]

    printed = CliRunner().invoke(token, arguments, catch_exceptions=False).output

    assert Caller(scope=scope, name="anna") == verified(printed.strip(), [SECRET], "flights-1")


def test_no_credential_for_heartbeats_is_printed(tmp_path: Path) -> None:
    arguments = ["--config", str(properties(tmp_path, SECRET)), "--scope", "heartbeat", "--name", "e1"]

    assert 2 == CliRunner().invoke(token, arguments).exit_code


@pytest.mark.parametrize(
    ("secret", "name", "reason"),
    [
        (None, "anna", r"wanted job\.coordinator\.secret"),
        ("short", "anna", "at least 32 characters"),
        (SECRET, "an na", "wanted a name"),
    ],
)
def test_a_job_without_a_secret_or_a_wrong_name_is_refused(
    tmp_path: Path, secret: str | None, name: str, reason: str
) -> None:
    arguments = ["--config", str(properties(tmp_path, secret)), "--name", name]

    with pytest.raises(ConfigError, match=reason):
        CliRunner().invoke(token, arguments, catch_exceptions=False)
