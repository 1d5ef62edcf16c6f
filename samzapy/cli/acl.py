"""`samzapy acl`: print the least Kafka rights of a job, and check its ACLs.

The table of rights is in `plan.kafka_rights`. Read-only: Kafka's own tool sets ACLs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from samzapy.cli.output.findings import show_findings
from samzapy.cli.output.groups import HintingGroup
from samzapy.cli.output.option import is_json, output_option
from samzapy.cli.output.table import show_rows
from samzapy.cli.target.address import Target, connection_to_read, timeout_option, with_target
from samzapy.cli.target.requests import recorded_state
from samzapy.config import JobConfig, Setting, in_force, parse_config, parse_recorded, revealed
from samzapy.errors import RejectedError, TaskModuleError
from samzapy.inspection.kafka_rights import acl_commands, acl_findings
from samzapy.plan.kafka_rights import Grant, Role, grants, own_resources

if TYPE_CHECKING:
    from samzapy.adapters.kafka.clients import KafkaConnection

_TOOL = "kafka-acls.sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The job and the principals that the options name.

    Attributes:
        roles: the roles to print or to check.
        more_outputs: topics of outputs that are not declared.
    """

    config: JobConfig
    connection: KafkaConnection
    principals: Mapping[Role, str]
    roles: frozenset[Role]
    more_outputs: Sequence[str]

    def grants(self) -> tuple[Grant, ...]:
        asked = {role: principal for role, principal in self.principals.items() if role in self.roles}
        return grants(self.config, asked, self.more_outputs)

    def expected(self) -> tuple[Grant, ...]:
        """The grants of all roles."""
        return grants(self.config, self.principals, self.more_outputs)

    def tool(self, command_config: str | None = None) -> Sequence[str]:
        """Kafka's tool, with its options for the connection."""
        options = [] if command_config is None else ["--command-config", command_config]
        return [_TOOL, "--bootstrap-server", self.connection.bootstrap_servers, *options]


class _Principal(click.ParamType):  # type: ignore[type-arg]  # generic in new releases of click only
    """A role and its principal: `container=User:flights`."""

    name = "principal"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Role, str]:
        role, _, principal = str(value).partition("=")
        kind, _, name = principal.partition(":")
        if role not in list(Role) or not kind or not name:
            self.fail(
                f"wanted ROLE=TYPE:NAME (container=User:flights) with one of the roles {', '.join(Role)}, found "
                f"{value!r}; correct it",
                param,
                ctx,
            )
        return Role(role), principal


_OPTIONS = (
    click.option(
        "--output-topic",
        "output_topics",
        multiple=True,
        metavar="TOPIC",
        help="Add an output that neither the configuration nor the job file declares; may be repeated.",
    ),
    click.option(
        "--principal",
        "principals",
        type=_Principal(),
        multiple=True,
        metavar="ROLE=TYPE:NAME",
        help="Set the principal of a role; may be repeated [default: for coordinator and container "
        "User:<sasl.username of the properties file>, or User:<job>; for others User:<job>-<role>].",
    ),
    click.option(
        "--role",
        "roles",
        type=click.Choice([role.value for role in Role]),
        multiple=True,
        help="Choose a role; may be repeated [default: all]. A self-managed process is coordinator and container.",
    ),
)


