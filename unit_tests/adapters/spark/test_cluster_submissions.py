"""Command lines and files for clusters that no test has.

They must be those of the documentation.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from samzapy.adapters.spark.kubernetes_submission import (
    KubernetesCluster,
    job_label,
    pod_command,
    pod_kill_command,
    pod_name,
    pod_properties,
    pod_status_command,
    pod_template,
    properties_text,
)
from samzapy.adapters.spark.submission import ContainerProgram, arguments_of
from samzapy.adapters.spark.yarn_submission import (
    YarnCluster,
    yarn_command,
    yarn_kill_command,
    yarn_name,
    yarn_status_command,
)
from samzapy.errors import ConfigError
from samzapy.model.job import ExecutionId
from samzapy.testing.builders import a_launch

DOCS = Path(__file__).parents[3] / "docs"
PROGRAM = ContainerProgram(
    job="flights-1",
    job_file="/srv/flights/flights.py",
    python="/srv/flights/env/bin/python",
    cores=2,
    memory_mib=2048,
)
LAUNCH = a_launch("flights-0-4f1c", processor_id="0", host="node-7.rack")
KUBERNETES = KubernetesCluster(api_url="https://10.0.0.1:6443", image="registry.example/flights:3", namespace="jobs")
YARN = YarnCluster(shell_jar="/opt/hadoop/distributedshell.jar", spark_submit="/srv/flights/env/bin/spark-submit")


def options(command: list[str]) -> Mapping[str, str]:
    """YARN's options, each of which has one value; of one that comes again the last."""
    return {option: value for option, value in pairwise(command) if option.startswith("-")}


def test_a_container_on_yarn_is_one_command_on_one_labelled_node() -> None:
    command = yarn_command(PROGRAM, LAUNCH, YARN)
    given = options(command)

    assert ["yarn", "org.apache.hadoop.yarn.applications.distributedshell.Client"] == command[:2]
    assert "host_node-7_rack" == given["-node_label_expression"]
    assert ("1", "0", "3072", "2") == tuple(
        given[name]
        for name in ("-num_containers", "-container_retry_policy", "-container_memory", "-container_vcores")
    )
    assert {
        "EXECUTION_ENV_CONTAINER_ID=flights-0-4f1c",
        "PYSPARK_PYTHON=/srv/flights/env/bin/python",
        "SAMZAPY_HOST=node-7.rack",
    } == {value for option, value in pairwise(command) if option == "-shell_env"}


def test_a_command_for_yarn_shows_no_credential() -> None:
    program = replace(PROGRAM, credential_of=lambda execution_id: f"credential-of-{execution_id}")

    assert yarn_command(PROGRAM, LAUNCH, YARN) == yarn_command(program, LAUNCH, YARN)


def test_yarn_runs_spark_submit_with_unchanged_arguments() -> None:
    program = replace(PROGRAM, overrides=("job.name=it's; rm -rf /",))

    script = options(yarn_command(program, LAUNCH, YARN))["-shell_command"]

    words = shlex.split(script)
    assert ["exec", "/srv/flights/env/bin/spark-submit", "--driver-memory", "2048m"] == words[:4]
    assert arguments_of(program, LAUNCH) == words[4:]


@pytest.mark.parametrize("text", ["$HOME", "`id`", 'a"b', "a\\b", "${env:PASS}", "{{PWD}}", "<LOG_DIR>", "a\nb"])
def test_an_argument_that_yarn_would_change_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="wanted a word that reaches the host as it is"):
        yarn_command(replace(PROGRAM, overrides=(f"job.name={text}",)), LAUNCH, YARN)


@pytest.mark.parametrize(
    "text",
    [
        "x y; touch /tmp/pwned",
        "a b",
        "a;b",
        "a&b",
        "a|b",
        "a>b",
        "a*",
        "a'b",
        "~",
        "(a)",
        "$HOME",
        "`id`",
        'a"b',
        "a\nb",
    ],
)
def test_a_variable_with_shell_syntax_is_refused_without_its_value(text: str) -> None:
    with pytest.raises(ConfigError, match="environment of a container, A: wanted letters, digits") as refused:
        yarn_command(replace(PROGRAM, environment={"A": text}), LAUNCH, YARN)

    assert "pwned" not in str(refused.value)
    with pytest.raises(ConfigError, match="environment of a container, PYSPARK_PYTHON:"):
        yarn_command(replace(PROGRAM, python=text), LAUNCH, YARN)
    with pytest.raises(ConfigError, match="wanted names of letters"):
        yarn_command(replace(PROGRAM, environment={text: "a"}), LAUNCH, YARN)


def test_a_variable_of_plain_text_is_set() -> None:
    text = "/opt/a_b:/opt/c-d.jar,k=v@w%20+1"

    assert f"A={text}" in yarn_command(replace(PROGRAM, environment={"A": text, "B": ""}), LAUNCH, YARN)


def test_on_any_host_no_label_and_no_node_is_asked_for() -> None:
    anywhere = replace(LAUNCH, host="")

    assert "-node_label_expression" not in yarn_command(PROGRAM, anywhere, YARN)
    assert not [name for name in pod_properties(PROGRAM, anywhere, KUBERNETES) if "node.selector" in name]
    assert not [argument for argument in yarn_command(PROGRAM, anywhere, YARN) if "SAMZAPY_HOST" in argument]


