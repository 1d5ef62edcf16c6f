"""`samzapy state`: the entries of a store, from its changelog.

It asks no container, so it works also while the job is stopped. Only `drop` changes anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

import click

from samzapy.cli.output.confirm import confirm
from samzapy.cli.output.groups import HintingGroup
from samzapy.cli.output.option import is_json, output_option, print_json, print_json_stream, print_result
from samzapy.cli.output.table import print_rows, show_rows
from samzapy.cli.target.address import of_a_job, read_of_a_job
from samzapy.cli.target.lazy_completion import completes
from samzapy.cli.target.requests import recorded_state
from samzapy.errors import ConfigError, RejectedError
from samzapy.model.serde import SerdeError
from samzapy.model.topics import changelog_topic

if TYPE_CHECKING:
    from samzapy.config import JobConfig, StoreConfig
    from samzapy.inspection.store_entries import EntrySerdes, StoreEntry
    from samzapy.runtime.job_address import JobAddress

_COLUMNS = ("key", "name", "value", "partition", "offset")
_NUMBERS = ("partition", "offset")
_store_option = click.option(
    "--store", "name", required=True, metavar="NAME", shell_complete=completes("stores"), help="Read this store."
)


@click.group(cls=HintingGroup)
def state() -> None:
    """Read the entries of a store, or delete those of a dropped one."""


@state.command()
@read_of_a_job
@_store_option
@click.option("--key", "key", required=True, metavar="KEY", help="Show the entries of this key, or of this task.")
@output_option()
def get(address: JobAddress, name: str, key: str, output: str) -> None:
    """Show the entries of one key.

    The key is text: a number, a UUID or JSON where the inputs have such keys. For a store of scope task or broadcast
    it is the task's name. Exits with 3 if there is no entry.

    \b
    Example:
      samzapy state get --job flight-delays-1 --bootstrap-servers localhost:9092 --store delays --key JFK
    """
    from samzapy.inspection.store_entries import in_order

    store, serdes = _store_and_serdes(address, name)
    try:
        is_owner = serdes.owners(key)
    except SerdeError as error:
        raise ConfigError(f"--key: {error}") from error
    rows = [serdes.as_json(entry) for entry in in_order(_entries(address, store)) if is_owner(entry.owner)]
    if not rows:
        raise RejectedError(f"wanted an entry of store {name} under key {key!r}, found none")
    _show(rows, output)


@state.command()
@read_of_a_job
@_store_option
@click.option(
    "--limit", type=click.IntRange(min=0), default=100, show_default=True, help="Show so many entries; 0: all."
)
@output_option()
def scan(address: JobAddress, name: str, limit: int, output: str) -> None:
    """Show the entries of a store in the order of their keys.

    The whole changelog is read, and all keys are held in memory.

    \b
    Example:
      samzapy state scan --job flight-delays-1 --bootstrap-servers localhost:9092 --store delays
    """
    from samzapy.inspection.store_entries import in_order

    store, serdes = _store_and_serdes(address, name)
    entries = in_order(_entries(address, store))
    rows = (serdes.as_json(entry) for entry in islice(entries, limit or None))
    if output == "jsonl":
        print_json_stream(rows, output)
    else:
        _show(list(rows), output)
    if limit and len(entries) > limit:
        click.echo(f"samzapy: {len(entries) - limit} more entries; --limit 0 shows all", err=True)


@state.command()
@read_of_a_job
@click.option("--store", "name", metavar="NAME", shell_complete=completes("stores"), help="Count this store only.")
@output_option()
def count(address: JobAddress, name: str | None, output: str) -> None:
    """Count the entries and bytes of each store, by partition of its changelog.

    \b
    Example:
      samzapy state count --job flight-delays-1 --bootstrap-servers localhost:9092
    """
    config = _config(address)
    rows: list[Mapping[str, object]] = []
    for store in config.stores if name is None else [_store(config, name)]:
        for partition, entries in _by_partition(address, store):
            rows.append(
                {
                    "store": store.name,
                    "partition": partition,
                    "entries": len(entries),
                    "bytes": sum(len(key) + len(entry.value) for key, entry in entries.items()),
                }
            )
    columns = ("store", "partition", "entries", "bytes")
    show_rows(rows, columns, output, numbers=columns[1:], nothing="0 stores")


@state.command()
@of_a_job
@click.option(
    "--store",
    "name",
    required=True,
    metavar="NAME",
    shell_complete=completes("stores"),
    help="Delete the entries of this store.",
)
@click.option("--yes", is_flag=True, help="Delete without a question.")
@output_option()
def drop(address: JobAddress, name: str, yes: bool, output: str) -> None:
    """Delete the changelog topic of a store that the job has dropped.

    The command is refused while the configuration of the job names the store. After it the name can be used again. The
    entries cannot be brought back. Exits with 3 if refused.

    \b
    Example:
      samzapy state drop --job flight-delays-1 --bootstrap-servers localhost:9092 --store delays
    """
    from samzapy.adapters.kafka.admin import KafkaAdmin
    from samzapy.adapters.kafka.reading import beginning_offsets, end_offsets

    admin = KafkaAdmin(address.connection)
    topic = _dropped_topic(address, name)
    there = admin.find([topic]).get(topic)
    if there is None:
        facts = {"job": address.job, "topic": topic, "deleted": False}
        print_result(facts, f"{address.job}: {topic} is deleted already", output)
        return
    places = [(topic, partition) for partition in range(there.partition_count)]
    first, end = beginning_offsets(address.connection, places), end_offsets(address.connection, places)
    size = f"{there.partition_count} partitions, {sum(end[place] - first[place] for place in places)} records at most"
    click.echo(f"to delete: {topic} ({size})", err=True)
    if not yes:
        confirm("Delete it?", f"{topic} stays")
    # The job may have been submitted with the store again, while the question was open.
    _dropped_topic(address, name, topic_id=there.topic_id)
    admin.delete_topic(topic)
    text = f"{address.job}: {topic} is deleted; the name {name} can be used again"
    print_result({"job": address.job, "topic": topic, "deleted": True}, text, output)


def _dropped_topic(address: JobAddress, name: str, topic_id: str | None = None) -> str:
    """The changelog topic of a dropped store.

    Args:
        topic_id: of the topic that is to be deleted.

    Raises:
        RejectedError: the job has the store, or never had it, or the topic is not the one that the job had.
    """
    from samzapy.coordinator.assignment.replanning import recorded_config
    from samzapy.runtime.job_address import never_ran

    state = recorded_state(address)
    config = recorded_config(state)
    if config is None:
        raise never_ran(address.job)
    topic = changelog_topic(address.job, name)
    stores = {store.name for store in config.stores}
    if name in stores:
        raise RejectedError(
            f"--store: wanted a store that {address.job} has dropped, found that its configuration names {name}. Take "
            f"it out of the task and the properties, write stores.{name}.drop=true, and start the job once"
        )
    if topic not in state.own_topics:
        prefix = changelog_topic(address.job, "")
        had = {recorded.removeprefix(prefix) for recorded in state.own_topics if recorded.startswith(prefix)} - stores
        raise RejectedError(
            f"--store: wanted a store that {address.job} has dropped ({', '.join(sorted(had)) or 'none'}), found "
            f"{name!r}"
        )
    if topic_id not in (None, state.own_topics[topic].topic_id):
        raise RejectedError(
            f"wanted the topic {topic} that {address.job} has had (id {state.own_topics[topic].topic_id}), found "
            f"another one of this name (id {topic_id}), which samzapy does not delete; if nothing needs it, delete it "
            "with kafka-topics.sh"
        )
    return topic


def _store_and_serdes(address: JobAddress, name: str) -> tuple[StoreConfig, EntrySerdes]:
    from samzapy.inspection.store_entries import EntrySerdes

    config = _config(address)
    store = _store(config, name)
    return store, EntrySerdes.of(store, config)


def _config(address: JobAddress) -> JobConfig:
    """The recorded configuration, which names the stores and their serdes."""
    from samzapy.coordinator.assignment.replanning import recorded_config
    from samzapy.runtime.job_address import never_ran

    config = recorded_config(recorded_state(address))
    if config is None:
        raise never_ran(address.job)
    return config


def _store(config: JobConfig, name: str) -> StoreConfig:
    store = next((store for store in config.stores if store.name == name), None)
    if store is None:
        names = ", ".join(store.name for store in config.stores) or "none"
        raise ConfigError(f"--store: wanted a store of the job {config.job} ({names}), found {name!r}")
    return store


def _entries(address: JobAddress, store: StoreConfig) -> Iterable[StoreEntry]:
    return (entry for _, entries in _by_partition(address, store) for entry in entries.values())


def _by_partition(address: JobAddress, store: StoreConfig) -> Iterator[tuple[int, Mapping[bytes, StoreEntry]]]:
    from samzapy.adapters.kafka.admin import KafkaAdmin
    from samzapy.adapters.kafka.reading import beginning_offsets, read_to_end
    from samzapy.inspection.store_entries import fold

    topic = changelog_topic(address.job, store.name)
    partitions = range(KafkaAdmin(address.connection).partition_count(topic))
    first = beginning_offsets(address.connection, [(topic, partition) for partition in partitions])
    for partition in partitions:
        records = read_to_end(address.connection, topic, partition, first[topic, partition])
        yield partition, fold(records, store, partition, topic=topic)


def _show(rows: list[dict[str, object]], output: str) -> None:
    if is_json(output):
        print_json(rows, output)
        return
    shown = [{column: _cell(row.get(column, row.get(f"{column}Base64"))) for column in _COLUMNS} for row in rows]
    print_rows(shown, _COLUMNS, numbers=_NUMBERS, nothing="0 entries")


def _cell(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict | list | bool | float) else value
