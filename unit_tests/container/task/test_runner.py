from __future__ import annotations

import asyncio
import hashlib
import json
import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from samzapy.config import JobConfig
from samzapy.container.task.changelog_mark import mark_of
from samzapy.container.task.measures import KEYS_EVERY
from samzapy.container.task.record_size import record_bytes
from samzapy.container.task.stores import Store
from samzapy.container.task.topic_limits import TopicLimits
from samzapy.container.task.user_errors import TRACEBACK_CHARS_MAX
from samzapy.container.task.work_plan import Report, ReportKind
from samzapy.errors import (
    DamagedStateError,
    DeadlineError,
    FencedError,
    LocalStateError,
    LostContainerError,
    ProducerError,
    SlowMessageError,
    UndeliveredError,
)
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.store_size import StoreSize
from samzapy.model.topics import changelog_topic, checkpoint_topic
from samzapy.stream.changelog import changelog_key, task_entry_key
from samzapy.task import LoadedTask
from samzapy.testing.memory.local_state import MemoryLocalTransaction
from samzapy.testing.memory.process import Crash, CrashAt
from unit_tests.fixtures.container_worlds import SSP_KB, TASK, AWorker, a_job, a_plan, a_position, rows, sum_up

DEAD_LETTERS = {"task_error_policy": "dead-letter", "task_dead_letter_output": "dead"}


def failing_at(offset: int, error: BaseException) -> Any:
    """`sum_up`, that fails at one message after it has sent and written."""

    def process(envelope: Any, collector: Any, context: Any) -> None:
        sum_up(envelope, collector, context)
        context.store("sums").put("half", "done")
        context.store("sums").delete("half")
        if envelope.offset == offset:
            raise error

    return process


# --- one transaction ---


def test_outputs_state_and_checkpoint_of_a_batch_are_committed_together() -> None:
    worker = AWorker()

    report = worker.run(rows(("a", 1), ("b", 2)), rows(("a", 3), first=2))

    assert [
        (b"a", {"offset": 0, "total": 1}),
        (b"b", {"offset": 1, "total": 2}),
        (b"a", {"offset": 2, "total": 4}),
    ] == worker.outputs()
    assert {changelog_key(b"a", b""): b"4", changelog_key(b"b", b""): b"2"} == worker.sums
    assert [(SSP_KB, 3, 1, TASK, "e1")] == [
        (checkpoint.ssp_kb, checkpoint.offset_next, checkpoint.epoch, checkpoint.task_name, checkpoint.execution_id)
        for checkpoint in worker.checkpoints()
    ]
    assert Report(
        kind=ReportKind.COMMITTED, route=0, offset_next=3, records_in=3, records_out=3, dead_letters=0, commits=1
    ) == replace(report, measured=None)


def test_the_local_position_moves_with_the_transaction() -> None:
    worker = AWorker()
    worker.environment.contents.position = a_position(offsets_next={str(SSP_KB): 0, "kafka.other.0:0/1": 9})

    worker.run(rows(("a", 1), ("b", 2)))

    # Two changelog records precede the transaction's marker.
    assert (
        a_position(
            offsets_next={str(SSP_KB): 2, "kafka.other.0:0/1": 9},
            changelog_next={"sums": 2},
            changelog_last={"sums": mark_of(1, *worker.changelog()[-1])},
            caught_up_at_ms=77,
        )
        == worker.environment.position
    )


def test_the_order_of_effects_is_lease_open_begin_lease_kafka_local_clean() -> None:
    worker = AWorker()

    worker.run(rows(("a", 1)))

    assert [
        "lease",
        "open",
        "begin",
        "produce totals",
        f"produce {changelog_topic('flights-1', 'sums')}",
        f"produce {checkpoint_topic('flights-1')}",
        "flush",
        "lease",
        "commit",
        "local commit",
        "clean",
    ] == worker.trace


def test_the_checkpoint_is_the_last_record_of_each_transaction() -> None:
    worker = AWorker(bytes_max=0)

    worker.run(rows(("a", 1), ("b", 2)))

    produced = [effect for effect in worker.trace if effect.startswith("produce") or effect == "flush"]
    checkpoint = f"produce {checkpoint_topic('flights-1')}"
    assert [checkpoint, checkpoint] == [
        produced[index - 1] for index, effect in enumerate(produced) if effect == "flush"
    ]


def test_no_rows_are_no_transaction() -> None:
    worker = AWorker()

    assert [] == worker.run_routes(rows())

    assert [] == worker.trace


def test_of_several_writes_to_one_key_the_changelog_takes_the_last_one_per_transaction() -> None:
    worker = AWorker()

    worker.run(rows(*[("a", 1)] * 5))
    worker.run(rows(*[("a", 1)] * 5, first=5))

    assert [(changelog_key(b"a", b""), b"5"), (changelog_key(b"a", b""), b"10")] == worker.changelog()


def test_a_removed_entry_is_a_tombstone_on_the_changelog_and_gone_from_the_local_store() -> None:
    def process(envelope: Any, collector: Any, context: Any) -> None:
        store = context.store("sums")
        store.delete() if envelope.value == "remove" else store.put(envelope.value)
        collector.send("totals", store.get())

    worker = AWorker(process)
    worker.run(rows(("a", 1), ("b", 2)))

    worker.run(rows(("a", "remove"), first=2))

    assert (changelog_key(b"a", b""), None) == worker.changelog()[-1]
    assert {changelog_key(b"b", b""): b"2"} == worker.sums
    assert (None, None) == worker.outputs()[-1]


def test_entries_belong_to_the_message_s_key_and_their_name() -> None:
    def process(envelope: Any, collector: Any, context: Any) -> None:
        store = context.store("sums")
        store.put((store.get("n") or 0) + 1, "n")
        store.put("unnamed")
        collector.send("totals", store.get("n"))

    worker = AWorker(process)

    worker.run(rows(("a", 0), ("b", 0), ("a", 0)))

    assert [1, 1, 2] == [value for _, value in worker.outputs()]
    assert {
        changelog_key(b"a", b"n"): b"2",
        changelog_key(b"a", b""): b'"unnamed"',
        changelog_key(b"b", b"n"): b"1",
        changelog_key(b"b", b""): b'"unnamed"',
    } == worker.sums


def test_a_store_shows_the_writes_of_earlier_transactions_and_messages() -> None:
    worker = AWorker()
    worker.environment.contents.entries["sums", changelog_key(b"a", b"")] = b"100"

    worker.run(rows(("a", 1), ("a", 2)))

    assert [101, 103] == [value["total"] for _, value in worker.outputs()]


def test_the_writes_of_an_aborted_run_do_not_show_in_the_next() -> None:
    worker = AWorker()
    worker.slot.producer().commit_fails = "unknown-aborted"
    with pytest.raises(ProducerError):
        worker.run(rows(("a", 1)))

    worker.run(rows(("a", 1)))

    assert [1] == [value["total"] for _, value in worker.outputs()]


# --- arguments and results ---


def test_a_message_arrives_decoded_and_unchanged() -> None:
    seen: list[Any] = []
    worker = AWorker(lambda envelope, collector, context: seen.append((envelope, context)))

    worker.run(rows(("ä", {"n": 1}), offsets=[7], headers=[[("h", b"1"), ("h", None)]]))

    ((envelope, context),) = seen
    assert ("kafka.orders.0", 7, "ä", {"n": 1}) == (str(envelope.ssp), envelope.offset, envelope.key, envelope.value)
    assert ("ä".encode(), b'{"n": 1}', 1000) == (envelope.key_bytes, envelope.value_bytes, envelope.timestamp_ms)
    assert (("h", b"1"), ("h", None)) == envelope.headers
    assert (TASK, 0) == (context.task_name, context.partition_id)
    assert "flights" == context.config["job.name"]


def test_tombstones_empty_values_and_missing_headers_arrive_unchanged() -> None:
    seen: list[Any] = []
    worker = AWorker(
        lambda envelope, collector, context: seen.append((envelope.key, envelope.value, envelope.headers)),
        config=a_job(systems_kafka_samza_msg_serde="bytes"),
    )

    worker.run(rows(("a", None), ("", b""), (None, b"x"), headers=[None, [], [("h", b"")]]))

    assert [("a", None, ()), ("", b"", ()), (None, b"x", (("h", b""),))] == seen


