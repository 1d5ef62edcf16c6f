"""Inputs that grow and topics that appear while the job runs (SEP-5).

They are taken in without a restart, in order per key.

Theory. A producer takes a key to partition `hash(key) % count`. When a topic grows, a key may move from an old
partition to a new one, and what was written to the old one before must be handled first, whoever reads it. Producers
notice at different times, so an expansion goes through steps, each recorded:

1. *Seen*: a look at the topics finds more partitions than are known.
2. *Settled*: `job.expansion.settle.ms` later (by default the time within which every producer asks for the partitions
   again) nobody who keeps order writes by the old count any more. It is counted within a term, by a clock that does
   not jump: a coordinator that takes over waits again, which delays and never makes a wrong step.
3. *Ends*: an action, so it is asked for behind the record of step 2: the high watermarks of all partitions that
   were there before. What stands in transactions that are open then lies below them, too.
4. *Passed*: whoever reads an old partition says that everything below its end is done.
5. *Taken in*: the plan gets the new partitions. Until here nothing was taken away from anybody: the tasks run on,
   and those that get a partition more pause once, for the new grant.

Who is asked is whoever holds a bucket under the grant that is in force. Of such a grant positions only grow, so what it
says can be believed early, late and repeated. Of anybody else they may be those of an earlier topic of the name, or of
before a rewind. The heartbeat is asked and not the checkpoint, because a checkpoint
stands behind the last record and not behind the marker of its transaction: of a topic that is quiet it might never
pass the end. A partition that is cut into key buckets has passed when all its buckets have.

A partition that is new waits for all old ones and not only for the one that its keys come from: one plan instead of
one for each partition, and it is right for any two counts. Of several expansions each waits for the one before:
a key may have moved twice. One to four times the count, or eight times, counts as several, because it may have been
several between two looks.

A topic that a pattern of the inputs matches is an input that had no partition before: there is nothing to wait for.
One that is deleted goes another way (`coordinator.inputs.removal`).

What the plan refuses (keyed state, and the new count is no multiple) is recorded with the reason and shown; the job
goes on with the partitions that it reads. The next expansion, more changelog partitions, or the job handed in anew
are reasons to look again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from samzapy.coordinator.assignment.grants import grants_in_force, input_end, is_free
from samzapy.coordinator.assignment.liveness import Sightings
from samzapy.coordinator.assignment.replanning import config_of, plan_of, replan, streams_planned
from samzapy.coordinator.commands import EndsRead, HeldGrant, ReviewInputs, TopicsLooked
from samzapy.coordinator.state import CoordinatorState, evolve, remembered, uncommitted
from samzapy.errors import ConfigError, DataError
from samzapy.model.finding import Finding
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.model.topics import changelog_topic
from samzapy.plan.groupers import NO_GROUPERS, Groupers
from samzapy.plan.input_patterns import may_depart, unread_matches
from samzapy.stream.records import ConfigPut, CoordinatorRecord, Expansion, InputPut, OwnTopicPut


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsWanted:
    """An expansion that has settled, and the partitions of which the ends are to be read."""

    system_stream: SystemStream
    partition_count: int
    ssps: tuple[SystemStreamPartition, ...]


def topics_looked(command: TopicsLooked, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """The partitions and topics that are there and that the log does not know."""
    if state.generation is None or not command.is_monitoring:
        return ()
    grown_changelogs = tuple(_grown_changelogs(command, state))
    found: list[InputPut] = []
    for stream in sorted(streams_planned(state)):
        found.extend(_grown(command, state, state.inputs[stream]))
    for stream in _unread(command, state):
        found.extend(_appeared(command, state, stream))
    changed = {put.system_stream: put for put in found}
    if grown_changelogs:
        for put in _with_expansions(state):
            changed.setdefault(put.system_stream, without_refusals(put))
    return (
        *grown_changelogs,
        *(changed[stream] for stream in sorted(changed) if changed[stream] != state.inputs.get(stream)),
    )


def review_inputs(
    command: ReviewInputs, state: CoordinatorState, seen: Sightings
) -> tuple[tuple[CoordinatorRecord, ...], str]:
    """The expansions that have settled, the plan with the partitions that may be read now; and why, for the audit."""
    if not is_running(state):
        return (), ""
    settled = [put for put in map(lambda found: _settled(found, command, state, seen), _growing(state)) if put]
    with_settled = evolve(state, uncommitted(settled))
    taken: list[CoordinatorRecord] = []
    refused: list[InputPut] = []
    said: list[str] = []
    for found in _growing(with_settled):
        put, records = _taken_in(found, with_settled, taken, command, seen)
        if put is not None and records:
            taken.extend(records)
            said.append(f"{put.system_stream} has {put.partition_count} partitions")
        elif put is not None:
            refused.append(put)
    advanced = {put.system_stream for put in (*refused, *taken) if isinstance(put, InputPut)}
    facts = [put for put in settled if put.system_stream not in advanced]
    with_taken = evolve(with_settled, uncommitted(taken))
    assert state.generation is not None, "only what is planned grows"
    plan = replan(with_taken, state.generation.processor_ids, command.groupers) if taken else ()
    # Behind the plan: torn before them, it is all found due again, and the plan is in force already.
    return (*facts, *refused, *plan, *taken), "; ".join(said) or "expansions"


def noticed_unsettled(command: ReviewInputs, state: CoordinatorState, seen: Sightings) -> Sightings:
    """`seen`, with the expansions that have not settled and since when this term knows them."""
    since = {
        pending: seen.unsettled.get(pending, command.now_ms)
        for found in _growing(state)
        for pending in [(found.system_stream, step.partition_count) for step in found.expansions if not step.settled]
    }
    return seen if since == seen.unsettled else replace(seen, unsettled=since)


def ends_wanted(state: CoordinatorState) -> tuple[EndsWanted, ...]:
    """The ends that are to be read, in a fixed order."""
    return tuple(
        EndsWanted(
            system_stream=found.system_stream,
            partition_count=step.partition_count,
            ssps=tuple(
                SystemStreamPartition(found.system_stream.system, found.system_stream.stream, partition)
                for partition in range(before)
            ),
        )
        for found in _growing(state)
        for step, before in _steps(found)
        if step.settled and not step.refused and len(step.ends) != before
    )


def ends_read(command: EndsRead, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """Keep the ends that were read, where they are still wanted: the first word counts."""
    wanted = {(found.system_stream, found.partition_count): found for found in ends_wanted(state)}
    found = wanted.get((command.system_stream, command.partition_count))
    if found is None or len(found.ssps) != len(command.ends):
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


def without_refusals(found: InputPut) -> InputPut:
    """`found`, to be looked at again."""
    return replace(found, expansions=tuple(replace(step, refused="") for step in found.expansions))


def expansion_findings(state: CoordinatorState) -> Iterable[Finding]:
    """The partitions that the job cannot read."""
    for found in _with_expansions(state):
        for step in found.expansions:
            if step.refused:
                yield Finding(
                    code="input-expansion-refused",
                    subject=str(found.system_stream),
                    found=f"wanted to read all {step.partition_count} partitions of {found.system_stream}, found that "
                    f"the plan cannot have them: {step.refused}",
                    remedy=f"The job goes on with {found.partition_count or 'none'} of them",
                )


def expansions_json(state: CoordinatorState, seen: Sightings | None) -> Sequence[Mapping[str, object]]:
    """The expansions under way, for `/status`. `seen`: None where no leader was asked."""
    positions = {} if seen is None else _positions(state, seen)
    return [
        {
            "stream": str(found.system_stream),
            "partitionCount": found.partition_count,
            "partitionCountNew": step.partition_count,
            "seenAtMs": step.seen_at_ms,
            "phase": _phase(step, before),
            "reason": step.refused,
            "waitsFor": [
                {"ssp": str(ssp_kb), "offsetNext": positions.get(ssp_kb), "offsetEnd": end}
                for ssp_kb, end in _ends_to_pass(found, step, state)
                if positions.get(ssp_kb, -1) < end
            ],
        }
        for found in _growing(state)
        for step, before in _steps(found)
    ]


def _phase(step: Expansion, before: int) -> str:
    if step.refused:
        return "refused"
    if not step.settled:
        return "settling"
    return "passing" if len(step.ends) == before else "reading ends"


def is_running(state: CoordinatorState) -> bool:
    """Whether the job runs, so that its plan may follow what its topics do."""
    run = state.run
    return state.generation is not None and run is not None and not run.ended and not run.finished


def _with_expansions(state: CoordinatorState) -> tuple[InputPut, ...]:
    return tuple(state.inputs[stream] for stream in sorted(state.inputs) if state.inputs[stream].expansions)


@remembered
def _growing(state: CoordinatorState) -> tuple[InputPut, ...]:
    """The inputs with more partitions than are read, as far as the job reads them, or is to."""
    found = _with_expansions(state)
    if not found:
        return ()
    planned, patterns = streams_planned(state), config_of(state)
    wanted = {
        SystemStream.parse(text)
        for text in unread_matches(patterns, [put.system_stream.stream for put in found if not put.partition_count])
    }
    return tuple(put for put in found if put.system_stream in planned | wanted)


def _steps(found: InputPut) -> Iterable[tuple[Expansion, int]]:
    """Each expansion with the partition count before it."""
    before = found.partition_count
    for step in found.expansions:
        yield step, before
        before = step.partition_count


def _count_known(found: InputPut) -> int:
    return found.expansions[-1].partition_count if found.expansions else found.partition_count


def _grown(command: TopicsLooked, state: CoordinatorState, known: InputPut) -> Iterable[InputPut]:
    topic = command.found.get(known.system_stream.stream)
    if topic is None or topic.topic_id != known.topic_id or topic.partition_count <= _count_known(known):
        return
    if _names_its_partitions(known.system_stream, state):
        yield replace(known, partition_count=topic.partition_count)
        return
    for count in _counts_up_to(topic.partition_count, _count_known(known)):
        step = Expansion(
            partition_count=count,
            seen_at_ms=command.looked_at_ms,
            # Where no partition was read before, there is nothing that must come first.
            settled=not _count_known(known),
        )
        known = replace(known, expansions=(*known.expansions, _refused_at_once(step, known, state)))
    yield known


def _counts_up_to(count: int, before: int) -> Sequence[int]:
    """The counts that a topic may have had on its way, if it was doubled, or doubled again between two looks."""
    found = [count]
    while before and found[0] % 2 == 0 and found[0] // 2 > before:
        found.insert(0, found[0] // 2)
    return found if before and found[0] == 2 * before else [count]


def _unread(command: TopicsLooked, state: CoordinatorState) -> Sequence[SystemStream]:
    if not state.config.get("task.inputs.patterns"):
        return ()
    return [SystemStream.parse(text) for text in unread_matches(config_of(state), command.topics)]


def _appeared(command: TopicsLooked, state: CoordinatorState, stream: SystemStream) -> Iterable[InputPut]:
    """A topic that a pattern matches, and that is not read.

    One that was read once may have been made again. Then nothing counts that was written of the one before, once nobody
    can write any more of it. Or it was not gone after all: then it goes on where it was.
    """
    topic, known = command.found.get(stream.stream), state.inputs.get(stream)
    if topic is None:
        return
    if known is None:
        known = InputPut(system_stream=stream, partition_count=0, partition_count_first=0, topic_id=topic.topic_id)
    elif known.topic_id != topic.topic_id:
        if not may_depart(config_of(state), stream) or not _is_let_go(stream, state):
            return
        known = made_anew(known, topic.topic_id, state)
    elif known.gone_at_ms:
        # As many as it had; what it has got since comes in its turn.
        step = Expansion(partition_count=known.partition_count, seen_at_ms=command.looked_at_ms, settled=True)
        known = replace(known, partition_count=0, gone_at_ms=0, gone_refused="")
        yield replace(known, expansions=(_refused_at_once(step, known, state),))
        return
    elif known.partition_count:
        return  # The configuration left it out, and a submission takes it back.
    yield from _grown(command, state, known)


def made_anew(known: InputPut, topic_id: str, state: CoordinatorState) -> InputPut:
    """An input of which nothing is read yet, in the place of an earlier topic of the name."""
    return InputPut(
        system_stream=known.system_stream,
        partition_count=0,
        partition_count_first=0,
        topic_id=topic_id,
        period=known.period,
        epoch_before=state.epoch,
    )


def _is_let_go(stream: SystemStream, state: CoordinatorState) -> bool:
    """Whether nobody can commit anything of `stream` any more."""
    return all(
        is_free(grant, state)
        for grant in state.grants.values()
        if any(start.ssp_kb.ssp.system_stream == stream for start in grant.starts)
    )


def _names_its_partitions(stream: SystemStream, state: CoordinatorState) -> bool:
    """Whether it is a broadcast input of which the configuration names the partitions: others are nobody's."""
    broadcast = config_of(state).broadcast_inputs
    return any(item.system_stream == str(stream) and item.partitions is not None for item in broadcast)


