"""The commands that set a job's ACLs, and findings about the ACLs that are set.

A super user of the cluster has every right without an ACL, and a cluster with `allow.everyone.if.no.acl.found=true`
allows what no ACL is about. Neither is seen here.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from samzapy.model.finding import Finding
from samzapy.model.text import some
from samzapy.plan.kafka_rights import IMPLIED, Acl, Grant, Operation, Resource, ResourceKind, Role

_ANYBODY: Final = "User:*"
_CHANGES: Final[Mapping[ResourceKind, tuple[Operation, ...]]] = {
    ResourceKind.TOPIC: (Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS),
    ResourceKind.TRANSACTIONAL_ID: (Operation.WRITE,),
}
"""By kind of resource, the operations that change what is the job's own."""

_OPTIONS: Final[Mapping[ResourceKind, str]] = {
    ResourceKind.TOPIC: "--topic",
    ResourceKind.GROUP: "--group",
    ResourceKind.TRANSACTIONAL_ID: "--transactional-id",
    ResourceKind.CLUSTER: "--cluster",
}


def acl_commands(grants: Iterable[Grant], tool: Sequence[str]) -> Iterator[str]:
    """Shell commands that add the ACLs of `grants`.

    Resources with equal operations share a command.

    Args:
        tool: the command and its options for the connection.
    """
    operations_of: dict[tuple[str, Resource], list[Operation]] = {}
    for grant in grants:
        operations_of.setdefault((grant.principal, grant.resource), []).append(grant.operation)

    def kind_of(
        item: tuple[tuple[str, Resource], list[Operation]],
    ) -> tuple[str, ResourceKind, bool, list[Operation]]:
        (principal, resource), operations = item
        return principal, resource.kind, resource.is_prefix, operations

    for (principal, _, _, operations), items in groupby(sorted(operations_of.items(), key=kind_of), kind_of):
        resources = [resource for (_, resource), _ in items]
        yield _command([*tool, "--add", "--allow-principal", principal], operations, resources)


def acl_findings(
    grants: Sequence[Grant],
    expected: Sequence[Grant],
    own: Collection[Resource],
    acls: Sequence[Acl],
    tool: Sequence[str],
) -> tuple[Finding, ...]:
    """The missing rights, and the rights of others on what is the job's own.

    Args:
        grants: the rights to look for.
        expected: the rights of all roles of the job.
        own: see `plan.kafka_rights.own_resources`.
        tool: as of `acl_commands`.
    """
    return (*_missing(grants, acls, tool), *_excess(expected, own, acls, tool))


def _missing(grants: Sequence[Grant], acls: Sequence[Acl], tool: Sequence[str]) -> Iterator[Finding]:
    for (principal, resource), items in groupby(grants, lambda grant: (grant.principal, grant.resource)):
        wanted = list(items)
        lacking = [grant for grant in wanted if not _is_allowed(grant, acls)]
        denied = [acl for acl in acls if any(_denies(acl, grant) for grant in wanted)]
        operations = [grant.operation for grant in lacking]
        if denied:
            yield Finding(
                code="acl-denied",
                subject=principal,
                found=f"wanted {_names(grant.operation for grant in wanted)} on {resource} for {principal} "
                f"({_roles(wanted)}), found an ACL that denies {denied[0].principal} {denied[0].operation} on "
                f"{denied[0].resource}",
                remedy=f"Remove it: {_removal(denied[0], tool)}",
            )
        elif lacking:
            yield Finding(
                code="acl-missing",
                subject=principal,
                found=f"wanted {_names(operations)} on {resource} for {principal} ({_roles(lacking)}), found no ACL "
                "that allows it",
                remedy=f"Add it: {next(acl_commands(lacking, tool))}",
            )


def _excess(
    expected: Sequence[Grant], own: Collection[Resource], acls: Sequence[Acl], tool: Sequence[str]
) -> Iterator[Finding]:
    for acl in acls:
        changes = [operation for operation in _CHANGES.get(acl.resource.kind, ()) if _includes(acl, operation)]
        touched = [
            resource
            for resource in sorted(own)
            if acl.is_allowed
            and acl.resource.meets(resource)
            and any(not _is_expected(acl.principal, resource, operation, expected) for operation in changes)
        ]
        if touched:
            whose = "every user" if acl.principal == _ANYBODY else acl.principal
            yield Finding(
                code="acl-excess",
                subject=acl.principal,
                found=f"wanted no change by {whose} to {some(touched)}, found an ACL that allows {acl.operation} on "
                f"{acl.resource}",
                remedy=f"Remove it if no other program needs it: {_removal(acl, tool)}",
            )


def _includes(acl: Acl, operation: Operation) -> bool:
    return acl.operation in (Operation.ALL, operation)


def _is_expected(principal: str, resource: Resource, operation: Operation, expected: Sequence[Grant]) -> bool:
    return any(
        (grant.principal, grant.resource, grant.operation) == (principal, resource, operation) for grant in expected
    )


def _is_allowed(grant: Grant, acls: Sequence[Acl]) -> bool:
    enough = {Operation.ALL, grant.operation, *IMPLIED.get(grant.operation, ())}
    return any(
        acl.is_allowed
        and acl.operation in enough
        and acl.principal in (grant.principal, _ANYBODY)
        and acl.resource.covers(grant.resource)
        for acl in acls
    )


def _denies(acl: Acl, grant: Grant) -> bool:
    """Whether an ACL denies the operation of a grant, or one that it implies."""
    implied = {operation for operation, stronger in IMPLIED.items() if grant.operation in stronger}
    return (
        not acl.is_allowed
        and any(_includes(acl, operation) for operation in {grant.operation, *implied})
        and acl.principal in (grant.principal, _ANYBODY)
        and acl.resource.meets(grant.resource)
    )


def _removal(acl: Acl, tool: Sequence[str]) -> str:
    kind = "allow" if acl.is_allowed else "deny"
    whose = [f"--{kind}-principal", acl.principal]
    host = [] if acl.host == "*" else [f"--{kind}-host", acl.host]
    return _command([*tool, "--remove", *whose, *host], [acl.operation], [acl.resource])


def _command(begun: Sequence[str], operations: Iterable[str], resources: Sequence[Resource]) -> str:
    words = list(begun)
    for operation in operations:
        # As Kafka's tool wants it: DescribeConfigs.
        words += ["--operation", operation.title().replace("_", "")]
    for resource in resources:
        words.append(_OPTIONS[resource.kind])
        if resource.kind is not ResourceKind.CLUSTER:
            words.append(resource.name)
    if resources[0].is_prefix:
        words += ["--resource-pattern-type", "prefixed"]
    return shlex.join(words)


def _names(operations: Iterable[str]) -> str:
    return ", ".join(operations)


def _roles(grants: Iterable[Grant]) -> str:
    roles = {role for grant in grants for role in grant.roles}
    return ", ".join(role for role in Role if role in roles)
