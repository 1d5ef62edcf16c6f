"""The records that release 0.1.0 can read, and the form in which it wrote them.

Frozen, as that release is. Pure.

0.1.0 reads a topic of samzapy from its first record on and refuses all of it because of one that it does not know: a
schema that it does not ship, or a key of a kind that it does not have, also that of a tombstone, and also where a later
record of the key has replaced it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from samzapy.errors import CorruptRecordError
from samzapy.model.ssp import SspKeyBucket
from samzapy.stream.codec import decode, encode_as_of, fingerprint_of, schema_as_of
from samzapy.stream.keys import Namespace, parse_key
from samzapy.stream.log import LogRecord
from samzapy.stream.records import (
    ChangelogPartitionPut,
    CheckpointPut,
    ConfigPut,
    ContainerPut,
    EpochPut,
    FormatLevelPut,
    GenerationPut,
    GrantPut,
    InputPut,
    JobIdentityPut,
    LocalityPut,
    LossAcceptedPut,
    OwnTopicPut,
    PlannedTaskPut,
    ProgressPut,
    Record,
    SchemaPut,
    TermPut,
)
from samzapy.version import FIRST_RELEASE

RELEASE: Final = FIRST_RELEASE
FORMAT_LEVEL: Final = 1
SCHEME: Final = "max"
"""The one way from partitions to tasks that it has."""

RECORDS: Final[tuple[type[Record], ...]] = (
    SchemaPut,
    FormatLevelPut,
    JobIdentityPut,
    TermPut,
    ConfigPut,
    InputPut,
    OwnTopicPut,
    ChangelogPartitionPut,
    PlannedTaskPut,
    GenerationPut,
    ContainerPut,
    LocalityPut,
    EpochPut,
    GrantPut,
    LossAcceptedPut,
    CheckpointPut,
    ProgressPut,
)
"""The kinds of records that it has."""

SCHEMAS: Final = tuple(
    sorted((schema_as_of(kind, RELEASE) for kind in RECORDS), key=lambda schema: schema.fingerprint)
)
FINGERPRINTS: Final = frozenset(schema.fingerprint for schema in SCHEMAS)

_NAMESPACES: Final = frozenset(
    {
        Namespace.SCHEMA,
        Namespace.FORMAT,
        Namespace.JOB,
        Namespace.TERM,
        Namespace.CONFIG,
        Namespace.INPUT,
        Namespace.TOPIC,
        Namespace.CHANGELOG,
        Namespace.PLAN,
        Namespace.GENERATION,
        Namespace.CONTAINER,
        Namespace.LOCALITY,
        Namespace.EPOCH,
        Namespace.GRANT,
        Namespace.ACCEPTED_LOSS,
        Namespace.CHECKPOINT,
        Namespace.PROGRESS,
    }
)
_OF_POSITIONS: Final = frozenset({Namespace.ACCEPTED_LOSS, Namespace.CHECKPOINT, Namespace.PROGRESS})

_CONFIG_KEYS: Final = frozenset(
    {
        "job.name",
        "job.id",
        "job.default.system",
        "task.inputs",
        "task.partition.scheme",
        "task.error.policy",
        "task.dead.letter.output",
        "task.transaction.max.ms",
        "task.transaction.max.bytes",
        "task.transaction.timeout.ms",
        "task.batch.offsets.max",
        "task.batch.interval.ms",
        "task.hang.timeout.ms",
        "task.lost.range.accept",
        "local.store.dir",
        "processor.id",
        "job.coordinator.host",
        "job.coordinator.port",
        "job.coordinator.replication.factor",
        "job.coordinator.transaction.timeout.ms",
        "job.container.heartbeat.ms",
        "job.container.lease.ms",
        "job.container.grace.ms",
        "job.container.lost.ms",
        "job.shutdown.drain.ms",
    }
)
_CONFIG_FAMILIES: Final = (
    ("systems.", (".bootstrap.servers", ".samza.offset.default", ".samza.key.serde", ".samza.msg.serde")),
    ("stores.", (".msg.serde", ".key.serde", ".changelog.replication.factor", ".size.max.bytes")),
)


def has_key(key: str) -> bool:
    """Whether it can read a record, or a tombstone, under that key of ours."""
    parsed = parse_key(key)
    if parsed.namespace in _OF_POSITIONS and SspKeyBucket.parse(parsed.parts[0]).reader:
        return False  # It has no broadcast inputs.
    return parsed.namespace in _NAMESPACES


def has_setting(key: str) -> bool:
    """Whether it knows the configuration key.

    It refuses another one in a properties file by name.
    """
    if key in _CONFIG_KEYS or (key.startswith("systems.") and ".client." in key):
        return True
    return any(key.startswith(begin) and key.endswith(ends) for begin, ends in _CONFIG_FAMILIES)


def encoded(record: Record) -> tuple[bytes, bytes]:
    """The key and the value of a record of one of `RECORDS` as it wrote them."""
    return encode_as_of(record, RELEASE)


def can_read(record: LogRecord) -> bool:
    """Whether it reads the record, where we do."""
    try:
        decode(record, topic="")
    except CorruptRecordError:
        return False
    assert record.key is not None, "else it is not decoded"
    is_known = record.value is None or fingerprint_of(record.value) in FINGERPRINTS
    return is_known and has_key(record.key.decode())


def first_unread(records: Iterable[LogRecord]) -> LogRecord | None:
    """The first record that it cannot read.

    It refuses all records then. None if it reads them all.
    """
    return next((record for record in records if not can_read(record)), None)
