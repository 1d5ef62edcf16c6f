"""`samzapy dev restart`, with a broker that is not started."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from samzapy.cli.dev.group import dev
from samzapy.errors import ConfigError, RejectedError
from samzapy.testing.broker import DevBroker
from samzapy.testing.ports import free_port

Start = tuple[int, Mapping[str, str]]


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[Start]:
    """The port and settings of each start; no process is started."""
    starts = list[Start]()

    def serves_on(broker: DevBroker, port_number: int, _deadline_s: float) -> bool:
        starts.append((port_number, broker.overrides))
        return True

    monkeypatch.setattr(DevBroker, "_serves_on", serves_on)
    return starts


def run(*arguments: str, directory: Path) -> Result:
    return CliRunner().invoke(dev, [*arguments, "--dir", str(directory)])


def test_a_restart_after_a_shutdown_keeps_the_port_and_the_settings(tmp_path: Path, starts: list[Start]) -> None:
    port_number = free_port()
    up = ["up", "--port", str(port_number), "--set", "message.max.bytes=9"]
    assert 0 == run(*up, directory=tmp_path).exit_code
    assert 0 == run("down", directory=tmp_path).exit_code

    restarted = run("restart", directory=tmp_path)

    assert f"serves on 127.0.0.1:{port_number}" in restarted.output
    assert [(port_number, {"message.max.bytes": "9"})] * 2 == starts


@pytest.mark.parametrize("is_there", [True, False])
def test_a_directory_without_a_broker_is_refused(tmp_path: Path, starts: list[Start], is_there: bool) -> None:
    directory = tmp_path / "mistyped"
    if is_there:
        directory.mkdir()

    refused = run("restart", directory=directory)

    assert isinstance(refused.exception, RejectedError)
    assert f"wanted a directory of samzapy dev up, found no broker's last start in {directory}" in str(
        refused.exception
    )
    assert "--dir" in str(refused.exception)
    assert [] == starts
    assert is_there is directory.exists()


@pytest.mark.parametrize("content", ["", "[]", '{"port_number": "x", "overrides": {}}', '{"port_number": 1}'])
def test_a_last_start_with_another_content_is_named(tmp_path: Path, starts: list[Start], content: str) -> None:
    (tmp_path / "last-start.json").write_text(content)

    refused = run("restart", directory=tmp_path)

    assert isinstance(refused.exception, ConfigError) and "last-start.json, found another" in str(refused.exception)
    assert [] == starts
