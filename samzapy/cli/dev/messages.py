"""`samzapy dev produce` and `samzapy dev consume`.

They write and read messages, one per line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import click

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.console import MessageWriter, TopicMessage, read_messages
from samzapy.cli.dev.kafka import directory_option, servers_of
from samzapy.cli.dev.message_lines import json_line, messages_of_json, messages_of_text, text_line
from samzapy.cli.output.columns import Columns
from samzapy.cli.output.option import is_json, output_option, print_json

_COLUMNS = ("partition", "offset", "key", "value")
_servers_option = click.option(
    "--bootstrap-servers", metavar="HOST:PORT", help="Use another cluster [default: the development broker]."
)


@click.command()
@click.argument("topic")
@click.argument("file", type=click.File(errors="surrogateescape", encoding="utf-8"), default="-")
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Choose the line format. text: key, tab, value, or only a value. json: an object with key, value, "
    "headers, partition.",
)
@output_option()
@_servers_option
@directory_option
def produce(
    topic: str, file: Any, form: str, output: str, bootstrap_servers: str | None, directory: Path | None
) -> None:
    """Write each line of FILE (default: standard input) to TOPIC as one message.

    \b
    Example:
      printf 'N14228\\t{"delay": 4}\\n' | samzapy dev produce flights
    """
    connection = KafkaConnection(bootstrap_servers=bootstrap_servers or servers_of(directory))
    writer = MessageWriter(connection, topic)
    try:
        writer.write(messages_of_json(file) if form == "json" else messages_of_text(file))
    finally:
        click.echo(f"{topic}: {writer.count} messages written", err=True)
    if is_json(output):
        print_json({"topic": topic, "messages": writer.count}, output)


@click.command()
@click.argument("topic")
@click.option("-n", "--count", type=click.IntRange(1), help="Stop after this many messages.")
@click.option(
    "--from",
    "begin",
    type=click.Choice(["beginning", "end"]),
    default="beginning",
    show_default=True,
    help="Start at this end of the topic.",
)
@click.option("--follow", is_flag=True, help="Wait for further messages, until Ctrl-C or --count.")
@output_option(("text",))
@_servers_option
@directory_option
def consume(
    topic: str,
    count: int | None,
    begin: str,
    follow: bool,
    output: str,
    bootstrap_servers: str | None,
    directory: Path | None,
) -> None:
    """Print the committed messages of TOPIC, one per line, up to its current end.

    \b
    Example:
      samzapy dev consume flights-by-aircraft --follow -n 10
    """
    connection = KafkaConnection(bootstrap_servers=bootstrap_servers or servers_of(directory))
    messages = read_messages(connection, topic, from_end=begin == "end", follows=follow)
    try:
        _print_messages(islice(messages, count), follow, output)
    except KeyboardInterrupt:
        sys.exit(0)
    except BrokenPipeError:
        # The reader, `head` for instance, has enough; Python would complain at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_messages(messages: Iterable[TopicMessage], follow: bool, output: str) -> None:
    if output not in ("table", "wide"):
        line_of = json_line if is_json(output) else text_line
        for message in messages:
            click.echo(line_of(message))
        return
    columns = Columns(_COLUMNS, right=_COLUMNS[:2], nothing="0 messages")
    if follow:
        # One by one: a write waits for its first 500 rows, whose widths it takes.
        for message in messages:
            columns.write([_cells(message)])
    else:
        columns.write(map(_cells, messages))


def _cells(message: TopicMessage) -> Sequence[str]:
    key, _, value = text_line(message).partition("\t")
    return str(message.partition), str(message.offset), key, value
