"""Credentials of the HTTP port: their scopes, and how a secret is replaced."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.errors import ConfigError
from samzapy.model.credential import Caller, Scope, credential, secrets_of, verified

OLD, NEW = "o" * 32, "n" * 32
NAMES = st.from_regex(r"[A-Za-z0-9_.-]{1,40}", fullmatch=True)


@given(scope=st.sampled_from(Scope), name=NAMES)
def test_a_credential_gives_back_its_scope_and_its_name(scope, name):
    assert Caller(scope=scope, name=name) == verified(credential(OLD, "flights-1", scope, name), [OLD], "flights-1")


@given(name=NAMES, other=NAMES)
def test_a_credential_is_valid_for_its_own_job_scope_and_name_only(name, other):
    own = credential(OLD, "flights-1", Scope.HEARTBEAT, name)
    mac = own.rpartition(".")[2]

    assert verified(own, [OLD], "flights-2") is None
    assert verified(f"read.{name}.{mac}", [OLD], "flights-1") is None
    if other != name:
        assert verified(f"heartbeat.{other}.{mac}", [OLD], "flights-1") is None


@given(text=st.text(max_size=600))
def test_no_other_text_is_a_credential(text):
    assert verified(text, [OLD], "flights-1") is None


def test_a_credential_of_the_former_secret_is_valid_until_that_is_removed():
    former = credential(OLD, "flights-1", Scope.READ, "prometheus")

    assert Caller(scope=Scope.READ, name="prometheus", is_current=False) == verified(former, [NEW, OLD], "flights-1")
    assert verified(former, [NEW], "flights-1") is None


def test_a_larger_scope_includes_the_smaller_ones():
    assert Scope.HEARTBEAT < Scope.READ < Scope.OPERATE


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "ü", "x" * 256])
def test_a_name_that_a_header_cannot_hold_is_refused(name):
    with pytest.raises(ConfigError, match="wanted a name"):
        credential(OLD, "flights-1", Scope.READ, name)


def test_the_lines_of_a_secret_file_are_its_secrets_newest_first():
    assert (NEW, OLD) == secrets_of(f"{NEW}\n\n  {OLD}  \n", "/a")


@pytest.mark.parametrize(("text", "reason"), [("\n", "found nothing"), (f"{NEW}\nhunter2", "found fewer in line 2")])
def test_a_missing_or_short_secret_is_refused_and_not_quoted(text, reason):
    with pytest.raises(ConfigError, match=reason) as refusal:
        secrets_of(text, "/a")

    assert "hunter2" not in str(refusal.value)