def test_after_a_transaction_ended_amid_rows_the_next_begins_with_the_right_message_and_headers() -> None:
    seen: list[Any] = []
    worker = AWorker(
        lambda envelope, collector, context: (
            seen.append((envelope.offset, envelope.key, envelope.value, envelope.timestamp_ms, envelope.headers)),
            collector.send("totals", envelope.value),
        ),
        bytes_max=0,
    )

    report = worker.run(rows(("a", 1), ("b", 2), ("c", 3), offsets=[4, 6, 9], headers=[None, [("h", b"1")], None]))

    assert [
        (4, "a", 1, 1000, ()),
        (6, "b", 2, 1001, (("h", b"1"),)),
        (9, "c", 3, 1002, ()),
    ] == seen
    assert (3, 10) == (report.commits, report.offset_next)


def test_equal_messages_are_handled_one_by_one() -> None:
    seen: set[Any] = set()
    worker = AWorker(lambda envelope, collector, context: seen.add(envelope))

    worker.run(rows(("a", 1)))
    worker.run(rows(("a", 1), first=1))

    first, second = sorted(seen, key=lambda envelope: envelope.offset)
    assert first == first and first != second
    assert "IncomingMessageEnvelope(kafka.orders.0@0, key='a')" == repr(first)


def test_an_output_keeps_its_topic_partition_headers_and_time() -> None:
    def process(envelope: Any, collector: Any, context: Any) -> None:
        collector.send("kafka.totals", None, "k", partition=3, headers={"h": b"1"}, timestamp_ms=5)
        collector.send("totals", 1)

    worker = AWorker(process)

    worker.run(rows(("a", 1)))

    (record,) = worker.kafka.committed("totals", 3)
    assert (b"k", None, 5, (("h", b"1"),)) == (record.key, record.value, record.timestamp_ms, record.headers)
    assert [(None, 1)] == worker.outputs()


def test_each_output_stream_has_its_own_serdes() -> None:
    config = a_job(
        systems_kafka_streams_texts_samza_msg_serde="string", systems_kafka_streams_texts_samza_key_serde="bytes"
    )

    worker = AWorker(lambda envelope, collector, context: collector.send("texts", "plain", b"\xff"), config=config)
    worker.run(rows(("a", 1)))

    assert [(b"\xff", b"plain")] == [(record.key, record.value) for record in worker.kafka.committed("texts")]


def test_init_and_close_of_the_instance_are_called_once() -> None:
    calls: list[str] = []
    task = LoadedTask(
        process=lambda *_: None,
        init=lambda context: calls.append(context.task_name),
        close=lambda: calls.append("closed"),
    )

    AWorker(task=task).runner.close()

    assert [TASK, "closed"] == calls


@pytest.mark.parametrize("error", [ConnectionError("the cache is gone"), SystemExit("the cache is gone")])
@pytest.mark.parametrize("policy", [{}, DEAD_LETTERS])
def test_a_failing_close_is_logged_with_the_task_and_fails_nothing_else(
    error: BaseException, policy: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    def close() -> None:
        raise error

    task = LoadedTask(process=sum_up, init=None, close=close)
    AWorker(task=task, config=a_job(**policy)).runner.close()

    (message,) = [record.getMessage() for record in caplog.records]
    assert f"task {TASK} failed in close: {type(error).__name__}: the cache is gone\nTraceback" in message
    assert "runner.py" not in message.replace("test_runner.py", "")


def test_an_instance_that_fails_at_its_beginning_fails_the_task_and_no_message() -> None:
    def init(context: Any) -> None:
        raise ConnectionError("no database")

    worker = AWorker(task=LoadedTask(process=sum_up, init=init, close=None), config=a_job(**DEAD_LETTERS))

    report = worker.run(rows(("a", 1)))

    assert ReportKind.TASK_FAILED is report.kind
    assert report.error.startswith(f"task {TASK} failed in init: ConnectionError: no database\nTraceback")
    assert ([], []) == (worker.outputs(), worker.kafka.committed("dead"))


def test_an_instance_that_cannot_be_made_fails_the_task_by_name() -> None:
    def new_task() -> LoadedTask:
        raise KeyError("DATABASE_URL")

    worker = AWorker(new_task=new_task, config=a_job(**DEAD_LETTERS))

    report = worker.run(rows(("a", 1)))

    assert ReportKind.TASK_FAILED is report.kind
    assert report.error.startswith(f"task {TASK} failed in init: KeyError: 'DATABASE_URL'\nTraceback")
    assert ([], []) == (worker.outputs(), worker.kafka.committed("dead"))
    worker.runner.close()


# --- costs ---


def test_a_report_has_the_time_of_handling_and_committing() -> None:
    worker = AWorker(bytes_max=0)

    def process(envelope: Any, collector: Any, context: Any) -> None:
        sum_up(envelope, collector, context)
        worker.now_s += 0.5

    worker.process = process
    worker.slot.producer().while_flushing = lambda: setattr(worker, "now_s", worker.now_s + 2.0)

    measured = worker.run(rows(("a", 1), ("b", 2))).measured

    assert measured is not None
    assert (2, 4_000_000_000) == (measured.transactions, measured.commit_ns)
    assert 1_000_000_000 == measured.process_ns
    assert 5_000_000_000 == measured.busy_ns
    assert worker.environment.bytes_on_disk() == measured.disk_bytes > 0


def test_a_report_has_the_sizes_of_the_stores_at_the_last_commit() -> None:
    worker = AWorker(bytes_max=0)

    measured = worker.run(rows(("a", 1), ("b", 2), ("a", 3))).measured

    assert measured is not None
    bytes_used = sum(len(key) + len(value) for key, value in worker.sums.items())
    assert {"sums": StoreSize(bytes_used=bytes_used, entries=2)} == measured.stores


def test_a_report_without_a_commit_has_no_sizes_of_stores() -> None:
    """Another worker may have changed them since this one's last commit."""
    worker = AWorker()
    worker.run(rows(("a", 1)))

    reports = worker.runner.run([], worker.slot)

    assert all(not report.measured.stores for report in reports if report.measured is not None)
    assert {} == worker.runner._transactions.take_sizes()


def test_a_report_has_the_time_of_the_first_call_of_each_kind_of_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = AWorker()
    get, write = MemoryLocalTransaction.get, Store._write

    def slow_get(transaction: Any, store: str, key: bytes) -> bytes | None:
        worker.now_s += 0.5
        return get(transaction, store, key)

    def slow_write(store: Any, key: bytes, raw: bytes | None) -> None:
        worker.now_s += 0.125 if raw is None else 0.25
        write(store, key, raw)

    monkeypatch.setattr(MemoryLocalTransaction, "get", slow_get)
    monkeypatch.setattr(Store, "_write", slow_write)

    def process(envelope: Any, collector: Any, context: Any) -> None:
        store = context.store("sums")
        for name in ("x", "y"):
            store.get(name)
            store.put(1, name)
            store.delete(name)

    worker.process = process

    measured = worker.run(rows(("a", 1), ("b", 2))).measured

    assert measured is not None
    assert (1, 500_000_000) == (measured.gets_timed, measured.get_ns)
    assert (1, 250_000_000) == (measured.puts_timed, measured.put_ns)
    assert (1, 125_000_000) == (measured.deletes_timed, measured.delete_ns)


def test_waiting_for_rows_makes_a_task_no_busier() -> None:
    worker = AWorker()

    def coming() -> Any:
        yield rows(("a", 1))
        worker.now_s += 3.0
        yield rows(("a", 1), first=1)

    (report,) = worker.runner.run(coming(), worker.slot)

    assert report.measured is not None
    assert (3_000_000_000, 0) == (report.measured.input_ns, report.measured.busy_ns)


def test_only_the_first_report_of_a_task_has_its_cost() -> None:
    other = SspKeyBucket.parse("kafka.zones.0:0/1")
    worker = AWorker(plan=a_plan(a_job(), ssp_kbs=(SSP_KB, other)))

    first, second = worker.run_routes(rows(("a", 1)), rows(("a", 1), route=1))

    assert first.measured is not None and 1 == first.measured.transactions
    assert second.measured is None


def test_each_run_reports_its_own_cost() -> None:
    worker = AWorker()

    measurements = [worker.run(rows(("a", 1), first=number)).measured for number in range(3)]

    assert [1, 1, 1] == [measured.transactions for measured in measurements if measured is not None]


def test_rows_that_were_done_already_are_counted_as_skipped() -> None:
    worker = AWorker()
    worker.environment.contents.position = a_position(offsets_next={str(SSP_KB): 2})

    report = worker.run(rows(*[("a", 1)] * 5))

    assert report.measured is not None
    assert (3, 2) == (report.records_in, report.measured.skipped)


def test_of_a_store_the_first_call_of_each_kind_in_each_chunk_is_timed() -> None:
    worker = AWorker()

    def process(envelope: Any, collector: Any, context: Any) -> None:
        store = context.store("sums")
        store.get()
        store.put(1)
        store.delete("half")

    worker.process = process

    one = worker.run(rows(*[("a", 1)] * 5)).measured
    three = worker.run(*(rows(*[("a", 1)] * 5, first=first) for first in (5, 10, 15))).measured

    for measured, timed in ((one, 1), (three, 3)):
        assert measured is not None
        assert (timed,) * 3 == (measured.gets_timed, measured.puts_timed, measured.deletes_timed)


def test_a_timed_store_behaves_as_an_untimed_one() -> None:
    kept: list[Any] = []

    def process(envelope: Any, collector: Any, context: Any) -> None:
        store = context.store("sums")
        # Kept while it is the one that is timed.
        kept.append(store.get)
        store.put((kept[0]("n") or 0) + 1, name="n")

    worker = AWorker(process)
    for number in range(3):
        worker.run(rows(*[("a", 1)] * 3, first=3 * number))

    assert {changelog_key(b"a", b"n"): b"9"} == worker.sums


def test_the_frames_of_a_timed_call_are_not_shown_to_the_user() -> None:
    def process(envelope: Any, collector: Any, context: Any) -> None:
        context.store("sums").put(object())

    report = AWorker(process).run(rows(("a", 1)))

    assert ReportKind.TASK_FAILED is report.kind
    assert "not JSON serializable" in report.error
    assert "measures.py" not in report.error


def test_the_busiest_key_is_among_the_sampled_ones() -> None:
    worker = AWorker(lambda *_: None)
    messages = [("hot" if number % 3 else f"k{number}", 1) for number in range(100 * KEYS_EVERY)]

    measured = worker.run(rows(*messages)).measured

    assert measured is not None
    assert 100 == measured.keys.sampled
    key, share = measured.keys.busiest() or ("", 0.0)
    assert "hot" == key
    assert 0.5 < share <= 0.7


# --- a message is all or nothing ---


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), RecursionError()])
def test_a_failed_message_leaves_nothing_but_its_dead_letter(error: BaseException) -> None:
    worker = AWorker(failing_at(1, error), config=a_job(**DEAD_LETTERS))

    report = worker.run(rows(("a", 1), ("a", 10), ("a", 100)))

    assert [1, 101] == [value["total"] for _, value in worker.outputs()]
    assert b"101" == worker.sums[changelog_key(b"a", b"")]
    assert [3] == [checkpoint.offset_next for checkpoint in worker.checkpoints()]
    assert (3, 2, 1) == (report.records_in, report.records_out, report.dead_letters)


