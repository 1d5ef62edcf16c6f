"""Reads the ACLs of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs forget to export them
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.plan.kafka_rights import Acl, Resource, ResourceKind


class KafkaAcls(KafkaAdmin):
    """Questions about ACLs, over a connection that is kept."""

    def acls(self) -> tuple[Acl, ...]:
        """All ACLs of topics, groups, transactional ids and the cluster, in a fixed order.

        A cluster without an authorizer has none.

        Raises:
            ConfigError: this user may not read ACLs (DESCRIBE on the cluster).
        """

        def ask(timeout_s: float) -> list[AclBinding]:
            # The client takes a refused question about ACLs for one without an answer.
            cluster = self._questions.client.describe_cluster(
                include_authorized_operations=True, request_timeout=timeout_s
            ).result()
            if AclOperation.DESCRIBE not in (cluster.authorized_operations or ()):
                raise KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))
            futures = [
                self._questions.client.describe_acls(_all_acls(kind), request_timeout=timeout_s) for kind in _KINDS
            ]
            return [binding for future in futures for binding in future.result()]

        return tuple(sorted(map(_acl, self._questions.ask("reading the ACLs of the cluster", ask))))


_KINDS: Mapping[ResourceType, ResourceKind] = {
    ResourceType.TOPIC: ResourceKind.TOPIC,
    ResourceType.GROUP: ResourceKind.GROUP,
    ResourceType.TRANSACTIONAL_ID: ResourceKind.TRANSACTIONAL_ID,
    # The client's name for the number that stands for the cluster here.
    ResourceType.BROKER: ResourceKind.CLUSTER,
}


def _all_acls(kind: ResourceType) -> AclBindingFilter:
    # The client's stubs do not know that None stands for any text.
    anything: Any = None
    return AclBindingFilter(
        kind, anything, ResourcePatternType.ANY, anything, anything, AclOperation.ANY, AclPermissionType.ANY
    )


def _acl(binding: AclBinding) -> Acl:
    return Acl(
        principal=str(binding.principal),
        host=str(binding.host),
        resource=Resource(
            kind=_KINDS[ResourceType(binding.restype)],
            name=str(binding.name),
            is_prefix=binding.resource_pattern_type is ResourcePatternType.PREFIXED,
        ),
        operation=AclOperation(binding.operation).name,
        is_allowed=binding.permission_type is AclPermissionType.ALLOW,
    )
