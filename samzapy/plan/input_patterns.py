"""Patterns among the inputs (`task.inputs=kafka.~orders-.*`): which topics they stand for.

They are put in the place of the names that match when a job is handed in, and both are recorded: from then on the job
reads named streams, like any other, and a coordinator that takes over plans the same without asking the cluster what
topics there are by now. A topic that appears later (`unread_matches`) is recorded and taken in by a decision of its own
(`coordinator.expansion`).

Never matched are topics that begin with two underscores (Kafka's own and all of samzapy's), the stream that takes
the job's dead letters, and broadcast inputs; who wants to read one of those names it. Where a task sends to is not
known before it does, so a pattern must not match the job's own outputs.

Source: Samza's RegExTopicGenerator, which rewrites task.inputs in the same way; there, too, the whole name must match.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from samzapy.config import JobConfig, is_pattern, pattern_of
from samzapy.errors import MissingTopicError
from samzapy.model.ssp import SystemStream

_INTERNAL = "__"


def resolve_inputs(config: JobConfig, topics: Collection[str]) -> JobConfig:
    """`config` with named inputs only; the same where it has no pattern.

    Args:
        topics: all topics of the cluster.

    Raises:
        MissingTopicError: a pattern matches none; names it.
    """
    if not config.input_patterns:
        return config
    named = [item for item in config.inputs if not is_pattern(item)]
    found: list[str] = []
    for item in config.inputs:
        if not is_pattern(item):
            found.append(item)
            continue
        matched = _matches(item, config, topics)
        if not matched:
            raise MissingTopicError(
                f"task.inputs: wanted topics that match {item} as a whole, found none among the {len(topics)} of the "
                f"cluster (those that begin with {_INTERNAL} do not count); create one, or correct the pattern"
            )
        found.extend(stream for stream in matched if stream not in named and stream not in found)
    properties = dict(config.properties) | {
        "task.inputs": ",".join(found),
        "task.inputs.patterns": ",".join(config.input_patterns),
    }
    return replace(config, inputs=tuple(found), properties=dict(sorted(properties.items())))


def unread_matches(config: JobConfig, topics: Collection[str]) -> tuple[str, ...]:
    """Streams that are not read, and that a pattern matches now."""
    matched = {stream for item in config.input_patterns for stream in _matches(item, config, topics)}
    return tuple(sorted(matched - set(config.inputs)))


def is_match(config: JobConfig, stream: SystemStream) -> bool:
    """Whether a pattern stands for `stream`."""
    return any(str(stream) in _matches(item, config, [stream.stream]) for item in config.input_patterns)


def _matches(item: str, config: JobConfig, topics: Collection[str]) -> tuple[str, ...]:
    system, pattern = item.partition(".")[0], re.compile(pattern_of(item))
    streams = (
        f"{system}.{topic}" for topic in topics if not topic.startswith(_INTERNAL) and pattern.fullmatch(topic)
    )
    named = {config.dead_letter_output, *(item.system_stream for item in config.broadcast_inputs)}
    return tuple(sorted(stream for stream in streams if stream not in named))
