"""Streams to audit, as files: what simulated jobs wrote, and what somebody planted among it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

from click.testing import CliRunner, Result

from samzapy.cli.stream.group import stream
from samzapy.cli.stream.task import task
from samzapy.model.topic_checks import Cluster
from samzapy.model.topics import coordinator_spec, coordinator_topic
from samzapy.stream.export import ExportHeader, write_export
from samzapy.stream.horizon import Extent
from samzapy.stream.log import LogRecord
from samzapy.testing.builders import a_config, a_heartbeat, a_submission, a_topic_found
from unit_tests.cli import independent_fold
from unit_tests.coordinator.world import World

JOB = "flights-1"
TOPIC = coordinator_topic(JOB)
MINUTE_MS = 60_000
KNOWN_UNTIL_MS = 2_000_000_000_000


def a_life() -> list[LogRecord]:
    """Processor 0 gets two tasks; another coordinator takes over; the container dies, and processor 1 gets its tasks.

    A minute of the broker's time for each step.
    """
    world = World(config=a_config(job_debounce_time_ms="0", job_processor_grace_ms="5000"))
    service = world.coordinator("ann")

    def step(execution_id: str, processor_id: str, host: str, pid: int) -> None:
        world.topic.now_ms += MINUTE_MS
        world.clock.advance(3_000)
        said = a_heartbeat(
            execution_id,
            processor_id=processor_id,
            host=host,
            pid=pid,
            stream_offset=world.topic.end_offset,
            received_ms=world.clock.monotonic_ms(),
        )
        world.queue.append(said)
        service.run_once(0)
        service.run_once(0)

    world.topic.now_ms = MINUTE_MS
    service.take_office()
    service.submit(a_submission(config=world.config, partition_counts={"kafka.orders": 2}))
    step("e1", "0", "host-a", 7)
    step("e1", "0", "host-a", 7)
    service = world.coordinator("bob")
    world.topic.now_ms += MINUTE_MS
    service.take_office()
    step("e1", "0", "host-a", 7)
    world.alive[7] = False
    for _ in range(8):
        step("e2", "1", "host-b", 8)
    return list(world.log().read())


def a_header(*, whole_from: int = 0, offset_end: int, topic_id: str = "id", **settings: str) -> ExportHeader:
    found = a_topic_found(coordinator_spec(JOB), topic_id=topic_id, settings=settings)
    return ExportHeader(
        topic=TOPIC,
        extent=Extent(whole_from=whole_from, offset_end=offset_end, known_until_ms=KNOWN_UNTIL_MS),
        looked=found,
        cluster=Cluster(bootstrap_servers="localhost:9092", broker_count=1),
    )


def a_file(path: Path, records: Iterable[LogRecord], *, whole_from: int = 0, **settings: str) -> Path:
    """An export of `records`."""
    found = list(records)
    end = found[-1].offset + 1 if found else 0
    with path.open("wb") as out:
        write_export(out, a_header(whole_from=whole_from, offset_end=end, **settings), found)
    return path


def samzapy(*arguments: str) -> Result:
    """`samzapy stream …` or `samzapy task …`; a failure is in `exception`."""
    group = {"stream": stream, "task": task}[arguments[0]]
    return CliRunner().invoke(group, list(arguments[1:]))


def rows_of(result: Result) -> Sequence[dict[str, object]]:
    """The rows of `-o jsonl`."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def check_states(file: Path, count: int, random: Random) -> None:
    """Compare `stream state` with the independent fold at `count` random positions of the history in `file`."""
    records = independent_fold.records_in(file)
    end = records[-1][0] + 1
    for offset in (random.randrange(end) for _ in range(count)):
        result = samzapy("stream", "state", "--from", str(file), "--at", str(offset), "-o", "json")
        assert result.exit_code == 0, result.exception
        shown = json.loads(result.stdout)
        expected = independent_fold.moment(records, offset)
        assert expected == {name: shown[name] for name in expected}, f"{file} at offset {offset}"
