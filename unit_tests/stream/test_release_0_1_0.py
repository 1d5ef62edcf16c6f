"""Release 0.1.0 reads its own stream, and no schema of this release."""

import pytest

from samzapy.stream.codec import decode, encode, encode_as_of, fingerprint_of, is_schema_of
from samzapy.stream.keys import key_of
from samzapy.stream.log import LogRecord
from samzapy.stream.records import FactorPut, Removed
from samzapy.stream.release_0_1_0 import (
    FINGERPRINTS,
    RECORDS,
    RELEASE,
    SCHEMAS,
    can_read,
    encoded,
    first_unread,
    has_key,
    has_setting,
)
from unit_tests.fixtures.golden_rows import golden_rows, log_of

OWN = golden_rows("release_0_1_0")


def a_record(key, value=None, offset=0):
    return LogRecord(offset=offset, timestamp_ms=0, key=key, value=value)


def test_the_schemas_of_release_0_1_0_are_those_that_it_recorded():
    recorded = {
        decode(record, topic="t").fingerprint
        for record in log_of(OWN, "coordinator")
        if record.key.startswith(b"schema/")
    }

    assert recorded == FINGERPRINTS
    assert len(RECORDS) == len(recorded) == len(SCHEMAS)


@pytest.mark.parametrize("topic", ["coordinator", "checkpoint"])
def test_release_0_1_0_reads_its_own_records_and_this_release_writes_them_the_same(topic):
    records = log_of(OWN, topic)

    assert all(can_read(record) for record in records)
    # The words of a schema may be others today; its fingerprint is without them.
    facts = [(record, decode(record, topic="t")) for record in records if not record.key.startswith(b"schema/")]
    assert [(record.key, record.value) for record, _ in facts] == [encoded(fact) for _, fact in facts]


def test_release_0_1_0_reads_nothing_in_a_schema_of_this_release():
    (grant,) = [
        decode(record, topic="t") for record in log_of(OWN, "coordinator") if record.key.startswith(b"grant/")
    ][:1]
    key, value = encode(grant)

    assert not can_read(a_record(key, value))
    assert can_read(a_record(*encode_as_of(grant, RELEASE)))
    assert fingerprint_of(value) not in FINGERPRINTS


def test_the_first_unread_record_is_reported():
    wish = a_record(*encode(FactorPut(factor=1)), offset=7)
    records = [*log_of(OWN, "checkpoint"), wish, wish._replace(offset=8)]

    assert 7 == first_unread(records).offset
    assert first_unread(records[:-2]) is None


@pytest.mark.parametrize(
    ("key", "is_known"),
    [
        ("grant/SystemStreamPartition_kafka.orders.0/1", True),
        ("plan/3/task/Partition_0", True),
        ("checkpoint/kafka.orders.0:1/4", True),
        ("checkpoint/kafka.rules.0@Partition_3", False),
        ("progress/kafka.rules.0@Partition_3", False),
        ("accepted-loss/kafka.rules.0@Partition_3", False),
        ("config/job.elasticity.factor", True),
        ("run", False),
        ("factor", False),
        ("inbox", False),
        ("request-memory/x", False),
        ("task-locality/Partition_3", False),
        ("launch/x", False),
    ],
)
def test_the_key_of_a_tombstone_decides_whether_it_is_read(key, is_known):
    assert is_known == has_key(key)
    assert is_known == can_read(a_record(key_of(Removed(key=key)).encode()))


def test_streams_without_a_reader_are_not_read():
    assert not can_read(a_record(None, b"x"))
    assert not can_read(a_record(b"grant/x/1", b"{}"))
    assert not can_read(a_record(b"no key of ours"))


def test_the_settings_of_release_0_1_0_are_known_by_name_and_family():
    known = ("job.name", "stores.totals.msg.serde", "systems.kafka.streams.a.b.samza.offset.default")
    later = ("job.elasticity.factor", "stores.totals.scope", "systems.kafka.samza.offset.end", "cluster.manager")

    assert [True] * 3 + [False] * 4 == [has_setting(key) for key in (*known, *later)]
    assert has_setting("systems.kafka.client.sasl.mechanism")


def test_the_schemas_of_release_0_1_0_are_listed_with_their_fingerprints():
    assert all(is_schema_of(schema.schema_json, schema.fingerprint) for schema in SCHEMAS)
