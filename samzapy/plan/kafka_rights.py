"""The least rights of a job's processes and people on a Kafka cluster with ACLs.

One table: each role, the resources that it touches, and the operations that its code does there. A right is in the
table only if its removal ends an operation with an error or a warning that names the resource. The integration test
`test_a_job_runs_with_the_least_rights` removes each of them. So a reader's group (`samzapy-reader`), the group of
Spark's source and IDEMPOTENT_WRITE are not in it.

Some operations imply others (`IMPLIED`); an implied one is left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from samzapy.config import JobConfig, pattern_of
from samzapy.model.container import (
    coordinator_transactional_id,
    election_group,
    execution_transactional_id_prefix,
    placement_transactional_id,
)
from samzapy.model.topics import (
    changelog_topic,
    checkpoint_topic,
    coordinator_topic,
    declared_outputs,
    placement_topic,
)


class Role(StrEnum):
    """A part that a process or a person plays in a job.

    A self-managed process (`samzapy run`) is COORDINATOR and CONTAINER at once.

    COORDINATOR leads the job. CONTAINER runs tasks. OPERATOR writes requests. AUDITOR only reads. ADMIN creates and
    alters the job's topics, and checks ACLs.
    """

    COORDINATOR = "coordinator"
    CONTAINER = "container"
    OPERATOR = "operator"
    AUDITOR = "auditor"
    ADMIN = "admin"


class ResourceKind(StrEnum):
    """A kind of resource that has ACLs. The values are Kafka's names."""

    TOPIC = "TOPIC"
    GROUP = "GROUP"
    TRANSACTIONAL_ID = "TRANSACTIONAL_ID"
    CLUSTER = "CLUSTER"


class Operation(StrEnum):
    """An operation that an ACL allows. The values are Kafka's names."""

    ALL = "ALL"
    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"


IMPLIED: Final[Mapping[Operation, frozenset[Operation]]] = {
    Operation.DESCRIBE: frozenset((Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.ALTER_CONFIGS,)),
}
"""By operation, those whose right includes it."""

ANY_NAME: Final = "*"
"""The name of a resource that stands for all resources of its kind."""

