"""Keys are frozen readable text, `namespace/rest` in UTF-8, and are built here and nowhere else.

Never Avro: one more field in a schema, even with a default, changes the fingerprint and so the bytes, and
compaction would keep both the old and the new key for ever. For the same reason a key has exactly one
spelling: `parse_key` refuses every text that `key_of` would not have written.

A name may hold whatever a topic name may, and config keys and processor ids anything at all. So a key is
split where there is no doubt: a free part is always the last one, or stands between fixed words, and
`grant/<task>/<epoch>` is read from the right.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from samzapy.model.job import ExecutionId
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.stream.records import (
    ChangelogPartitionPut,
    CheckpointPut,
    ConfigPut,
    ContainerPut,
    EpochPut,
    FormatLevelPut,
    GenerationPut,
    GrantPut,
    InputEndPut,
    InputPut,
    JobIdentityPut,
    LocalityPut,
    LossAcceptedPut,
    OwnTopicPut,
    PlannedTaskPut,
    ProgressPut,
    Record,
    Removed,
    RunPut,
    SchemaPut,
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
    ACCEPTED_LOSS = "accepted-loss"
    CHECKPOINT = "checkpoint"
    PROGRESS = "progress"


@dataclass(frozen=True, slots=True)
class ParsedKey:
    """A key taken apart; `parts` as in the table of `parse_key`."""

    namespace: Namespace
    parts: tuple[str, ...]


def key_of(record: Record) -> str:
    """The key under which `record` stands on its topic."""
    match record:
        case CheckpointPut():
            return f"checkpoint/{record.checkpoint.ssp_kb}"
        case ProgressPut():
            return f"progress/{record.progress.ssp_kb}"
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
        case ContainerPut():
            return container_key(record.container.execution_id)
        case LocalityPut():
            return f"locality/{record.locality.processor_id}"
        case TaskLocalityPut():
            return f"task-locality/{record.locality.task_name}"
        case EpochPut():
            return "epoch"
        case GrantPut():
            return f"grant/{record.grant.task_name}/{record.grant.epoch}"
        case LossAcceptedPut():
            return f"accepted-loss/{record.ssp_kb}"
        case Removed():
            return record.key
        case _:
            assert_never(record)


def container_key(execution_id: ExecutionId) -> str:
    """The key of an execution's record."""
    return f"container/{execution_id}"


def parse_key(text: str) -> ParsedKey:
    """Take a key apart.

    | key | parts |
    |---|---|
    | `job`, `term`, `generation`, `run`, `epoch` | none |
    | `format/level` | `level` |
    | `plan/<generation>/task/<task>` | generation, task |
    | `grant/<task>/<epoch>` | task, epoch |
    | `<namespace>/<rest>` | rest |

    Raises:
        ValueError: no key of ours, or one that is spelled otherwise than `key_of` spells it.
    """
    word, slash, rest = text.partition("/")
    try:
        namespace = Namespace(word)
    except ValueError:
        known = ", ".join(Namespace)
        raise ValueError(f"wanted a key in one of the namespaces {known}; found {text!r}") from None
    match namespace:
        case Namespace.JOB | Namespace.TERM | Namespace.GENERATION | Namespace.RUN | Namespace.EPOCH:
            if slash:
                raise _malformed(text, word)
            return ParsedKey(namespace, ())
        case Namespace.FORMAT:
            if rest != "level":
                raise _malformed(text, "format/level")
        case Namespace.PLAN:
            generation, _, tail = rest.partition("/")
            fixed, _, task_name = tail.partition("/")
            if not is_number(generation) or fixed != "task" or not task_name:
                raise _malformed(text, "plan/<generation>/task/<task>")
            return ParsedKey(namespace, (generation, task_name))
        case Namespace.GRANT:
            task_name, _, epoch = rest.rpartition("/")
            if not task_name or not is_number(epoch):
                raise _malformed(text, "grant/<task>/<epoch>")
            return ParsedKey(namespace, (task_name, epoch))
        case Namespace.INPUT:
            SystemStream.parse(rest)
        case Namespace.END:
            SystemStreamPartition.parse(rest)
        case Namespace.ACCEPTED_LOSS | Namespace.CHECKPOINT | Namespace.PROGRESS:
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
