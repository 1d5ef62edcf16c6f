"""Findings about a job, from its gathered state (`samzapy doctor`). Pure.

Each function looks at one thing. A delay alone is no finding: an open transaction, a container that was just started.
So each has a time after which it is one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from samzapy.coordinator.assignment.grants import owners
from samzapy.coordinator.assignment.liveness import LIVING
from samzapy.inspection.status import is_stopped
from samzapy.model.container import Container, ContainerPhase
from samzapy.model.finding import Finding, finding_of_json
from samzapy.model.text import some
from samzapy.plan.input_keys import InputKeys, refusal_of, warnings_of

if TYPE_CHECKING:
    from samzapy.coordinator.state import CoordinatorState
    from samzapy.model.job import ExecutionId

CLOCK_SKEW_MS = 60_000
"""Clocks decide nothing here, but they are read by people, and starts by time go by them."""

_NAMES_MAX = 10
_KEYS_REMEDY = "See docs/guides/planning.md, Keys that meet; task.partitioner.check=off ends this look"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """The oldest transaction that is open on a partition.

    Attributes:
        offset_first: of its first record there; readers of committed records see nothing from there on.
        offset_end: the partition's end, open transactions included.
        since_ms: the time of that record; None where it could not be read.
        is_append_time: whether the broker set that time when it appended the record. Else its producer did, and it may
            be the time of an event of long ago, or of one to come.
    """

    topic: str
    partition: int
    offset_first: int
    offset_end: int
    since_ms: int | None
    is_append_time: bool


_OF_LEADER: Final = frozenset({"coordinator-insecure", "request-refused", "request-repeated"})
"""Codes of findings that only a leader can make: they are about its own settings, and signatures that it checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAnswer:
    """The answer of the leader that the stream names.

    Attributes:
        heartbeat_ages_ms: of each container that it lists; None for one that it has not heard of in this term.
        kafka_silent_ms: for how long no broker has answered a container; without those that one answers.
        findings: those that only a leader makes (`findings_of_leader`).
    """

    term: int
    trouble: str
    heartbeat_ages_ms: Mapping[ExecutionId, int | None]
    kafka_silent_ms: Mapping[ExecutionId, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def is_of_unknown_age(transaction: OpenTransaction, *, now_ms: int, patience_ms: int) -> bool:
    """Whether its age is unknown, because a producer set its time.

    Then only looking at it for `patience_ms` tells that it hangs.
    """
    if transaction.since_ms is None:
        return True
    return not transaction.is_append_time and not 0 <= now_ms - transaction.since_ms <= patience_ms


def transaction_findings(
    opened: Iterable[OpenTransaction], *, now_ms: int, patience_ms: int, bootstrap_servers: str
) -> tuple[Finding, ...]:
    """Transactions that are open for longer than `patience_ms`.

    Args:
        opened: of those of unknown age only transactions that were seen open for that long.
    """
    findings = []
    for transaction in opened:
        if is_of_unknown_age(transaction, now_ms=now_ms, patience_ms=patience_ms):
            since = f"the {patience_ms / 1000:g} s of this look at least"
        else:
            assert transaction.since_ms is not None, "else its age is unknown"
            age_ms = now_ms - transaction.since_ms
            if age_ms <= patience_ms:
                continue
            since = f"{age_ms // 1000} s"
        where = f"{transaction.topic}-{transaction.partition}"
        tool = f"kafka-transactions.sh --bootstrap-server {bootstrap_servers}"
        findings.append(
            Finding(
                code="transaction-hanging",
                subject=f"topic {transaction.topic}",
                found=f"{where}: wanted no transaction open for more than {patience_ms // 1000} s, found one open for "
                f"{since}: no reader sees the records between offset {transaction.offset_first} and the end, "
                f"{transaction.offset_end}",
                remedy=f"Its producer is named by: {tool} describe-producers --topic {transaction.topic} --partition "
                f"{transaction.partition}. End that program; if it is gone and the broker does not abort the "
                f"transaction, {tool} abort --topic {transaction.topic} --partition {transaction.partition} "
                f"--start-offset {transaction.offset_first}",
            )
        )
    return tuple(findings)


def truncation_findings(firsts: Mapping[tuple[str, int], int]) -> tuple[Finding, ...]:
    """Compacted topics that do not begin at offset 0.

    Compaction moves no beginning, so records were deleted.
    """
    return tuple(
        Finding(
            code="topic-truncated",
            subject=f"topic {topic}",
            found=f"{topic}-{partition}: wanted it to begin at offset 0, found {first}: records that may still be true "
            "were deleted, by the cleanup policy `delete` or by hand",
            remedy="See that the cleanup policy is `compact`; what is gone cannot be mended: give the job a new job.id "
            "to begin anew, or make sure that nothing was lost",
        )
        for (topic, partition), first in sorted(firsts.items())
        if first > 0
    )


def offline_findings(offline: Mapping[str, Collection[int]]) -> tuple[Finding, ...]:
    """Partitions without a leading broker, by topic.

    They cannot be read or written, or asked for their offsets.
    """
    return tuple(
        Finding(
            code="partition-offline",
            subject=f"topic {topic}",
            found=f"wanted a leader for each partition of {topic}, found none for "
            f"{some([str(partition) for partition in sorted(partitions)], _NAMES_MAX)}: they were not looked at",
            remedy="Start the brokers with them; `kafka-topics.sh --describe --unavailable-partitions` lists them",
        )
        for topic, partitions in sorted(offline.items())
        if partitions
    )


def findings_of_leader(rows: Iterable[Mapping[str, object]]) -> tuple[Finding, ...]:
    """The findings in a leader's status that nothing else can make.

    They are untrusted, and others among them are made anew.
    """
    findings = (finding_of_json(row) for row in rows)
    return tuple(finding for finding in findings if finding is not None and finding.code in _OF_LEADER)


def leader_findings(
    state: CoordinatorState, answer: LeaderAnswer | None, *, count_candidates: Callable[[], int]
) -> tuple[Finding, ...]:
    """The findings about the leader: there must be one, the one that the stream names.

    Args:
        count_candidates: the members of the election's consumer group; called only if no leader answers.
    """
    if is_stopped(state) or state.term is None:
        return ()
    term = state.term
    if answer is None:
        candidate_count = count_candidates()
        stand = {0: "no election candidates", 1: "1 election candidate"}.get(
            candidate_count, f"{candidate_count} election candidates"
        )
        remedy = (
            "One of those leads within seconds; if this stays, read their logs"
            if candidate_count
            else "Nothing is decided without a leader: start the job (again)"
        )
        return (
            Finding(
                code="leader-missing",
                subject=f"term {term.term}",
                found=f"wanted an answer of the leader at {term.url} (process {term.pid} on {term.host}), found none; "
                f"{stand}",
                remedy=remedy,
            ),
        )
    # A later term began after the stream was read, and its leader is the right one.
    if answer.term < term.term:
        return (
            Finding(
                code="leader-stale",
                subject=f"term {term.term}",
                found=f"wanted the leader of term {term.term} at {term.url}, found one of term {answer.term}",
                remedy="Ask again; if it stays, end the process that answers there: it does not know that it was "
                "replaced",
            ),
        )
    notices = answer.findings
    if answer.trouble:
        return (
            Finding(
                code="leader-trouble",
                subject=f"term {term.term}",
                found=f"the leader cannot do what it has decided: {answer.trouble}",
                remedy="It tries again by itself; mend what it names",
            ),
            *notices,
        )
    return notices


def container_findings(
    state: CoordinatorState,
    answer: LeaderAnswer | None,
    *,
    is_answer_known: bool = True,
    is_alive: Callable[[Container], bool | None],
    now_ms: int,
    lost_ms: int,
) -> tuple[Finding, ...]:
    """Containers whose record is wrong.

    They are recorded as living and are not, or were declared lost and are not fenced.

    Args:
        is_answer_known: False: the leader could not be asked. Then only a process that has ended makes a ghost.
        is_alive: whether its process runs; None for one on another host.
        now_ms: wall clock.
        lost_ms: how long a leader waits for a heartbeat, also after its term began.
    """
    findings = []
    is_new = _is_new(state, answer, now_ms, lost_ms)
    for container in state.containers_sorted:
        if container.phase is ContainerPhase.LOST:
            findings.append(_unfenced(container))
        elif container.phase in LIVING:
            is_running = is_alive(container)
            why = "its process has ended" if is_running is False else None
            if why is None and is_answer_known:
                why = _unheard(container, answer, is_running, lost_ms, is_new)
            if why is not None:
                findings.append(_ghost(container, why))
    return tuple(findings)


def _is_new(state: CoordinatorState, answer: LeaderAnswer | None, now_ms: int, lost_ms: int) -> bool:
    """Whether the leader may not have had a heartbeat of every container yet."""
    if state.term is None:
        return False
    is_later = answer is not None and answer.term > state.term.term
    return is_later or abs(now_ms - state.term.started_at_ms) <= lost_ms


def _unfenced(container: Container) -> Finding:
    name = f"container {container.execution_id}"
    return Finding(
        code="container-unfenced",
        subject=name,
        found=f"{name} ({_where(container)}) was given up and is not fenced yet: its tasks have no owner until then",
        remedy="The leader does it, and tries again by itself; if this stays, see that there is a leader and that it "
        "reaches the brokers",
    )


def _ghost(container: Container, why: str) -> Finding:
    name = f"container {container.execution_id}"
    return Finding(
        code="container-ghost",
        subject=name,
        found=f"{name} ({_where(container)}) is recorded as {container.phase.value}, but {why}",
        remedy="The leader gives it up, fences it and gives its tasks to others; if this stays, see that there is a "
        "leader, and start the processor again",
    )


def _where(container: Container) -> str:
    return f"processor {container.processor_id}, process {container.pid} on {container.host}"


def owner_findings(state: CoordinatorState) -> tuple[Finding, ...]:
    """Tasks without an owner."""
    owned = owners(state)
    without = [planned.task_name for planned in state.plan if planned.task_name not in owned]
    if not without or is_stopped(state):
        return ()
    return (
        Finding(
            code="task-without-owner",
            subject="tasks",
            found=f"{len(without)} of {len(state.plan)} tasks have no owner: {some(without, _NAMES_MAX)}",
            remedy="Start the processors that are missing, or wait for a hand-over to end",
        ),
    )


def key_findings(keys: InputKeys, *, is_accepted: bool) -> tuple[Finding, ...]:
    """Whether the inputs of one task bring equal keys together (`plan.input_keys`).

    Args:
        is_accepted: whether the configuration lets the job run although partitioners differ.
    """
    refusal = refusal_of(keys)
    texts = [("input-keys", text) for text in warnings_of(keys)]
    if refusal:
        texts.insert(0, ("input-keys" if is_accepted else "input-partitioner", refusal))
    return tuple(Finding(code=code, subject="inputs", found=text, remedy=_KEYS_REMEDY) for code, text in texts)


def clock_findings(state: CoordinatorState, term_appended_ms: int | None) -> tuple[Finding, ...]:
    """Whether the leader's clock and the broker's agree: the term record has both."""
    if is_stopped(state) or state.term is None or term_appended_ms is None:
        return ()
    skew_ms = state.term.started_at_ms - term_appended_ms
    if abs(skew_ms) <= CLOCK_SKEW_MS:
        return ()
    return (
        Finding(
            code="clock-skew",
            subject=f"host {state.term.host}",
            found=f"when term {state.term.term} began, the clock of {state.term.host} was {abs(skew_ms) // 1000} s "
            f"{'ahead of' if skew_ms > 0 else 'behind'} the broker's",
            remedy="Nothing is decided by clocks, but times in the audit are wrong by that much: see to NTP on both",
        ),
    )


def _unheard(
    container: Container, answer: LeaderAnswer | None, is_alive: bool | None, lost_ms: int, leader_is_new: bool
) -> str | None:
    if answer is None:
        return None if is_alive else "no leader to confirm it"
    age_ms = answer.heartbeat_ages_ms.get(container.execution_id)
    if age_ms is None:
        return None if leader_is_new else "the leader has heard nothing of it in its term"
    return f"its last heartbeat was {age_ms // 1000} s ago" if age_ms > lost_ms else None
