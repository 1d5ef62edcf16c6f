"""Keys are frozen readable text, `namespace/rest` in UTF-8, and are built here and nowhere else.

Those of the coordinator stream and of the checkpoint topic, and at the end those of the placement topic, which others
write too and which have a second form, Samza's.

Never Avro: one more field in a schema, even with a default, changes the fingerprint and so the bytes, and
compaction would keep both the old and the new key for ever. For the same reason a key has exactly one
spelling: `parse_key` refuses every text that `key_of` would not have written.

A name may hold whatever a topic name may, and config keys and processor ids anything at all. So a key is
split where there is no doubt: a free part is always the last one, or stands between fixed words, and
`grant/<task>/<epoch>` is read from the right.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, assert_never

from samzapy.model.job import ExecutionId
from samzapy.model.placement import REQUEST_TYPE, RESPONSE_TYPE, PlacementNamespace, is_uuid
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.stream.records import (
    ChangelogPartitionPut,
    CheckpointPut,
    ConfigPut,
    ContainerCountPut,
    ContainerPut,
    EpochPut,
    FactorPut,
    FormatLevelPut,
    GenerationPut,
    GrantPut,
    InboxPut,
    InputEndPut,
    InputPut,
    JobIdentityPut,
    LaunchPut,
    LocalityPut,
    LossAcceptedPut,
    OwnTopicPut,
    PlacedPut,
    PlannedTaskPut,
    ProgressPut,
    Record,
    Removed,
    RequestMemoryPut,
    RequestPut,
    RestartPut,
    RunPut,
    SchemaPut,
    StandbyPut,
    StartpointPut,
    SuspendedPut,
    TaskLocalityPut,
    TermPut,
)


class Namespace(StrEnum):
    """The first word of a key: what kind of fact it holds."""

    SCHEMA = "schema"
    FORMAT = "format"
    JOB = "job"
    TERM = "term"
    CONFIG = "config"
    INPUT = "input"
    TOPIC = "topic"
    CHANGELOG = "changelog"
    PLAN = "plan"
    GENERATION = "generation"
    RUN = "run"
    END = "end"
    CONTAINER = "container"
    LOCALITY = "locality"
    TASK_LOCALITY = "task-locality"
    EPOCH = "epoch"
    GRANT = "grant"
    STARTPOINT = "startpoint"
    ACCEPTED_LOSS = "accepted-loss"
    REQUEST = "request"
    REQUEST_MEMORY = "request-memory"
    INBOX = "inbox"
    RESTART = "restart"
    PLACED = "placed"
    LAUNCH = "launch"
    CONTAINER_COUNT = "container-count"
    STANDBY = "standby"
    SUSPENDED = "suspended"
    FACTOR = "factor"
    CHECKPOINT = "checkpoint"
    PROGRESS = "progress"


_NAMESPACES: Mapping[str, Namespace] = {namespace.value: namespace for namespace in Namespace}


class ParsedKey(NamedTuple):
    """A key taken apart; `parts` as in the table of `parse_key`."""

    namespace: Namespace
    parts: tuple[str, ...]


def key_of(record: Record) -> str:
    """The key under which `record` stands on its topic."""
    # They are tried one after the other, so those of which there are most come first.
    match record:
        case GrantPut():
            return f"grant/{record.grant.task_name}/{record.grant.epoch}"
        case CheckpointPut():
            return f"checkpoint/{record.checkpoint.ssp_kb}"
        case ProgressPut():
            return f"progress/{record.progress.ssp_kb}"
        case EpochPut():
            return "epoch"
        case TaskLocalityPut():
            return f"task-locality/{record.locality.task_name}"
        case ContainerPut():
            return container_key(record.container.execution_id)
        case Removed():
            return record.key
        case SchemaPut():
            return f"schema/{record.fingerprint}"
        case FormatLevelPut():
            return "format/level"
        case JobIdentityPut():
            return "job"
        case TermPut():
            return "term"
        case ConfigPut():
            return f"config/{record.config_key}"
        case InputPut():
            return f"input/{record.system_stream}"
        case OwnTopicPut():
            return f"topic/{record.name}"
        case ChangelogPartitionPut():
            return f"changelog/{record.task_name}"
        case PlannedTaskPut():
            return f"plan/{record.generation}/task/{record.task_name}"
        case GenerationPut():
            return "generation"
        case RunPut():
            return "run"
        case InputEndPut():
            return f"end/{record.ssp}"
        case LocalityPut():
            return f"locality/{record.locality.processor_id}"
        case StartpointPut():
            return f"startpoint/{record.startpoint.ssp_kb}"
        case LossAcceptedPut():
            return f"accepted-loss/{record.ssp_kb}"
        case RequestPut():
            return request_key(record.uuid)
        case RequestMemoryPut():
            return f"request-memory/{record.uuid}"
        case InboxPut():
            return "inbox"
        case RestartPut():
            return f"restart/{record.processor_id}"
        case PlacedPut():
            return f"placed/{record.processor_id}"
        case LaunchPut():
            return f"launch/{record.launch.execution_id}"
        case ContainerCountPut():
            return "container-count"
        case StandbyPut():
            return f"standby/{record.processor_id}"
        case SuspendedPut():
            return f"suspended/{record.processor_id}"
        case FactorPut():
            return "factor"
        case _:
            assert_never(record)


def launch_key(execution_id: ExecutionId) -> str:
    """The key of what is recorded of an execution's start."""
    return f"launch/{execution_id}"


def container_key(execution_id: ExecutionId) -> str:
    """The key of an execution's record."""
    return f"container/{execution_id}"


