"""Checks the topics of a running job against the log.

Pure. The expectations come from the state and not from a configuration: the log records which topics exist, with their
ids and partition counts. A new leader, or `samzapy doctor`, must come to the same findings.

A running job goes on with a wrong topic setting: it is reported, and an operator can correct it without a restart. A
missing topic may be a topic that a broker does not know yet, so it is only reported too. But a topic that was deleted
and created again has other records under the same offsets. That ends the job with a named error (law L9), before any of
its records are handled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from samzapy.config import stores_of
from samzapy.coordinator.assignment.replanning import recorded_config, streams_planned
from samzapy.coordinator.commands import TopicsLooked
from samzapy.coordinator.inputs.growth import expansion_findings
from samzapy.coordinator.inputs.removal import departure_findings
from samzapy.coordinator.state import CoordinatorState, remembered
from samzapy.model.finding import Finding
from samzapy.model.ssp import SystemStream
from samzapy.model.topic_checks import TopicFound, check_topic, made_again, missing, refuse
from samzapy.model.topics import (
    TopicSpec,
    changelog_spec,
    changelog_topic,
    checkpoint_spec,
    checkpoint_topic,
    coordinator_spec,
    coordinator_topic,
    intermediate_spec,
    placement_spec,
    placement_topic,
)
from samzapy.plan.input_patterns import may_depart, unread_matches

_REPLICATION = "job.coordinator.replication.factor"


def topics_of(state: CoordinatorState) -> tuple[str, ...]:
    """The names of all topics that the job needs."""
    return tuple(sorted({*state.own_topics, *(stream.stream for stream in _inputs(state))}))


@remembered
def specs_of(state: CoordinatorState) -> tuple[TopicSpec, ...]:
    """The specifications of the recorded internal topics.

    Without the changelogs of stores that were dropped, which may be deleted.
    """
    intermediate = _intermediate_specs(state)
    specs = (intermediate.get(name) or _spec(state, name) for name in sorted(state.own_topics))
    return tuple(spec for spec in specs if spec is not None)


def compacted_topics(state: CoordinatorState) -> frozenset[str]:
    """The names of the compacted internal topics, whose first records never go."""
    return frozenset(spec.name for spec in specs_of(state) if spec.is_compacted)


def topic_findings(state: CoordinatorState, looked: TopicsLooked) -> tuple[Finding, ...]:
    """All problems of the topics, in a fixed order."""
    findings: list[Finding] = []
    for spec in specs_of(state):
        if spec.name in looked.described:
            recorded_id = state.own_topics[spec.name].topic_id
            findings.extend(check_topic(spec, looked.described[spec.name], looked.cluster, topic_id=recorded_id))
    config = recorded_config(state)
    for stream in _inputs(state):
        # An intermediate stream is an internal topic, which was checked above.
        is_missed = stream.stream not in state.own_topics and (config is None or not may_depart(config, stream))
        if is_missed and stream.stream in looked.described:
            findings.extend(_input_findings(stream, state.inputs[stream].topic_id, looked.described[stream.stream]))
    findings.extend(departure_findings(state, looked))
    findings.extend(_unread_findings(state, looked))
    findings.extend(expansion_findings(state))
    return tuple(findings)


def unread_topics(state: CoordinatorState, topics: Collection[str]) -> tuple[str, ...]:
    """The names of the `topics` that match an input pattern and are not read."""
    config = recorded_config(state)
    if config is None or not config.input_patterns:
        return ()
    return tuple(SystemStream.parse(text).stream for text in unread_matches(config, topics))


def refuse_made_again(state: CoordinatorState, looked: TopicsLooked) -> None:
    """Raise TopicIdentityError if a topic is not the recorded one."""
    refuse([finding for finding in topic_findings(state, looked) if finding.code == "topic-identity"])


def _inputs(state: CoordinatorState) -> tuple[SystemStream, ...]:
    """The inputs of the current plan.

    A topic that was read earlier may be deleted.
    """
    return tuple(sorted(streams_planned(state)))


def _input_findings(stream: SystemStream, recorded_id: str, topic: TopicFound | None) -> Iterable[Finding]:
    if topic is None:
        yield missing(stream.stream)
    elif topic.topic_id != recorded_id:
        yield made_again(f"input {stream}", recorded_id, topic.topic_id)


def _unread_findings(state: CoordinatorState, looked: TopicsLooked) -> Iterable[Finding]:
    """Findings about topics that match a pattern and are not read.

    Topics that are about to be read are left out.
    """
    config = recorded_config(state)
    if config is None or not config.input_patterns:
        return
    for text in unread_matches(config, looked.topics):
        known, topic = state.inputs.get(SystemStream.parse(text)), looked.described.get(text.partition(".")[2])
        if known is not None and known.expansions:
            continue
        is_another = (
            known is not None
            and topic is not None
            and topic.topic_id != known.topic_id
            and not may_depart(config, known.system_stream)
        )
        why = "the job read once; it was deleted and made again" if is_another else "came after the job was handed in"
        yield Finding(
            code="input-unread",
            subject=text,
            found=f"wanted every topic read that {', '.join(config.input_patterns)} matches, found {text}, which "
            f"{why}",
            remedy="Give the job a new job.id, or make the pattern narrower"
            if is_another
            else "The leader takes it in when it looks for new topics the next time "
            "(job.coordinator.monitor-partition-change.frequency.ms); or make the pattern narrower",
        )


def _intermediate_specs(state: CoordinatorState) -> Mapping[str, TopicSpec]:
    """The specifications by topic.

    A topic that is no longer the job's may have any settings.
    """
    config = recorded_config(state)
    if config is None:
        return {}
    replicas = _number(state, _REPLICATION)
    return {item.topic: intermediate_spec(item, replicas) for item in config.intermediates}


def _spec(state: CoordinatorState, name: str) -> TopicSpec | None:
    if state.job is None:
        return None
    job = f"{state.job.job_name}-{state.job.job_id}"
    replicas = _number(state, _REPLICATION)
    changelogs = changelog_topic(job, "")
    if name == coordinator_topic(job):
        return coordinator_spec(job, replicas)
    if name == checkpoint_topic(job):
        return checkpoint_spec(job, replicas)
    if name == placement_topic(job):
        return placement_spec(job, replicas)
    if name.startswith(changelogs):
        store = name.removeprefix(changelogs)
        if all(store != declared.name for declared in stores_of(state.config)):
            return None
        own = _number(state, f"stores.{store}.changelog.replication.factor")
        return changelog_spec(job, store, state.own_topics[name].partition_count, own or replicas)
    return None


def _number(state: CoordinatorState, config_key: str) -> int | None:
    text = state.config.get(config_key, "")
    return int(text) if text.isdigit() else None
