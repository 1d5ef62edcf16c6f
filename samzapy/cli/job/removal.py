"""`samzapy job delete` and `job reset`: remove what a stopped job left behind."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from samzapy.cli.output.confirm import confirm
from samzapy.cli.output.option import is_json, output_option, print_json
from samzapy.cli.output.table import print_rows
from samzapy.cli.output.terminal import printable
from samzapy.cli.target.address import Target, with_target
from samzapy.cli.target.requests import recorded_state
from samzapy.errors import MissingTopicError, RejectedError
from samzapy.model.container import coordinator_transactional_id, election_group, transactional_ids
from samzapy.model.topics import checkpoint_topic, coordinator_topic, placement_topic

if TYPE_CHECKING:
    from samzapy.adapters.kafka.admin import KafkaAdmin
    from samzapy.config import JobConfig
    from samzapy.coordinator.state import CoordinatorState
    from samzapy.model.topic_checks import TopicFound
    from samzapy.runtime.job_address import JobAddress

_COLUMNS = ("kind", "name", "size")
_Command = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The parts of a job that a command removes.

    Attributes:
        topics: with their partition counts, in the order of their deletion.
        directories: of this host.
        transactional_ids: nothing deletes them; brokers forget them.
        other_hosts: that may have local state.
    """

    job: str
    topics: Mapping[str, int]
    groups: Sequence[str]
    directories: Sequence[Path]
    transactional_ids: Sequence[str]
    other_hosts: Sequence[str]


def _removes(command: _Command) -> _Command:
    """Add the target, `--yes` and `-o` to a command that removes parts of a job."""

    @with_target
    @click.option("--yes", is_flag=True, help="Remove without a question.")
    @output_option()
    @wraps(command)
    def removing(*args: Any, target: Target, **options: Any) -> None:
        address = target.address_to_write()
        directories: Mapping[Path, str] = {}
        if target.config_file is not None:
            from samzapy.runtime.job_config import read_config

            config = read_config(target.config_file, target.config_file, target.overrides, os.environ)
            directories = state_directories(config, address.job)
        command(*args, address=address, directories=directories, **options)

    return removing


def state_directories(config: JobConfig, job: str) -> Mapping[Path, str]:
    """The directories of local state on this machine, and the host of each."""
    from samzapy.runtime.this_host import Here

    wanted = {} if config.local_store_dir is None else {Path(config.local_store_dir) / job: Here.now().host}
    if config.process_dir is not None:
        for place in sorted(Path(config.process_dir).glob("*/state")):
            wanted[place / job] = place.parent.name
    return {path: host for path, host in wanted.items() if path.is_dir()}


@click.command()
@_removes
def delete(address: JobAddress, directories: Mapping[Path, str], yes: bool, output: str) -> None:
    """Delete a stopped job: its topics, consumer groups, and local state.

    The list is shown first. Inputs and outputs stay. Nothing can be brought back; `samzapy stream export` keeps the
    history. The local state of this host goes too, if there is a properties file that names its place.

    Exits with 3 while the job runs, or after another answer than yes. After an interruption, run it again.

    \b
    Example:
      samzapy job delete --config flights.properties
    """
    _remove(address, directories, yes, output, keeps_requests=False)


@click.command()
@_removes
def reset(address: JobAddress, directories: Mapping[Path, str], yes: bool, output: str) -> None:
    """Reset a stopped job, so that its next start is its first.

    Positions, state, plan and history go, as with `job delete`. The requests on the placement topic stay. The next
    start reads the inputs from their default offsets (samza.offset.default). Outputs keep what was sent.

    Exits with 3 while the job runs, or after another answer than yes. After an interruption, run it again.

    \b
    Example:
      samzapy job reset --config flights.properties
    """
    _remove(address, directories, yes, output, keeps_requests=True)


def _remove(
    address: JobAddress, directories: Mapping[Path, str], yes: bool, output: str, *, keeps_requests: bool
) -> None:
    from samzapy.adapters.kafka.admin import KafkaAdmin

    admin = KafkaAdmin(address.connection)
    admin.check_reachable()
    state = recorded_state(address)
    _refuse_running(address, admin, state)
    removal = _removal(address, admin, state, directories, keeps_requests=keeps_requests)
    if not is_json(output):
        _show(address, removal)
    elif not yes:
        # The answer needs the list, and stdout has the JSON alone.
        with redirect_stdout(sys.stderr):
            _show(address, removal)
    if not yes:
        confirm("Remove all of it?", "nothing was removed")
    # A start while the question was open has a newer term.
    if recorded_state(address).term != state.term:
        raise RejectedError(
            f"wanted a stopped job, found that {address.job} was started meanwhile; nothing was removed"
        )
    _refuse_running(address, admin, state)
    _carry_out(address, admin, removal)
    if is_json(output):
        print_json(_json(removal), output)
    else:
        click.echo(f"{address.job}: removed")


