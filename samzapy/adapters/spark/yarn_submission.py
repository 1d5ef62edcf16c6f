"""Build the command lines of a container on YARN; none of it was run on a cluster.

Spark's own YARN mode cannot start a container. Its application master registers with the resource manager only once the
program has made a SparkContext *on YARN* (`ApplicationMaster.runDriver`), and a container's context is `local[n]`: the
master would wait `spark.yarn.am.waitTime` for it and fail. So YARN runs spark-submit as a plain command, by Hadoop's
distributed shell: one application with one YARN container. A launch requests a host by a node label, since YARN does
not guarantee a given host; the label of `node-7.rack` is `host_node-7_rack`.

See docs/guides/yarn.md.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from samzapy.adapters.spark.submission import ContainerProgram, arguments_of, environment_of, host_label, name_of
from samzapy.errors import ConfigError
from samzapy.model.credential import CREDENTIAL_VARIABLE
from samzapy.model.launch import Launch

_CHANGED = re.compile(r'["$`\\\n]|\{\{|\}\}|<CPS>|<LOG_DIR>')
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]*")
_SHELL_CLIENT = "org.apache.hadoop.yarn.applications.distributedshell.Client"
_TIMEOUT_MS_MAX = 2**31 - 1
"""The client kills the application after this time, by default after 10 minutes; this is 24 days. A client that ends
before leaves the application running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnCluster:
    """The settings of the cluster that runs the containers.

    Attributes:
        shell_jar: `hadoop-yarn-applications-distributedshell-<version>.jar` on the machine that submits.
        spark_submit: on each host of the cluster.
        python_memory_mib: for the Python workers of a container, besides its JVM.
    """

    shell_jar: str
    spark_submit: str = "spark-submit"
    queue: str = "default"
    python_memory_mib: int = 1024


def yarn_command(program: ContainerProgram, launch: Launch, cluster: YarnCluster) -> list[str]:
    """The command that starts a container on YARN, and waits for its end.

    Raises:
        ConfigError: a word that YARN would change on its way to the host, or a variable that a shell would.
    """
    label = ["-node_label_expression", host_label(launch.host)] if launch.host else []
    environment = environment_of(program, launch, launch.host)
    # It would be on the command line, so the container derives one from the job's secret.
    environment.pop(CREDENTIAL_VARIABLE, None)
    variables = [f"{name}={value}" for name, value in sorted(environment.items())]
    memory = ("--driver-memory", f"{program.memory_mib}m")
    arguments = [cluster.spark_submit, *memory, *arguments_of(program, launch)]
    for argument in arguments:
        _refuse_changed_argument(argument)
    for name, value in sorted(environment.items()):
        _refuse_shell_syntax(name, value)
    return [
        "yarn",
        _SHELL_CLIENT,
        *("-jar", cluster.shell_jar),
        *("-appname", yarn_name(program, launch)),
        *("-queue", cluster.queue),
        *("-num_containers", "1"),
        *("-container_memory", str(program.memory_mib + cluster.python_memory_mib)),
        *("-container_vcores", str(program.cores)),
        # NEVER_RETRY: the coordinator starts a new execution; the same one must not restart.
        *("-container_retry_policy", "0"),
        *("-timeout", str(_TIMEOUT_MS_MAX)),
        *label,
        *(part for variable in variables for part in ("-shell_env", variable)),
        # `exec`, so that the signal of a kill reaches spark-submit itself.
        *("-shell_command", f"exec {shlex.join(arguments)}"),
    ]


def _refuse_changed_argument(argument: str) -> None:
    """Refuse text that YARN would change.

    YARN puts a command between double quotes of a script without quoting, and replaces marks of its own.
    """
    changed = _CHANGED.search(argument)
    if changed is not None:
        raise ConfigError(
            f"{argument}: wanted a word that reaches the host as it is, found {changed[0]!r}, which YARN or its shell "
            "would replace; write it in the job's properties file instead"
        )


def _refuse_shell_syntax(name: str, value: str) -> None:
    """Refuse a variable that a shell would not read as plain text.

    Hadoop's client writes variables into the command of its application master without quoting, and a shell runs that
    command. The value may be a secret, so the error does not show it.
    """
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"environment of a container: wanted names of letters, digits and _, found {name!r}")
    plain = _PLAIN.match(value)
    assert plain is not None, "the empty text is plain"
    if plain.end() < len(value):
        raise ConfigError(
            f"environment of a container, {name}: wanted letters, digits and _@%+=:,./- only, found "
            f"{value[plain.end()]!r}, which a shell of YARN's would read as its own; set the variable on the hosts "
            "instead, or write the setting in the job's properties file"
        )


def yarn_name(program: ContainerProgram, launch: Launch) -> str:
    """The application's name, by which a running container is identified.

    It is also part of a path.
    """
    return f"{name_of(program, launch)} {launch.execution_id}".replace(" ", ".")


def yarn_status_command(application_id: str) -> list[str]:
    """The command that prints state and final state of an application."""
    return ["yarn", "application", "-status", application_id]


def yarn_kill_command(application_id: str) -> list[str]:
    """The command that sends SIGTERM, and SIGKILL after a delay.

    The delay is `yarn.nodemanager.sleep-delay-before-sigkill.ms`.
    """
    return ["yarn", "application", "-kill", application_id]
