"""Commands that set ACLs, and findings about the ACLs that are set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from samzapy.inspection.kafka_rights import acl_commands, acl_findings
from samzapy.model.finding import Finding
from samzapy.plan.kafka_rights import Acl, Grant, Resource, ResourceKind, Role, grants, own_resources
from samzapy.testing.builders import a_config

CONFIG = a_config()
COORDINATOR = Resource(kind=ResourceKind.TOPIC, name="__samzapy-coordinator-flights-1")
PRINCIPALS = {Role.COORDINATOR: "User:c", Role.CONTAINER: "User:w", Role.OPERATOR: "User:o"}
GRANTS = grants(CONFIG, PRINCIPALS)
TOOL = ("kafka-acls.sh", "--bootstrap-server", "b:1")


def acl_of(grant: Grant) -> Acl:
    return Acl(principal=grant.principal, host="*", resource=grant.resource, operation=grant.operation)


ACLS = tuple(map(acl_of, GRANTS))
WRITE = next(acl for acl in ACLS if acl.resource == COORDINATOR and acl.operation == "WRITE")


def findings(acls: Sequence[Acl]) -> tuple[Finding, ...]:
    return acl_findings(GRANTS, GRANTS, own_resources(CONFIG), acls, TOOL)


def the_finding(acls: Sequence[Acl]) -> Finding:
    (only,) = findings(acls)
    return only


def test_exactly_the_least_rights_are_no_finding() -> None:
    assert () == findings(ACLS)


@pytest.mark.parametrize("missing", ACLS, ids=lambda acl: f"{acl.principal} {acl.operation} {acl.resource.name}")
def test_each_missing_right_is_a_finding_with_the_command_that_adds_it(missing: Acl) -> None:
    finding = the_finding([acl for acl in ACLS if acl is not missing])

    assert ("acl-missing", missing.principal) == (finding.code, finding.subject)
    assert missing.resource.name in finding.found
    assert f"--add --allow-principal {missing.principal} --operation " in finding.remedy


def test_a_right_may_come_from_a_stronger_a_broader_or_everybody_s_acl() -> None:
    describes = [acl for acl in ACLS if acl.operation == "DESCRIBE"]
    assert describes, "an operator only describes inputs"
    others = [acl for acl in ACLS if acl.operation != "DESCRIBE"]

    for acl in (
        replace(describes[0], operation="READ"),
        replace(describes[0], resource=Resource(kind=ResourceKind.TOPIC, name="*")),
        replace(describes[0], principal="User:*"),
    ):
        assert not [one for one in findings([*others, *describes[1:], acl]) if one.code == "acl-missing"], acl


def test_an_acl_that_denies_is_stronger() -> None:
    finding = the_finding([*ACLS, replace(WRITE, operation="ALL", is_allowed=False)])

    assert ("acl-denied", "User:c") == (finding.code, finding.subject)
    assert "--remove --deny-principal User:c --operation All" in finding.remedy


def test_an_acl_that_denies_an_implied_operation_is_stronger_too() -> None:
    finding = the_finding([*ACLS, replace(WRITE, operation="DESCRIBE", is_allowed=False)])

    assert ("acl-denied", "User:c") == (finding.code, finding.subject)


@pytest.mark.parametrize("operation", ["WRITE", "DELETE", "ALTER", "ALTER_CONFIGS", "ALL"])
def test_another_principal_that_may_change_the_job_s_topics_is_named(operation: str) -> None:
    everywhere = Resource(kind=ResourceKind.TOPIC, name="__samzapy-", is_prefix=True)
    finding = the_finding([*ACLS, Acl(principal="User:m", host="h", resource=everywhere, operation=operation)])

    assert ("acl-excess", "User:m") == (finding.code, finding.subject)
    assert COORDINATOR.name in finding.found
    assert "--remove --allow-principal User:m --allow-host h" in finding.remedy
    assert "--topic __samzapy- --resource-pattern-type prefixed" in finding.remedy


def test_a_container_that_may_write_decisions_is_named() -> None:
    assert ("acl-excess", "User:w") == (
        (finding := the_finding([*ACLS, replace(WRITE, principal="User:w")])).code,
        finding.subject,
    )


def test_another_principal_that_may_use_the_job_s_transactional_ids_is_named() -> None:
    one_execution = Resource(kind=ResourceKind.TRANSACTIONAL_ID, name="samzapy/flights-1/e1/0")
    finding = the_finding([*ACLS, Acl(principal="User:m", host="*", resource=one_execution, operation="WRITE")])

    assert ("acl-excess", "User:m") == (finding.code, finding.subject)


def test_rights_to_read_and_rights_on_other_topics_are_no_finding() -> None:
    other = Resource(kind=ResourceKind.TOPIC, name="__samzapy-coordinator-flights-10")

    assert () == findings([*ACLS, replace(WRITE, principal="User:m", operation="READ")])
    assert () == findings([*ACLS, replace(WRITE, principal="User:m", resource=other)])


def test_resources_with_equal_operations_share_a_command() -> None:
    commands = list(acl_commands(grants(CONFIG, {Role.OPERATOR: "User:a b"}), TOOL))

    assert [
        "kafka-acls.sh --bootstrap-server b:1 --add --allow-principal 'User:a b' --operation Describe --topic orders",
        "kafka-acls.sh --bootstrap-server b:1 --add --allow-principal 'User:a b' --operation Read"
        " --topic __samzapy-checkpoint-flights-1 --topic __samzapy-coordinator-flights-1",
        "kafka-acls.sh --bootstrap-server b:1 --add --allow-principal 'User:a b' --operation Read --operation Write"
        " --topic __samzapy-placement-flights-1",
    ] == commands


def test_a_prefix_and_the_cluster_are_named_as_kafka_s_tool_wants_them() -> None:
    commands = "\n".join(acl_commands(grants(CONFIG, {Role.CONTAINER: "User:w", Role.ADMIN: "User:a"}), TOOL))

    assert "--operation Write --transactional-id samzapy/flights-1/ --resource-pattern-type prefixed" in commands
    assert "--operation Describe --cluster\n" in commands
    assert "--operation Alter --operation AlterConfigs --operation Create --topic" in commands
