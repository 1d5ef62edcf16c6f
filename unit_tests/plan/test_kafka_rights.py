"""The least rights of a job's roles."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from samzapy.config import JobConfig
from samzapy.plan.kafka_rights import (
    Grant,
    Operation,
    Resource,
    ResourceKind,
    Role,
    grants,
    literal_beginning,
    own_resources,
)
from samzapy.testing.builders import a_config

COORDINATOR = "__samzapy-coordinator-flights-1"
PLACEMENT = "__samzapy-placement-flights-1"


def a_job(**settings: str) -> JobConfig:
    """A job with store, intermediate stream, broadcast input, output and dead letters."""
    return a_config(
        **{
            "local_store_dir": "/data",
            "task_broadcast_inputs": "kafka.rules",
            "stores_sums_msg_serde": "json",
            "task_intermediate_groups_partitions": "2",
            "systems_kafka_streams_delays_samza_msg_serde": "json",
            "task_error_policy": "dead-letter",
            "task_dead_letter_output": "kafka.dead",
            **settings,
        }
    )


def rights(role: Role, config: JobConfig, more_outputs: Collection[str] = ()) -> set[tuple[str, str]]:
    """Names of resources, a prefix with a star, with operations."""
    return {
        (f"{grant.resource.name}{'*' if grant.resource.is_prefix else ''}", grant.operation.value)
        for grant in grants(config, {role: "User:x"}, more_outputs)
    }


def topic(name: str, *, is_prefix: bool = False) -> Resource:
    return Resource(kind=ResourceKind.TOPIC, name=name, is_prefix=is_prefix)


def test_a_container_writes_neither_decisions_nor_answers() -> None:
    written = {name for name, operation in rights(Role.CONTAINER, a_job()) if operation == "WRITE"}

    assert {
        "__samzapy-checkpoint-flights-1",
        "__samzapy-changelog-flights-1-sums",
        "__samzapy-intermediate-flights-1-groups",
        "delays",
        "dead",
        "samzapy/flights-1/*",
    } == written


def test_an_operator_writes_requests_alone() -> None:
    assert {PLACEMENT} == {name for name, operation in rights(Role.OPERATOR, a_job()) if operation == "WRITE"}


def test_an_auditor_changes_nothing() -> None:
    assert {"READ", "DESCRIBE", "DESCRIBE_CONFIGS"} == {operation for _, operation in rights(Role.AUDITOR, a_job())}


def test_an_admin_makes_the_job_s_topics_and_reads_no_record() -> None:
    made = {name for name, operation in rights(Role.ADMIN, a_job()) if operation == "CREATE"}

    assert {resource.name for resource in own_resources(a_job()) if resource.kind is ResourceKind.TOPIC} == made
    assert not {operation for _, operation in rights(Role.ADMIN, a_job())} & {"READ", "WRITE", "ALL"}


def test_a_coordinator_without_a_lag_group_reads_inputs_only_if_a_start_samples_their_keys() -> None:
    with_state = rights(Role.COORDINATOR, a_job(job_consumer_group="off"))
    without_check = rights(Role.COORDINATOR, a_job(job_consumer_group="off", task_partitioner_check="off"))

    assert ("orders", "READ") in with_state
    assert ("rules", "DESCRIBE") in with_state, "no task owns a part of it"
    assert ("orders", "DESCRIBE") in without_check
    assert ("orders", "READ") not in without_check


def test_a_coordinator_that_commits_positions_to_a_group_reads_the_group_and_the_inputs() -> None:
    by_default, named = rights(Role.COORDINATOR, a_job()), rights(Role.COORDINATOR, a_job(job_consumer_group="lag"))

    assert {("samzapy-flights-1", "READ"), ("rules", "READ"), ("orders", "READ")} <= by_default
    assert ("lag", "READ") in named


def test_an_output_that_is_not_declared_can_be_added() -> None:
    assert ("alerts", "WRITE") in rights(Role.CONTAINER, a_job(), more_outputs=["alerts"])


def test_an_implied_right_is_left_out() -> None:
    operations = {operation for name, operation in rights(Role.COORDINATOR, a_job()) if name == "orders"}

    assert {"READ"} == operations, "it includes DESCRIBE"


def test_two_roles_of_one_principal_share_their_rights() -> None:
    of_both = grants(a_job(), {Role.COORDINATOR: "User:x", Role.CONTAINER: "User:x"})

    placement = {grant.operation: grant.roles for grant in of_both if grant.resource == topic(PLACEMENT)}
    assert {
        Operation.READ: (Role.COORDINATOR,),
        Operation.WRITE: (Role.COORDINATOR,),
        Operation.DESCRIBE_CONFIGS: (Role.COORDINATOR, Role.CONTAINER),
    } == placement
    assert len({(grant.resource, grant.operation) for grant in of_both}) == len(of_both)


def test_two_principals_have_the_rights_of_their_own_roles() -> None:
    of_both = grants(a_job(), {Role.COORDINATOR: "User:c", Role.CONTAINER: "User:w"})

    writers = {grant.principal for grant in of_both if grant.resource == topic(COORDINATOR) and is_write(grant)}
    assert {"User:c"} == writers


def is_write(grant: Grant) -> bool:
    return grant.operation is Operation.WRITE


def test_an_input_pattern_needs_the_topics_with_its_literal_beginning() -> None:
    assert ("eu-*", "READ") in rights(Role.CONTAINER, a_job(task_inputs="kafka.~eu-.*"))
    assert ("*", "READ") in rights(Role.CONTAINER, a_job(task_inputs="kafka.~.*-eu"))


@pytest.mark.parametrize(
    ("pattern", "beginning"),
    [
        ("orders-.*", "orders-"),
        (r"orders\.eu\.\d+", "orders.eu."),
        ("orders?", "order"),
        ("ab*c", "a"),
        ("ab{2}", "a"),
        ("ab+", "ab"),
        ("orders|rides", ""),
        ("(eu|us)-orders", ""),
        ("[ab]c", ""),
        (".*", ""),
    ],
)
def test_the_literal_beginning_of_a_pattern_is_that_of_each_match(pattern: str, beginning: str) -> None:
    assert beginning == literal_beginning(pattern)


@pytest.mark.parametrize(
    ("acl", "needed", "covers", "meets"),
    [
        (topic("a"), topic("a"), True, True),
        (topic("a"), topic("ab"), False, False),
        (topic("a", is_prefix=True), topic("ab"), True, True),
        (topic("ab", is_prefix=True), topic("a"), False, False),
        (topic("*"), topic("a"), True, True),
        (topic("a"), topic("*"), False, False),
        (topic("a", is_prefix=True), topic("ab", is_prefix=True), True, True),
        (topic("ab", is_prefix=True), topic("a", is_prefix=True), False, True),
        (topic("ab"), topic("a", is_prefix=True), False, True),
        (Resource(kind=ResourceKind.GROUP, name="a"), topic("a"), False, False),
    ],
)
def test_an_acl_covers_or_meets_a_resource(acl: Resource, needed: Resource, covers: bool, meets: bool) -> None:
    assert (covers, meets) == (acl.covers(needed), acl.meets(needed))
