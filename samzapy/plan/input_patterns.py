"""Patterns among the inputs (`task.inputs=kafka.~orders-.*`), and their topics.

At submission they are replaced by the names that match, and both are recorded: from then on the job reads named
streams, like any other, and a coordinator that takes over makes the same plan without asking the cluster for its
topics. A topic that appears later (`unread_matches`) is recorded and taken in by a separate decision
(`coordinator.inputs.growth`), and so is the removal of a deleted one (`may_depart`, `coordinator.inputs.removal`).

A pattern never matches topics that begin with two underscores (Kafka's own and all of samzapy's), the stream of the
job's dead letters, and broadcast inputs; these must be named. The outputs of a task are not known before it sends, so a
pattern must not match the job's own outputs.

Source: Samza's RegExTopicGenerator, which rewrites task.inputs in the same way; there, too, the whole name must match.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from samzapy.config import JobConfig, is_pattern, pattern_of
from samzapy.errors import MissingTopicError
from samzapy.model.ssp import SystemStream

_INTERNAL = "__"


def resolve_inputs(config: JobConfig, topics: Collection[str]) -> JobConfig:
    """`config` with the names of streams only; the same where it has no pattern.

    Args:
        topics: all topics of the cluster.
    """
    streams: list[str] = []
    for item in config.inputs:
        matched = _matches(item, config, topics) if is_pattern(item) else (item,)
        streams.extend(
            stream for stream in matched if stream == item or stream not in (*config.inputs_named, *streams)
        )
    return with_inputs(config, streams)


def with_inputs(config: JobConfig, streams: Sequence[str]) -> JobConfig:
    """`config` that reads `streams` for its names and patterns.

    It is the same if it has no pattern.
    """
    if not config.input_patterns:
        return config
    properties = dict(config.properties) | {
        "task.inputs": ",".join(streams),
        "task.inputs.patterns": ",".join((*config.inputs_named, *config.input_patterns)),
    }
    return replace(config, inputs=tuple(streams), properties=dict(sorted(properties.items())))


def refuse_unmatched(config: JobConfig) -> None:
    """Refuse a pattern of a new job that stands for none of its inputs.

    Raises:
        MissingTopicError: names the pattern.
    """
    topics = [SystemStream.parse(text).stream for text in config.inputs]
    for item in config.input_patterns:
        if not _matches(item, config, topics):
            raise MissingTopicError(
                f"task.inputs: wanted topics that match {item} as a whole, found none on the cluster "
                f"(those that begin with {_INTERNAL} do not count); create one, or correct the pattern"
            )


def unread_matches(config: JobConfig, topics: Collection[str]) -> tuple[str, ...]:
    """Streams that are not read, and that a pattern matches now."""
    matched = {stream for item in config.input_patterns for stream in _matches(item, config, topics)}
    return tuple(sorted(matched - set(config.inputs)))


def is_match(config: JobConfig, stream: SystemStream) -> bool:
    """Whether a pattern stands for `stream`, and only a pattern."""
    return str(stream) not in config.inputs_named and any(
        str(stream) in _matches(item, config, [stream.stream]) for item in config.input_patterns
    )


def may_depart(config: JobConfig, stream: SystemStream) -> bool:
    """Whether the job goes on without `stream` when its topic is deleted.

    Not without one that is asked for by name; and not without one that has an end: a run that read less than it was to
    read would look finished.
    """
    return is_match(config, stream) and not config.is_bounded(str(stream))


def _matches(item: str, config: JobConfig, topics: Collection[str]) -> tuple[str, ...]:
    system, pattern = item.partition(".")[0], re.compile(pattern_of(item))
    streams = (
        f"{system}.{topic}" for topic in topics if not topic.startswith(_INTERNAL) and pattern.fullmatch(topic)
    )
    named = {config.dead_letter_output, *(item.system_stream for item in config.broadcast_inputs)}
    return tuple(sorted(stream for stream in streams if stream not in named))
