"""Signatures of requests: the key, value, time and secret of a valid one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.errors import ConfigError
from samzapy.model.credential import Scope, credential
from samzapy.model.request_signature import SIGNATURE_HEADER, VALID_MS_MAX, SignedOnly, signature

JOB, KEY, VALUE, NOW_MS = "flights-1", b"the key", b'{"processorId":"0"}', 1_767_225_600_000
OLD, NEW, OTHER = "o" * 32, "n" * 32, "x" * 32


def an_operator(secret=OLD, *, job=JOB, scope=Scope.OPERATE, name="alice"):
    return credential(secret, job, scope, name)


def refusal(key=KEY, value=VALUE, *, signed, secrets=(OLD,), is_required=True, now_ms=NOW_MS):
    headers = [("trace", b"t"), *((SIGNATURE_HEADER, header) for header in signed)]
    return SignedOnly(job=JOB, secrets=secrets, is_required=is_required).refusal(key, value, headers, now_ms)


def signed_by(operator, *, expires_ms=NOW_MS + 1000):
    return [signature(operator, KEY, VALUE, expires_ms)]


@given(key=st.binary(max_size=80), value=st.binary(max_size=80))
def test_only_an_unchanged_request_has_a_valid_signature(key, value):
    header = signature(an_operator(), key, value, NOW_MS + 1)

    assert refusal(key, value, signed=[header]) == ""
    assert "was altered" in refusal(key + b"x", value, signed=[header])
    assert "was altered" in refusal(key, value + b"x", signed=[header])


def test_the_expiry_of_a_signature_cannot_be_altered():
    name, _, mac = signed_by(an_operator())[0].split(b" ")

    assert "was altered" in refusal(signed=[b" ".join((name, str(NOW_MS + 2000).encode(), mac))])


def test_the_name_in_a_signature_cannot_be_altered():
    assert "was altered" in refusal(signed=[signed_by(an_operator())[0].replace(b"alice", b"bob")])


@pytest.mark.parametrize(
    "operator",
    [an_operator(OTHER), an_operator(job="flights-2")],
    ids=["of another secret", "of another job"],
)
def test_a_credential_that_is_not_the_jobs_signs_nothing(operator):
    assert "credential is not valid for this job" in refusal(signed=signed_by(operator))
    assert "credential is not valid for this job" in refusal(signed=signed_by(operator), is_required=False)


@pytest.mark.parametrize("operator", [an_operator(scope=Scope.READ), an_operator(scope=Scope.HEARTBEAT), "secret"])
def test_only_a_credential_of_scope_operate_signs_and_no_other_is_quoted(operator):
    with pytest.raises(ConfigError, match="scope operate") as raised:
        signature(operator, KEY, VALUE, NOW_MS)
    assert operator not in str(raised.value)


@pytest.mark.parametrize(
    ("expires_ms", "reason"),
    [
        (NOW_MS, "expired"),
        (NOW_MS + 1, ""),
        (NOW_MS + VALID_MS_MAX, ""),
        (NOW_MS + VALID_MS_MAX + 1, "expires within"),
    ],
)
def test_a_signature_is_valid_until_it_expires_and_for_a_day_at_most(expires_ms, reason):
    refused_for = refusal(signed=signed_by(an_operator(), expires_ms=expires_ms))
    assert reason in refused_for
    assert bool(reason) == bool(refused_for)


def test_a_request_without_a_signature_is_refused_only_where_one_is_required():
    assert "found none" in refusal(signed=[])
    assert refusal(signed=[], is_required=False) == ""


def test_signatures_of_both_secrets_are_valid_until_the_old_one_is_removed():
    old, new = signed_by(an_operator(OLD)), signed_by(an_operator(NEW))

    assert [refusal(signed=signed, secrets=(NEW, OLD)) for signed in (old, new)] == ["", ""]
    assert "was altered" in refusal(signed=old, secrets=(NEW,))
    assert refusal(signed=new, secrets=(NEW,)) == ""


@given(
    header=st.one_of(st.none(), st.binary(max_size=400), st.from_regex(rb"[a-z.]{1,9} [0-9]{1,25} [0-9a-f]{60,70}"))
)
def test_no_other_bytes_are_a_signature_and_each_is_refused_with_a_reason(header):
    assert refusal(signed=[header], is_required=False)


def test_of_two_signatures_neither_counts():
    assert "another form" in refusal(signed=signed_by(an_operator()) * 2)