def _refuse_running(address: JobAddress, admin: KafkaAdmin, state: CoordinatorState) -> None:
    """Raise RejectedError unless the job is stopped."""
    from samzapy.coordinator.assignment.liveness import LIVING
    from samzapy.runtime.leader_status import leader_status

    if state.term is not None and leader_status(address.job, state.term.url, address.access) is not None:
        running = f"its coordinator at {state.term.url} on {state.term.host}"
    elif count := admin.member_count(election_group(address.job)):
        running = f"{count} election candidate(s) in {election_group(address.job)}"
    elif living := [container for container in state.containers_sorted if container.phase in LIVING]:
        names = ", ".join(f"{container.execution_id} on {container.host}" for container in living)
        running = f"containers that have not reported their end ({names})"
    else:
        return
    raise RejectedError(
        f"wanted a stopped job, found {running}; run `samzapy job stop --job {address.job}`, and end its processes. If "
        "they were killed, start the job once and stop it, so that they are fenced. Nothing was removed"
    )


def _removal(
    address: JobAddress,
    admin: KafkaAdmin,
    state: CoordinatorState,
    directories: Mapping[Path, str],
    *,
    keeps_requests: bool,
) -> Removal:
    from samzapy.coordinator.assignment.replanning import recorded_config
    from samzapy.coordinator.lifecycle.downgrade import hosts_with_state

    job = address.job
    last = [checkpoint_topic(job), placement_topic(job), coordinator_topic(job)]
    if keeps_requests:
        last.remove(placement_topic(job))
    # The coordinator stream names the other topics, so it goes last, and an interrupted command can run again.
    names = [*sorted(state.own_topics.keys() - {*last, placement_topic(job)}), *last]
    there = admin.find(names)
    _refuse_foreign_topics(job, state, there)
    if linked := [path for path in directories if path.is_symlink()]:
        raise RejectedError(f"wanted a directory of local state, found the link {linked[0]}; remove it by hand first")
    config = recorded_config(state)
    # A job that never had a plan has recorded no configuration; its group has the name of the default.
    group = f"samzapy-{job}" if config is None else config.lag_group
    return Removal(
        job=job,
        topics={name: there[name].partition_count for name in names if name in there},
        groups=[name for name in (election_group(job), group) if name],
        directories=[*directories],
        transactional_ids=[
            coordinator_transactional_id(job),
            *(
                text
                for container in state.containers_sorted
                for text in transactional_ids(job, container.execution_id, container.slot_count)
            ),
        ],
        other_hosts=[host for host in hosts_with_state(state) if host not in directories.values()],
    )


def _refuse_foreign_topics(job: str, state: CoordinatorState, there: Mapping[str, TopicFound]) -> None:
    """Raise RejectedError if a topic has only the name of a recorded one."""
    for name, recorded in state.own_topics.items():
        if name in there and there[name].topic_id != recorded.topic_id:
            raise RejectedError(
                f"wanted the topic {name} that {job} has recorded (id {recorded.topic_id}), found another one of this "
                f"name (id {there[name].topic_id}). Delete it with kafka-topics.sh if nothing needs it. Nothing was "
                "removed"
            )


def _show(address: JobAddress, removal: Removal) -> None:
    from samzapy.adapters.kafka.reading import beginning_offsets, end_offsets

    places = [(name, partition) for name, count in removal.topics.items() for partition in range(count)]
    first, end = beginning_offsets(address.connection, places), end_offsets(address.connection, places)
    rows = [
        {
            "kind": "topic",
            "name": name,
            "size": f"{count} partitions, "
            f"{sum(end[name, number] - first[name, number] for number in range(count))} records at most",
        }
        for name, count in removal.topics.items()
    ]
    rows += [{"kind": "consumer group", "name": name, "size": ""} for name in removal.groups]
    rows += [{"kind": "directory", "name": str(path), "size": ""} for path in removal.directories]
    print_rows(rows, _COLUMNS)
    click.echo(
        f"{len(removal.transactional_ids)} transactional ids have no open transaction; brokers forget them after "
        "transactional.id.expiration.ms"
    )
    if removal.other_hosts:
        hosts = ", ".join(map(printable, removal.other_hosts))
        click.echo(f"to remove by hand: {os.path.join('<local.store.dir>', removal.job)} on {hosts}")


def _carry_out(address: JobAddress, admin: KafkaAdmin, removal: Removal) -> None:
    from samzapy.adapters.kafka.groups import delete_groups
    from samzapy.adapters.kafka.log import KafkaLog
    from samzapy.runtime.job_address import no_such_job

    topic = coordinator_topic(removal.job)
    try:
        log = KafkaLog(address.connection, topic, coordinator_transactional_id(removal.job))
    except MissingTopicError as error:
        raise no_such_job(removal.job) from error
    try:
        # A coordinator that was not seen can write nothing after this.
        log.take_over()
    finally:
        log.close()
    for directory in removal.directories:
        shutil.rmtree(directory)
    for name in removal.topics:
        if name != topic:
            admin.delete_topic(name)
    delete_groups(address.connection, removal.groups)
    admin.delete_topic(topic)


def _json(removal: Removal) -> Mapping[str, object]:
    return {
        "job": removal.job,
        "topics": [*removal.topics],
        "groups": [*removal.groups],
        "directories": [str(path) for path in removal.directories],
        "transactionalIds": [*removal.transactional_ids],
        "otherHosts": [*removal.other_hosts],
    }
