"""`samzapy acl`, without a cluster.

`integration_tests/test_a_job_runs_with_the_least_rights.py` has a cluster.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from samzapy.cli import acl as module
from samzapy.cli.acl import acl
from samzapy.config import recorded_properties
from samzapy.coordinator.state import INITIAL, evolve, uncommitted
from samzapy.errors import ConfigError, RejectedError, SamzapyError
from samzapy.plan.kafka_rights import Acl, Resource, ResourceKind
from samzapy.stream.records import ConfigPut
from samzapy.testing.builders import a_config

PROPERTIES = """\
job.name=flights
task.inputs=kafka.orders
systems.kafka.bootstrap.servers=localhost:1
systems.kafka.client.sasl.username=ada
systems.kafka.client.sasl.password=hunter2
"""
COORDINATOR = "__samzapy-coordinator-flights-1"


@pytest.fixture
def properties(tmp_path: Path) -> str:
    path = tmp_path / "flights.properties"
    path.write_text(PROPERTIES)
    return str(path)


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(acl, arguments)
    if isinstance(result.exception, SamzapyError):
        raise result.exception
    return result


def rows(*arguments: str) -> list[Mapping[str, Any]]:
    return list(json.loads(invoke(*arguments, "-o", "json").stdout))


def recorded() -> Mapping[str, str]:
    return recorded_properties(a_config())


def principals_of(role: str, printed: list[Mapping[str, Any]]) -> set[str]:
    return {row["principal"] for row in printed if role in row["roles"]}


def test_the_commands_are_listed_under_their_principals(properties: str) -> None:
    lines = invoke("--config", properties, "--role", "coordinator", "--role", "container").stdout.splitlines()

    assert "# User:ada: coordinator, container" == lines[0]
    assert all(
        line.startswith("kafka-acls.sh --bootstrap-server localhost:1 --add --allow-principal User:ada ")
        for line in lines[1:]
    )
    assert any(f"--topic {COORDINATOR}" in line for line in lines)


def test_the_options_of_kafka_s_tool_are_passed_on(properties: str) -> None:
    assert (
        "localhost:1 --command-config admin.properties --add"
        in invoke("--config", properties, "--command-config", "admin.properties").stdout
    )


def test_json_has_an_entry_for_each_acl_in_kafka_s_words(properties: str) -> None:
    assert {
        "principal": "User:ada",
        "roles": ["coordinator", "container"],
        "resourceType": "TRANSACTIONAL_ID",
        "resourceName": "samzapy/flights-1/",
        "patternType": "PREFIXED",
        "operation": "WRITE",
    } in rows("--config", properties)


def test_the_user_of_the_properties_file_is_the_principal_of_the_processes(properties: str) -> None:
    as_admin = ("--set", "systems.kafka.client.sasl.username=root")
    printed = rows("--config", properties, *as_admin)

    assert {"User:ada"} == principals_of("coordinator", printed) == principals_of("container", printed)
    assert {"User:flights-1-operator"} == principals_of("operator", printed)


def test_without_a_user_name_the_principal_has_the_name_of_the_job(properties: str) -> None:
    Path(properties).write_text("\n".join(PROPERTIES.splitlines()[:3]))

    assert {"User:flights-1"} == principals_of("container", rows("--config", properties))


def test_a_role_can_have_a_principal_of_its_own(properties: str) -> None:
    printed = rows("--config", properties, "--principal", "container=User:CN=host-1,O=ada")

    assert {"User:CN=host-1,O=ada"} == principals_of("container", printed)
    assert {"User:ada"} == principals_of("coordinator", printed)


@pytest.mark.parametrize(
    "given", ["container", "container=ada", "container=User:", "driver=User:ada", "container=:ada"]
)
def test_a_principal_of_another_form_is_refused(properties: str, given: str) -> None:
    result = invoke("--config", properties, "--principal", given)

    assert (2, True) == (result.exit_code, "wanted ROLE=TYPE:NAME (container=User:flights)" in result.output)


def test_outputs_that_the_job_file_declares_are_written(properties: str) -> None:
    Path(properties).with_suffix(".py").write_text(
        "import samzapy as sz\n\norders = sz.Stream('kafka.orders', key=sz.String, value=sz.String)\n"
        "delays = sz.Stream('kafka.delays', key=sz.String, value=sz.String)\n\n\n"
        "@sz.task(inputs=[orders], outputs=[delays])\nclass Flights(sz.Task[str, str]):\n"
        "    def process(self, message: sz.Message[str, str], out: sz.Output) -> None:\n        pass\n"
    )
    result = invoke("--config", properties, "-o", "json")

    assert "delays" in {row["resourceName"] for row in json.loads(result.stdout) if row["operation"] == "WRITE"}


def test_a_job_file_that_does_not_import_is_named_with_the_remedy(properties: str) -> None:
    Path(properties).with_suffix(".py").write_text("raise ValueError('no module')\n")

    assert "name them with --output-topic" in invoke("--config", properties).stderr


def test_an_option_before_check_is_refused(properties: str) -> None:
    result = invoke("--config", properties, "check", "--config", properties)

    assert (2, True) == (result.exit_code, "wanted the options behind check" in result.output)


def test_a_job_that_is_not_that_of_the_file_is_refused(properties: str) -> None:
    with pytest.raises(RejectedError, match=r"wanted the job rides-1 .*, found flights-1"):
        invoke("--config", properties, "--job", "rides-1")


def test_without_a_file_and_an_address_the_error_names_the_remedy() -> None:
    with pytest.raises(ConfigError, match="wanted --config FILE, or --job NAME-ID"):
        invoke()


def test_without_a_file_the_recorded_configuration_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    state = evolve(
        INITIAL, uncommitted([ConfigPut(config_key=key, value=value) for key, value in recorded().items()])
    )
    monkeypatch.setattr(module, "recorded_state", lambda address: state)
    printed = rows("--job", "flights-1", "--bootstrap-servers", "b:1")

    assert COORDINATOR in {row["resourceName"] for row in printed}
    assert "kafka-acls.sh --bootstrap-server b:1" in invoke("--job", "flights-1", "--bootstrap-servers", "b:1").stdout


class Cluster:
    """The admin client of a cluster with these ACLs."""

    def __init__(self, acls: tuple[Acl, ...]) -> None:
        self._acls = acls

    def check_reachable(self) -> None: ...

    def acls(self) -> tuple[Acl, ...]:
        return self._acls


def as_acl(row: Mapping[str, Any]) -> Acl:
    resource = Resource(
        kind=ResourceKind(row["resourceType"]), name=row["resourceName"], is_prefix=row["patternType"] == "PREFIXED"
    )
    return Acl(principal=row["principal"], host="*", resource=resource, operation=row["operation"])


def test_a_check_ends_as_doctor_does(properties: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = tuple(map(as_acl, rows("--config", properties)))
    written = next(one for one in needed if one.resource.name == COORDINATOR and one.operation == "WRITE")
    rogue = Acl(principal="User:m", host="*", resource=written.resource, operation="WRITE")

    def code(*acls: Acl) -> int:
        monkeypatch.setattr("samzapy.adapters.kafka.acls.KafkaAcls", lambda *_, **__: Cluster(acls))
        return invoke("check", "--config", properties).exit_code

    assert [0, 6, 8] == [code(*needed), code(*needed[1:]), code(*needed, rogue)]


def test_a_check_of_one_role_expects_the_writers_of_the_others(
    properties: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = tuple(map(as_acl, rows("--config", properties)))
    monkeypatch.setattr("samzapy.adapters.kafka.acls.KafkaAcls", lambda *_, **__: Cluster(needed))

    assert "nothing is wrong" in invoke("check", "--config", properties, "--role", "auditor").stdout


def test_a_cluster_without_any_acl_is_reported(properties: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samzapy.adapters.kafka.acls.KafkaAcls", lambda *_, **__: Cluster(()))

    assert "may have no authorizer" in invoke("check", "--config", properties).stderr
