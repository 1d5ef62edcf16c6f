"""Build properties, pod template and command lines of a container in a pod.

None of it was run on a cluster. Spark's Kubernetes mode starts the driver in a pod. The driver's main class is
spark-submit's own, which starts the job file with `--master local[n,1]` (`submission`). So there are no executor pods,
and the image needs Spark, Python and samzapy. A launch requests a host by the node's label `kubernetes.io/hostname`.
The pod's name follows from the execution id, so Kubernetes refuses a second start of the same execution, and a start is
idempotent.

See docs/guides/kubernetes.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from samzapy.adapters.spark.submission import SUBMIT_CLASS, ContainerProgram, arguments_of, environment_of, name_of
from samzapy.model.job import ExecutionId
from samzapy.model.launch import Launch

HOST_LABEL = "kubernetes.io/hostname"
EXECUTION_ANNOTATION = "samzapy.execution"
JOB_LABEL = "samzapy-job"
POD_CONTAINER = "samzapy"
POD_ADDRESS = "SAMZAPY_POD_IP"
"""In the environment of a container in a pod: its address, for job.coordinator.advertised.host."""
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesCluster:
    """The settings of the cluster that runs the pods.

    Attributes:
        api_url: of the API server, `https://host:6443`.
        image: with Spark, the interpreter and the files of `ContainerProgram`.
        service_account: of the pods; they ask Kubernetes for nothing.
        state_dir: the job's `local.store.dir`, a directory of the node, so that the next pod has the state.
        python_memory_mib: for the Python workers of a container, besides its JVM.
        user_id: the user of containers in the image; 185 in images of Spark's own tool.
        drain_s: the time for a pod to end after SIGTERM: more than job.shutdown.drain.ms.
    """

    api_url: str
    image: str
    namespace: str = "default"
    service_account: str = "default"
    state_dir: str = "/var/lib/samzapy"
    python_memory_mib: int = 1024
    user_id: int = 185
    drain_s: int = 60


def pod_name(execution_id: ExecutionId) -> str:
    """The pod's name, a hash.

    Ids may have other characters than names of pods, and be longer.
    """
    return f"samzapy-{hashlib.blake2b(execution_id.encode(), digest_size=16).hexdigest()}"


def pod_properties(program: ContainerProgram, launch: Launch, cluster: KubernetesCluster) -> Mapping[str, str]:
    """The content of spark-submit's properties file."""
    node = {f"spark.kubernetes.driver.node.selector.{HOST_LABEL}": launch.host} if launch.host else {}
    environment = environment_of(program, launch, launch.host)
    return {
        "spark.app.name": name_of(program, launch),
        "spark.driver.cores": str(program.cores),
        "spark.driver.memory": f"{program.memory_mib}m",
        "spark.driver.memoryOverhead": f"{cluster.python_memory_mib}m",
        "spark.kubernetes.authenticate.driver.serviceAccountName": cluster.service_account,
        "spark.kubernetes.container.image": cluster.image,
        f"spark.kubernetes.driver.annotation.{EXECUTION_ANNOTATION}": launch.execution_id,
        f"spark.kubernetes.driver.label.{JOB_LABEL}": job_label(program.job),
        "spark.kubernetes.driver.pod.name": pod_name(launch.execution_id),
        "spark.kubernetes.driver.podTemplateContainerName": POD_CONTAINER,
        "spark.kubernetes.namespace": cluster.namespace,
        # The command ends when the pod is made; `pod_status_command` then shows its state.
        "spark.kubernetes.submission.waitAppCompletion": "false",
        **{f"spark.kubernetes.driverEnv.{name}": value for name, value in environment.items()},
        **node,
    }


def properties_text(properties: Mapping[str, str]) -> str:
    """The text of a Java properties file that Java reads back as `properties`."""
    return "".join(f"{_name_text(name)} {_value_text(value)}\n" for name, value in properties.items())


def _name_text(name: str) -> str:
    """Escape a name of a property.

    Blanks and signs would end it, and some signs would begin a comment.
    """
    text = "".join(f"\\{sign}" if sign in " =:" else _sign_text(sign) for sign in name)
    return f"\\{text}" if text.startswith(("#", "!")) else text


def _value_text(value: str) -> str:
    """Escape a value of a property.

    A leading blank would be dropped, and a leading sign read as the separator.
    """
    text = "".join(map(_sign_text, value))
    return f"\\{text}" if text.startswith((" ", "=", ":")) else text


def _sign_text(sign: str) -> str:
    if sign.isascii():
        return _ESCAPES.get(sign, sign)
    units = sign.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def job_label(job: str) -> str:
    """The label of all pods of a job, a hash.

    A job's name may be longer than a label's value.
    """
    return hashlib.blake2b(job.encode(), digest_size=8).hexdigest()


def pod_template(cluster: KubernetesCluster) -> Mapping[str, Any]:
    """The pod template of a job, the same for all its containers.

    It is written as JSON, which is YAML too.
    """
    state = {"name": "state", "mountPath": cluster.state_dir}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {
            # The coordinator starts a new execution; the same one must not restart.
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": cluster.drain_s,
            # A directory that Kubernetes makes belongs to root, and no other user may write there.
            "initContainers": [
                {
                    "name": "state-owner",
                    "image": cluster.image,
                    "command": ["chown", str(cluster.user_id), cluster.state_dir],
                    "securityContext": {"runAsUser": 0},
                    "volumeMounts": [state],
                }
            ],
            "containers": [
                {
                    "name": POD_CONTAINER,
                    "env": [{"name": POD_ADDRESS, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                    "volumeMounts": [
                        state,
                        {"name": "scratch", "mountPath": "/dev/shm"},  # noqa: S108  # a path in the pod
                    ],
                }
            ],
            "volumes": [
                {"name": "state", "hostPath": {"path": cluster.state_dir, "type": "DirectoryOrCreate"}},
                {"name": "scratch", "emptyDir": {"medium": "Memory"}},
            ],
        },
    }


def pod_command(
    program: ContainerProgram, launch: Launch, cluster: KubernetesCluster, properties_file: str, template_file: str
) -> list[str]:
    """The command that makes the pod.

    The two files have `pod_properties` and `pod_template`.
    """
    return [
        "spark-submit",
        *("--master", f"k8s://{cluster.api_url}"),
        *("--deploy-mode", "cluster"),
        *("--properties-file", properties_file),
        *("--conf", f"spark.kubernetes.driver.podTemplateFile={template_file}"),
        *("--class", SUBMIT_CLASS),
        # Spark's value for a submission without a jar.
        "spark-internal",
        *arguments_of(program, launch),
    ]


def pod_status_command(launch: Launch, cluster: KubernetesCluster) -> list[str]:
    """The command that prints the pod as JSON; it exits with 1 if there is none."""
    return ["kubectl", "--namespace", cluster.namespace, "get", "pod", pod_name(launch.execution_id), "-o", "json"]


def pod_kill_command(launch: Launch, cluster: KubernetesCluster) -> list[str]:
    """The command that sends SIGTERM, and SIGKILL after the grace period.

    A missing pod is no error.
    """
    name = pod_name(launch.execution_id)
    return ["kubectl", "--namespace", cluster.namespace, "delete", "pod", name, "--ignore-not-found"]
