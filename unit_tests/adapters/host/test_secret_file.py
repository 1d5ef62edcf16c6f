"""The job's secret: where it may be, and how a running process takes a new one."""

import os

import pytest

from samzapy.adapters.host.secret_file import SecretSource
from samzapy.errors import ConfigError

OLD, NEW = "o" * 32, "n" * 32


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "secret"
    path.write_text(OLD)
    path.chmod(0o600)
    return path


def test_a_changed_file_is_read_again(path):
    source = SecretSource(f"file:{path}", {})
    assert (OLD,) == source.secrets()

    path.write_text(f"{NEW}\n{OLD}")

    assert (NEW, OLD) == source.secrets()


@pytest.mark.parametrize("change", ["removed", "short", "readable by all"])
def test_a_file_that_became_wrong_leaves_the_last_secret_in_force_and_is_logged_once(path, caplog, change):
    source = SecretSource(f"file:{path}", {})
    if change == "removed":
        path.unlink()
    elif change == "short":
        path.write_text("short")
    else:
        path.chmod(0o644)

    assert [(OLD,)] * 3 == [source.secrets() for _ in range(3)]
    assert 1 == len([record for record in caplog.records if "stays in force" in record.message])


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620])
def test_a_file_that_others_may_use_is_refused(path, mode):
    path.chmod(mode)

    with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
        SecretSource(f"file:{path}", {})


def test_a_file_that_is_not_there_or_no_text_is_named(path):
    path.write_bytes(os.urandom(64) + b"\xff")
    with pytest.raises(ConfigError, match="no text"):
        SecretSource(f"file:{path}", {})
    path.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        SecretSource(f"file:{path}", {})


def test_a_secret_may_be_in_the_environment():
    assert (NEW, OLD) == SecretSource("env:FLIGHTS", {"FLIGHTS": f"{NEW}\n{OLD}"}).secrets()
    with pytest.raises(ConfigError, match="FLIGHTS, found that it is not set"):
        SecretSource("env:FLIGHTS", {})