def _grown_changelogs(command: TopicsLooked, state: CoordinatorState) -> Iterable[OwnTopicPut]:
    """Changelogs that somebody gave more partitions: what was refused for want of them may be planned now."""
    if state.job is None:
        return
    changelogs = changelog_topic(f"{state.job.job_name}-{state.job.job_id}", "")
    for name in sorted(state.own_topics):
        known, topic = state.own_topics[name], command.found.get(name)
        if (
            name.startswith(changelogs)
            and topic is not None
            and topic.topic_id == known.topic_id
            and topic.partition_count > known.partition_count
        ):
            yield replace(known, partition_count=topic.partition_count)


def _refused_at_once(step: Expansion, known: InputPut, state: CoordinatorState) -> Expansion:
    """What cannot be planned is told when it is seen; a grouper of the job's own is asked later, by who has it."""
    config = config_of(state)
    if config.ssp_grouper_factory is not None or config.task_name_grouper_factory is not None:
        return step
    return replace(step, refused=_refusal(known, step, state, NO_GROUPERS))


def _refusal(known: InputPut, step: Expansion, state: CoordinatorState, groupers: Groupers) -> str:
    """Why the partitions cannot be planned; empty if they can."""
    assert state.generation is not None, "only what is planned grows"
    grown = evolve(state, uncommitted(_advanced(known, step, state)))
    try:
        plan_of(grown, state.generation.processor_ids, groupers, before=state)
    except (ConfigError, DataError) as error:
        return str(error)
    return ""


