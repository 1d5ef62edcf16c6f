"""Commands in tests know no profile and no target of the shell that runs them."""

from __future__ import annotations

import pytest

from samzapy.cli.target.address import BOOTSTRAP_SERVERS, CONFIG, PROFILE


@pytest.fixture(autouse=True)
def no_target_of_the_shell(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in (BOOTSTRAP_SERVERS, CONFIG, PROFILE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
