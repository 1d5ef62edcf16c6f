"""The work of `samzapy stream`, apart from its options.

Records are streamed: memory holds the latest value of each key, never the history.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import click

from samzapy.adapters.kafka.reading import PartitionReader
from samzapy.cli.output.columns import Columns
from samzapy.cli.output.option import is_json, print_json, print_json_stream, print_result
from samzapy.cli.output.terminal import printable
from samzapy.cli.stream.source import print_horizon
from samzapy.coordinator.assignment.grants import newest_grants
from samzapy.coordinator.replay import Replayed
from samzapy.coordinator.replay import replay as replayed
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import ConfigError, CorruptRecordError, ExitCode, RejectedError, TemporaryError
from samzapy.inspection.diagnosis import truncation_findings
from samzapy.inspection.invariants import Invariants
from samzapy.inspection.state_at import Difference, differences, moment_json, task_key
from samzapy.model.finding import CODES, Finding, Severity, finding_json
from samzapy.model.topic_checks import check_topic
from samzapy.model.topics import coordinator_spec, coordinator_topic
from samzapy.runtime.job_address import READ_WAIT_S
from samzapy.runtime.stream_source import StreamSource, check_reached, export_to
from samzapy.stream.audit import (
    LATEST_VALUE_ONLY,
    Entry,
    ForeignEntry,
    History,
    UnreadableEntry,
    as_json,
    change_text,
    fields_change_text,
    time_text,
)
from samzapy.stream.codec import RecordHeaders, parse_headers
from samzapy.stream.examination import REMEDIES, Fault, faults_of_coordinator_stream
from samzapy.stream.keys import Namespace
from samzapy.stream.log import LogRecord
from samzapy.stream.numbering import Foreign, place
from samzapy.stream.position import Position, Reading

FOLLOW_EVERY_S = 0.5
REPLAY_COLUMNS = ("offset", "time", "term", "event", "key", "change", "cause", "actor", "note")


def replay_history(source: StreamSource, until: Position | None, follow: bool, prefix: str, output: str) -> None:
    """List the records, as `samzapy stream replay`."""
    if follow and (until is not None or source.connection is None or output == "json"):
        raise ConfigError("wanted --follow of a topic, without --until and -o json; found both: leave one out")
    check_reached(until, source, "--until")
    wanted = None if not prefix else os.fsencode(prefix)
    shown = History(
        source.topic,
        whole_from=source.extent.whole_from,
        wanted=None if wanted is None else lambda key: key.startswith(wanted),
    )
    unreadable = _Unreadable()
    columns = Columns(REPLAY_COLUMNS, right=("offset", "term"), nothing="0 records")
    try:
        for batch in _batches(source, until, follow):
            entries = _count_unreadable(shown.read(batch), unreadable)
            if is_json(output):
                print_json_stream((as_json(entry) for entry in entries), output)
            else:
                columns.write(replay_cells(entry) for entry in entries)
    except KeyboardInterrupt:
        if not follow:
            raise
    if unreadable.first is not None:
        raise CorruptRecordError(
            f"wanted to read all of {source.topic}, found {unreadable.count} record(s) that cannot be read, the first "
            f"at offset {unreadable.first.offset}: {unreadable.first.reason}"
        )


def show_state(source: StreamSource, position: Position | None, output: str) -> None:
    """Show the state at a position, as `samzapy stream state`."""
    check_reached(position, source, "--at")
    reading = Reading(source.records())
    state = replayed(reading.until(position), topic=source.topic).state
    place = _place(reading, source)
    if is_json(output):
        print_json({"topic": source.topic, **place, **moment_json(state)}, output)
    else:
        print_horizon(source, reading)
        _print_state(state, place, source.topic)


def show_differences(source: StreamSource, first: Position, second: Position, output: str) -> None:
    """Show the changes between two positions, as `samzapy stream diff`."""
    check_reached(first, source, "A")
    check_reached(second, source, "B")
    reading = Reading(source.records())
    before = replayed(reading.until(first), topic=source.topic)
    if reading.last is not None and not second.includes(reading.last):
        raise ConfigError(f"wanted A before B, found {first} after {second}: name the earlier one first")
    if not is_json(output):
        print_horizon(source, reading)
    whole = source.is_whole(reading)
    touched: dict[str, LogRecord] = {}
    after = _fold(before, reading.until(second), source.topic, touched)
    rows = [
        _difference_json(difference, _evidence(difference, after.state, touched), latest_only=not whole)
        for difference in differences(before.state, after.state)
    ]
    if not is_json(output):
        names = ("key", "change", "offset", "time", "term", "event", "cause", "actor")
        Columns(names, right=("offset", "term"), nothing="0 differences").write(
            (str(row["key"]), str(row["text"]), *("" if row[name] is None else str(row[name]) for name in names[2:]))
            for row in rows
        )
    else:
        print_json_stream(rows, output)


def export_history(source: StreamSource, file: Path, output: str) -> None:
    """Write the history to a file, as `samzapy stream export`."""
    if file.exists():
        raise RejectedError(f"wanted to write {file}, found that it exists; choose another name, or remove it")
    count = export_to(file, source)
    end, whole_from = source.extent.offset_end, source.extent.whole_from
    facts = {"topic": source.topic, "file": str(file), "records": count, "offsetEnd": end, "wholeFrom": whole_from}
    text = f"{count} records of {source.topic} up to offset {end}, whole from offset {whole_from}"
    print_result(facts, text, output)


def verify_history(source: StreamSource, output: str) -> int:
    """Show the findings, as `samzapy stream verify`; returns the exit code."""
    job = source.topic.removeprefix(coordinator_topic(""))
    policy = [
        *check_topic(coordinator_spec(job), source.looked, source.cluster),
        *truncation_findings({(source.topic, 0): source.offset_first}),
    ]
    severities: set[Severity] = {finding.severity for finding in policy}
    counted = _Counted(source.records())
    faults = faults_of_coordinator_stream(
        counted, topic=source.topic, whole_from=source.extent.whole_from, check=Invariants().check
    )
    rows = _noting_severity([*map(_policy_json, policy)], faults, source.topic, severities)
    if is_json(output):
        print_json_stream(rows, output)
    else:
        names = ("code", "offset", "found", "remedy")
        cells = (tuple("" if row[name] is None else str(row[name]) for name in names) for row in rows)
        # The first row is asked for before the heading, so an orderly stream has none.
        first = next(cells, None)
        if first is None:
            click.echo(f"{counted.count} records, nothing wrong")
        else:
            Columns(names, right=("offset",)).write(chain([first], cells))
    if Severity.DATA in severities:
        return ExitCode.BAD_DATA
    return ExitCode.DEGRADED if severities else 0


def _batches(source: StreamSource, until: Position | None, follow: bool) -> Iterator[Iterable[LogRecord]]:
    """The history, and with `follow` a batch for all new records at each look."""
    reading = Reading(source.records())
    yield reading.until(until)
    if not follow or source.connection is None:
        return
    offset_next = source.offset_first if reading.last is None else reading.last.offset + 1
    with PartitionReader(source.connection, source.topic) as reader:
        while True:
            time.sleep(FOLLOW_EVERY_S)
            try:
                records = list(reader.read_stable(READ_WAIT_S, offset_from=offset_next))
            except TemporaryError as error:
                click.echo(f"samzapy: {error}; asking again", err=True)
                if source.connection.command_wait is not None:
                    source.connection.command_wait.restart()
                continue
            if records:
                offset_next = records[-1].offset + 1
                yield records


class _Counted:
    """Passes records on and counts them."""

    def __init__(self, records: Iterable[LogRecord]) -> None:
        self._records = records
        self.count = 0

    def __iter__(self) -> Iterator[LogRecord]:
        for record in self._records:
            self.count += 1
            yield record


@dataclass(slots=True)
class _Unreadable:
    """The number of unreadable entries, and the first of them."""

    count: int = 0
    first: UnreadableEntry | ForeignEntry | None = None


def _count_unreadable(entries: Iterable[Entry], unreadable: _Unreadable) -> Iterator[Entry]:
    """Pass `entries` on, and count the unreadable ones in `unreadable`."""
    for entry in entries:
        if isinstance(entry, UnreadableEntry) or (isinstance(entry, ForeignEntry) and not entry.is_readable):
            unreadable.count += 1
            unreadable.first = unreadable.first or entry
        yield entry


def replay_cells(entry: Entry) -> tuple[str, ...]:
    where = (str(entry.offset), time_text(entry.timestamp_ms))
    if isinstance(entry, UnreadableEntry):
        return (*where, "", "CANNOT BE READ", entry.key, entry.reason, "", "", "")
    if isinstance(entry, ForeignEntry):
        event = "FOREIGN" if entry.is_readable else "FOREIGN, CANNOT BE READ"
        return (*where, "", event, entry.key, entry.reason, "", "", "")
    note = "" if entry.is_whole else LATEST_VALUE_ONLY
    headers = entry.headers
    if headers is None:
        return (*where, "", entry.event, entry.key, change_text(entry), "", "", note)
    return (*where, str(headers.term), entry.event, entry.key, change_text(entry), headers.cause, headers.actor, note)


def _place(reading: Reading, source: StreamSource) -> Mapping[str, object]:
    last = reading.last
    return {
        "offset": None if last is None else last.offset,
        "time": None if last is None else time_text(last.timestamp_ms),
        "whole_from": source.extent.whole_from,
        "latest_value_only": not source.is_whole(reading),
    }


def _print_state(state: CoordinatorState, place: Mapping[str, object], topic: str) -> None:
    click.echo(
        f"{printable(topic)}  after offset {place['offset']}  {place['time']}  "
        f"term {state.term.term if state.term else '-'}  "
        f"generation {state.generation.generation if state.generation else '-'}  epoch {state.epoch}"
    )
    newest = newest_grants(state)
    rows = []
    for planned in state.plan:
        grant, located = newest.get(planned.task_name), state.task_localities.get(planned.task_name)
        rows.append(
            (
                planned.task_name,
                planned.processor_id,
                "-" if located is None else located.host,
                *(("-", "-", "-") if grant is None else _granted(grant.execution_id, grant.epoch, grant.released)),
                "-" if grant is None else ", ".join(f"{start.ssp_kb}@{start.offset_next}" for start in grant.starts),
            )
        )
    _section(("task", "processor", "state on", "granted to", "epoch", "released", "starts"), rows)
    _section(
        ("container", "processor", "host", "pid", "phase", "reason"),
        [
            (item.execution_id, item.processor_id, item.host, str(item.pid), item.phase.value, item.reason)
            for item in state.containers_sorted
        ],
    )
    records = moment_json(state)["records"]
    assert isinstance(records, Mapping), "of moment_json"
    shown = {Namespace.PLAN, Namespace.CONTAINER, Namespace.TASK_LOCALITY, Namespace.SCHEMA}
    _section(
        ("key", "value"),
        [
            (key, fields_change_text(key, None, fields))
            for namespace, facts in records.items()
            if namespace not in shown
            for key, fields in facts.items()
        ],
    )


def _granted(execution_id: str, epoch: int, released: bool) -> tuple[str, str, str]:
    return execution_id, str(epoch), "released" if released else ""


def _section(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        click.echo()
        Columns(names, right=("epoch", "pid")).write(rows)


def _fold(before: Replayed, records: Iterable[LogRecord], topic: str, touched: dict[str, LogRecord]) -> Replayed:
    """Replay records, and put the newest record of each key into `touched`."""

    def noting() -> Iterator[LogRecord]:
        numbering = before.numbering
        for record in records:
            numbering, headers = place(record, numbering)
            if not isinstance(headers, Foreign):
                touched[(record.key or b"").decode(errors="backslashreplace")] = record
            yield record

    return replayed(noting(), topic=topic, before=before)


def _evidence(difference: Difference, after: CoordinatorState, touched: Mapping[str, LogRecord]) -> LogRecord | None:
    """The last record that made the difference."""
    plan = task_key("")
    if not difference.key.startswith(plan):
        return touched.get(difference.key)
    generation = after.generation_number
    of_task = f"{Namespace.PLAN}/{generation}/task/{difference.key.removeprefix(plan)}"
    # A removed task has no record: the new plan, which lacks it, has removed it.
    return touched.get(of_task) or touched.get(Namespace.GENERATION)


def _difference_json(
    difference: Difference, evidence: LogRecord | None, *, latest_only: bool
) -> Mapping[str, object]:
    headers = None if evidence is None else parse_headers(evidence.headers)
    return {
        "key": difference.key,
        "text": fields_change_text(difference.key, difference.before, difference.after),
        "before": difference.before,
        "after": difference.after,
        "offset": None if evidence is None else evidence.offset,
        "time": None if evidence is None else time_text(evidence.timestamp_ms),
        **_headers_json(headers),
        "latest_value_only": latest_only,
    }


def _headers_json(headers: RecordHeaders | None) -> Mapping[str, object]:
    names = ("term", "event", "cause", "actor")
    return {name: None if headers is None else getattr(headers, name) for name in names}


def _noting_severity(
    first: Sequence[Mapping[str, object]], faults: Iterable[Fault], topic: str, severities: set[Severity]
) -> Iterator[Mapping[str, object]]:
    yield from first
    for fault in faults:
        severities.add(CODES[fault.code])
        finding = Finding(code=fault.code, subject=f"topic {topic}", found=fault.text, remedy=REMEDIES[fault.code])
        yield {**finding_json(finding), "offset": fault.offset}


def _policy_json(finding: Finding) -> Mapping[str, object]:
    return {**finding_json(finding), "offset": None}
