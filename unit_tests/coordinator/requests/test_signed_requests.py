"""Requests of a job that wants signatures: each refused one has an answer.

It also has a finding, and is not done.
"""

import pytest

from samzapy.model.credential import Scope, credential
from samzapy.model.placement import Action, StatusCode
from samzapy.model.request_signature import SIGNATURE_HEADER, VALID_MS, SignedOnly, signature
from samzapy.stream.log import Write
from samzapy.stream.records import RequestPut, RestartPut
from samzapy.testing.memory_placement import read_inbox
from unit_tests.fixtures.operated_job import Job, an_id

SECRET, OTHER = "s" * 32, "t" * 32
S = StatusCode


class SignedJob(Job):
    """An operator signs each request, unless its credential is None."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.signs_with = self.of(SECRET)

    def of(self, secret):
        return credential(secret, self.service.status().job, Scope.OPERATE, "alice")

    def put(self, key, value):
        headers = {}
        if self.signs_with is not None:
            headers[SIGNATURE_HEADER] = signature(self.signs_with, key, value, self.now_ms() + VALID_MS)
        self.write(Write(key=key, value=value, headers=headers))

    def write(self, write):
        self.last = write
        self.operator.append_atomically([write])

    def reads(self):
        signed = SignedOnly(job=self.service.status().job, secrets=(SECRET,), is_required=True)
        now_ms = self.now_ms()
        self.world.queue.append(
            read_inbox(
                self.world.placement,
                self.state.inbox.offset_next,
                now_ms,
                refusal=lambda record: signed.refusal(record.key, record.value, record.headers, now_ms),
            )
        )
        self.service.run_once(0)

    def findings(self):
        return [(finding.code, finding.found) for finding in self.service.status().findings]


def unsigned(job):
    job.signs_with = None
    job.ask(1)


def of_another_secret(job):
    job.signs_with = job.of(OTHER)
    job.ask(1)


def altered(job):
    job.ask(1)
    last = job.last
    job.write(Write(key=last.key.replace(b"00000001", b"00000002"), value=last.value, headers=last.headers))


def expired(job):
    job.ask(1)
    job.passes(VALID_MS)


@pytest.mark.parametrize(
    ("number", "write", "reason"),
    [
        (1, unsigned, "wanted a signature in its header samzapy-signature, found none"),
        (1, of_another_secret, "the request was altered, or the credential is not valid for this job"),
        (2, altered, "the request was altered, or the credential is not valid for this job"),
        (1, expired, "found one that expired at"),
    ],
)
def test_a_refused_request_is_answered_recorded_and_listed_and_not_done(number, write, reason):
    job = SignedJob()
    write(job)

    job.reads()

    assert job.status(number) is S.BAD_REQUEST
    assert job.answer(number).response_message.startswith("the request is refused: ")
    assert reason in job.answer(number).response_message
    (recorded, *_) = [put for put in job.records(RequestPut) if put.uuid == an_id(number)]
    assert reason in recorded.response_message
    assert recorded.timestamp_ms == 0, "its time is not believed: it would make other requests too old"
    ((code, finding),) = job.findings()
    assert code == "request-refused"
    assert reason in finding
    assert [order for order in job.records(RestartPut) if order.uuid == an_id(number)] == []


def test_a_signed_request_is_served():
    job = SignedJob()
    job.ask(1)

    job.reads()

    assert job.status(1) is S.IN_PROGRESS
    assert job.findings() == []


def test_a_replayed_request_is_listed_and_not_done_again():
    job = SignedJob()
    job.ask(1)
    job.reads()
    job.receives_heartbeats(e0=1)
    assert job.status(1) is S.SUCCEEDED

    job.write(job.last)
    job.reads()

    ((code, finding),) = job.findings()
    assert code == "request-repeated"
    assert an_id(1) in finding
    assert [order.uuid for order in job.records(RestartPut)] == [an_id(1)]


def test_a_request_that_is_replayed_after_its_uuid_was_forgotten_is_refused_as_too_old():
    job = SignedJob(job_placement_uuids_max="1")
    job.ask(1, Action.CONTAINER_STATUS, timestamp_ms=job.now_ms() - 1)
    first = job.last
    job.ask(2, Action.CONTAINER_STATUS)
    for _ in range(2):
        job.reads()
        job.passes(1000)
    assert set(job.state.request_memory) == {an_id(2)}

    job.write(first)
    job.reads()

    refused = job.records(RequestPut)[-1]
    assert refused.uuid == an_id(1)
    assert refused.response_message.startswith("too old")