def test_rolling_a_message_back_restores_each_entry() -> None:
    def process(envelope: Any, collector: Any, context: Any) -> None:
        store = context.store("sums")
        if envelope.value == "fail":
            store.put("new", "never there")
            store.put("changed", "kept")
            store.put("changed twice", "kept")
            store.delete("removed")
            store.put("again", "removed")
            store.delete("in the local store")
            raise ValueError
        store.put("first", "kept")
        store.put("first", "removed")

    worker = AWorker(process, config=a_job(**DEAD_LETTERS))
    worker.environment.contents.entries["sums", changelog_key(b"a", b"in the local store")] = b'"old"'

    worker.run(rows(("a", 1), ("a", "fail")))

    assert {
        changelog_key(b"a", b"kept"): b'"first"',
        changelog_key(b"a", b"removed"): b'"first"',
        changelog_key(b"a", b"in the local store"): b'"old"',
    } == worker.sums
    assert sorted(worker.changelog()) == [
        (changelog_key(b"a", b"kept"), b'"first"'),
        (changelog_key(b"a", b"removed"), b'"first"'),
    ]


def test_a_dead_letter_has_the_unchanged_message_its_place_and_the_reason() -> None:
    worker = AWorker(failing_at(0, ValueError("no such plane")), config=a_job(**DEAD_LETTERS))
    worker.wall_ms = 1000

    worker.run(rows(("a", {"n": 1})))

    (letter,) = worker.kafka.committed("dead")
    headers = dict(letter.headers)
    assert (b"a", b'{"n": 1}', 1000) == (letter.key, letter.value, letter.timestamp_ms)
    assert "timestamp" not in headers
    assert (TASK.encode(), b"kafka.orders.0", b"0") == (headers["task"], headers["ssp"], headers["offset"])


def test_the_dead_letter_of_a_message_from_the_future_has_the_time_of_now_and_a_header_with_its_own() -> None:
    """A broker refuses a timestamp an hour ahead (KIP-1030).

    A job whose dead letter is refused is stalled.
    """
    worker = AWorker(failing_at(0, ValueError("no such plane")), config=a_job(**DEAD_LETTERS))
    worker.wall_ms = 999

    worker.run(rows(("a", {"n": 1})))

    (letter,) = worker.kafka.committed("dead")
    assert (999, b"1000") == (letter.timestamp_ms, dict(letter.headers)["timestamp"])


def test_the_dead_letter_of_a_message_too_old_for_its_topic_has_the_time_of_now_and_a_header_with_its_own() -> None:
    worker = AWorker(failing_at(0, ValueError("no such plane")), config=a_job(**DEAD_LETTERS))
    worker.wall_ms = 9_000
    worker.kafka.topic_limits["dead"] = TopicLimits(batch_bytes_max=1_048_588, timestamp_behind_max_ms=7_000)

    worker.run(rows(("a", {"n": 1})))

    (letter,) = worker.kafka.committed("dead")
    assert (9_000, b"1000") == (letter.timestamp_ms, dict(letter.headers)["timestamp"])


def test_a_dead_letter_without_a_key_gets_one_where_its_topic_is_compacted() -> None:
    worker = AWorker(failing_at(0, ValueError("no such plane")), config=a_job(**DEAD_LETTERS))
    worker.kafka.topic_limits["dead"] = TopicLimits(batch_bytes_max=1_048_588, wants_keys=True)

    assert 1 == worker.run(rows((None, {"n": 1}))).dead_letters

    (letter,) = worker.kafka.committed("dead")
    assert b"kafka.orders.0@0" == letter.key
    assert b"the topic is compacted and wants one" == dict(letter.headers)["no.key"]


def test_a_dead_letter_carries_the_error_and_the_end_of_a_long_traceback() -> None:
    worker = AWorker(failing_at(0, ValueError("\ud800" + "x" * 50_000)), config=a_job(**DEAD_LETTERS))

    worker.run(rows(("a", 1)))

    (letter,) = worker.kafka.committed("dead")
    headers = dict(letter.headers)
    assert headers["error"] is not None and headers["error"].startswith(b"ValueError: ?xxx")
    assert headers["traceback"] is not None and len(headers["traceback"]) <= TRACEBACK_CHARS_MAX
    # The frames stay: it is the error's text that is cut.
    assert b"in failing_at" in headers["traceback"] or b"in process" in headers["traceback"]
    assert b"[cut, whole length 50013 characters, sha256 " in headers["error"]


def test_under_policy_fail_nothing_of_the_transaction_stays_and_the_report_names_the_message() -> None:
    worker = AWorker(failing_at(1, ValueError("no such plane")))

    report = worker.run(rows(("a", 1), ("b", 2), ("c", 3)))

    assert ReportKind.TASK_FAILED is report.kind
    assert report.error.startswith(
        f"task {TASK} failed at kafka.orders.0 offset 1, key b'b': ValueError: no such plane\nTraceback"
    )
    assert ([], [], {}) == (worker.outputs(), worker.checkpoints(), worker.sums)
    assert ["abort", "clean"] == worker.trace[-2:]


def test_under_policy_fail_earlier_transactions_stay() -> None:
    worker = AWorker(failing_at(1, ValueError("no")), bytes_max=0)

    report = worker.run(rows(("a", 1), ("b", 2)))

    assert [1] == [checkpoint.offset_next for checkpoint in worker.checkpoints()]
    assert (1, 1, 1) == (report.commits, report.offset_next, report.records_in)


