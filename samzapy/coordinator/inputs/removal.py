"""Topics of a pattern that are deleted while the job runs.

The job continues without them.

A missing topic may mean that a broker does not know it yet. A topic with another id is another topic, unless a broker
lags behind. So a removal goes through recorded steps:

1. *Missing*: looks at the topics do not find it, though they find the job's own topics. This term counts such looks in
a row. A look that finds the topic sets the count back, and a failed look does not count.

2. *Gone*: `LOOKS_MISSING` looks in a row did not find it. The input is marked, and nothing else happens: if it is back
before the next step, the mark is removed.

3. *Left out*: the plan is made without it. Its tasks, or its part of them, are revoked like any other: their containers
release them, and others are granted as usual.

Containers do not wait for that. A deleted topic cannot be read, so they leave it out themselves and go on with the
other inputs (`container.missing_inputs`).

Only an input that comes from a pattern alone, and that has no end, may be removed (`plan.input_patterns.may_depart`). A
topic that the configuration names is reported as missing, for an operator to see to. An input that the plan cannot do
without is recorded with the reason and shown (`input-needed`). It is tried again while it is missing: once another
input is there, it is left out. If another topic is there under its name, that one takes its place in one plan.

With keyed state, keys must find their tasks again if the topic is created again. So the input's record stays, with the
period of its tasks, and the grants that name its tasks stay, because no later grant is the same. A topic that is
created again under the same name has other records under the same offsets. It is read like a new one, from its first
offset, and records about the old one do not count (`InputPut.epoch_before`). That waits until no container can commit
for the old one any more: the same task with the same buckets would look as if it were still granted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from samzapy.config import JobConfig
from samzapy.coordinator.assignment.liveness import Liveness, Missed
from samzapy.coordinator.assignment.replanning import (
    config_of,
    keeps_state,
    plan_of,
    recorded_config,
    replan,
    streams_planned,
)
from samzapy.coordinator.commands import ReviewInputs, TopicsLooked
from samzapy.coordinator.inputs.growth import created_again, is_running
from samzapy.coordinator.state import CoordinatorState, evolve, job_model, tombstone, uncommitted
from samzapy.errors import ConfigError, DataError
from samzapy.model.finding import Finding
from samzapy.model.ssp import SystemStream
from samzapy.model.topics import coordinator_topic
from samzapy.plan.groupers import Groupers
from samzapy.plan.input_patterns import may_depart
from samzapy.plan.job_plan import tasks_of_ssps
from samzapy.plan.partition_schemes import periods
from samzapy.stream.records import ConfigPut, CoordinatorRecord, InputPut, PlannedTaskPut, Removed

LOOKS_MISSING: Final = 3
"""Looks in a row that must miss a topic: a single one may have asked a broker that has just started."""


def inputs_looked(
    command: TopicsLooked, state: CoordinatorState, liveness: Liveness
) -> tuple[CoordinatorRecord, ...]:
    """The inputs that are gone by now, and those that are back."""
    missing = _missing(command, state, liveness)
    puts = [_looked(state.inputs[stream], missing.get(stream), command) for stream in sorted(streams_planned(state))]
    return tuple(put for put in puts if put != state.inputs[put.system_stream])


def noticed_missing(command: TopicsLooked, state: CoordinatorState, liveness: Liveness) -> Liveness:
    """`liveness`, with the number of looks in a row that missed each input."""
    missing = _missing(command, state, liveness)
    return liveness if missing == liveness.missing else replace(liveness, missing=missing)


def review_departures(
    command: ReviewInputs, state: CoordinatorState, liveness: Liveness
) -> tuple[tuple[CoordinatorRecord, ...], str]:
    """The plan without the inputs that are gone.

    A needed one is replaced by the topic that has its name now. Also returns the cause, for the audit.
    """
    gone = _to_leave_out(state, liveness)
    if not gone or not is_running(state):
        return (), ""
    assert state.generation is not None, "a job that runs is planned"
    refused: list[InputPut] = []
    left_out: list[InputPut] = []
    without = state
    for known in gone:
        facts = _without(known, without)
        reason = _refusal(facts, without, state, command.groupers)
        if reason:
            refused.append(replace(known, gone_refused=reason))
            continue
        left_out.append(known)
        without = evolve(without, uncommitted(facts))
    if not left_out:
        return _replaced(refused, command, state, liveness)
    # Why the others are needed is recorded by the next review, which may be that they are needed no more.
    periods_put = [put for known in left_out if (put := _with_period(known, state)) != known]
    facts = _named_inputs(without)
    plan = replan(
        evolve(state, uncommitted((*periods_put, *facts))),
        state.generation.processor_ids,
        command.groupers,
        before=state,
    )
    names = ", ".join(str(known.system_stream) for known in left_out)
    # The periods come from the current plan, so they are written before the next one. The configuration comes after it:
    # after a torn transaction it is all due again.
    return (*periods_put, *plan, *facts), f"the job goes on without {names}"


def _replaced(
    needed: Iterable[InputPut], command: ReviewInputs, state: CoordinatorState, liveness: Liveness
) -> tuple[tuple[CoordinatorRecord, ...], str]:
    """The plan with another topic in the place of a needed input of that name.

    Where there is none, or it cannot be planned: why the inputs are needed, if that has changed.
    """
    refused: list[InputPut] = []
    for known in needed:
        missed = liveness.missing.get(known.system_stream)
        if missed is None or not missed.topic_id:
            refused.append(known)
            continue
        try:
            return _with_the_new_topic(known, missed, command, state), f"{known.system_stream} was created again"
        except (ConfigError, DataError) as error:
            reason = f"{known.gone_refused}; another topic of that name cannot take its place: {error}"
            refused.append(replace(known, gone_refused=reason))
    return tuple(put for put in refused if put != state.inputs[put.system_stream]), "inputs that are needed"


def _with_the_new_topic(
    known: InputPut, missed: Missed, command: ReviewInputs, state: CoordinatorState
) -> tuple[CoordinatorRecord, ...]:
    """The plan with another topic of an input's name in its place.

    The tasks may be the same, with the same buckets. So what revokes the earlier grants is their epoch
    (`InputPut.epoch_before`). The plan is always another one, with a number of its own: starts that were computed for
    the earlier topic are of the plan before, and a heartbeat that releases has read this one.

    Raises:
        ConfigError, DataError: the new topic cannot be planned.
    """
    assert state.generation is not None, "a job that runs is planned"
    put = replace(
        created_again(_with_period(known, state), missed.topic_id, state), partition_count=missed.partition_count
    )
    dropped = [_without_stream(planned, known.system_stream) for planned in state.plan]
    without = evolve(state, uncommitted((*(record for record in dropped if record is not None), put)))
    plan = replan(without, state.generation.processor_ids, command.groupers)
    tombstones = [record for record in dropped if isinstance(record, Removed)]
    # The input comes last: torn before it, all is due again.
    return (*plan, *tombstones, put)


def _without_stream(planned: PlannedTaskPut, stream: SystemStream) -> PlannedTaskPut | Removed | None:
    """The task with its other inputs.

    It is removed if it has none of its own. None: it does not read `stream`.
    """
    if all(ssp_kb.ssp.system_stream != stream for ssp_kb in planned.positions):
        return None
    own = tuple(ssp_kb for ssp_kb in planned.ssp_kbs if ssp_kb.ssp.system_stream != stream)
    shared = tuple(ssp for ssp in planned.broadcast_ssps if ssp.system_stream != stream)
    # A task that has nothing of its own reads every input as a whole.
    is_empty = not own and (bool(planned.ssp_kbs) or not shared)
    return tombstone(planned) if is_empty else replace(planned, ssp_kbs=own, broadcast_ssps=shared)


def is_missing(known: InputPut, command: TopicsLooked) -> bool | None:
    """Whether the topic of an input is missing, or is another one.

    None: the look did not include it.
    """
    name = known.system_stream.stream
    if name not in command.described:
        return None
    topic = command.described[name]
    return topic is None or topic.topic_id != known.topic_id


def departure_findings(state: CoordinatorState, looked: TopicsLooked) -> Iterable[Finding]:
    """Findings about removable inputs that are missing."""
    config = _config(state)
    for stream in sorted(streams_planned(state)) if config is not None else ():
        known = state.inputs[stream]
        if config is None or not may_depart(config, stream) or not is_missing(known, looked):
            continue
        if known.gone_refused:
            yield Finding(
                code="input-needed",
                subject=str(stream),
                found=f"wanted the topic {stream.stream}, found that it was deleted, and that the plan cannot be made "
                f"without it: {known.gone_refused}",
                remedy="The job goes on with what else it reads; nothing of it is lost by that"
                if _reads_others(state)
                else "The job reads nothing until the topic is created again, or another one that "
                f"{', '.join(config.input_patterns)} matches",
            )
            continue
        yield Finding(
            code="input-gone",
            subject=str(stream),
            found=f"wanted the topic {stream.stream}, which {', '.join(config.input_patterns)} stands for, found "
            f"{'no such topic' if looked.described[stream.stream] is None else 'another one of that name'}",
            remedy=f"It is not read. When {LOOKS_MISSING} looks in a row have missed it, the job is planned without it",
        )


def _reads_others(state: CoordinatorState) -> bool:
    return any(not state.inputs[stream].gone_at_ms for stream in streams_planned(state))


def _config(state: CoordinatorState) -> JobConfig | None:
    return recorded_config(state) if state.config.get("task.inputs.patterns") else None


def _missing(command: TopicsLooked, state: CoordinatorState, liveness: Liveness) -> Mapping[SystemStream, Missed]:
    """The removable inputs that looks have missed, this one included.

    The same look counts once.
    """
    config = _config(state)
    if config is None or not _knows_the_job(command, state):
        return liveness.missing
    missing: dict[SystemStream, Missed] = {}
    for stream in sorted(streams_planned(state)):
        known, before = state.inputs[stream], liveness.missing.get(stream)
        is_missed = is_missing(known, command)
        if before is not None and before.topic_id == known.topic_id:
            before = None  # What was there under the name has taken the place of the input.
        if before is not None and (is_missed is None or before.looked_at_ms == command.looked_at_ms):
            missing[stream] = before
        elif is_missed and may_depart(config, stream):
            missing[stream] = _missed(before, command, stream)
    return missing


def _missed(before: Missed | None, command: TopicsLooked, stream: SystemStream) -> Missed:
    count, topic = 1 if before is None else before.count + 1, command.described[stream.stream]
    is_known = before is not None and topic is not None and before.topic_id == topic.topic_id
    if topic is None or not (command.is_monitoring or is_known):
        return Missed(count, command.looked_at_ms)
    return Missed(count, command.looked_at_ms, topic.topic_id, topic.partition_count)


def _knows_the_job(command: TopicsLooked, state: CoordinatorState) -> bool:
    """Whether the look found the coordinator stream.

    A broker that does not know the coordinator stream may not know other topics either.
    """
    if state.job is None:
        return False
    topic = coordinator_topic(f"{state.job.job_name}-{state.job.job_id}")
    current, recorded = command.described.get(topic), state.own_topics.get(topic)
    return current is not None and recorded is not None and current.topic_id == recorded.topic_id


def _looked(known: InputPut, missed: Missed | None, command: TopicsLooked) -> InputPut:
    if known.gone_at_ms and is_missing(known, command) is False:
        return replace(known, gone_at_ms=0, gone_refused="")
    if not known.gone_at_ms and missed is not None and missed.count >= LOOKS_MISSING:
        # Its expansions went with it.
        return replace(known, gone_at_ms=max(1, command.looked_at_ms), expansions=())
    return known


def _to_leave_out(state: CoordinatorState, liveness: Liveness) -> tuple[InputPut, ...]:
    """The inputs that are gone and that the configuration still names.

    Also those that a torn transaction has left there. Those that were needed are tried again, once this term has looked
    for them: other topics may be there since.
    """
    if not any(record.gone_at_ms for record in state.inputs.values()):
        return ()
    named = [SystemStream.parse(text) for text in config_of(state).inputs]
    records = [state.inputs[stream] for stream in sorted(named) if stream in state.inputs]
    return tuple(
        put for put in records if put.gone_at_ms and (not put.gone_refused or put.system_stream in liveness.missing)
    )


def _without(known: InputPut, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    inputs = [text for text in config_of(state).inputs if text != str(known.system_stream)]
    return (ConfigPut(config_key="task.inputs", value=",".join(inputs)),)


def _named_inputs(state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    return (ConfigPut(config_key="task.inputs", value=state.config["task.inputs"]),)


def _with_period(known: InputPut, state: CoordinatorState) -> InputPut:
    """The record with the period of its tasks, by which keys find their state.

    The period is 0 for a job without state.
    """
    planned = job_model(state)
    if planned is None or not keeps_state(state):
        return replace(known, period=0)
    return replace(known, period=periods(tasks_of_ssps(planned)).get(known.system_stream, known.period))


def _refusal(
    facts: tuple[CoordinatorRecord, ...], state: CoordinatorState, before: CoordinatorState, groupers: Groupers
) -> str:
    """The reason why the job cannot be planned after `facts`; empty if it can."""
    without = evolve(state, uncommitted(facts))
    if not without.config["task.inputs"]:
        return "it is the last input of the job"
    if config_of(without).is_bounded_job:
        return "all that is left has an end, and the job has none"
    assert state.generation is not None, "a job that runs is planned"
    try:
        plan_of(without, state.generation.processor_ids, groupers, before=before)
    except (ConfigError, DataError) as error:
        return str(error)
    return ""
