"""Values that are more than a text or a number.

Lists, broadcast inputs, intermediate streams, stores, accepted losses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from samzapy.config.lookup import ID
from samzapy.errors import ConfigError

OWN_STORES: Final = {"_timers": "timer", "_window": "window", "_clocks": "clock"}
"""The kind of each store that samzapy keeps for a task."""
_OF_BUCKETS: Final = ("window", "clock")
"""The kinds of scope `bucket`: an entry belongs to a key bucket, and so to each task that has a part of it."""
RETENTION_MS_DEFAULT = 7 * 24 * 60 * 60 * 1000
_INTERMEDIATE = "task.intermediate."
_NUMBER = r"(?:0|[1-9][0-9]{0,17})"
# A comma in `orders-[a-z]{2,3}` is the pattern's.
_BETWEEN_INPUTS = re.compile(r",(?![^{}]*\})")
_HOST_SLOTS = re.compile(r"(?P<host>[a-z0-9][a-z0-9.-]{0,62}):(?P<count>[1-9][0-9]{0,3})")
# Six digits: more partitions than any topic has, and few enough to list.
_PARTITION = r"(?:0|[1-9][0-9]{0,5})"
_BROADCAST = re.compile(
    rf"(?P<stream>[^\s#]+)(?:#(?:(?P<one>{_PARTITION})|\[(?P<first>{_PARTITION})-(?P<last>{_PARTITION})\]))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """A store.

    Serdes are names from `SERDES`. `scope` is the owner of an entry: a `key` or another one. `kind` is `value`, or
    what a task class declares: `map`, `list` or `timer`, whose sub-keys are in order (`model.serde.ordered`), `window`
    or `clock`, whose scope is `bucket`. `ttl_clock` is that by which its entries expire, empty where they do not.
    """

    name: str
    msg_serde: str
    key_serde: str
    replication_factor: int | None
    size_max_bytes: int
    scope: str = "key"
    kind: str = "value"
    ttl_clock: str = ""

    @property
    def is_ordered(self) -> bool:
        """Whether the entries of a key are read in the order of their sub-keys."""
        return self.kind not in ("value", "window", "clock")

    @property
    def is_own(self) -> bool:
        """Whether samzapy keeps it for timers, windows or event time of a task."""
        return self.kind in OWN_STORES.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSlots:
    """A logical host of the process launcher, and how many containers it may have."""

    host: str
    slot_count: int


_DROP = ".drop"


def host_slots_of(items: Iterable[str]) -> tuple[HostSlots, ...]:
    """The hosts of cluster.process.hosts, each once. Raises ConfigError."""
    hosts = []
    for item in items:
        match = _HOST_SLOTS.fullmatch(item)
        if match is None:
            raise ConfigError(
                f"cluster.process.hosts: wanted hosts with their slots (h1:2, h2:2; names of lower case letters, "
                f"digits, dots and dashes), found {item!r}"
            )
        hosts.append(HostSlots(host=match["host"], slot_count=int(match["count"])))
    if len({slots.host for slots in hosts}) != len(hosts) or not hosts:
        raise ConfigError(f"cluster.process.hosts: wanted each host once, found {', '.join(items) or 'none'}")
    return tuple(hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastInput:
    """A stream (`system.stream`) that every task reads.

    `partitions` are in order; None stands for all.
    """

    system_stream: str
    partitions: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IntermediateStream:
    """A stream of the job's own, which it sends to and reads.

    Attributes:
        name: in the configuration and in user code.
        system_stream: of its topic, which follows from the job and the name and so never changes.
        partition_count: the least that the topic is to have.
        key_serde, msg_serde: names from `SERDES`; None where those of the system count.
        replication_factor: None where that of samzapy's other topics counts.
    """

    name: str
    system_stream: str
    partition_count: int
    key_serde: str | None
    msg_serde: str | None
    replication_factor: int | None
    retention_ms: int

    @property
    def topic(self) -> str:
        return self.system_stream.partition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedLoss:
    """An operator accepts the loss of `[offset_from, offset_to)` of `ssp_kb`.

    `ssp_kb` is in text form.
    """

    ssp_kb: str
    offset_from: int
    offset_to: int

    def __str__(self) -> str:
        return f"{self.ssp_kb}@{self.offset_from}-{self.offset_to}"


def input_items(text: str) -> tuple[str, ...]:
    """The items of task.inputs."""
    return tuple(item for item in (part.strip() for part in _BETWEEN_INPUTS.split(text)) if item)


def items_of(text: str) -> tuple[str, ...]:
    """The items of a list, comma separated."""
    return tuple(item for item in (part.strip() for part in text.split(",")) if item)


def broadcast_inputs_of(items: Iterable[str], qualified: Callable[[str], str]) -> tuple[BroadcastInput, ...]:
    """The value of task.broadcast.inputs.

    `qualified` adds the system to a stream that is named without one.
    """
    partitions_of: dict[str, set[int] | None] = {}
    for item in items:
        matched = _BROADCAST.fullmatch(item)
        if matched is None:
            raise ConfigError(
                "task.broadcast.inputs: wanted a partition (kafka.rules#0), a range (kafka.rules#[0-3]) or a whole "
                f"stream (kafka.rules), found {item!r}"
            )
        stream = qualified(matched["stream"])
        partitions = _broadcast_partitions(matched, item)
        before = partitions_of.get(stream, set())
        partitions_of[stream] = None if partitions is None or before is None else before | partitions
    return tuple(
        BroadcastInput(
            system_stream=stream,
            partitions=None if (partitions := partitions_of[stream]) is None else tuple(sorted(partitions)),
        )
        for stream in sorted(partitions_of)
    )


def _broadcast_partitions(matched: re.Match[str], item: str) -> set[int] | None:
    if matched["one"] is not None:
        return {int(matched["one"])}
    if matched["first"] is None:
        return None
    first, last = int(matched["first"]), int(matched["last"])
    if first > last:
        raise ConfigError(f"task.broadcast.inputs: wanted a range that begins with its smaller end, found {item!r}")
    return set(range(first, last + 1))


def intermediate_topic(job: str, name: str) -> str:
    """The topic of an intermediate stream.

    The names of samzapy's other topics are in `model.topics`.
    """
    return f"__samzapy-intermediate-{job}-{name}"


def intermediates_of(properties: Mapping[str, str], job: str, system: str) -> tuple[IntermediateStream, ...]:
    """The intermediate streams that any key declares, in the order of their names.

    Args:
        job: `<job.name>-<job.id>`.
    """
    names = sorted({key.split(".")[2] for key in properties if key.startswith(_INTERMEDIATE)})
    return tuple(_intermediate(name, properties, job, system) for name in names)


def _intermediate(name: str, properties: Mapping[str, str], job: str, system: str) -> IntermediateStream:
    here = f"{_INTERMEDIATE}{name}"
    if not ID.fullmatch(name):
        raise ConfigError(f"{here}: wanted a name of letters, digits and underscores, found {name!r}")
    partitions, replication = properties.get(f"{here}.partitions"), properties.get(f"{here}.replication.factor")
    if not partitions:
        raise ConfigError(
            f"{here}: wanted {here}.partitions, the number of partitions that its topic is made with, found nothing"
        )
    return IntermediateStream(
        name=name,
        system_stream=f"{system}.{intermediate_topic(job, name)}",
        partition_count=int(partitions),
        key_serde=properties.get(f"{here}.key.serde") or None,
        msg_serde=properties.get(f"{here}.msg.serde") or None,
        replication_factor=int(replication) if replication else None,
        retention_ms=int(properties.get(f"{here}.retention.ms") or RETENTION_MS_DEFAULT),
    )


def declares_store(key: str) -> bool:
    """Whether a key is a setting of a store. The one that drops a store is none."""
    return key.startswith("stores.") and not key.endswith(_DROP)


def stores_of(properties: Mapping[str, str]) -> tuple[StoreConfig, ...]:
    """The stores that any key declares, in the order of their names.

    Those that are dropped are not among them.
    """
    names = {key.split(".")[1] for key in properties if declares_store(key)} - {*dropped_stores_of(properties)}
    return tuple(_store(name, properties) for name in sorted(names))


def dropped_stores_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The stores that the job lets go, in the order of their names."""
    keys = [key for key in properties if key.startswith("stores.") and key.endswith(_DROP)]
    return tuple(sorted(key.split(".")[1] for key in keys if properties[key] == "true"))


