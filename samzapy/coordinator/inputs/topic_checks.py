"""The topics of a running job, held against what the log says of them. Pure.

What to expect is read off the state and not off a configuration: which topics there are, with which ids and partition
counts, is recorded, and a successor, or somebody who only looks (`samzapy doctor`), must come to the same findings.

A running job goes on with a setting that is wrong: it is shown, and mended without a restart. A topic that is not
there may be a broker that does not know it yet, so it is only shown too. But a topic that was deleted and made again
has other records under the same offsets; that ends the job by name (law L9), before something is done with them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

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
    """The names of all topics that the job in force cannot do without."""
    return tuple(sorted({*state.own_topics, *(stream.stream for stream in _inputs(state))}))


@remembered
def specs_of(state: CoordinatorState) -> tuple[TopicSpec, ...]:
    """What the recorded topics of samzapy's own must be."""
    intermediate = _intermediate_specs(state)
    specs = (intermediate.get(name) or _spec(state, name) for name in sorted(state.own_topics))
    return tuple(spec for spec in specs if spec is not None)


def compacted_topics(state: CoordinatorState) -> frozenset[str]:
    """The names of those of samzapy's own topics that hold facts, so that their beginning never goes."""
    return frozenset(spec.name for spec in specs_of(state) if spec.is_compacted)


def topic_findings(state: CoordinatorState, looked: TopicsLooked) -> tuple[Finding, ...]:
    """Everything about the topics that is not as it must be, in a fixed order."""
    found: list[Finding] = []
    for spec in specs_of(state):
        if spec.name in looked.found:
            recorded_id = state.own_topics[spec.name].topic_id
            found.extend(check_topic(spec, looked.found[spec.name], looked.cluster, topic_id=recorded_id))
    config = recorded_config(state)
    for stream in _inputs(state):
        # An intermediate stream is ours, and was looked at above.
        is_missed = stream.stream not in state.own_topics and (config is None or not may_depart(config, stream))
        if is_missed and stream.stream in looked.found:
            found.extend(_input_findings(stream, state.inputs[stream].topic_id, looked.found[stream.stream]))
    found.extend(departure_findings(state, looked))
    found.extend(_unread_findings(state, looked))
    found.extend(expansion_findings(state))
    return tuple(found)


def unread_topics(state: CoordinatorState, topics: Collection[str]) -> tuple[str, ...]:
    """The names of those of `topics` that a pattern of the inputs matches, and that the job does not read."""
    config = recorded_config(state)
    if config is None or not config.input_patterns:
        return ()
    return tuple(SystemStream.parse(text).stream for text in unread_matches(config, topics))


def refuse_made_again(state: CoordinatorState, looked: TopicsLooked) -> None:
    """Raises TopicIdentityError when a topic is not the one that was recorded."""
    refuse([finding for finding in topic_findings(state, looked) if finding.code == "topic-identity"])


def _inputs(state: CoordinatorState) -> tuple[SystemStream, ...]:
    """Those that the plan in force reads; one that was read once may go."""
    return tuple(sorted(streams_planned(state)))


def _input_findings(stream: SystemStream, recorded_id: str, topic: TopicFound | None) -> Iterable[Finding]:
    if topic is None:
        yield missing(stream.stream)
    elif topic.topic_id != recorded_id:
        yield made_again(f"input {stream}", recorded_id, topic.topic_id)


def _unread_findings(state: CoordinatorState, looked: TopicsLooked) -> Iterable[Finding]:
    """Topics that a pattern of the job's inputs matches, that came later, and that are not about to be taken in."""
    config = recorded_config(state)
    if config is None or not config.input_patterns:
        return
    for text in unread_matches(config, looked.topics):
        known, topic = state.inputs.get(SystemStream.parse(text)), looked.found.get(text.partition(".")[2])
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
    """By topic; one that the job has no more may be as it likes."""
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
        own = _number(state, f"stores.{store}.changelog.replication.factor")
        return changelog_spec(job, store, state.own_topics[name].partition_count, own or replicas)
    return None


def _number(state: CoordinatorState, config_key: str) -> int | None:
    text = state.config.get(config_key, "")
    return int(text) if text.isdigit() else None
