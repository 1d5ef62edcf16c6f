"""`samzapy stream` and `samzapy task explain`, on a history in a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from samzapy.errors import ConfigError, CorruptRecordError, RejectedError
from samzapy.model.container import ContainerPhase
from samzapy.model.container_end import ContainerEnd
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.stream.export import write_export
from samzapy.stream.log import LogRecord
from unit_tests.fixtures.audited_stream import MINUTE_MS, a_file, a_header, a_life, rows_of, samzapy
from unit_tests.fixtures.golden_rows import next_headers

TASK = "SystemStreamPartition_kafka.orders.0"


LIFE = a_life()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return a_file(tmp_path / "life.avro", LIFE)


def offset_of(event: str, number: int = 0) -> int:
    """The offset of `event` on the stream, for the `number`th time."""
    offsets = [record.offset for record in LIFE if dict(record.headers)["event"] == event.encode()]
    return offsets[number]


def replayed(file: Path, *options: str) -> Sequence[dict[str, object]]:
    return rows_of(samzapy("stream", "replay", "--from", str(file), "-o", "jsonl", *options))


def test_a_replay_lists_every_record_or_those_of_one_kind(file: Path) -> None:
    assert [record.offset for record in LIFE] == [row["offset"] for row in replayed(file)]

    grants = replayed(file, "--key", "grant/")

    assert {"TaskGranted", "GrantEnded"} <= {row["event"] for row in grants}
    assert all(str(row["key"]).startswith("grant/") for row in grants)


def test_a_replay_stops_at_the_given_position(file: Path) -> None:
    by_offset = replayed(file, "--until", "12")
    by_time = replayed(file, "--until", "1970-01-01T00:02:00Z")

    assert [record.offset for record in LIFE if record.offset <= 12] == [row["offset"] for row in by_offset]
    assert [record.offset for record in LIFE if record.timestamp_ms <= 2 * MINUTE_MS] == [
        row["offset"] for row in by_time
    ]
    assert len(by_time) < len(LIFE)


def test_records_before_the_horizon_are_marked_as_incomplete(tmp_path: Path) -> None:
    horizon = LIFE[20].offset
    file = a_file(tmp_path / "old.avro", LIFE, whole_from=horizon)

    rows = replayed(file)
    table = samzapy("stream", "replay", "--from", str(file)).stdout.splitlines()[1:]

    assert [row["offset"] < horizon for row in rows] == [row["latest_value_only"] for row in rows]  # type: ignore[operator]
    assert [row["latest_value_only"] for row in rows] == [line.endswith("latest value only") for line in table]
    for command in (("state", "--at"), ("diff", str(LIFE[-1].offset))):
        for at, is_whole in ((horizon - 2, False), (horizon - 1, True)):
            places = [str(at)] if command[1] == "--at" else []
            arguments = [*command, *places] if places else [command[0], str(at), command[1]]
            shown = samzapy("stream", *arguments, "--from", str(file)).stdout
            assert shown.startswith("latest value only") is not is_whole, arguments
    state = json.loads(samzapy("stream", "state", "--from", str(file), "--at", "3", "-o", "json").stdout)
    assert (True, horizon) == (state["latest_value_only"], state["whole_from"])


def test_the_state_at_a_moment_has_the_grants_of_that_moment(file: Path) -> None:
    at = str(offset_of("TaskGranted"))

    state = json.loads(samzapy("stream", "state", "--from", str(file), "--at", at, "-o", "json").stdout)
    table = samzapy("stream", "state", "--from", str(file), "--at", at).stdout

    assert {TASK: "e1"} == state["owners"]
    (granted,) = state["records"]["grant"].values()
    assert [{"ssp_kb": "kafka.orders.0:0/1", "offset_next": 0, "floors": []}] == granted["starts"]
    assert 2 == sum(len(container["tasks"]) for container in state["job_model"]["containers"])
    assert [line for line in table.splitlines() if line.startswith(TASK) and "e1" in line]
    assert "kafka.orders.0:0/1@0" in table


def test_the_state_now_has_the_new_owners(file: Path) -> None:
    state = json.loads(samzapy("stream", "state", "--from", str(file), "-o", "json").stdout)

    assert {"e2"} == set(state["owners"].values())
    assert LIFE[-1].offset == state["offset"]
    assert not state["latest_value_only"]


def test_a_moment_in_the_future_is_refused(file: Path) -> None:
    for arguments in (("state", "--at"), ("replay", "--until")):
        for moment, why in (("99999", "ends at"), ("2999-01-01", "known up to")):
            error = samzapy("stream", *arguments, moment, "--from", str(file)).exception
            assert isinstance(error, RejectedError)
            assert why in str(error)


def test_an_invalid_moment_is_wrong_usage(file: Path) -> None:
    result = samzapy("stream", "state", "--at", "yesterday", "--from", str(file))

    assert 2 == result.exit_code
    assert "2026-03-01T12:00:00" in result.output


def test_a_difference_has_the_record_that_made_it(file: Path) -> None:
    before, after = offset_of("TaskGranted", 1), LIFE[-1].offset

    rows = rows_of(samzapy("stream", "diff", str(before), str(after), "--from", str(file), "-o", "jsonl"))

    of_task = next(row for row in rows if row["key"] == f"plan/task/{TASK}")
    assert "processor_id 0 -> 1" in str(of_task["text"])
    assert "TaskPlanned" == of_task["event"]
    lost = next(row for row in rows if row["key"] == "container/e1")
    assert ("removed", "ContainerForgotten") == (lost["text"], lost["event"])
    assert not [row for row in rows if str(row["key"]).startswith(("schema/", "config/", "plan/1", "plan/2"))]
    assert str(of_task["text"]) in samzapy("stream", "diff", str(before), str(after), "--from", str(file)).stdout


def test_a_moment_does_not_differ_from_itself(file: Path) -> None:
    assert "[]\n" == samzapy("stream", "diff", "30", "30", "--from", str(file), "-o", "json").stdout


def test_the_later_moment_first_is_refused(file: Path) -> None:
    assert isinstance(samzapy("stream", "diff", "30", "20", "--from", str(file)).exception, ConfigError)


def test_a_task_is_explained_with_the_plans_that_moved_it_and_the_records_about_it(file: Path) -> None:
    result = samzapy("task", "explain", TASK, "--from", str(file), "-o", "json")

    assert result.exit_code == 0, result.exception
    output = json.loads(result.stdout)
    assert "1" == output["processor"]
    assert "execution e2 of processor 1 on host-b" in output["runs"]
    moves = [(item["from"], item["to"], item["why"]) for item in output["assignments"]]
    assert [(None, "0"), ("0", "1")] == [move[:2] for move in moves]
    assert moves[0][2].startswith("new")
    assert "processor 0 is gone" in moves[1][2]
    events = [record["event"] for record in output["records"]]
    assert ["TaskPlanned", "TaskGranted", "ContainerLost", "ContainerFenced"] == [
        event
        for event in dict.fromkeys(events)
        if event in ("TaskPlanned", "TaskGranted", "ContainerLost", "ContainerFenced")
    ]
    assert not [record for record in output["records"] if "orders.1" in record["key"]]
    assert "processor 0 is gone" in samzapy("task", "explain", TASK, "--from", str(file)).stdout


def test_a_task_is_explained_with_the_last_end_of_its_container_by_an_error(tmp_path: Path) -> None:
    end = ContainerEnd(
        processor_id=ProcessorId("1"),
        execution_id=ExecutionId("e2"),
        host="host-b",
        exit_code=7,
        error="ValueError",
        message="task failed",
        ended_at_ms=60_000,
    )
    file = a_file(tmp_path / "ended.avro", a_life(end))

    output = json.loads(samzapy("task", "explain", TASK, "--from", str(file), "-o", "json").stdout)
    text = samzapy("task", "explain", TASK, "--from", str(file)).stdout

    assert end.as_json() == output["end"]
    assert f"ended at 1970-01-01T00:01:00.000+00:00: {end}" in " ".join(text.split())


def test_a_task_is_explained_as_of_an_earlier_moment(file: Path) -> None:
    at = str(offset_of("ContainerLost"))

    output = json.loads(samzapy("task", "explain", TASK, "--from", str(file), "--at", at, "-o", "json").stdout)

    assert "0" == output["processor"]
    assert output["runs"].startswith("no owner: it waits until execution e1")


def test_the_reason_of_a_plan_before_the_horizon_is_unknown(tmp_path: Path) -> None:
    file = a_file(tmp_path / "old.avro", LIFE, whole_from=offset_of("GenerationStarted") + 1)

    output = json.loads(samzapy("task", "explain", TASK, "--from", str(file), "-o", "json").stdout)

    assert output["assignments"][0]["why"].startswith("latest value only")
    assert "processor 0 is gone" in output["assignments"][1]["why"]


def test_an_unknown_task_is_refused_with_the_known_ones(file: Path) -> None:
    error = samzapy("task", "explain", "Partition_7", "--from", str(file)).exception

    assert isinstance(error, RejectedError)
    assert TASK in str(error)


def test_an_unreadable_record_stops_a_fold_but_not_a_list(tmp_path: Path) -> None:
    record_headers = tuple(next_headers(LIFE).items())
    broken = LogRecord(offset=LIFE[-1].offset + 1, timestamp_ms=0, key=b"job", value=b"junk", headers=record_headers)
    file = a_file(tmp_path / "broken.avro", [*LIFE, broken])

    for arguments in (("stream", "replay"), ("stream", "state"), ("task", "explain", TASK)):
        result = samzapy(*arguments, "--from", str(file))
        assert isinstance(result.exception, CorruptRecordError)
        assert f"offset {broken.offset}" in str(result.exception)
    assert len(LIFE) + 1 == len(replayed(file))
    assert not samzapy("stream", "replay", "--from", str(file), "--key", "grant/").exception
    at = str(LIFE[-1].offset)
    assert 0 == samzapy("stream", "state", "--from", str(file), "--at", at).exit_code


def test_a_foreign_record_is_listed_without_changing_state_or_explanation(tmp_path: Path) -> None:
    grant = next(record for record in LIFE if (record.key or b"").startswith(b"grant/"))
    end = LIFE[-1].offset + 2
    tombstone = LogRecord(offset=end, timestamp_ms=LIFE[-1].timestamp_ms, key=grant.key, value=None)
    healthy, file = a_file(tmp_path / "healthy.avro", LIFE), a_file(tmp_path / "foreign.avro", [*LIFE, tombstone])

    *_, foreign = replayed(file)
    assert (end, (grant.key or b"").decode()) == (foreign["offset"], foreign["key"])
    assert "found none of them" in str(foreign["foreign"])
    shown = samzapy("stream", "replay", "--from", str(file))
    assert 0 == shown.exit_code
    assert "FOREIGN" in shown.stdout.splitlines()[-1]
    for arguments in (("stream", "state", "-o", "json"), ("task", "explain", TASK, "-o", "json")):
        listings = [json.loads(samzapy(*arguments, "--from", str(path)).stdout) for path in (healthy, file)]
        for listing in listings:
            for place in ("offset", "time", "whole_from", "latest_value_only"):
                listing.pop(place, None)
        assert listings[0] == listings[1]


def test_several_files_are_one_history(tmp_path: Path) -> None:
    """A second file that was made after compaction, and reaches back to offset 25.

    Compaction had removed the records before offset 30.
    """
    first = a_file(tmp_path / "1.avro", [record for record in LIFE if record.offset <= 30])
    second = a_file(tmp_path / "2.avro", [record for record in LIFE if record.offset >= 25], whole_from=30)
    both = tmp_path / "both.avro"

    made = samzapy("stream", "export", str(both), "--from", str(second), "--from", str(first))

    assert made.exit_code == 0, made.exception
    assert replayed(a_file(tmp_path / "all.avro", LIFE)) == replayed(both)
    assert 0 == samzapy("stream", "verify", "--from", str(both)).exit_code


def test_with_a_gap_between_two_files_only_the_later_one_is_whole(tmp_path: Path) -> None:
    first = a_file(tmp_path / "1.avro", [record for record in LIFE if record.offset <= 20])
    second = a_file(tmp_path / "2.avro", [record for record in LIFE if record.offset >= 25], whole_from=30)

    rows = rows_of(samzapy("stream", "replay", "--from", str(first), "--from", str(second), "-o", "jsonl"))

    assert {row["offset"] for row in rows if row["latest_value_only"]} == {
        record.offset for record in LIFE if record.offset <= 20 or 25 <= record.offset < 30
    }


def test_files_of_two_topics_are_no_history(tmp_path: Path, file: Path) -> None:
    other = tmp_path / "other.avro"
    with other.open("wb") as out:
        write_export(out, a_header(offset_end=1, topic_id="made again"), LIFE[:1])

    error = samzapy("stream", "replay", "--from", str(file), "--from", str(other)).exception

    assert isinstance(error, CorruptRecordError)
    assert "made again" in str(error)


def test_a_file_that_was_cut_short_is_never_a_short_history(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    for length in range(0, len(whole), 97):
        cut = tmp_path / "cut.avro"
        cut.write_bytes(whole[:length])

        result = samzapy("stream", "replay", "--from", str(cut), "-o", "jsonl")

        assert isinstance(result.exception, CorruptRecordError), length
        assert 8 == result.exception.exit_code


def test_no_change_of_a_byte_makes_a_reader_fail_in_another_way(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    for place in range(0, len(whole), 41):
        changed = tmp_path / "changed.avro"
        changed.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])

        error = samzapy("stream", "replay", "--from", str(changed), "-o", "jsonl").exception

        assert error is None or isinstance(error, CorruptRecordError), (place, repr(error))


def test_a_file_of_another_schema_is_not_decoded(tmp_path: Path) -> None:
    import fastavro

    other = tmp_path / "other.avro"
    with other.open("wb") as out:
        fastavro.writer(
            out,
            {"type": "array", "items": {"type": "record", "name": "Nothing", "fields": []}},
            [[{}] * 3],
            metadata={"samzapy.format": "samzapy-stream-1"},
        )

    assert isinstance(samzapy("stream", "state", "--from", str(other)).exception, CorruptRecordError)


def test_a_file_that_is_there_is_not_overwritten(file: Path, tmp_path: Path) -> None:
    before = file.read_bytes()

    assert isinstance(samzapy("stream", "export", str(file), "--from", str(file)).exception, RejectedError)
    assert before == file.read_bytes()
    assert isinstance(
        samzapy("stream", "export", str(tmp_path / "no" / "x.avro"), "--from", str(file)).exception, ConfigError
    )
    assert [file] == list(tmp_path.iterdir())


def test_a_file_that_is_not_there_and_a_job_beside_a_file_are_refused(file: Path) -> None:
    for arguments in (["--from", "nowhere.avro"], ["--from", str(file), "--job", "flights-1"], []):
        assert isinstance(samzapy("stream", "state", *arguments).exception, ConfigError)


def test_follow_of_a_file_is_refused(file: Path) -> None:
    assert isinstance(samzapy("stream", "replay", "--follow", "--from", str(file)).exception, ConfigError)


def test_a_lost_container_is_shown_in_the_state_of_that_moment(file: Path) -> None:
    at = str(offset_of("ContainerLost"))

    state = json.loads(samzapy("stream", "state", "--from", str(file), "--at", at, "-o", "json").stdout)

    assert ContainerPhase.LOST == state["records"]["container"]["container/e1"]["phase"]
