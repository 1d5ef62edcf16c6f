"""A broker with an authorizer, for users with TLS, SCRAM-SHA-512 and ACLs.

A test prepares and reads topics through its plain listener, as a super user.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs forget to export them
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.spark.java_properties import jaas
from samzapy.testing.broker import DevBroker
from samzapy.testing.waiting import wait_until
from unit_tests.fixtures.certificates import Authority

_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_ITERATIONS = 4096
"""The fewest that a broker takes."""
_ANSWERS_WITHIN_S = 20.0
BY_KEY = -1
"""The number of no partition: the client chooses one."""
Row = Mapping[str, Any]
"""An ACL in the form of `samzapy acl -o json`."""


def password_of(user: str) -> str:
    return f"secret-of-{user}"


class GuardedBroker:
    """The broker in a `DevBroker`, its users and its ACLs.

    Args:
        ca: the file of the authority that signed the broker's certificate.
    """

    def __init__(self, broker: DevBroker, ca: Path) -> None:
        self._ca = ca
        self.plain_servers = broker.bootstrap_servers
        self.secured_servers = broker.secured_servers
        plain: dict[str, Any] = {"bootstrap.servers": self.plain_servers, "log_level": 0}
        self._admin = AdminClient(plain)
        self._producer = Producer({**plain, "partitioner": "murmur2_random"})

    def client_properties(self, user: str) -> Mapping[str, str]:
        """librdkafka's properties of a user."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._ca),
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password_of(user),
        }

    def java_properties(self, user: str) -> str:
        """The properties file of Kafka's tools for a user."""
        properties = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self._ca,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": jaas(_SCRAM, username=user, password=password_of(user)),
        }
        return "".join(f"{name}={value}\n" for name, value in properties.items())

    def connection(self, user: str) -> KafkaConnection:
        return KafkaConnection(bootstrap_servers=self.secured_servers, properties=self.client_properties(user))

    def make_users(self, users: Iterable[str]) -> None:
        """Give the users their passwords, and wait until the broker knows them."""
        # The client takes no subclass of a text, such as a role.
        names = [str(user) for user in users]
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
        made: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(name, how, password_of(name).encode()) for name in names
        ]
        for one in self._admin.alter_user_scram_credentials(made).values():
            one.result(_ANSWERS_WITHIN_S)

        def known() -> bool:
            described = self._admin.describe_user_scram_credentials(names)
            assert isinstance(described, dict), "one answer for each user"
            return all(answer.exception(_ANSWERS_WITHIN_S) is None for answer in described.values())

        wait_until(known, _ANSWERS_WITHIN_S, "the broker to know its users")

    def publish(self, records: Mapping[str, Iterable[tuple[bytes, bytes]]], partition: int = BY_KEY) -> None:
        """Publish keys and values to topics, as the super user."""
        for topic, pairs in records.items():
            for key, value in pairs:
                self._producer.produce(topic, value, key, partition)
        assert self._producer.flush(_ANSWERS_WITHIN_S) == 0

    def allow(self, rows: Iterable[Row]) -> None:
        """Add the ACLs; brokers know them a moment later."""
        for added in self._admin.create_acls([_binding(row) for row in rows]).values():
            added.result(_ANSWERS_WITHIN_S)

    def withdraw(self, row: Row) -> None:
        """Remove an ACL that is there; brokers know that a moment later."""
        binding = _binding(row)
        exactly = AclBindingFilter(
            binding.restype,
            binding.name,
            binding.resource_pattern_type,
            binding.principal,
            binding.host,
            binding.operation,
            binding.permission_type,
        )
        for removed in self._admin.delete_acls([exactly]).values():
            assert removed.result(_ANSWERS_WITHIN_S), f"no such ACL: {row}"


@contextmanager
def guarded_broker(directory: Path, users: Iterable[str], super_user: str) -> Iterator[GuardedBroker]:
    """A broker for these users; one of them may do everything.

    Args:
        directory: for certificates.
    """
    authority = Authority.made(directory)
    certificate, key = authority.certificate("broker", "IP:127.0.0.1")
    store = directory / "broker-with-key.pem"
    store.write_text(key.read_text() + certificate.read_text())
    overrides = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.secured.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
        "listener.name.secured.ssl.keystore.type": "PEM",
        "listener.name.secured.ssl.keystore.location": str(store),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{super_user}",
        "allow.everyone.if.no.acl.found": "false",
    }
    with DevBroker(secured="SASL_SSL", overrides=overrides) as broker:
        guarded = GuardedBroker(broker, authority.ca)
        guarded.make_users(users)
        yield guarded


def _binding(row: Row) -> AclBinding:
    # The client's number for the resource type of the cluster.
    kind = "BROKER" if row["resourceType"] == "CLUSTER" else row["resourceType"]
    return AclBinding(
        ResourceType[kind],
        row["resourceName"],
        ResourcePatternType[row["patternType"]],
        row["principal"],
        "*",
        AclOperation[row["operation"]],
        AclPermissionType.ALLOW,
    )