def _advanced(known: InputPut, step: Expansion, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """The facts after `step`; expansions before it that were refused are part of it."""
    later = tuple(found for found in known.expansions if found.partition_count > step.partition_count)
    put = replace(known, partition_count=step.partition_count, expansions=later)
    streams = config_of(state).streams_read
    if str(known.system_stream) in streams:
        return (put,)
    named = ",".join((*config_of(state).inputs, str(known.system_stream)))
    return ConfigPut(config_key="task.inputs", value=named), put


def _settled(found: InputPut, command: ReviewInputs, state: CoordinatorState, seen: Sightings) -> InputPut | None:
    """`found` with the expansions settled that have had their time, and refused what cannot be planned."""
    steps = [
        _settled_step(step, found, command, state)
        if not step.settled and not step.refused and _waited_ms(found, step, command, seen) >= command.settle_ms
        else step
        for step in found.expansions
    ]
    return None if tuple(steps) == found.expansions else replace(found, expansions=tuple(steps))


def _settled_step(step: Expansion, found: InputPut, command: ReviewInputs, state: CoordinatorState) -> Expansion:
    return replace(step, settled=True, refused=_refusal(found, step, state, command.groupers))


def _waited_ms(found: InputPut, step: Expansion, command: ReviewInputs, seen: Sightings) -> int:
    return command.now_ms - seen.unsettled.get((found.system_stream, step.partition_count), command.now_ms)


def _taken_in(
    found: InputPut,
    state: CoordinatorState,
    taken: Sequence[CoordinatorRecord],
    command: ReviewInputs,
    seen: Sightings,
) -> tuple[InputPut | None, tuple[CoordinatorRecord, ...]]:
    """The expansions whose partitions may be read now, as one: the input, and the facts after it.

    That is one at a time, because the next one waits for partitions that nobody has yet. But a plan that was torn off
    the facts behind it has them already, and they may have passed. An input without facts is one of which an expansion
    was refused after all.
    """
    with_others = evolve(state, uncommitted(taken))
    refused, last = found, None
    for step, before in _steps(found):
        if step.refused:
            continue
        if last is not None and not _plans(found.system_stream, before, state):
            break
        if not step.settled or len(step.ends) != before or not _has_passed(found, step, state, seen):
            break
        reason = _refusal(found, step, with_others, command.groupers)
        if not reason:
            last = step
            continue
        steps = tuple(replace(one, refused=reason) if one == step else one for one in refused.expansions)
        refused = replace(refused, expansions=steps)
    if last is None:
        return (None if refused == found else refused), ()
    records = _advanced(refused, last, with_others)
    put = records[-1]
    assert isinstance(put, InputPut)
    return put, records


def _plans(stream: SystemStream, partition_count: int, state: CoordinatorState) -> bool:
    """Whether the plan has every partition of `stream` up to that count."""
    planned = {
        found.ssp.partition for task in state.plan for found in task.positions if found.ssp.system_stream == stream
    }
    return planned >= set(range(partition_count))


def _has_passed(found: InputPut, step: Expansion, state: CoordinatorState, seen: Sightings) -> bool:
    positions = _positions(state, seen)
    return all(positions.get(ssp_kb, -1) >= end for ssp_kb, end in _ends_to_pass(found, step, state))


def _ends_to_pass(found: InputPut, step: Expansion, state: CoordinatorState) -> Iterable[tuple[SspKeyBucket, int]]:
    """Every position that the plan has in an old partition, and where it must have come to.

    A bounded input is read to the end that the run fixed and no further.
    """
    if not step.ends:
        return
    is_bounded = config_of(state).is_bounded(str(found.system_stream))
    for planned in state.plan:
        for ssp_kb in planned.positions:
            # A plan that was torn off the facts behind it has the new partitions already.
            if ssp_kb.ssp.system_stream != found.system_stream or ssp_kb.ssp.partition >= len(step.ends):
                continue
            end = step.ends[ssp_kb.ssp.partition]
            of_run = input_end(state, ssp_kb.ssp) if is_bounded else None
            yield ssp_kb, end if of_run is None else min(end, of_run)


def _positions(state: CoordinatorState, seen: Sightings) -> Mapping[SspKeyBucket, int]:
    """How far each bucket is, as whoever holds it under the grant in force has said in this term."""
    found: dict[SspKeyBucket, int] = {}
    for task_name, grant in grants_in_force(state).items():
        sighting = seen.last.get(grant.execution_id)
        if sighting is None or HeldGrant(task_name, grant.epoch) not in sighting.held:
            continue
        for start in grant.starts:
            if (position := sighting.figures.positions.get(start.ssp_kb)) is not None:
                found[start.ssp_kb] = position.offset_next
    return found
