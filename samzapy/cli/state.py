"""`samzapy state`: the entries of a store, from its changelog.

Read-only. It asks no container, so it works also while the job is stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import click

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.reading import beginning_offsets, read_to_end
from samzapy.cli.output.option import output_option
from samzapy.cli.output.table import print_rows
from samzapy.cli.target.address import of_a_job
from samzapy.cli.target.requests import recorded_state
from samzapy.config import JobConfig, StoreConfig
from samzapy.coordinator.assignment.replanning import recorded_config
from samzapy.errors import ConfigError, RejectedError
from samzapy.inspection.store_entries import EntrySerdes, StoreEntry, fold, in_order
from samzapy.model.serde import SerdeError
from samzapy.model.topics import changelog_topic
from samzapy.runtime.job_address import JobAddress, never_ran

_COLUMNS = ("key", "name", "value", "partition", "offset")
_NUMBERS = ("partition", "offset")
_store_option = click.option("--store", "name", required=True, metavar="NAME", help="Read this store.")


@click.group()
def state() -> None:
    """Read the entries of a store from its changelog."""


@state.command()
@of_a_job
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
    store, serdes = _store_and_serdes(address, name)
    try:
        owner = serdes.key_bytes(key)
    except SerdeError as error:
        raise ConfigError(f"--key: {error}") from error
    rows = [serdes.as_json(entry) for entry in in_order(_entries(address, store)) if entry.owner == owner]
    if not rows:
        raise RejectedError(f"wanted an entry of store {name} under key {key!r}, found none")
    _show(rows, output)


@state.command()
@of_a_job
@_store_option
@click.option(
    "--limit", type=click.IntRange(min=0), default=100, show_default=True, help="Show so many entries; 0: all."
)
@output_option(("table", "json", "jsonl"))
def scan(address: JobAddress, name: str, limit: int, output: str) -> None:
    """Show the entries of a store in the order of their keys.

    The whole changelog is read, and all keys are held in memory.

    \b
    Example:
      samzapy state scan --job flight-delays-1 --bootstrap-servers localhost:9092 --store delays
    """
    store, serdes = _store_and_serdes(address, name)
    entries = in_order(_entries(address, store))
    rows = (serdes.as_json(entry) for entry in islice(entries, limit or None))
    if output == "jsonl":
        for row in rows:
            click.echo(json.dumps(row))
    else:
        _show(list(rows), output)
    if limit and len(entries) > limit:
        click.echo(f"samzapy: {len(entries) - limit} more entries; --limit 0 shows all", err=True)


@state.command()
@of_a_job
@click.option("--store", "name", metavar="NAME", help="Count this store only.")
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
    if output == "json":
        click.echo(json.dumps(rows, indent=2))
    else:
        print_rows(rows, ("store", "partition", "entries", "bytes"), numbers=("partition", "entries", "bytes"))


def _store_and_serdes(address: JobAddress, name: str) -> tuple[StoreConfig, EntrySerdes]:
    config = _config(address)
    store = _store(config, name)
    return store, EntrySerdes.of(store, config.key_serde(config.inputs[0]))


def _config(address: JobAddress) -> JobConfig:
    """The recorded configuration, which names the stores and their serdes."""
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
    topic = changelog_topic(address.job, store.name)
    partitions = range(KafkaAdmin(address.connection).partition_count(topic))
    first = beginning_offsets(address.connection, [(topic, partition) for partition in partitions])
    for partition in partitions:
        records = read_to_end(address.connection, topic, partition, first[topic, partition])
        yield partition, fold(records, store, partition, topic=topic)


def _show(rows: list[dict[str, object]], output: str) -> None:
    if output == "json":
        click.echo(json.dumps(rows, indent=2))
        return
    shown = [{column: _cell(row.get(column, row.get(f"{column}Base64"))) for column in _COLUMNS} for row in rows]
    print_rows(shown, _COLUMNS, numbers=_NUMBERS)


def _cell(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict | list | bool | float) else value