def test_an_application_on_yarn_is_identified_by_its_name() -> None:
    assert "samzapy.flights-1.0.flights-0-4f1c" == yarn_name(PROGRAM, LAUNCH)
    assert yarn_name(PROGRAM, LAUNCH) == options(yarn_command(PROGRAM, LAUNCH, YARN))["-appname"]


def test_a_container_on_kubernetes_is_a_pod_that_is_named_after_its_execution() -> None:
    properties = pod_properties(PROGRAM, LAUNCH, KUBERNETES)

    assert pod_name(LAUNCH.execution_id) == properties["spark.kubernetes.driver.pod.name"]
    assert "node-7.rack" == properties["spark.kubernetes.driver.node.selector.kubernetes.io/hostname"]
    assert "flights-0-4f1c" == properties["spark.kubernetes.driverEnv.EXECUTION_ENV_CONTAINER_ID"]
    assert "flights-0-4f1c" == properties["spark.kubernetes.driver.annotation.samzapy.execution"]
    assert job_label("flights-1") == properties["spark.kubernetes.driver.label.samzapy-job"]
    assert ("2", "2048m", "1024m") == tuple(
        properties[f"spark.driver.{name}"] for name in ("cores", "memory", "memoryOverhead")
    )


@pytest.mark.parametrize("execution_id", ["e", "A_b.C-d", "x" * 128])
def test_any_execution_has_a_name_that_kubernetes_takes(execution_id: str) -> None:
    name = pod_name(ExecutionId(execution_id))

    assert name.removeprefix("samzapy-").isalnum()
    assert name == name.lower()
    assert 63 >= len(name)
    assert name != pod_name(ExecutionId(f"{execution_id}x"))


def test_a_pod_runs_spark_submit_in_itself() -> None:
    command = pod_command(PROGRAM, LAUNCH, KUBERNETES, "/tmp/p.properties", "/tmp/pod.json")

    assert ["--master", "k8s://https://10.0.0.1:6443", "--deploy-mode", "cluster"] == command[1:5]
    assert arguments_of(PROGRAM, LAUNCH) == command[command.index("spark-internal") + 1 :]
    assert "org.apache.spark.deploy.SparkSubmit" == command[command.index("--class") + 1]


def test_a_pod_is_not_restarted_and_keeps_its_state_on_the_node() -> None:
    template = json.loads(json.dumps(pod_template(KUBERNETES)))["spec"]

    assert "Never" == template["restartPolicy"]
    assert {"path": "/var/lib/samzapy", "type": "DirectoryOrCreate"} == template["volumes"][0]["hostPath"]
    assert ["/var/lib/samzapy", "/dev/shm"] == [
        mount["mountPath"] for mount in template["containers"][0]["volumeMounts"]
    ]


def test_the_state_belongs_to_the_user_of_the_image_and_a_pod_knows_its_address() -> None:
    template = json.loads(json.dumps(pod_template(replace(KUBERNETES, user_id=1000))))["spec"]

    (owner,) = template["initContainers"]
    assert ["chown", "1000", "/var/lib/samzapy"] == owner["command"]
    assert {"runAsUser": 0} == owner["securityContext"]
    assert KUBERNETES.image == owner["image"]
    assert ["/var/lib/samzapy"] == [mount["mountPath"] for mount in owner["volumeMounts"]]
    assert [{"name": "SAMZAPY_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}] == template[
        "containers"
    ][0]["env"]


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("spark.a", "b c", "spark.a b c\n"),
        ("spark.a", "", "spark.a \n"),
        ("spark.a", "\\d\n#!=:", "spark.a \\\\d\\n#!=:\n"),
        ("spark.a", " \tb\r", "spark.a \\ \\tb\\r\n"),
        ("spark.a b=c:d", "e", "spark.a\\ b\\=c\\:d e\n"),
        ("#a", "=b", "\\#a \\=b\n"),
        ("!a", ":b", "\\!a \\:b\n"),
        ("spark.a", "K\u00f6ln \U0001f6eb", "spark.a K\\u00f6ln \\ud83d\\udeeb\n"),
    ],
)
def test_java_reads_a_properties_file_back_unchanged(name: str, value: str, line: str) -> None:
    assert line == properties_text({name: value})


def test_the_guide_of_yarn_shows_the_commands_that_are_built() -> None:
    page = (DOCS / "guides" / "yarn.md").read_text()

    assert shown(yarn_command(PROGRAM, LAUNCH, YARN)) in page
    for command in (yarn_status_command, yarn_kill_command):
        assert f"`{' '.join(command('<application id>'))}`" in page


def test_the_guide_of_kubernetes_shows_the_files_that_are_built() -> None:
    page = (DOCS / "guides" / "kubernetes.md").read_text()
    properties = pod_properties(PROGRAM, LAUNCH, KUBERNETES)

    assert properties_text(properties) in page
    assert json.dumps(pod_template(KUBERNETES), indent=2) in page
    for command in (
        pod_command(PROGRAM, LAUNCH, KUBERNETES, "container.properties", "pod.json"),
        pod_status_command(LAUNCH, KUBERNETES),
        pod_kill_command(LAUNCH, KUBERNETES),
    ):
        assert shown(command) in page


def shown(command: list[str]) -> str:
    """A command as a page shows it: an option and its value on a line."""
    text = shlex.quote(command[0])
    for argument in command[1:]:
        text += (" \\\n  " if argument.startswith("-") else " ") + shlex.quote(argument)
    return text