CLUSTER_NAME: Final = "kafka-cluster"
"""Kafka's name of the only resource of the kind CLUSTER."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Resource:
    """A resource as an ACL names it.

    Attributes:
        is_prefix: it stands for all resources whose names begin with `name`.
    """

    kind: ResourceKind
    name: str
    is_prefix: bool = False

    def __str__(self) -> str:
        kind = self.kind.value.lower().replace("_", " ")
        if self.kind is ResourceKind.CLUSTER:
            return "the cluster"
        if self.name == ANY_NAME and not self.is_prefix:
            return f"all resources of the kind {kind}"
        return f"the {kind} {self.name}{'*' if self.is_prefix else ''}"

    def covers(self, other: Resource) -> bool:
        """Whether an ACL on this resource holds for all that `other` stands for."""
        if self.kind is not other.kind:
            return False
        if self.is_prefix:
            return other.name.startswith(self.name) and (other.is_prefix or other.name != ANY_NAME)
        return self.name == ANY_NAME or (not other.is_prefix and self.name == other.name)

    def meets(self, other: Resource) -> bool:
        """Whether an ACL on this resource holds for a part of what `other` stands for."""
        return self.covers(other) or (
            self.kind is other.kind and other.is_prefix and self.name.startswith(other.name)
        )


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Grant:
    """A right that a principal needs, and the roles that need it."""

    principal: str
    resource: Resource
    operation: Operation
    roles: tuple[Role, ...]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Acl:
    """An access control entry of the cluster, for one operation.

    Attributes:
        operation: Kafka's name, which may be none of `Operation`.
        is_allowed: False for an entry that denies, which is stronger than every entry that allows.
    """

    principal: str
    host: str
    resource: Resource
    operation: str
    is_allowed: bool = True


Right = tuple[Resource, Operation]


def grants(
    config: JobConfig, principals: Mapping[Role, str], more_outputs: Collection[str] = ()
) -> tuple[Grant, ...]:
    """The least rights of the principals of these roles, in a fixed order, each once.

    Args:
        principals: by role, in Kafka's form: `User:flights`. Several roles may have one principal.
        more_outputs: topics of outputs that neither the configuration nor the job file declares.
    """
    roles_of: dict[str, dict[Right, list[Role]]] = {}
    for role in Role:
        if role in principals:
            rights = roles_of.setdefault(principals[role], {})
            for right in _rights(role, _Resources.of(config, more_outputs)):
                rights.setdefault(right, []).append(role)
    return tuple(
        Grant(principal=principal, resource=resource, operation=operation, roles=tuple(dict.fromkeys(roles)))
        for principal, rights in sorted(roles_of.items())
        for (resource, operation), roles in sorted(rights.items(), key=lambda item: item[0])
        if not any((resource, stronger) in rights for stronger in IMPLIED.get(operation, ()))
    )


def own_resources(config: JobConfig) -> frozenset[Resource]:
    """The topics and transactional ids that no other program may write to."""
    resources = _Resources.of(config)
    topics = (*resources.audited, *resources.intermediates, resources.checkpoint, *resources.changelogs)
    return frozenset((*topics, *resources.leader_ids, resources.execution_ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resources:
    """The resources of a job, by their use.

    Attributes:
        sampled: the inputs whose keys a start samples, intermediate streams included.
        lag_group: the consumer group to which a leader commits positions; None for none.
    """

    coordinator: Resource
    placement: Resource
    checkpoint: Resource
    changelogs: Sequence[Resource]
    intermediates: Sequence[Resource]
    inputs: Sequence[Resource]
    sampled: Sequence[Resource]
    outputs: Sequence[Resource]
    election: Resource
    lag_group: Resource | None
    leader_ids: Sequence[Resource]
    execution_ids: Resource

    @property
    def audited(self) -> tuple[Resource, Resource]:
        return self.coordinator, self.placement

    @property
    def own(self) -> tuple[Resource, ...]:
        """All topics that samzapy makes."""
        return (*self.audited, self.checkpoint, *self.changelogs, *self.intermediates)

    @classmethod
    def of(cls, config: JobConfig, more_outputs: Collection[str] = ()) -> _Resources:
        intermediates = [_topic(item.topic) for item in config.intermediates]
        divided = [*map(_of_input, config.inputs_named), *map(_of_pattern, config.input_patterns)]
        broadcast = [_of_input(item.system_stream) for item in config.broadcast_inputs]
        # As `runtime.input_keys` does: only a job that keeps state by key needs equal keys in one task.
        is_sampled = config.partitioner_check != "off" and any(store.scope == "key" for store in config.stores)
        ids = (coordinator_transactional_id(config.job), placement_transactional_id(config.job))
        return cls(
            coordinator=_topic(coordinator_topic(config.job)),
            placement=_topic(placement_topic(config.job)),
            checkpoint=_topic(checkpoint_topic(config.job)),
            changelogs=[_topic(changelog_topic(config.job, store.name)) for store in config.stores],
            intermediates=intermediates,
            inputs=[*divided, *broadcast],
            sampled=[*divided, *intermediates] if is_sampled else [],
            outputs=[_topic(name) for name in sorted({*declared_outputs(config), *more_outputs})],
            election=_group(election_group(config.job)),
            lag_group=None if config.lag_group is None else _group(config.lag_group),
            leader_ids=[Resource(kind=ResourceKind.TRANSACTIONAL_ID, name=name) for name in ids],
            execution_ids=Resource(
                kind=ResourceKind.TRANSACTIONAL_ID,
                name=execution_transactional_id_prefix(config.job),
                is_prefix=True,
            ),
        )


def _rights(role: Role, of: _Resources) -> Iterator[Right]:
    match role:
        case Role.COORDINATOR:
            return _of_coordinator(of)
        case Role.CONTAINER:
            return _of_container(of)
        case Role.OPERATOR:
            return _of_operator(of)
        case Role.AUDITOR:
            return _of_auditor(of)
        case Role.ADMIN:
            return _of_admin(of)


def _of_coordinator(of: _Resources) -> Iterator[Right]:
    # The log of decisions, requests and their answers.
    yield from _on(of.audited, Operation.READ, Operation.WRITE)
    yield from _on([of.checkpoint], Operation.READ)
    # A start checks the settings of the topics, and so does the leader every minute.
    yield from _on(of.own, Operation.DESCRIBE_CONFIGS)
    # Partitions, ids and offsets; the keys of a sample.
    yield from _on(of.inputs, Operation.DESCRIBE)
    yield from _on(of.sampled, Operation.READ)
    # To fence a lost container is to take its ids over, and to end its transactions in the topics that it wrote to.
    yield from _on([*of.leader_ids, of.execution_ids], Operation.WRITE)
    yield from _on([of.checkpoint, *of.changelogs, *of.intermediates, *of.outputs], Operation.WRITE)
    yield from _on([of.election], Operation.READ)
    if of.lag_group is not None:
        # To commit the position in a topic takes READ on both.
        yield from _on([of.lag_group, *of.inputs, *of.intermediates], Operation.READ)


def _of_container(of: _Resources) -> Iterator[Right]:
    yield from _on([of.coordinator, of.checkpoint, *of.changelogs, *of.intermediates, *of.inputs], Operation.READ)
    yield from _on([of.checkpoint, *of.changelogs, *of.intermediates, *of.outputs], Operation.WRITE)
    yield from _on([of.execution_ids], Operation.WRITE)
    # A start checks that all topics are as they must be.
    yield from _on([of.placement], Operation.DESCRIBE)
    yield from _on(of.own, Operation.DESCRIBE_CONFIGS)
    # The limits of an output decide whether a message is too large for it.
    yield from _on(of.outputs, Operation.DESCRIBE_CONFIGS)


def _of_operator(of: _Resources) -> Iterator[Right]:
    yield from _on([of.placement], Operation.READ, Operation.WRITE)
    # The state of the job and its leader; the positions for `job status`, `job rewind` and the pause of `job scale`.
    yield from _on([of.coordinator, of.checkpoint], Operation.READ)
    yield from _on([*of.inputs, *of.intermediates], Operation.DESCRIBE)


def _of_auditor(of: _Resources) -> Iterator[Right]:
    yield from _on([*of.own, *of.inputs], Operation.READ)
    yield from _on(of.own, Operation.DESCRIBE_CONFIGS)
    yield from _on([of.election], Operation.DESCRIBE)


def _of_admin(of: _Resources) -> Iterator[Right]:
    yield from _on(of.own, Operation.CREATE, Operation.ALTER, Operation.ALTER_CONFIGS)
    # To read ACLs.
    yield Resource(kind=ResourceKind.CLUSTER, name=CLUSTER_NAME), Operation.DESCRIBE


def _on(resources: Iterable[Resource], *operations: Operation) -> Iterator[Right]:
    return ((resource, operation) for resource in resources for operation in operations)


def _topic(name: str) -> Resource:
    return Resource(kind=ResourceKind.TOPIC, name=name)


def _group(name: str) -> Resource:
    return Resource(kind=ResourceKind.GROUP, name=name)


def _of_input(system_stream: str) -> Resource:
    return _topic(system_stream.partition(".")[2])


def _of_pattern(system_stream: str) -> Resource:
    """The topics that a pattern may match, as far as an ACL can say it."""
    prefix = literal_beginning(pattern_of(system_stream))
    return Resource(kind=ResourceKind.TOPIC, name=prefix, is_prefix=True) if prefix else _topic(ANY_NAME)


_LITERAL: Final = re.compile(r"[\w-]|\\[.-]")


def literal_beginning(pattern: str) -> str:
    """The plain characters with which every match of a regular expression begins.

    Empty where there may be none: in front of an alternative, or of a character that may be missing.
    """
    if "|" in pattern:
        return ""
    characters: list[str] = []
    rest = pattern
    while matched := _LITERAL.match(rest):
        characters.append(matched[0][-1])
        rest = rest[matched.end() :]
    if rest[:1] in ("?", "*", "{"):
        del characters[-1:]
    return "".join(characters)