def _store(name: str, properties: Mapping[str, str]) -> StoreConfig:
    if not ID.fullmatch(name):
        raise ConfigError(f"stores.{name}: wanted a store name of letters, digits and underscores, found {name!r}")

    def setting(rest: str, default: str | None) -> str | None:
        return properties.get(f"stores.{name}.{rest}") or default

    replication, kind = setting("changelog.replication.factor", None), str(setting("kind", "value"))
    return StoreConfig(
        name=name,
        msg_serde=str(setting("msg.serde", "bytes")),
        key_serde=str(setting("key.serde", "string")),
        replication_factor=None if replication is None else int(replication),
        size_max_bytes=int(str(setting("size.max.bytes", "17179869184"))),
        scope="bucket" if kind in _OF_BUCKETS else str(setting("scope", "key")),
        kind=kind,
        ttl_clock="" if setting("ttl.ms", None) is None else str(setting("ttl.clock", "host")),
    )


def accepted_loss(item: str) -> AcceptedLoss:
    """One item of task.lost.range.accept."""
    matched = re.fullmatch(
        rf"([^.\s]+\.\S+\.{_NUMBER}(?::({_NUMBER})/({_NUMBER})|@\S+)?)@({_NUMBER})-({_NUMBER})", item
    )
    if matched is None:
        raise ConfigError(f"task.lost.range.accept: wanted kafka.orders.3:0/1@100-250, found {item!r}")
    ssp_kb, bucket, factor, offset_from, offset_to = matched.groups()
    is_bucket = int(bucket or 0) < int(factor or 1) and int(factor or 1).bit_count() == 1
    if not is_bucket or int(offset_from) >= int(offset_to):
        raise ConfigError(
            "task.lost.range.accept: wanted a bucket below its factor, which is a power of two, and an offset before "
            f"another (kafka.orders.3:0/1@100-250), found {item!r}"
        )
    return AcceptedLoss(ssp_kb=ssp_kb, offset_from=int(offset_from), offset_to=int(offset_to))
