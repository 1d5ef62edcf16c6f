"""Inputs that grow and topics that appear while the job runs (SEP-5).

The job reads them without a restart, in order per key.

A producer writes a key to partition `hash(key) % count`. When a topic grows, a key may move from an old partition to a
new one. Records that were written to the old partition before must be handled first, by any task. Producers notice the
new count at different times, so an expansion goes through recorded steps:

1. *Seen*: a look at the topics finds more partitions than are known.

2. *Settled*: `job.expansion.settle.ms` later (by default the time within which every producer refreshes the
partitions), no producer that keeps order writes by the old count any more. The time is counted within a term, by a
monotonic clock: a new leader waits again, which delays a step and never makes a wrong one.

3. *Ends*: an action reads the high watermarks of all old partitions. The state asks for it after the record of step 2,
so records of transactions that are still open also lie below these ends.

4. *Passed*: the containers of the old partitions report that all records below the ends are handled.

5. *Read*: the plan gets the new partitions. Until here no task lost anything: tasks run on, and a task that gets
another partition pauses once, for the new grant.

Only the container that holds a bucket under the current grant is asked. Its positions only grow, so its report is right
even if it is early, late or repeated. Reports of other containers may be about an earlier topic of the name, or from
before a rewind. The heartbeat is used and not the checkpoint, because a checkpoint stands after the last record and not
after the marker of its transaction: on a quiet topic it might never pass the end. A partition that is divided into key
buckets has passed when all its buckets have.

A new partition waits for all old ones and not only for the one that its keys come from: that makes one plan instead of
one for each partition, and it is right for any two counts. Each of several expansions waits for the one before, because
a key may have moved twice. Growth to four or eight times the count counts as several expansions, because it may have
been several between two looks.

A new topic that matches a pattern of the inputs is an input that had no partition before: there is nothing to wait for.
`coordinator.inputs.removal` handles a deleted topic.

If the plan refuses an expansion (the job keeps keyed state, and the new count is no multiple), the reason is recorded
and shown, and the job goes on with the partitions that it reads. It tries again after the next expansion, more
changelog partitions, or a new submission.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from samzapy.coordinator.assignment.grants import grants_in_force, input_end, is_free
from samzapy.coordinator.assignment.replanning import config_of, plan_of, replan, streams_planned
from samzapy.coordinator.state import CoordinatorState, evolve, remembered, uncommitted
from samzapy.errors import ConfigError, DataError
from samzapy.model.finding import Finding
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.model.topics import changelog_topic
from samzapy.plan.groupers import NO_GROUPERS, Groupers
from samzapy.plan.input_patterns import may_depart, unread_matches
from samzapy.stream.records import ConfigPut, CoordinatorRecord, Expansion, InputPut, OwnTopicPut

if TYPE_CHECKING:
    from samzapy.coordinator.assignment.liveness import Liveness
    from samzapy.coordinator.commands import EndsRead, ReviewInputs, TopicsLooked


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsWanted:
    """A settled expansion, and the partitions whose ends are to be read."""

    system_stream: SystemStream
    partition_count: int
    ssps: tuple[SystemStreamPartition, ...]


def topics_looked(command: TopicsLooked, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """Records of new partitions and topics."""
    if state.generation is None or not command.is_monitoring:
        return ()
    grown_changelogs = tuple(_grown_changelogs(command, state))
    puts: list[InputPut] = []
    for stream in sorted(streams_planned(state)):
        puts.extend(_grown(command, state, state.inputs[stream]))
    for stream in _unread(command, state):
        puts.extend(_appeared(command, state, stream))
    changed = {put.system_stream: put for put in puts}
    if grown_changelogs:
        for put in _with_expansions(state):
            changed.setdefault(put.system_stream, without_refusals(put))
    return (
        *grown_changelogs,
        *(changed[stream] for stream in sorted(changed) if changed[stream] != state.inputs.get(stream)),
    )


def review_inputs(
    command: ReviewInputs, state: CoordinatorState, liveness: Liveness
) -> tuple[tuple[CoordinatorRecord, ...], str]:
    """The settled expansions, and the plan with the partitions that may be read now.

    Also returns their cause, for the audit.
    """
    if not is_running(state):
        return (), ""
    settled = [put for known in _growing(state) if (put := _settled(known, command, state, liveness))]
    with_settled = evolve(state, uncommitted(settled))
    taken: list[CoordinatorRecord] = []
    refused: list[InputPut] = []
    causes: list[str] = []
    for known in _growing(with_settled):
        put, records = _taken_in(known, with_settled, taken, command, liveness)
        if put is not None and records:
            taken.extend(records)
            causes.append(f"{put.system_stream} has {put.partition_count} partitions")
        elif put is not None:
            refused.append(put)
    advanced = {put.system_stream for put in (*refused, *taken) if isinstance(put, InputPut)}
    facts = [put for put in settled if put.system_stream not in advanced]
    with_taken = evolve(with_settled, uncommitted(taken))
    assert state.generation is not None, "only planned inputs grow"
    plan = replan(with_taken, state.generation.processor_ids, command.groupers) if taken else ()
    # Records of inputs come after the plan: torn before them, they are due again, and the plan is in force already.
    return (*facts, *refused, *plan, *taken), "; ".join(causes) or "expansions"


def noticed_unsettled(command: ReviewInputs, state: CoordinatorState, liveness: Liveness) -> Liveness:
    """`liveness`, with the unsettled expansions, and since when this term knows them."""
    since = {
        pending: liveness.unsettled.get(pending, command.now_ms)
        for known in _growing(state)
        for pending in [(known.system_stream, step.partition_count) for step in known.expansions if not step.settled]
    }
    return liveness if since == liveness.unsettled else replace(liveness, unsettled=since)


def ends_wanted(state: CoordinatorState) -> tuple[EndsWanted, ...]:
    """The ends that are to be read, in a fixed order."""
    return tuple(
        EndsWanted(
            system_stream=known.system_stream,
            partition_count=step.partition_count,
            ssps=tuple(
                SystemStreamPartition(known.system_stream.system, known.system_stream.stream, partition)
                for partition in range(before)
            ),
        )
        for known in _growing(state)
        for step, before in _steps(known)
        if step.settled and not step.refused and len(step.ends) != before
    )


def ends_read(command: EndsRead, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """Record the ends that were read, unless others are recorded already."""
    wanted_of = {(wanted.system_stream, wanted.partition_count): wanted for wanted in ends_wanted(state)}
    wanted = wanted_of.get((command.system_stream, command.partition_count))
    if wanted is None or len(wanted.ssps) != len(command.ends):
        return ()
    known = state.inputs[command.system_stream]
    return (
        replace(
            known,
            expansions=tuple(
                replace(step, ends=command.ends) if step.partition_count == command.partition_count else step
                for step in known.expansions
            ),
        ),
    )


def without_refusals(known: InputPut) -> InputPut:
    """`known` without refusals, so that its expansions are tried again."""
    return replace(known, expansions=tuple(replace(step, refused="") for step in known.expansions))


def expansion_findings(state: CoordinatorState) -> Iterable[Finding]:
    """The partitions that the job cannot read."""
    for known in _with_expansions(state):
        for step in known.expansions:
            if step.refused:
                yield Finding(
                    code="input-expansion-refused",
                    subject=str(known.system_stream),
                    found=f"wanted to read all {step.partition_count} partitions of {known.system_stream}, found that "
                    f"the plan cannot have them: {step.refused}",
                    remedy=f"The job goes on with {known.partition_count or 'none'} of them",
                )


def expansions_json(state: CoordinatorState, liveness: Liveness | None) -> Sequence[Mapping[str, object]]:
    """The expansions in progress, for `/status`.

    `liveness`: None if no leader was asked.
    """
    positions = {} if liveness is None else _positions(state, liveness)
    return [
        {
            "stream": str(known.system_stream),
            "partitionCount": known.partition_count,
            "partitionCountNew": step.partition_count,
            "seenAtMs": step.seen_at_ms,
            "phase": _phase(step, before),
            "reason": step.refused,
            "waitsFor": [
                {"ssp": str(ssp_kb), "offsetNext": positions.get(ssp_kb), "offsetEnd": end}
                for ssp_kb, end in _ends_to_pass(known, step, state)
                if positions.get(ssp_kb, -1) < end
            ],
        }
        for known in _growing(state)
        for step, before in _steps(known)
    ]


def _phase(step: Expansion, before: int) -> str:
    if step.refused:
        return "refused"
    if not step.settled:
        return "settling"
    return "passing" if len(step.ends) == before else "reading ends"


def is_running(state: CoordinatorState) -> bool:
    """Whether the job runs, so that its plan may follow its topics."""
    run = state.run
    return state.generation is not None and run is not None and not run.ended and not run.finished


def _with_expansions(state: CoordinatorState) -> tuple[InputPut, ...]:
    return tuple(state.inputs[stream] for stream in sorted(state.inputs) if state.inputs[stream].expansions)


@remembered
def _growing(state: CoordinatorState) -> tuple[InputPut, ...]:
    """The inputs with unread partitions that the job reads, or will read."""
    records = _with_expansions(state)
    if not records:
        return ()
    planned, patterns = streams_planned(state), config_of(state)
    wanted = {
        SystemStream.parse(text)
        for text in unread_matches(patterns, [put.system_stream.stream for put in records if not put.partition_count])
    }
    return tuple(put for put in records if put.system_stream in planned | wanted)


def _steps(known: InputPut) -> Iterable[tuple[Expansion, int]]:
    """Each expansion with the partition count before it."""
    before = known.partition_count
    for step in known.expansions:
        yield step, before
        before = step.partition_count


def _count_known(known: InputPut) -> int:
    return known.expansions[-1].partition_count if known.expansions else known.partition_count


def _grown(command: TopicsLooked, state: CoordinatorState, known: InputPut) -> Iterable[InputPut]:
    topic = command.described.get(known.system_stream.stream)
    if topic is None or topic.topic_id != known.topic_id or topic.partition_count <= _count_known(known):
        return
    if _has_named_partitions(known.system_stream, state):
        yield replace(known, partition_count=topic.partition_count)
        return
    for count in _counts_up_to(topic.partition_count, _count_known(known)):
        step = Expansion(
            partition_count=count,
            seen_at_ms=command.looked_at_ms,
            # If no partition was read before, no records must be handled first.
            settled=not _count_known(known),
        )
        known = replace(known, expansions=(*known.expansions, _refused_at_once(step, known, state)))
    yield known


def _counts_up_to(count: int, before: int) -> Sequence[int]:
    """The counts that a topic may have had on its way to `count`.

    It may have been doubled several times between two looks.
    """
    counts = [count]
    while before and counts[0] % 2 == 0 and counts[0] // 2 > before:
        counts.insert(0, counts[0] // 2)
    return counts if before and counts[0] == 2 * before else [count]


def _unread(command: TopicsLooked, state: CoordinatorState) -> Sequence[SystemStream]:
    if not state.config.get("task.inputs.patterns"):
        return ()
    return [SystemStream.parse(text) for text in unread_matches(config_of(state), command.topics)]


def _appeared(command: TopicsLooked, state: CoordinatorState, stream: SystemStream) -> Iterable[InputPut]:
    """The record of an unread topic that matches a pattern.

    A topic that was read once may have been created again. Then records about the earlier one do not count, once no
    container can write any more of them. If it was not deleted after all, reading goes on where it was.
    """
    topic, known = command.described.get(stream.stream), state.inputs.get(stream)
    if topic is None:
        return
    if known is None:
        known = InputPut(system_stream=stream, partition_count=0, partition_count_first=0, topic_id=topic.topic_id)
    elif known.topic_id != topic.topic_id:
        if not may_depart(config_of(state), stream) or not _is_released(stream, state):
            return
        known = created_again(known, topic.topic_id, state)
    elif known.gone_at_ms:
        # The partitions that it had; later ones come with a later look.
        step = Expansion(partition_count=known.partition_count, seen_at_ms=command.looked_at_ms, settled=True)
        known = replace(known, partition_count=0, gone_at_ms=0, gone_refused="")
        yield replace(known, expansions=(_refused_at_once(step, known, state),))
        return
    elif known.partition_count:
        return  # The configuration has left it out; a submission adds it again.
    yield from _grown(command, state, known)


def created_again(known: InputPut, topic_id: str, state: CoordinatorState) -> InputPut:
    """An unread input in the place of an earlier topic of the same name."""
    return InputPut(
        system_stream=known.system_stream,
        partition_count=0,
        partition_count_first=0,
        topic_id=topic_id,
        period=known.period,
        epoch_before=state.epoch,
    )


def _is_released(stream: SystemStream, state: CoordinatorState) -> bool:
    """Whether no container can commit a position of `stream` any more."""
    return all(
        is_free(grant, state)
        for grant in state.grants.values()
        if any(start.ssp_kb.ssp.system_stream == stream for start in grant.starts)
    )


def _has_named_partitions(stream: SystemStream, state: CoordinatorState) -> bool:
    """Whether it is a broadcast input with configured partitions.

    Its other partitions are not read.
    """
    broadcast = config_of(state).broadcast_inputs
    return any(item.system_stream == str(stream) and item.partitions is not None for item in broadcast)


def _grown_changelogs(command: TopicsLooked, state: CoordinatorState) -> Iterable[OwnTopicPut]:
    """Changelogs that an operator has given more partitions.

    Expansions that were refused for want of them may be planned now.
    """
    if state.job is None:
        return
    changelogs = changelog_topic(f"{state.job.job_name}-{state.job.job_id}", "")
    for name in sorted(state.own_topics):
        known, topic = state.own_topics[name], command.described.get(name)
        if (
            name.startswith(changelogs)
            and topic is not None
            and topic.topic_id == known.topic_id
            and topic.partition_count > known.partition_count
        ):
            yield replace(known, partition_count=topic.partition_count)


def _refused_at_once(step: Expansion, known: InputPut, state: CoordinatorState) -> Expansion:
    """Refuse an expansion that cannot be planned as soon as it is seen.

    A grouper of the job is asked later, by a process that has its code.
    """
    config = config_of(state)
    if config.ssp_grouper_factory is not None or config.task_name_grouper_factory is not None:
        return step
    return replace(step, refused=_refusal(known, step, state, NO_GROUPERS))


def _refusal(known: InputPut, step: Expansion, state: CoordinatorState, groupers: Groupers) -> str:
    """Why the partitions cannot be planned; empty if they can."""
    assert state.generation is not None, "only planned inputs grow"
    grown = evolve(state, uncommitted(_advanced(known, step, state)))
    try:
        plan_of(grown, state.generation.processor_ids, groupers, before=state)
    except (ConfigError, DataError) as error:
        return str(error)
    return ""


def _advanced(known: InputPut, step: Expansion, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """The records after `step`; earlier refused expansions are part of it."""
    later = tuple(expansion for expansion in known.expansions if expansion.partition_count > step.partition_count)
    put = replace(known, partition_count=step.partition_count, expansions=later)
    streams = config_of(state).streams_read
    if str(known.system_stream) in streams:
        return (put,)
    named = ",".join((*config_of(state).inputs, str(known.system_stream)))
    return ConfigPut(config_key="task.inputs", value=named), put


def _settled(known: InputPut, command: ReviewInputs, state: CoordinatorState, liveness: Liveness) -> InputPut | None:
    """`known` with settled expansions; None if there is no change.

    An expansion that cannot be planned is refused.
    """
    steps = [
        _settled_step(step, known, command, state)
        if not step.settled and not step.refused and _waited_ms(known, step, command, liveness) >= command.settle_ms
        else step
        for step in known.expansions
    ]
    return None if tuple(steps) == known.expansions else replace(known, expansions=tuple(steps))


def _settled_step(step: Expansion, known: InputPut, command: ReviewInputs, state: CoordinatorState) -> Expansion:
    return replace(step, settled=True, refused=_refusal(known, step, state, command.groupers))


def _waited_ms(known: InputPut, step: Expansion, command: ReviewInputs, liveness: Liveness) -> int:
    return command.now_ms - liveness.unsettled.get((known.system_stream, step.partition_count), command.now_ms)


def _taken_in(
    known: InputPut,
    state: CoordinatorState,
    taken: Sequence[CoordinatorRecord],
    command: ReviewInputs,
    liveness: Liveness,
) -> tuple[InputPut | None, tuple[CoordinatorRecord, ...]]:
    """The expansions whose partitions may be read now, as one.

    Returns the input, and the records after it. Normally that is one expansion, because the next one waits for
    partitions that no task has yet. But a torn plan may have these partitions already, and they may have passed. An
    input without records: one of its expansions was refused after all.
    """
    with_others = evolve(state, uncommitted(taken))
    refused, last = known, None
    for step, before in _steps(known):
        if step.refused:
            continue
        if last is not None and not _plans(known.system_stream, before, state):
            break
        if not step.settled or len(step.ends) != before or not _has_passed(known, step, state, liveness):
            break
        reason = _refusal(known, step, with_others, command.groupers)
        if not reason:
            last = step
            continue
        steps = tuple(replace(one, refused=reason) if one == step else one for one in refused.expansions)
        refused = replace(refused, expansions=steps)
    if last is None:
        return (None if refused == known else refused), ()
    records = _advanced(refused, last, with_others)
    put = records[-1]
    assert isinstance(put, InputPut)
    return put, records


def _plans(stream: SystemStream, partition_count: int, state: CoordinatorState) -> bool:
    """Whether the plan has every partition of `stream` up to that count."""
    planned = {
        ssp_kb.ssp.partition for task in state.plan for ssp_kb in task.positions if ssp_kb.ssp.system_stream == stream
    }
    return planned >= set(range(partition_count))


def _has_passed(known: InputPut, step: Expansion, state: CoordinatorState, liveness: Liveness) -> bool:
    positions = _positions(state, liveness)
    return all(positions.get(ssp_kb, -1) >= end for ssp_kb, end in _ends_to_pass(known, step, state))


def _ends_to_pass(known: InputPut, step: Expansion, state: CoordinatorState) -> Iterable[tuple[SspKeyBucket, int]]:
    """The old positions of the plan, and the offsets that they must reach.

    A bounded input is read to the end of the run and no further.
    """
    if not step.ends:
        return
    is_bounded = config_of(state).is_bounded(str(known.system_stream))
    for planned in state.plan:
        for ssp_kb in planned.positions:
            # After a torn transaction the plan may have the new partitions already.
            if ssp_kb.ssp.system_stream != known.system_stream or ssp_kb.ssp.partition >= len(step.ends):
                continue
            end = step.ends[ssp_kb.ssp.partition]
            of_run = input_end(state, ssp_kb.ssp) if is_bounded else None
            yield ssp_kb, end if of_run is None else min(end, of_run)


def _positions(state: CoordinatorState, liveness: Liveness) -> Mapping[SspKeyBucket, int]:
    """The position of each bucket, as its holder reported it in this term.

    The holder is the container that holds it under the current grant.
    """
    offsets: dict[SspKeyBucket, int] = {}
    for grant in grants_in_force(state).values():
        sighting = liveness.last.get(grant.execution_id)
        if sighting is None or not sighting.has_read(grant):
            continue
        for start in grant.starts:
            if (position := sighting.figures.positions.get(start.ssp_kb)) is not None:
                offsets[start.ssp_kb] = position.offset_next
    return offsets