def test_after_a_failed_message_the_environment_can_begin_a_transaction_again() -> None:
    worker = AWorker(failing_at(0, ValueError("no")))

    worker.run(rows(("a", 1)))

    worker.environment.begin().abort()


def test_a_sick_disk_fails_the_batch_and_makes_no_dead_letter_of_a_good_message() -> None:
    worker = AWorker(failing_at(0, LocalStateError("the disk")), config=a_job(**DEAD_LETTERS))

    with pytest.raises(LocalStateError):
        worker.run(rows(("a", 1)))

    assert [] == worker.kafka.values("dead")


def test_damaged_state_commits_nothing_also_where_the_task_caught_the_error() -> None:
    def process(envelope: Any, collector: Any, context: Any) -> None:
        with suppress(Exception):
            context.store("sums").get()
        collector.send("totals", 1, key=envelope.key)

    worker = AWorker(process, config=a_job(**DEAD_LETTERS))
    worker.environment.damaged_keys.add(changelog_key(b"b", b""))

    with pytest.raises(DamagedStateError):
        worker.run(rows(("a", 1), ("b", 1), ("c", 1)))

    with pytest.raises(DeadlineError, match="an open transaction from offset 0 on"):
        worker.outputs()
    assert "open" == worker.slot.state


def test_an_owner_that_is_no_more_makes_no_dead_letter_of_a_good_message(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = AWorker(config=a_job(**DEAD_LETTERS))

    def answer(topic: str) -> int | None:
        raise FencedError("a newer owner has the transactional id")

    monkeypatch.setattr(worker.slot.producer(), "partition_count", answer)

    with pytest.raises(FencedError):
        worker.run(rows(("a", 1)))

    assert "produce dead" not in worker.trace


def test_an_interrupted_process_is_no_failed_message() -> None:
    """The interrupt is identified by its signal, and not by the class of the error."""
    for error in (KeyboardInterrupt(), ValueError("the code that was interrupted raised this")):
        worker = AWorker(config=a_job(**DEAD_LETTERS))

        def process(*_: Any, worker: AWorker = worker, error: BaseException = error) -> None:
            worker.is_interrupted = True
            raise error

        worker.process = process

        with pytest.raises(type(error)):
            worker.run(rows(("a", 1)))

        assert "open" == worker.slot.state
        worker.environment.begin().abort()


class PanicException(BaseException):
    """As extension modules in Rust raise it."""


class TextRaises(Exception):
    def __str__(self) -> str:
        raise PanicException("no text")


class TextIsANumber(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


class DirRaises(AttributeError):
    """`traceback` looks at the object for names that are near."""

    def __init__(self) -> None:
        super().__init__("no x", name="x", obj=_DirRaises())


class _DirRaises:
    def __dir__(self) -> Any:
        raise PanicException("no names")


RAISED = [
    (asyncio.CancelledError(), "CancelledError"),
    (PanicException("called unwrap on None"), "PanicException: called unwrap on None"),
    (GeneratorExit(), "GeneratorExit"),
    (KeyboardInterrupt(), "KeyboardInterrupt"),
    (StopIteration(), "StopIteration"),
    (MemoryError(), "MemoryError"),
    (BaseExceptionGroup("two", [ValueError("1"), PanicException("2")]), "BaseExceptionGroup: two (2 sub-exceptions)"),
    (TextRaises(), "TextRaises: <its text cannot be made: PanicException in __str__>"),
    (TextIsANumber(), "TextIsANumber: <its text cannot be made: TypeError in __str__>"),
    (DirRaises(), "DirRaises: no x"),
]


@pytest.mark.parametrize(("error", "text"), RAISED, ids=lambda given: type(given).__name__)
def test_any_exception_of_process_is_a_failed_message(error: BaseException, text: str) -> None:
    dead_letters = AWorker(failing_at(1, error), config=a_job(**DEAD_LETTERS))
    failing = AWorker(failing_at(1, error))
    messages = rows(("a", 1), ("b", 2), ("c", 3))

    done, failed = dead_letters.run(messages), failing.run(messages)

    assert (3, 2, 1) == (done.records_in, done.records_out, done.dead_letters)
    (letter,) = dead_letters.kafka.committed("dead")
    assert text.encode() == dict(letter.headers)["error"]
    assert ReportKind.TASK_FAILED is failed.kind
    assert failed.error.startswith(f"task {TASK} failed at kafka.orders.0 offset 1, key b'b': {text}\n")


@pytest.mark.parametrize(("error", "text"), RAISED, ids=lambda given: type(given).__name__)
def test_any_exception_of_init_fails_the_task_with_its_name(error: BaseException, text: str) -> None:
    def init(context: Any) -> None:
        raise error

    worker = AWorker(task=LoadedTask(process=sum_up, init=init, close=None), config=a_job(**DEAD_LETTERS))

    report = worker.run(rows(("a", 1)))

    assert ReportKind.TASK_FAILED is report.kind
    assert report.error.startswith(f"task {TASK} failed in init: {text}\n")


@pytest.mark.parametrize(("error", "text"), RAISED, ids=lambda given: type(given).__name__)
def test_any_exception_of_close_is_logged_and_stops_nothing(
    error: BaseException, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    def close() -> None:
        raise error

    worker = AWorker(task=LoadedTask(process=sum_up, init=None, close=close))
    worker.run(rows(("a", 1)))

    worker.runner.close()

    assert f"task {TASK} failed in close: {text}" in caplog.text


def test_a_report_stays_short_with_any_key_and_error() -> None:
    worker = AWorker(failing_at(0, ValueError("x" * 600_000)))

    report = worker.run(rows(("k" * 900_000, 1)))

    assert len(report.error) < 25_000
    assert "[cut, whole length 900000 bytes" in report.error


@pytest.mark.parametrize(
    ("process", "message", "complaint"),
    [
        (sum_up, (None, 1), "store sums: wanted a message with a key, found one without"),
        (sum_up, ("a", b"{"), "SerdeError: serde json: "),
        (lambda e, collector, x: collector.send("totals", {1, 2}), ("a", 1), "SerdeError: serde json: "),
        (lambda e, collector, x: collector.send("totals", 1, b"k"), ("a", 1), "SerdeError: serde string: "),
        (lambda e, c, context: context.store("sums").put(None), ("a", 1), "use delete() to remove an entry"),
        (lambda e, c, context: context.store("sums").put({1}), ("a", 1), "SerdeError: serde json: "),
        (lambda e, c, context: context.store("sums").put(1, 7), ("a", 1), "SerdeError: serde string: "),
    ],
)
def test_a_call_that_samzapy_refuses_fails_only_its_message(
    process: Any, message: tuple[str | None, Any], complaint: str
) -> None:
    dead_letters, failing = AWorker(process, config=a_job(**DEAD_LETTERS)), AWorker(process)

    dead = dead_letters.run(rows(message))
    failed = failing.run(rows(message))

    assert (1, 1, []) == (dead.commits, dead.dead_letters, dead_letters.outputs())
    assert re.search(re.escape(complaint), failed.error)


def missing_import(envelope: Any, collector: Any, context: Any) -> None:
    import no_such_module_at_all  # type: ignore[import-not-found]  # noqa: F401


def missing_name(envelope: Any, collector: Any, context: Any) -> None:
    no_such_name  # type: ignore[name-defined]  # noqa: B018, F821


def without_a_value(envelope: Any, collector: Any, context: Any) -> None:
    if envelope.offset:
        value = envelope.value
    collector.send("totals", value)


@pytest.mark.parametrize("policy", [{}, DEAD_LETTERS], ids=["fail", "dead-letter"])
@pytest.mark.parametrize(
    ("process", "complaint"),
    [
        (
            lambda e, collector, x: collector.send("", 1),
            "UndeclaredError: wanted an output stream of the job's cluster",
        ),
        (lambda e, c, x: c.send("elsewhere.out", 1), "UndeclaredError: wanted an output stream of the job's cluster"),
        (lambda e, c, context: context.store("seen"), "UndeclaredError: wanted store 'seen', found sums; declare it"),
        (
            lambda e, c, context: context.intermediate("by-n"),
            "UndeclaredError: wanted the intermediate stream 'by-n'",
        ),
        (missing_import, "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        (missing_name, "NameError: name 'no_such_name' is not defined"),
    ],
)
def test_a_mistake_of_the_job_s_fails_no_message_and_ends_the_job_under_every_policy(
    process: Any, complaint: str, policy: dict[str, str]
) -> None:
    properties = {**policy, "systems_elsewhere_bootstrap_servers": "other:9092"}
    worker = AWorker(process, config=a_job(**properties))

    report = worker.run(rows(("a", 1)))

    assert ReportKind.TASK_FAILED is report.kind
    assert f"failed at kafka.orders.0 offset 0, key b'a': {complaint}" in report.error
    assert [] == worker.kafka.committed("dead")


def test_a_local_variable_without_a_value_fails_the_message_alone() -> None:
    worker = AWorker(without_a_value, config=a_job(**DEAD_LETTERS))

    report = worker.run(rows(("a", 1), ("a", 2)))

    assert (1, 1) == (report.dead_letters, report.records_out)


@pytest.mark.parametrize(
    ("bound", "window", "ends_at"),
    [("100%", 10, 9), ("50%", 10, 8), ("3", 10, 4), ("4", 5, None), ("1", 1, 0), ("1%", 10, 0)],
)
def test_a_job_most_of_whose_messages_fail_ends(bound: str, window: int, ends_at: int | None) -> None:
    """The even ones of the messages 0, 1, 2, ... fail; all with a bound of 100 %."""

    def process(envelope: Any, collector: Any, context: Any) -> None:
        if bound == "100%" or envelope.offset % 2 == 0:
            raise ValueError("no such plane")

    settings = {"task_dead_letter_max": bound, "task_dead_letter_window": str(window)}
    worker = AWorker(process, config=a_job(**DEAD_LETTERS, **settings))

    reports = [worker.run(rows(("a", 1), first=number)) for number in range(30 if ends_at is None else ends_at + 1)]

    failed = [number for number, report in enumerate(reports) if report.kind is ReportKind.TASK_FAILED]
    assert ([] if ends_at is None else [ends_at]) == failed
    if ends_at is not None:
        assert f"offset {ends_at}, key b'a': ValueError: no such plane\nwanted fewer than" in reports[-1].error
        assert f"(task.dead.letter.max={bound}, task.dead.letter.window={window})" in reports[-1].error


def test_good_messages_between_them_keep_a_job_with_dead_letters_alive() -> None:
    settings = {"task_dead_letter_max": "100%", "task_dead_letter_window": "10"}
    worker = AWorker(failing_at(9, ValueError()), config=a_job(**DEAD_LETTERS, **settings))
    worker.process = lambda envelope, collector, context: None if envelope.offset % 10 == 9 else 1 // 0

    report = worker.run(rows(*[("a", 1)] * 100))

    assert (ReportKind.COMMITTED, 90) == (report.kind, report.dead_letters)


def to(partition: int) -> Any:
    return lambda e, collector, x: collector.send("totals", 1, partition=partition)


def test_a_partition_that_an_output_does_not_have_fails_the_message_alone() -> None:
    dead_letters, failing = AWorker(to(4), config=a_job(**DEAD_LETTERS)), AWorker(to(4))

    assert 1 == dead_letters.run(rows(("a", 1))).dead_letters
    assert "an output to totals: wanted a partition below 4, found 4" in failing.run(rows(("a", 1))).error
    assert 1 == AWorker(to(3)).run(rows(("a", 1))).records_out


def test_an_output_topic_that_is_not_there_fails_the_task_and_makes_no_dead_letters() -> None:
    """Also when the first message that sends to it has failed for another reason."""
    worker = AWorker(sum_up, config=a_job(**DEAD_LETTERS))
    worker.kafka.absent.add("totals")

    report = worker.run(rows((None, 1), ("a", 1)))

    assert ReportKind.TASK_FAILED is report.kind
    assert (
        "offset 1, key b'a': wanted the topic totals for its outputs, found no such topic; create it" in report.error
    )
    assert ([], []) == (worker.outputs(), worker.kafka.committed("dead"))


SMALL_BATCHES = {"systems_kafka_client_batch_size": "2000"}
HELD = 2_000 - 1_024
"""The size that a topic with max.message.bytes 2000 takes of key, value and headers."""


def sends(length: int, **how: Any) -> Any:
    """A JSON text of `length` bytes for each message, without a key."""
    return lambda e, collector, x: collector.send("totals", "x" * (length - 2), **how)


@pytest.mark.parametrize("sent_before", [0, 1])
def test_an_output_that_its_topic_does_not_take_fails_the_message_alone_by_name(sent_before: int) -> None:
    """The first output to a topic is checked after `process`, the next ones in `send`."""

    def process(envelope: Any, collector: Any, context: Any) -> None:
        sends(10 if envelope.offset < sent_before else HELD + 1)(envelope, collector, context)

    dead_letters = AWorker(process, config=a_job(**DEAD_LETTERS, **SMALL_BATCHES))
    failing = AWorker(process, config=a_job(**SMALL_BATCHES))
    for worker in (dead_letters, failing):
        worker.kafka.topic_limits["totals"] = TopicLimits(batch_bytes_max=2_000)
    messages = [("a", 1)] * (sent_before + 1)

    assert 1 == dead_letters.run(rows(*messages)).dead_letters
    assert (
        f"failed at kafka.orders.0 offset {sent_before}, key b'a': TaskError: an output to totals: wanted at most "
        f"{HELD} bytes of key, value and headers, found {HELD + 1}; make it smaller, or raise max.message.bytes"
    ) in failing.run(rows(*messages)).error


def test_headers_count_towards_the_size_and_a_fitting_record_is_sent() -> None:
    config = a_job(**SMALL_BATCHES)
    fits, does_not = AWorker(sends(HELD), config=config), AWorker(sends(HELD, headers={"h": b""}), config=config)
    for worker in (fits, does_not):
        worker.kafka.topic_limits["totals"] = TopicLimits(batch_bytes_max=2_000)

    assert 1 == fits.run(rows(("a", 1))).records_out
    assert f"found {HELD + 11}" in does_not.run(rows(("a", 1))).error


def test_a_topic_whose_limits_we_may_not_read_has_the_default_limits() -> None:
    worker = AWorker(sends(1_000_000))
    worker.kafka.topic_limits["totals"] = None

    assert 1 == worker.run(rows(("a", 1))).records_out


@pytest.mark.parametrize("topic", ["totals", "dead"])
def test_a_topic_that_takes_no_batch_as_large_as_producers_send_is_named_under_every_policy(topic: str) -> None:
    def process(envelope: Any, collector: Any, context: Any) -> None:
        collector.send("totals", 1)
        if topic == "dead":
            raise ValueError("to the dead letters")

    worker = AWorker(process, config=a_job(**DEAD_LETTERS))
    worker.kafka.topic_limits[topic] = TopicLimits(batch_bytes_max=500_000)

    report = worker.run(rows(("a", 1)))

    assert ReportKind.TASK_FAILED is report.kind
    assert (
        f"wanted the topic {topic} to take batches of 1000000 bytes, found max.message.bytes 500000; raise it, or set "
        "systems.kafka.client.batch.size to at most that"
    ) in report.error
    assert [] == worker.kafka.committed("dead")


def test_a_dead_letter_that_is_too_large_for_its_topic_is_cut() -> None:
    def process(envelope: Any, collector: Any, context: Any) -> None:
        raise ValueError("bad")

    worker = AWorker(process, config=a_job(**DEAD_LETTERS, **SMALL_BATCHES))
    worker.kafka.topic_limits["dead"] = TopicLimits(batch_bytes_max=2_000)
    value = json.dumps("x" * 1_000).encode()

    report = worker.run(rows(("a", "x" * 1_000)))

    assert 1 == report.dead_letters
    (letter,) = worker.kafka.committed("dead")
    assert letter.value and value.startswith(letter.value)
    assert record_bytes(letter.key, letter.value, letter.headers) <= HELD
    digest = hashlib.sha256(value).hexdigest()
    assert f"cut, whole length 1002 bytes, sha256 {digest}".encode() == dict(letter.headers)["cut.value"]


def test_a_long_error_is_cut_and_not_the_message() -> None:
    def process(envelope: Any, collector: Any, context: Any) -> None:
        raise ValueError(f"cannot handle {envelope.value_bytes!r}")

    worker = AWorker(process, config=a_job(**DEAD_LETTERS))
    value = json.dumps("x" * 1_000_000).encode()

    assert 1 == worker.run(rows(("a", value))).dead_letters

    assert [value] == worker.kafka.values("dead")


@pytest.mark.parametrize("sent_before", [0, 1])
@pytest.mark.parametrize(
    ("how", "refused"),
    [
        ({"key": None}, "wanted a key, because the topic is compacted"),
        ({"timestamp_ms": 4_000_000}, "wanted a timestamp_ms at most 5000 ms ahead of the clock, found 4000000"),
        ({"timestamp_ms": 1}, "wanted a timestamp_ms at most 2000 ms behind the clock, found 1, which is 899999"),
    ],
)
def test_an_output_that_its_topic_s_settings_refuse_fails_the_message_alone_by_name(
    how: dict[str, Any], refused: str, sent_before: int
) -> None:
    """The broker would refuse it too, but only with the whole transaction."""

    def process(envelope: Any, collector: Any, context: Any) -> None:
        collector.send("totals", 1, **{"key": "k"} | (how if envelope.offset >= sent_before else {}))

    limits = TopicLimits(
        batch_bytes_max=1_048_588, wants_keys=True, timestamp_behind_max_ms=2_000, timestamp_ahead_max_ms=5_000
    )
    messages = [("a", 1)] * (sent_before + 1)
    dead_letters, failing = AWorker(process, config=a_job(**DEAD_LETTERS)), AWorker(process)
    for worker in (dead_letters, failing):
        worker.wall_ms = 900_000
        worker.kafka.topic_limits["totals"] = limits

    assert 1 == dead_letters.run(rows(*messages)).dead_letters
    assert (
        f"offset {sent_before}, key b'a': TaskError: an output to totals: {refused}"
        in failing.run(rows(*messages)).error
    )


def test_limits_are_read_again_before_an_output_is_refused() -> None:
    def process(envelope: Any, collector: Any, context: Any) -> None:
        if envelope.offset == 1:
            worker.kafka.topic_limits["totals"] = TopicLimits(batch_bytes_max=1_048_588)
        collector.send("totals", 1)

    worker = AWorker(process, config=a_job(**DEAD_LETTERS))
    worker.kafka.topic_limits["totals"] = TopicLimits(batch_bytes_max=1_048_588, wants_keys=True)

    report = worker.run(rows(("a", 1), ("a", 2), ("a", 3)))

    assert (1, 2) == (report.dead_letters, len(worker.kafka.committed("totals")))


def test_an_output_of_another_cluster_is_refused() -> None:
    config = a_job(systems_other_bootstrap_servers="h:1")
    worker = AWorker(lambda e, collector, x: collector.send("other.totals", 1), config=config)

    assert (
        "wanted an output stream of the job's cluster (kafka.orders), found 'other.totals'"
        in worker.run(rows(("a", 1))).error
    )


def test_a_message_without_a_key_may_use_everything_but_a_keyed_store() -> None:
    worker = AWorker(lambda envelope, collector, context: collector.send("totals", envelope.value))

    worker.run(rows((None, 1)))

    assert [(None, 1)] == worker.outputs()


# --- several inputs ---

OTHER = SspKeyBucket.parse("kafka.refunds.0:0/1")
RULES = SspKeyBucket.parse(f"kafka.rules.0@{TASK}")


def a_worker_of(
    *ssp_kbs: SspKeyBucket, process: Any = sum_up, config: JobConfig | None = None, **given: Any
) -> AWorker:
    config = config or a_job()
    return AWorker(process, config=config, plan=a_plan(config, ssp_kbs=ssp_kbs), **given)


def test_a_task_s_inputs_share_a_transaction_its_state_and_nothing_of_their_positions() -> None:
    worker = a_worker_of(SSP_KB, OTHER)

    reports = worker.run_routes(rows(("a", 1), ("a", 2)), rows(("a", 10), first=7, route=1))

    assert [1, 3, 13] == [value["total"] for _, value in worker.outputs()]
    assert 1 == worker.trace.count("commit")
    assert [(SSP_KB, 2), (OTHER, 8)] == [
        (checkpoint.ssp_kb, checkpoint.offset_next) for checkpoint in worker.checkpoints()
    ]
    assert [(0, 2, 2, 1, 2), (1, 1, 1, 1, 8)] == [
        (report.route, report.records_in, report.records_out, report.commits, report.offset_next)
        for report in reports
    ]
    assert worker.environment.contents.position is not None
    assert {str(SSP_KB): 2, str(OTHER): 8} == worker.environment.contents.position.offsets_next


def test_handled_rows_are_skipped_by_the_offset_of_each_input() -> None:
    worker = a_worker_of(SSP_KB, OTHER)
    worker.environment.contents.position = a_position(offsets_next={str(SSP_KB): 2, str(OTHER): 1})

    worker.run_routes(rows(("a", 1), ("a", 2)), rows(("a", 10), ("a", 20), route=1))

    assert [20] == [value["total"] for _, value in worker.outputs()]
    assert [(SSP_KB, 2), (OTHER, 2)] == [
        (checkpoint.ssp_kb, checkpoint.offset_next) for checkpoint in worker.checkpoints()
    ]


def test_a_transaction_moves_the_inputs_whose_rows_it_had_and_no_others() -> None:
    worker = a_worker_of(SSP_KB, OTHER, bytes_max=0)

    reports = worker.run_routes(rows(("a", 1), ("a", 2)), rows(("a", 10), route=1))

    assert [(SSP_KB, 1), (SSP_KB, 2), (OTHER, 1)] == [
        (checkpoint.ssp_kb, checkpoint.offset_next) for checkpoint in worker.checkpoints()
    ]
    assert [2, 1] == [report.commits for report in reports]
    assert worker.environment.contents.position is not None
    assert {str(SSP_KB): 2, str(OTHER): 1} == worker.environment.contents.position.offsets_next


def test_a_failure_in_one_input_takes_the_open_transaction_and_not_the_ones_before() -> None:
    worker = a_worker_of(SSP_KB, OTHER, bytes_max=0)

    def process(envelope: Any, collector: Any, context: Any) -> None:
        if envelope.ssp == OTHER.ssp:
            raise ValueError("no refunds")
        sum_up(envelope, collector, context)

    worker.process = process
    reports = worker.run_routes(rows(("a", 1), ("a", 2)), rows(("a", 10), route=1))

    assert [(0, ReportKind.COMMITTED, 2), (1, ReportKind.TASK_FAILED, 0)] == [
        (report.route, report.kind, report.commits) for report in reports
    ]
    assert f"task {TASK} failed at kafka.refunds.0 offset 0, key b'a': ValueError: no refunds" in reports[1].error


def test_a_failure_in_an_input_with_earlier_commits_is_reported_once() -> None:
    worker = AWorker(bytes_max=0)

    report = worker.run(rows(("a", 1), ("a", "two")))

    assert (ReportKind.TASK_FAILED, 1) == (report.kind, report.commits)


def test_a_dead_letter_names_the_input_of_its_message() -> None:
    worker = a_worker_of(SSP_KB, OTHER, config=a_job(**DEAD_LETTERS))

    worker.run_routes(rows(("a", 1)), rows(("a", "ten"), route=1))

    (dead,) = worker.kafka.committed("dead")
    assert b"kafka.refunds.0" == dict(dead.headers)["ssp"]


def test_a_keyed_store_is_refused_while_a_broadcast_message_is_handled_and_only_then() -> None:
    worker = a_worker_of(RULES, SSP_KB, config=a_job(**DEAD_LETTERS))

    worker.run_routes(rows(("a", 1)), rows(("a", 2), route=1))

    (dead,) = worker.kafka.committed("dead")
    assert b"store sums: wanted a message of an input of the task's own, found one of a broadcast input" in (
        dict(dead.headers)["error"] or b""
    )
    assert [2] == [value["total"] for _, value in worker.outputs()]


def count_rules(envelope: Any, collector: Any, context: Any) -> None:
    """Count broadcast messages, and send the count along with each own message."""
    rules = context.store("rules")
    if envelope.ssp == RULES.ssp or envelope.value == "mine":
        rules.put((rules.get() or 0) + 1)
        rules.put(envelope.key, name="last")
    else:
        collector.send("totals", {"rules": rules.get(), "last": rules.get("last")}, key=envelope.key)


OF_ALL = {"stores_rules_msg_serde": "json", "stores_rules_scope": "broadcast", "task_broadcast_inputs": "kafka.rules"}


def test_a_store_of_scope_broadcast_is_written_by_broadcast_messages_and_read_by_all_with_a_key_or_without() -> None:
    worker = a_worker_of(RULES, SSP_KB, process=count_rules, config=a_job(**OF_ALL))

    worker.run_routes(rows(("q", 1), ("r", 2)), rows(("a", 1), (None, 1), route=1))

    assert [{"rules": 2, "last": "r"}] * 2 == [value for _, value in worker.outputs()]
    assert {task_entry_key(TASK, b""): b"2", task_entry_key(TASK, b"last"): b'"r"'} == worker.environment.values(
        "rules"
    )
    assert sorted(worker.environment.values("rules").items()) == sorted(worker.changelog("rules"))


def test_a_store_of_scope_broadcast_is_not_written_by_a_message_of_the_task_s_own() -> None:
    worker = a_worker_of(RULES, SSP_KB, process=count_rules, config=a_job(**OF_ALL, **DEAD_LETTERS))

    worker.run_routes(rows(("a", "mine"), ("a", 1), route=1))

    (dead,) = worker.kafka.committed("dead")
    assert b"store rules: wanted a message of a broadcast input, found one of the task's own" in (
        dict(dead.headers)["error"] or b""
    )
    assert [{"rules": None, "last": None}] == [value for _, value in worker.outputs()]


def test_a_store_of_scope_task_is_the_same_for_every_message() -> None:
    worker = a_worker_of(RULES, SSP_KB, process=count_rules, config=a_job(**{**OF_ALL, "stores_rules_scope": "task"}))

    worker.run_routes(rows(("r", 1)), rows(("a", "mine"), ("b", 1), route=1))

    assert [{"rules": 2, "last": "a"}] == [value for _, value in worker.outputs()]


def test_a_position_in_a_broadcast_input_is_the_task_s() -> None:
    worker = a_worker_of(RULES, process=lambda envelope, collector, context: None)

    worker.run_routes(rows(("a", 1), (None, 2)))

    (record,) = worker.kafka.committed(checkpoint_topic(worker.config.job))
    assert f"checkpoint/kafka.rules.0@{TASK}".encode() == record.key


# --- several transactions ---


def test_a_transaction_is_closed_when_it_holds_more_than_the_allowed_bytes() -> None:
    one_message = len(b"a" + json.dumps({"offset": 0, "total": 1}, separators=(",", ":")).encode()) + len(
        changelog_key(b"a", b"") + b"1"
    )
    worker = AWorker(bytes_max=2 * one_message)

    report = worker.run(rows(*[("a", 1)] * 7))

    assert [3, 6, 7] == [checkpoint.offset_next for checkpoint in worker.checkpoints()]
    assert (3, 7) == (report.commits, report.records_in)


def test_a_transaction_is_closed_when_its_time_is_over() -> None:
    worker = AWorker(duration_max_s=5.0)

    def process(envelope: Any, collector: Any, context: Any) -> None:
        worker.now_s += 2.0

    worker.process = process
    worker.run(rows(*[("a", 1)] * 4), rows(("a", 1), first=4))

    assert [3, 5] == [checkpoint.offset_next for checkpoint in worker.checkpoints()]


def test_a_transaction_that_is_full_at_the_end_of_a_chunk_is_closed_before_the_next_chunk() -> None:
    worker = AWorker(bytes_max=0)

    worker.run(rows(("a", 1)), rows(("a", 1), first=1))

    assert [1, 2] == [checkpoint.offset_next for checkpoint in worker.checkpoints()]


def test_the_next_transaction_sees_the_commits_of_the_one_before() -> None:
    worker = AWorker(bytes_max=0)

    worker.run(rows(("a", 1), ("a", 2), ("a", 3)))

    assert [1, 3, 6] == [value["total"] for _, value in worker.outputs()]


def a_worker_with_a_slow_message(at: int, took_s: float, noticed: str = "commit", **config: str) -> AWorker:
    """A message takes so long that the broker ends its transaction after 20 s.

    The message at offset `at` takes so long, the ones before it take 2 s each. The end is noticed when the next record
    is produced, or at the commit.
    """
    worker = AWorker(config=a_job(task_transaction_timeout_ms="20000", **config))
    producer = worker.slot.producer()

    def end() -> None:
        worker.kafka.init(producer.transactional_id)

    def process(envelope: Any, collector: Any, context: Any) -> None:
        sum_up(envelope, collector, context)
        worker.now_s += took_s if envelope.offset == at else 2.0
        if envelope.offset == at and noticed == "commit":
            producer.while_flushing = end
        elif envelope.offset == at:
            end()

    worker.process = process
    return worker


@pytest.mark.parametrize("noticed", ["produce", "commit"])
def test_a_message_that_takes_longer_than_its_transaction_may_be_open_is_named(noticed: str) -> None:
    worker = a_worker_with_a_slow_message(1, took_s=19.0, noticed=noticed)

    with pytest.raises(SlowMessageError) as slow:
        worker.run(rows(("a", 1), ("a", 2), ("a", 3)))

    assert (
        f"task {TASK} failed at kafka.orders.0 offset 1, key b'a': wanted it handled and committed within "
        "task.transaction.timeout.ms (20000), found it to take 19000 ms, with its transaction open for 21000 ms, which "
        "the broker had ended meanwhile; let the task take less time, or raise task.transaction.timeout.ms"
    ) == str(slow.value)
    assert isinstance(slow.value.__cause__, FencedError)
    assert ([], {}, "open") == (worker.outputs(), worker.sums, worker.slot.state)
    worker.environment.begin().abort()


@pytest.mark.parametrize(
    ("took_s", "waited_s"),
    [(17.0, 0.0), (9.0, 20.0)],
    ids=["the time was not over", "most of it was spent elsewhere"],
)
def test_a_message_that_was_quick_enough_is_not_to_blame_for_a_transaction_that_failed(
    took_s: float, waited_s: float
) -> None:
    worker = a_worker_with_a_slow_message(1, took_s, noticed="commit")
    handle = worker.process

    def process(envelope: Any, collector: Any, context: Any) -> None:
        handle(envelope, collector, context)
        producer, end = worker.slot.producer(), worker.slot.producer().while_flushing

        def wait() -> None:
            worker.now_s += waited_s
            end()

        producer.while_flushing = wait

    worker.process = process

    with pytest.raises(FencedError):
        worker.run(rows(("a", 1), ("a", 2)))


def test_brokers_that_were_away_are_no_slow_message_s_fault() -> None:
    worker = AWorker()

    def process(envelope: Any, collector: Any, context: Any) -> None:
        worker.now_s += 30.0

    def time_out() -> None:
        raise UndeliveredError("wanted all records written within 20 s")

    worker.process = process
    worker.slot.producer().while_flushing = time_out

    with pytest.raises(UndeliveredError):
        worker.run(rows(("a", 1)))


def test_a_slow_message_of_a_container_whose_lease_ran_out_is_not_to_blame() -> None:
    worker = a_worker_with_a_slow_message(1, took_s=19.0)
    # One before the transaction, one before its commit.
    worker.slot.lease_checks = 2

    with pytest.raises(LostContainerError):
        worker.run(rows(("a", 1), ("a", 2)))


@pytest.mark.parametrize("policy", [{}, DEAD_LETTERS])
def test_many_short_messages_may_take_longer_than_a_transaction_may_be_open(policy: dict[str, str]) -> None:
    worker = a_worker_with_a_slow_message(-1, took_s=0.0, **policy)

    report = worker.run(rows(*[("a", 1)] * 50))

    assert worker.now_s > 5 * 19.0
    assert (50, 17) == (report.records_in, report.commits)


def test_a_slow_message_that_fails_is_reported_with_its_own_error() -> None:
    worker = a_worker_with_a_slow_message(1, took_s=19.0, noticed="produce")
    before = worker.process

    def process(envelope: Any, collector: Any, context: Any) -> None:
        before(envelope, collector, context)
        if envelope.offset == 1:
            raise TimeoutError("nobody answered for 19 s")

    worker.process = process

    report = worker.run(rows(("a", 1), ("a", 2)))

    assert ReportKind.TASK_FAILED is report.kind
    assert "kafka.orders.0 offset 1, key b'a': TimeoutError: nobody answered for 19 s" in report.error
    # Its open transaction is ended by the process that ends the container.
    assert ([], {}, "open") == (worker.outputs(), worker.sums, worker.slot.state)
    worker.environment.begin().abort()


# --- messages below the next offset are done ---


def test_messages_below_the_next_offset_are_skipped() -> None:
    worker = AWorker()
    worker.environment.contents.position = a_position(offsets_next={str(SSP_KB): 2})

    report = worker.run(rows(("a", 1), ("a", 1), ("a", 1), ("a", 1)))

    assert [2, 3] == [value["offset"] for _, value in worker.outputs()]
    assert (2, 4) == (report.records_in, report.offset_next)


def test_a_batch_of_nothing_new_never_moves_the_checkpoint_back() -> None:
    worker = AWorker()
    worker.environment.contents.position = a_position(offsets_next={str(SSP_KB): 10})

    worker.run(rows(("a", 1), ("a", 1)))

    assert [10] == [checkpoint.offset_next for checkpoint in worker.checkpoints()]
    assert [] == worker.outputs()


def test_the_same_batch_a_second_time_does_nothing_a_second_time() -> None:
    worker = AWorker()
    batch = rows(("a", 1), ("a", 2))
    worker.run(batch)

    worker.run(batch)

    assert [1, 3] == [value["total"] for _, value in worker.outputs()]


def test_gaps_between_offsets_are_no_matter() -> None:
    worker = AWorker()

    report = worker.run(rows(("a", 1), ("a", 2), offsets=[5, 90]))

    assert 91 == report.offset_next


# --- which workers may work ---


@pytest.mark.parametrize("left", [a_position(execution_id="e2"), a_position(epoch=2), None])
def test_a_worker_stops_at_the_local_state_of_another_execution_or_epoch(left: Any) -> None:
    worker = AWorker()
    worker.environment.contents.position = left

    with pytest.raises(LostContainerError, match="another execution works in this directory"):
        worker.run(rows(("a", 1)))

    assert ("open", {}) == (worker.slot.state, worker.sums)
    worker.environment.begin().abort()


def test_no_transaction_begins_without_a_lease() -> None:
    worker = AWorker()
    worker.slot.lease_checks = 0

    with pytest.raises(LostContainerError):
        worker.run(rows(("a", 1)))

    assert (["lease"], "clean") == (worker.trace, worker.slot.state)


def test_nothing_is_committed_when_the_lease_ran_out_meanwhile() -> None:
    worker = AWorker()
    worker.slot.lease_checks = 1

    with pytest.raises(LostContainerError):
        worker.run(rows(("a", 1)))

    assert "commit" not in worker.trace and "local commit" not in worker.trace
    assert "open" == worker.slot.state


def test_a_fenced_producer_commits_nothing_here_or_there() -> None:
    worker = AWorker()
    producer = worker.slot.producer()

    def process(envelope: Any, collector: Any, context: Any) -> None:
        sum_up(envelope, collector, context)
        worker.kafka.init(producer.transactional_id)

    worker.process = process

    with pytest.raises(FencedError):
        worker.run(rows(("a", 1)))

    assert ([], {}, "open") == (worker.outputs(), worker.sums, worker.slot.state)


@pytest.mark.parametrize("outcome", ["unknown-committed", "unknown-aborted"])
def test_a_commit_of_unknown_outcome_commits_nothing_locally_and_leaves_the_slot_open(outcome: str) -> None:
    worker = AWorker()
    worker.slot.producer().commit_fails = outcome

    with pytest.raises(ProducerError):
        worker.run(rows(("a", 1)))

    assert ({}, "open") == (worker.sums, worker.slot.state)
    worker.environment.begin().abort()


@pytest.mark.parametrize(
    ("point", "slot", "committed", "locally"),
    [
        ("before-begin", "open", False, False),
        ("after-produce", "open", False, False),
        ("before-commit", "open", False, False),
        ("after-kafka-commit", "open", True, False),
        ("after-local-commit", "open", True, True),
    ],
)
def test_local_state_is_never_ahead_of_kafka_wherever_the_process_dies(
    point: str, slot: str, committed: bool, locally: bool
) -> None:
    worker = AWorker(crash_points=CrashAt(point))

    with pytest.raises(Crash):
        worker.run(rows(("a", 1)))

    worker.kafka.init("samzapy/flights-1/e1/0")
    assert (slot, committed, locally) == (worker.slot.state, bool(worker.outputs()), bool(worker.sums))


# --- a bounded input ---


def bounded(offset_end: int) -> Any:
    plan = a_plan(a_job())
    return replace(plan, routes=tuple(replace(route, offset_end=offset_end) for route in plan.routes))


def test_messages_after_the_end_of_an_input_are_not_handled() -> None:
    worker = AWorker(plan=bounded(3))

    report = worker.run(rows(("a", 1), ("b", 2)), rows(("a", 3), ("a", 4), first=2, headers=[[], []]))

    assert [0, 1, 2] == [value["offset"] for _, value in worker.outputs()]
    assert (3, 3) == (report.records_in, worker.checkpoints()[-1].offset_next)


def test_rows_behind_the_end_alone_begin_no_transaction() -> None:
    worker = AWorker(plan=bounded(3))

    assert () == tuple(worker.run_routes(rows(("a", 1), first=3), rows(("a", 1), first=9)))
    assert [] == worker.checkpoints()


# --- intermediate streams ---

AGAIN = SspKeyBucket.parse("kafka.__samzapy-intermediate-flights-1-again.0:0/1")


def two_steps(**properties: str) -> JobConfig:
    return a_job(task_intermediate_again_partitions="1", **properties)


def in_two_steps(envelope: Any, collector: Any, context: Any) -> None:
    """Keyed again by the value, then summed up by that."""
    if envelope.intermediate == "again":
        sum_up(envelope, collector, context)
    else:
        collector.send(context.intermediate("again"), envelope.value, key=f"by {envelope.value}")


def test_an_output_to_an_intermediate_stream_arrives_as_its_message() -> None:
    config = two_steps()
    worker = AWorker(in_two_steps, config=config, plan=a_plan(config, ssp_kbs=[SSP_KB, AGAIN]))

    worker.run(rows(("a", 1), ("b", 2), ("c", 1)))
    sent = worker.kafka.committed(AGAIN.ssp.stream)
    worker.run(rows(*[((record.key or b"").decode(), record.value) for record in sent], route=1))

    assert [b"by 1", b"by 2", b"by 1"] == [record.key for record in sent]
    assert [(b"by 1", 1), (b"by 2", 2), (b"by 1", 2)] == [(key, value["total"]) for key, value in worker.outputs()]
    assert [SSP_KB, AGAIN] == [checkpoint.ssp_kb for checkpoint in worker.checkpoints()]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "an output to the intermediate stream again: wanted a key"),
        ({"key": None, "headers": {"a": b"b"}}, "an output to the intermediate stream again: wanted a key"),
        ({"key": "k", "partition": 0}, "wanted no partition, because the key chooses it"),
        ({"key": "k", "timestamp_ms": 7}, "wanted no timestamp_ms"),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_an_output_that_an_intermediate_stream_does_not_take_is_refused_by_name(
    given: dict[str, Any], message: str, is_first: bool
) -> None:
    def process(envelope: Any, collector: Any, context: Any) -> None:
        if not is_first:
            collector.send(context.intermediate("again"), 1, key="good")
        collector.send(context.intermediate("again"), 1, **given)

    worker = AWorker(process, config=two_steps())

    report = worker.run(rows(("a", 1)))

    assert ReportKind.TASK_FAILED is report.kind
    assert message in report.error


def test_headers_and_tombstones_pass_through_an_intermediate_stream() -> None:
    def process(envelope: Any, collector: Any, context: Any) -> None:
        collector.send(context.intermediate("again"), None, key="k", headers={"a": b"b"})

    worker = AWorker(process, config=two_steps())
    worker.run(rows(("a", 1)))

    (record,) = worker.kafka.committed(AGAIN.ssp.stream)
    assert (b"k", None) == (record.key, record.value)


def test_an_undeclared_intermediate_stream_is_named() -> None:
    def process(envelope: Any, collector: Any, context: Any) -> None:
        context.intermediate("agian")

    report = AWorker(process, config=two_steps()).run(rows(("a", 1)))

    assert "wanted the intermediate stream 'agian', found again; declare it with" in report.error