def _of_roles(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a job and the principals of its roles.

    The command receives a function as `ask`, which reads the job.
    """

    @wraps(command)
    def asking(
        *args: Any,
        roles: Sequence[str],
        principals: Sequence[tuple[Role, str]],
        output_topics: Sequence[str],
        target: Target,
        timeout_s: float,
        **options: Any,
    ) -> None:
        def ask() -> _Asked:
            config, connection, user = _job(target, timeout_s)
            return _Asked(
                config=config,
                connection=connection,
                principals={**_default_principals(config, user), **dict(principals)},
                roles=frozenset(map(Role, roles or Role)),
                more_outputs=output_topics,
            )

        command(*args, ask=ask, **options)

    for option in _OPTIONS:
        asking = option(asking)
    return with_target(timeout_option(asking))


@click.group(cls=HintingGroup, invoke_without_command=True)
@_of_roles
@click.option(
    "--command-config",
    metavar="FILE",
    help="Give this file of client properties to kafka-acls.sh in each command.",
)
@output_option(("commands",))
@click.pass_context
def acl(context: click.Context, ask: Callable[[], _Asked], command_config: str | None, output: str) -> None:
    """Print the least Kafka rights of a job's roles, as commands of kafka-acls.sh.

    The roles are coordinator, container, operator, auditor and admin. Nothing is changed. With --config no cluster is
    needed; with --job and --bootstrap-servers the configuration is that on the coordinator stream.

    \b
    Examples:
      samzapy acl --config flights.properties
      samzapy acl --config flights.properties --role operator --principal operator=User:ada -o json
      samzapy acl check --config flights.properties
    """
    if context.invoked_subcommand is not None:
        _refuse_options_before(context, context.invoked_subcommand)
        return
    asked = ask()
    if output == "commands":
        _print_commands(asked.grants(), asked.tool(command_config))
    else:
        _show_grants(asked.grants(), output)


def _refuse_options_before(context: click.Context, subcommand: str) -> None:
    """Raise UsageError for options before the subcommand, which would not see them."""
    if any(context.get_parameter_source(name) is not ParameterSource.DEFAULT for name in context.params):
        raise click.UsageError(f"wanted the options behind {subcommand}, found some before it")


def _print_commands(grants: Sequence[Grant], tool: Sequence[str]) -> None:
    for principal, of_principal in groupby(grants, lambda grant: grant.principal):
        rights = list(of_principal)
        roles = {role for grant in rights for role in grant.roles}
        click.echo(f"# {principal}: {', '.join(role for role in Role if role in roles)}")
        for command in acl_commands(rights, tool):
            click.echo(command)


def _show_grants(grants: Sequence[Grant], output: str) -> None:
    rows = [_json(grant) for grant in grants]
    shown = rows if is_json(output) else [{**row, "roles": ", ".join(map(str, row["roles"]))} for row in rows]
    show_rows(shown, tuple(rows[0]) if rows else (), output, nothing="0 rights")


@acl.command()
@_of_roles
@output_option()
@click.pass_context
def check(context: click.Context, ask: Callable[[], _Asked], output: str) -> None:
    """Check the ACLs of the cluster: missing rights, and rights of others.

    Needs the right to read ACLs (DESCRIBE on the cluster), which the role admin has. Rights of super users are not
    seen. Exits with 0 without findings, 6 if a right is missing, 8 if another principal may change the job's topics
    or use its transactional ids.

    \b
    Example:
      samzapy acl check --config flights.properties --set systems.kafka.client.sasl.username=admin
    """
    from samzapy.adapters.kafka.acls import KafkaAcls
    from samzapy.runtime.job_address import READ_WAIT_S

    asked = ask()
    admin = KafkaAcls(asked.connection, deadline_s=READ_WAIT_S)
    admin.check_reachable()
    acls = admin.acls()
    if not acls:
        click.echo(
            "samzapy: the cluster has no ACL at all; it may have no authorizer (authorizer.class.name)", err=True
        )
    findings = acl_findings(asked.grants(), asked.expected(), own_resources(asked.config), acls, asked.tool())
    show_findings(context, asked.config.job, findings, ["the rights of super users (super.users)"], output)


def _json(grant: Grant) -> Mapping[str, Any]:
    """A grant in the words of Kafka's ACLs. The names are an interface."""
    return {
        "principal": grant.principal,
        "roles": [role.value for role in grant.roles],
        "resourceType": grant.resource.kind.value,
        "resourceName": grant.resource.name,
        "patternType": "PREFIXED" if grant.resource.is_prefix else "LITERAL",
        "operation": grant.operation.value,
    }


def _job(target: Target, timeout_s: float) -> tuple[JobConfig, KafkaConnection, str]:
    """The configuration of the job, its cluster, and its user name.

    The name is empty if the configuration has none.
    """
    from samzapy.adapters.kafka.clients import KafkaConnection
    from samzapy.runtime.job_address import never_ran
    from samzapy.runtime.job_config import read_settings

    config_file = target.config_file
    if config_file is None:
        address = target.address_to_read(timeout_s)
        state = recorded_state(address)
        if not state.config:
            raise never_ran(address.job)
        config = parse_recorded(state.config)
        return config, address.connection, config.properties.get(_user_key(config), "")
    declared = _declared(config_file)
    config = parse_config(in_force(read_settings(config_file, target.overrides, os.environ, declared)))
    if target.job not in (None, config.job):
        raise RejectedError(f"wanted the job {target.job} in {config_file}, found {config.job}; leave --job out")
    # Not of `--set`: a check runs as another user than the job.
    own = {setting.key: revealed(setting.value) for setting in read_settings(config_file, (), os.environ, declared)}
    connection = connection_to_read(KafkaConnection.of(config, target.bootstrap_servers), timeout_s)
    return config, connection, own.get(_user_key(config), "")


def _user_key(config: JobConfig) -> str:
    return f"systems.{config.default_system}.client.sasl.username"


def _default_principals(config: JobConfig, user: str) -> Mapping[Role, str]:
    """One principal for the job's processes, and one for each other role.

    The processes have one configuration, and so one user.
    """
    process = f"User:{user or config.job}"
    others = {role: f"User:{config.job}-{role}" for role in Role}
    return {**others, Role.COORDINATOR: process, Role.CONTAINER: process}


def _declared(config_file: Path) -> Sequence[Setting]:
    """The settings that the job file declares, outputs among them."""
    from samzapy.runtime.job_config import declared_beside

    try:
        return declared_beside(config_file)
    except TaskModuleError as error:
        click.echo(
            f"samzapy: outputs that the job file declares are missing here; name them with --output-topic: {error}",
            err=True,
        )
        return ()