def request_key(uuid: str) -> str:
    """The key of a request that is being served."""
    return f"request/{uuid}"


def parse_key(text: str) -> ParsedKey:
    """Take a key apart.

    | key | parts |
    |---|---|
    | `job`, `term`, `generation`, `run`, `epoch`, `inbox`, `factor`, `container-count` | none |
    | `format/level` | `level` |
    | `plan/<generation>/task/<task>` | generation, task |
    | `grant/<task>/<epoch>` | task, epoch |
    | `<namespace>/<rest>` | rest |

    Raises:
        ValueError: no key of ours, or one that is spelled otherwise than `key_of` spells it.
    """
    word, slash, rest = text.partition("/")
    namespace = _NAMESPACES.get(word)
    if namespace is None:
        known = ", ".join(Namespace)
        raise ValueError(f"wanted a key in one of the namespaces {known}; found {text!r}")
    # By the plain words: a member of an enum is looked up anew each time that it is named. The most frequent first.
    match word:
        case "grant":
            task_name, _, epoch = rest.rpartition("/")
            if not task_name or not is_number(epoch):
                raise _malformed(text, "grant/<task>/<epoch>")
            return ParsedKey(namespace, (task_name, epoch))
        case "job" | "term" | "generation" | "run" | "epoch" | "inbox" | "factor" | "container-count":
            if slash:
                raise _malformed(text, word)
            return ParsedKey(namespace, ())
        case "format":
            if rest != "level":
                raise _malformed(text, "format/level")
        case "plan":
            generation, _, tail = rest.partition("/")
            fixed, _, task_name = tail.partition("/")
            if not is_number(generation) or fixed != "task" or not task_name:
                raise _malformed(text, "plan/<generation>/task/<task>")
            return ParsedKey(namespace, (generation, task_name))
        case "input":
            SystemStream.parse(rest)
        case "end":
            SystemStreamPartition.parse(rest)
        case "startpoint" | "accepted-loss" | "checkpoint" | "progress":
            # The three-part form parses too, but as a key it would be a second spelling.
            if str(SspKeyBucket.parse(rest)) != rest:
                raise _malformed(text, f"{word}/<ssp>:<bucket>/<factor> or {word}/<ssp>@<task>")
        case _:
            if not rest:
                raise _malformed(text, f"{word}/<name>")
    return ParsedKey(namespace, (rest,))


def is_number(text: str) -> bool:
    """ASCII digits without a leading zero: one spelling for each number."""
    return text.isascii() and text.isdigit() and (text == "0" or text[0] != "0")


def _malformed(text: str, wanted: str) -> ValueError:
    return ValueError(f"wanted a key of the form {wanted}, found {text!r}")


class KeyForm(StrEnum):
    """How a key of the placement topic is spelled: as all our keys, or as Samza spells it."""

    TEXT = "text"
    SAMZA = "samza"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementKey:
    """A key of the placement topic. `message_type` is REQUEST_TYPE or RESPONSE_TYPE."""

    namespace: PlacementNamespace
    uuid: str
    message_type: str
    form: KeyForm = KeyForm.TEXT


_PLACEMENT_KEY_BYTES_MAX = 512


def placement_key(key: PlacementKey) -> bytes:
    """`samza-place-container-v1/<uuid>.<type>`, or `[1,"samza-place-container-v1","<uuid>.<type>"]` as Samza's."""
    name = f"{key.uuid}.{key.message_type}"
    if key.form is KeyForm.SAMZA:
        return json.dumps([1, key.namespace.value, name], separators=(",", ":")).encode()
    return f"{key.namespace}/{name}".encode()


def parse_placement_key(found: bytes | None) -> PlacementKey:
    """Take a key of the placement topic apart.

    Each form has one spelling (no blanks), because compaction tells keys apart by their bytes.

    Raises:
        ValueError: no key of a request or a response, or one that is spelled otherwise than `placement_key` does.
    """
    if found is None:
        raise ValueError("wanted a key, found none")
    if len(found) > _PLACEMENT_KEY_BYTES_MAX:
        raise ValueError(f"wanted a key of at most {_PLACEMENT_KEY_BYTES_MAX} bytes, found {len(found)}")
    text = found.decode()
    namespace, name, form = _samza_parts(text) if text.startswith("[") else _text_parts(text)
    uuid, dot, message_type = name.partition(".")
    if not dot or message_type not in (REQUEST_TYPE, RESPONSE_TYPE) or not is_uuid(uuid):
        raise ValueError(f"wanted <uuid>.{REQUEST_TYPE} or <uuid>.{RESPONSE_TYPE}, found {name!r}")
    key = PlacementKey(namespace=PlacementNamespace(namespace), uuid=uuid, message_type=message_type, form=form)
    if placement_key(key) != found:
        raise ValueError(f"wanted {placement_key(key).decode()!r}, found another spelling of it: {text!r}")
    return key


def _text_parts(text: str) -> tuple[str, str, KeyForm]:
    namespace, _, name = text.partition("/")
    if namespace not in list(PlacementNamespace):
        raise ValueError(f"wanted a key in {' or '.join(PlacementNamespace)}, found {text!r}")
    return namespace, name, KeyForm.TEXT


def _samza_parts(text: str) -> tuple[str, str, KeyForm]:
    try:
        parts = json.loads(text)
    except (ValueError, RecursionError):
        parts = None
    match parts:
        case [1, str(namespace), str(name)] if namespace in list(PlacementNamespace):
            return namespace, name, KeyForm.SAMZA
        case _:
            raise ValueError(f'wanted [1,"<namespace>","<uuid>.<type>"], found {text!r}')
