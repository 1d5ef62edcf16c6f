"""Whether a key of several inputs of one task is always in that task.

Partition counts and sampled keys tell.

Two inputs are joined by key where their producers take a key to partition `hash(key) % count` by the same hash, and the
plan brings those partitions together. Neither Kafka nor the plan knows the hash, so it is found out by trying: of each
input the sampled keys are held against the partitioners that Kafka's clients have. Compared are tasks, not partitions:
after a topic has grown, a key that was written before is in another partition, and in the same task.

A difference in the sample is certain; without one there may still be a difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import lcm, log2
from typing import Final

from samzapy.model.job import JobModel, TaskName
from samzapy.model.ssp import SystemStream, SystemStreamPartition
from samzapy.model.task_stats import key_text
from samzapy.model.text import some
from samzapy.plan.key_spread import EXAMPLES_MAX, SpreadKeys, spread_keys
from samzapy.plan.partitioners import HASHES, Partitioner
from samzapy.plan.task_names import TaskNameParts

SETTING: Final = "task.partitioner.check"
_FITS_AT_LEAST: Final = 0.95
"""Some records may be of a producer that chose the partition itself."""
_BITS_AT_LEAST: Final = 30
"""So unlikely it is to be that keys fit a hash by chance: one in a billion."""
_APART_AT_LEAST: Final = 10
_APART_RATIO: Final = 0.25
"""By chance one key in as many as there are tasks is in the right one, so with two tasks every other key is apart."""
_HASHES_TRIED_MAX: Final = 20_000

Tasks = Sequence[TaskName]
"""Of a stream the base task of each partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamKeys:
    """How the keys of one input are partitioned.

    Attributes:
        key_count: of the sample; one that is in several tasks counts for each.
        fits: how many of them are in the task where a partitioner takes them.
        partitioner: the one that they fit; None where none does, or too few keys were found to tell.
        is_enough: whether there were enough keys to tell.
    """

    system_stream: SystemStream
    key_count: int
    fits: Mapping[Partitioner, int]
    partitioner: Partitioner | None
    is_enough: bool

    def __str__(self) -> str:
        if self.partitioner is not None:
            fit = self.fits[self.partitioner]
            return f"{self.partitioner} in {self.system_stream} ({fit} of {self.key_count} sampled keys)"
        best = max(self.fits, key=lambda partitioner: self.fits[partitioner])
        return (
            f"neither of {', '.join(Partitioner)} in {self.system_stream} (at best {best}: {self.fits[best]} of "
            f"{self.key_count} sampled keys)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysApart:
    """Two inputs of one task, and keys that are in both and have no task in common.

    `shared_count`: sampled keys that are in both; `examples`: some of those that are apart, as people read them.
    `is_own`: whether the job itself writes one of them, which it does to have another key there.
    """

    first: SystemStream
    other: SystemStream
    shared_count: int
    apart_count: int
    examples: tuple[str, ...]
    is_own: bool = False

    @property
    def is_much(self) -> bool:
        """Whether it is more than a few strays, and of keys that are meant to be the same."""
        return not self.is_own and self.apart_count >= max(_APART_AT_LEAST, _APART_RATIO * self.shared_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountsApart:
    """Two inputs of one task whose partition counts keep equal keys apart.

    This holds for any hash.
    """

    first: SystemStream
    other: SystemStream
    first_count: int
    other_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InputKeys:
    """The results about the keys of a job's inputs.

    Attributes:
        streams: the inputs that share tasks with others, by groups of those that do.
        spread: inputs of which a key is in several tasks.
    """

    streams: tuple[tuple[StreamKeys, ...], ...] = ()
    spread: tuple[SpreadKeys, ...] = ()
    apart: tuple[KeysApart, ...] = ()
    counts: tuple[CountsApart, ...] = ()

    @property
    def differing(self) -> tuple[tuple[StreamKeys, ...], ...]:
        """The groups whose inputs have different partitioners, as far as these are known."""
        known = [tuple(item for item in group if item.partitioner is not None) for group in self.streams]
        return tuple(group for group in known if len({item.partitioner for item in group}) > 1)


NOTHING_SEEN: Final = InputKeys()


@dataclass(slots=True)
class _Stream:
    """`tasks_of`: of each sampled key the tasks that it is in."""

    tasks: list[TaskName] = field(default_factory=list)
    tasks_of: dict[bytes, set[TaskName]] = field(default_factory=dict)

    def expected(self, hash_of_key: int) -> TaskName:
        return self.tasks[hash_of_key % len(self.tasks)]


def look_at_keys(
    keys_of: Mapping[SystemStreamPartition, Collection[bytes]],
    plan: JobModel,
    own: Collection[SystemStream] = (),
) -> InputKeys:
    """Compare the keys of inputs that meet in one task, by a sample and the plan.

    Args:
        keys_of: the sampled keys of each partition. Partitions that `plan` does not divide among tasks are left out.
        own: intermediate streams. Their keys mostly are of another kind than those of the inputs,
            so their partitioner need not be that of the inputs.
    """
    streams = _streams(keys_of, plan)
    groups = [group for group in _groups(streams) if len(group) > 1]
    inputs = [[stream for stream in group if stream not in own] for group in groups]
    counts = tuple(_counts_apart(inputs, streams))
    uneven = {frozenset((apart.first, apart.other)) for apart in counts}
    return InputKeys(
        streams=tuple(tuple(_seen(stream, streams[stream]) for stream in group) for group in inputs),
        spread=spread_keys(keys_of, plan),
        apart=tuple(
            apart
            for apart in _keys_apart(groups, streams, own)
            if frozenset((apart.first, apart.other)) not in uneven
        ),
        counts=counts,
    )


def refusal_of(keys: InputKeys) -> str:
    """Why a job that keeps state by key must not run on these inputs.

    Empty if it may.
    """
    for group in keys.differing:
        partitioners = sorted({stream.partitioner for stream in group if stream.partitioner is not None})
        members = {one: [stream for stream in group if stream.partitioner is one] for one in partitioners}
        streams = "; ".join(f"{seen[0]}{_and_others(len(seen) - 1)}" for seen in members.values())
        return (
            f"{_named(seen[0].system_stream for seen in members.values())}: wanted one partitioner for the inputs of "
            f"one task, because the job keeps state by key; found {streams}. A key of the one is in another task than "
            f"the same key of the other. {_REMEDY}"
        )
    for apart in keys.apart:
        if apart.is_much:
            return (
                f"{_named((apart.first, apart.other))}: wanted a key of both in one task, because the job keeps state "
                f"by key; found {apart.apart_count} of {apart.shared_count} sampled keys that are in both in different "
                f"tasks ({', '.join(apart.examples)}). {_REMEDY}"
            )
    return ""


def warnings_of(keys: InputKeys) -> tuple[str, ...]:
    """Warnings to show before the job runs, without the one that `refusal_of` returns."""
    return (
        *_different_counts(keys),
        *_unknown_partitioners(keys),
        *_apart(keys),
        *(spread_text(spread) for spread in keys.spread),
    )


def _different_counts(keys: InputKeys) -> Iterable[str]:
    return (
        f"{counts.first} has {counts.first_count} partitions and {counts.other} {counts.other_count}, and both are "
        "read by the same tasks: most keys of the one do not meet those of the other. To join them by key set "
        "task.partition.scheme=cogroup, in a job that has no state yet"
        for counts in keys.counts
    )


def _unknown_partitioners(keys: InputKeys) -> Iterable[str]:
    meeting = [apart for apart in keys.apart if apart.shared_count >= _APART_AT_LEAST and not apart.apart_count]
    proven = {stream for pair in meeting for stream in (pair.first, pair.other)}
    return (
        f"{seen}: whether its keys meet those of {_named(one.system_stream for one in group if one is not seen)} is "
        "not known"
        for group in keys.streams
        for seen in group
        if len(group) > 1
        if seen.is_enough and seen.partitioner is None and seen.system_stream not in proven
    )


def _apart(keys: InputKeys) -> Iterable[str]:
    return (
        f"{apart.apart_count} of {apart.shared_count} sampled keys that are in both {apart.first} and {apart.other} "
        f"are in different tasks ({', '.join(apart.examples)}): they do not meet"
        for apart in keys.apart
        if apart.apart_count and not apart.is_much
    )


def spread_text(spread: SpreadKeys) -> str:
    """A warning of keys that are in several tasks at once."""
    named = "; ".join(f"{key} in {', '.join(map(str, partitions))}" for key, partitions in spread.examples)
    return (
        f"{spread.key_count} of the sampled keys of {spread.system_stream} are in partitions of several tasks "
        f"({named}): each of these tasks has a state of its own for the key. Is every producer partitioning by key, "
        "and all in the same way?"
    )


_REMEDY: Final = (
    "Let all producers take one partitioner (librdkafka's clients take Java's with partitioner=murmur2_random) and "
    "write these inputs anew. Where the task looks no key of the one up for the other, or does so behind an "
    f"intermediate stream (docs/guides/intermediate.md), set {SETTING}=warn"
)


def _named(streams: Iterable[SystemStream]) -> str:
    return some(list(map(str, streams)))


def _and_others(count: int) -> str:
    return f", and in {count} others" if count else ""


def _streams(
    keys_of: Mapping[SystemStreamPartition, Collection[bytes]], plan: JobModel
) -> Mapping[SystemStream, _Stream]:
    task_of = {ssp_kb.ssp: TaskNameParts.parse(task.name).base_name for task in plan.tasks for ssp_kb in task.ssp_kbs}
    streams: dict[SystemStream, _Stream] = {}
    for ssp in sorted(task_of):
        stream = streams.setdefault(ssp.system_stream, _Stream())
        stream.tasks.append(task_of[ssp])
        for key in keys_of.get(ssp, ()):
            if key:
                stream.tasks_of.setdefault(key, set()).add(task_of[ssp])
    return streams


def _groups(streams: Mapping[SystemStream, _Stream]) -> list[list[SystemStream]]:
    """The streams that share tasks, directly or through others.

    Each group is in order, and groups are ordered by their first stream.
    """
    groups: list[tuple[set[TaskName], list[SystemStream]]] = []
    for name in sorted(streams):
        tasks, members = set(streams[name].tasks), [name]
        rest = []
        for other_tasks, others in groups:
            if other_tasks & tasks:
                tasks |= other_tasks
                members = sorted([*others, *members])
            else:
                rest.append((other_tasks, others))
        groups = [*rest, (tasks, members)]
    return sorted(members for _, members in groups)


def _seen(name: SystemStream, stream: _Stream) -> StreamKeys:
    key_count = sum(map(len, stream.tasks_of.values()))
    fits = {
        partitioner: sum(stream.expected(hash_of(key)) in tasks for key, tasks in stream.tasks_of.items())
        for partitioner, hash_of in HASHES.items()
    }
    is_enough = key_count * log2(len(set(stream.tasks))) >= _BITS_AT_LEAST
    fitting = [partitioner for partitioner in fits if fits[partitioner] >= _FITS_AT_LEAST * key_count]
    partitioner = fitting[0] if is_enough and len(fitting) == 1 else None
    return StreamKeys(
        system_stream=name, key_count=key_count, fits=fits, partitioner=partitioner, is_enough=is_enough
    )


def _counts_apart(
    groups: Sequence[Sequence[SystemStream]], streams: Mapping[SystemStream, _Stream]
) -> Iterable[CountsApart]:
    """Each stream against the first one of its group."""
    for first, *others in filter(None, groups):
        one = streams[first]
        for name in others:
            other = streams[name]
            hashes = range(min(lcm(len(one.tasks), len(other.tasks)), _HASHES_TRIED_MAX))
            if any(one.expected(number) != other.expected(number) for number in hashes):
                yield CountsApart(first=first, other=name, first_count=len(one.tasks), other_count=len(other.tasks))


def _keys_apart(
    groups: Sequence[Sequence[SystemStream]],
    streams: Mapping[SystemStream, _Stream],
    own: Collection[SystemStream],
) -> Iterable[KeysApart]:
    """Each stream against the first one of its group that has the key."""
    for group in groups:
        first_with: dict[bytes, SystemStream] = {}
        shared: Counter[tuple[SystemStream, SystemStream]] = Counter()
        apart: dict[tuple[SystemStream, SystemStream], list[bytes]] = {}
        for name in group:
            for key, tasks in streams[name].tasks_of.items():
                first = first_with.setdefault(key, name)
                if first == name:
                    continue
                shared[first, name] += 1
                if not streams[first].tasks_of[key] & tasks:
                    apart.setdefault((first, name), []).append(key)
        for first, other in sorted(shared):
            keys = sorted(apart.get((first, other), ()))
            yield KeysApart(
                first=first,
                other=other,
                shared_count=shared[first, other],
                apart_count=len(keys),
                examples=tuple(map(key_text, islice(keys, EXAMPLES_MAX))),
                is_own=first in own or other in own,
            )
