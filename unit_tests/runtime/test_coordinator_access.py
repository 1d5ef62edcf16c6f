"""The credential of each kind of process at the coordinator's HTTP port."""

import pytest

from samzapy.errors import ConfigError
from samzapy.model.credential import CREDENTIAL_VARIABLE, Caller, Scope, verified
from samzapy.model.request_signature import SIGNATURE_HEADER, signature
from samzapy.runtime.coordinator_access import (
    TOKEN_VARIABLE,
    command_access,
    container_access,
    launched_credential,
    made_token,
    signature_check,
    signing_credential,
)
from samzapy.runtime.server_access import server_access
from samzapy.stream.log import LogRecord
from samzapy.testing.builders import a_config

SECRET, JOB = "s" * 32, "flights-1"


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "secret"
    path.write_text(SECRET)
    path.chmod(0o600)
    return a_config(job_coordinator_secret=f"file:{path}")


def caller(text):
    return verified(text, [SECRET], JOB)


def test_a_self_managed_container_derives_the_credential_of_its_execution(config):
    assert Caller(scope=Scope.HEARTBEAT, name="e1") == caller(container_access(config, {}).heartbeat("e1"))


def test_a_launched_container_shows_its_given_credential_and_does_not_need_the_secret(config):
    given = launched_credential(config, {})("e1")
    elsewhere = a_config(job_coordinator_secret="file:/not/on/this/host")
    access = container_access(elsewhere, {CREDENTIAL_VARIABLE: given})

    assert given == access.heartbeat("e1")
    access.renew("heartbeat.e1.new")
    assert "heartbeat.e1.new" == access.heartbeat("e1")


def test_the_server_accepts_the_credentials_of_containers_and_commands(config):
    guard = server_access(config, {}).guard

    assert JOB == guard.job
    assert (SECRET,) == guard.secrets()
    assert Scope.READ is caller(command_access(config, {}).read()).scope
    assert Caller(scope=Scope.OPERATE, name="anna") == caller(made_token(config, {}, Scope.OPERATE, "anna"))


def test_a_job_without_a_secret_has_no_credentials():
    config = a_config()

    assert server_access(config, {}).guard.secrets is None
    assert container_access(config, {}).heartbeat("e1") is None
    assert launched_credential(config, {})("e1") is None
    assert command_access(config, {}).read() is None
    with pytest.raises(ConfigError, match=r"wanted job\.coordinator\.secret"):
        made_token(config, {}, Scope.READ, "anna")


def test_a_command_shows_the_token_of_its_environment_first(config, tmp_path):
    path = tmp_path / "token"
    path.write_text("read.a.b\n")

    assert "read.c.d" == command_access(config, {TOKEN_VARIABLE: "read.c.d"}).read()
    assert "read.c.d" == command_access(config, {TOKEN_VARIABLE: "read.c.d\n"}).read()
    assert "read.a.b" == command_access(None, {TOKEN_VARIABLE: f"file:{path}"}).read()
    with pytest.raises(ConfigError, match=f"{TOKEN_VARIABLE}: wanted to read /nowhere"):
        command_access(None, {TOKEN_VARIABLE: "file:/nowhere"}).read()


@pytest.mark.parametrize("wrong", ["read.me.abc\nread.me.abc", "read.m\xe9.abc"])
def test_a_token_that_no_header_can_hold_is_refused_without_being_shown(wrong):
    with pytest.raises(ConfigError, match=f"{TOKEN_VARIABLE}: wanted a credential, one line of ASCII") as refused:
        command_access(None, {TOKEN_VARIABLE: wrong}).read()

    assert "read.m" not in str(refused.value)


def test_a_command_that_does_not_ask_the_leader_needs_no_secret():
    access = command_access(a_config(job_coordinator_secret="file:/not/on/this/host"), {})

    with pytest.raises(ConfigError, match="/not/on/this/host"):
        access.read()


def test_a_command_signs_with_its_token_for_operators_or_else_as_the_holder_of_the_secret(config):
    token = made_token(config, {}, Scope.OPERATE, "anna")

    assert signing_credential(None, {TOKEN_VARIABLE: token}) == token
    assert signing_credential(config, {TOKEN_VARIABLE: token}) == token
    assert caller(signing_credential(config, {})) == Caller(scope=Scope.OPERATE, name="commands")
    assert signing_credential(None, {TOKEN_VARIABLE: made_token(config, {}, Scope.READ, "anna")}) is None
    assert signing_credential(None, {}) is None
    assert signing_credential(a_config(), {}) is None


def test_a_job_without_a_secret_refuses_no_request_for_its_signature():
    record = LogRecord(offset=0, timestamp_ms=0, key=b"k", value=b"v", headers=(("samzapy-signature", b"x"),))

    assert signature_check(a_config(), {})(record, 0) == ""


def test_signatures_are_checked_with_a_replaced_secret_from_then_on(tmp_path):
    path = tmp_path / "secret"
    path.touch(0o600)
    path.write_text(SECRET)
    config = a_config(job_coordinator_secret=f"file:{path}")
    check = signature_check(config, {})
    signed = signature(made_token(config, {}, Scope.OPERATE, "anna"), b"k", b"v", 1000)
    record = LogRecord(offset=0, timestamp_ms=0, key=b"k", value=b"v", headers=((SIGNATURE_HEADER, signed),))
    assert check(record, 0) == ""

    path.write_text(f"{'n' * 32}\n{SECRET}\n")
    assert check(record, 0) == ""
    path.write_text("n" * 33)

    assert "was altered" in check(record, 0)
