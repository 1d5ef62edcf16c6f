"""The handles of a task act for their own message, or raise by name."""

from __future__ import annotations

import asyncio
import re
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from samzapy.adapters.host.threads import HostThreads
from samzapy.container.task.message_scope import MessageScope
from samzapy.container.task.stores import Journal
from samzapy.container.task.work_plan import ReportKind
from samzapy.errors import OutsideMessageError, SamzapyError
from samzapy.task import LoadedTask
from samzapy.testing.task_kit import run_task
from unit_tests.fixtures.container_worlds import TASK, AWorker, a_job, rows, sum_up

DEAD_LETTERS = {"task_error_policy": "dead-letter", "task_dead_letter_output": "dead"}
USES = ("collector", "bound method", "context", "store.get", "store.put", "store.delete")


def late_use(use: str) -> tuple[Any, list[Any]]:
    """A task that uses handles of its first message later, and the calls that do so."""
    calls: list[Any] = []

    def process(envelope: Any, collector: Any, context: Any) -> None:
        if envelope.offset == 0:
            if use == "collector":
                calls.append(lambda: collector.send("totals", 1))
            elif use == "bound method":
                send = collector.send
                calls.append(lambda: send("totals", 1))
            elif use == "context":
                calls.append(lambda: context.store("sums").put(1))
            else:
                call = getattr(context.store("sums"), use.partition(".")[2])
                calls.append((lambda: call(1)) if use == "store.put" else call)

    return process, calls


@pytest.mark.parametrize("policy", [{}, DEAD_LETTERS], ids=["fail", "dead-letter"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("when", ["while the next message is handled", "between micro-batches"])
def test_a_use_after_its_message_raises_and_ends_the_job_under_every_policy(
    use: str, when: str, policy: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    keep, calls = late_use(use)
    raised: list[BaseException | None] = []
    handled: list[int] = []

    def late() -> None:
        with ThreadPoolExecutor(1, "late") as pool:
            raised.append(pool.submit(calls[0]).exception())

    def process(envelope: Any, collector: Any, context: Any) -> None:
        handled.append(envelope.offset)
        keep(envelope, collector, context)
        if envelope.offset == 1:
            # The store knows the message of each call by now.
            context.store("sums").put(1)
            late()

    worker = AWorker(process, config=a_job(**policy))
    if when == "between micro-batches":
        worker.run(rows(("a", 1)))
        late()
        report = worker.run(rows(("b", 2), first=2))
    else:
        report = worker.run(rows(("a", 1), ("b", 2), ("c", 3)))

    assert isinstance(raised[0], OutsideMessageError)
    assert ReportKind.TASK_FAILED is report.kind
    assert 2 not in handled or when != "between micro-batches", "later messages are not handled in vain"
    call = {"collector": "collector.send", "bound method": "collector.send", "context": "context.store"}.get(
        use, "a store"
    )
    assert report.error.startswith(f"task {TASK}: wanted {call}")
    assert "called after kafka.orders.0 offset 0, key b'a', in thread late_0" in report.error
    assert report.error in caplog.text
    assert [] == worker.outputs()
    assert {} == worker.sums


def test_the_handles_of_a_failed_message_expire() -> None:
    kept: list[Any] = []

    def process(envelope: Any, collector: Any, context: Any) -> None:
        kept.append(collector)
        raise ValueError("no")

    AWorker(process).run(rows(("a", 1)))

    with pytest.raises(OutsideMessageError, match="called after kafka.orders.0 offset 0"):
        kept[0].send("totals", 1)


def test_a_pool_that_process_waits_for_works() -> None:
    pool = ThreadPoolExecutor(4)

    def process(envelope: Any, collector: Any, context: Any) -> None:
        store = context.store("sums")

        def one(number: int) -> None:
            collector.send("totals", number)
            context.store("sums").put(number, str(number))
            store.get(str(number))

        list(pool.map(one, range(4)))

    with pool:
        worker = AWorker(process)
        for first in range(0, 200, 20):
            worker.run(rows(*[("a", 1)] * 20, first=first))

    assert 800 == len(worker.outputs())
    assert 4 == len(worker.sums)


def test_an_entry_that_two_threads_made_at_once_is_undone_with_its_message() -> None:
    """Each of them saw that it was not there, so the journal has it twice."""
    journal, entries = Journal(is_kept=True), dict[bytes, bytes | None]()
    journal.entries += [(entries, b"a", False, None), (entries, b"a", False, None)]
    entries[b"a"] = b"1"

    journal.roll_back(None)

    assert {} == entries
    assert [] == journal.entries


def test_a_thread_pool_that_process_does_not_wait_for_fails_at_its_first_late_call() -> None:
    """Also where most of its calls come while another message is handled."""
    pool, sent = ThreadPoolExecutor(4), list[Future[None]]()
    may_send = threading.Event()

    def process(envelope: Any, collector: Any, context: Any) -> None:
        def slow() -> None:
            may_send.wait(30)
            collector.send("totals", envelope.value)

        sent.append(pool.submit(slow))
        if envelope.offset == 50:
            may_send.set()
            sent[0].exception(30)

    with pool:
        worker = AWorker(process, config=a_job(**DEAD_LETTERS))
        report = worker.run(rows(*[("a", 1)] * 100))

    assert ReportKind.TASK_FAILED is report.kind
    assert re.search(
        r"called after kafka\.orders\.0 offset \d+, key b'a', in thread ThreadPoolExecutor", report.error
    )
    assert isinstance(sent[0].exception(), OutsideMessageError)
    assert [] == worker.outputs()


def test_a_callback_of_an_earlier_message_is_refused_on_the_same_thread_too() -> None:
    loop, tasks, is_next = asyncio.new_event_loop(), list[asyncio.Task[None]](), asyncio.Event()

    def process(envelope: Any, collector: Any, context: Any) -> None:
        async def answer() -> None:
            await is_next.wait()
            collector.send("totals", envelope.value)

        async def work() -> None:
            if envelope.offset == 0:
                tasks.append(loop.create_task(answer()))
            else:
                is_next.set()
                await asyncio.wait(tasks)

        loop.run_until_complete(work())

    worker = AWorker(process)
    report = worker.run(rows(("a", 1), ("a", 2)))
    loop.close()

    assert ReportKind.TASK_FAILED is report.kind
    assert "called after kafka.orders.0 offset 0, key b'a'" in report.error
    assert isinstance(tasks[0].exception(), OutsideMessageError)


class Keeps:
    """Keeps its handles, as many classes do."""

    def __init__(self) -> None:
        self.closed_with: BaseException | None = None

    def init(self, context: Any) -> None:
        self.context, self.store = context, context.store("sums")

    def process(self, envelope: Any, collector: Any, context: Any) -> None:
        self.collector = collector
        if envelope.offset == 0:
            self.first_store = context.store("sums")
        self.first_store.put((self.store.get() or 0) + envelope.value)
        assert self.context.store("sums").get() == self.store.get()
        self.collector.send("totals", {"offset": envelope.offset, "total": self.store.get()}, key=envelope.key)

    def close(self) -> None:
        try:
            self.store.put(1)
        except BaseException as error:
            self.closed_with = error
        self.collector.send("totals", 1)


def test_kept_handles_act_on_the_message_in_hand_in_the_thread_of_process() -> None:
    kept, plain = Keeps(), AWorker(sum_up)
    worker = AWorker(task=LoadedTask(process=kept.process, init=kept.init, close=kept.close))
    messages = rows(("a", 1), ("b", 2), ("a", 3))

    for each in (worker, plain):
        each.run(messages)
        each.run(rows(("a", 1), first=3))

    assert plain.outputs() == worker.outputs()
    assert plain.sums == worker.sums


def test_a_use_in_close_raises_by_name(caplog: pytest.LogCaptureFixture) -> None:
    kept = Keeps()
    worker = AWorker(task=LoadedTask(process=kept.process, init=kept.init, close=kept.close))
    worker.run(rows(("a", 1)))

    worker.runner.close()

    assert isinstance(kept.closed_with, OutsideMessageError)
    assert "a store (sums) to be called only while process handles its message, found it called after init" in str(
        kept.closed_with
    )
    assert f"task {TASK} failed in close: OutsideMessageError: " in caplog.text
    assert "wanted collector.send to be called only while" in caplog.text


def test_new_handles_are_made_only_when_user_code_keeps_the_old_ones() -> None:
    """Else each message would cost the time of making them."""
    seen: list[list[int]] = []

    def process(envelope: Any, collector: Any, context: Any) -> None:
        store = context.store("sums")
        store.put(1)
        store.get()
        collector.send("totals", 1)
        seen.append([id(collector), id(context), id(store)])

    AWorker(process).run(rows(*[("a", 1)] * 50))

    assert 1 == len({tuple(handles) for handles in seen})


def test_messages_that_fail_keep_no_handle_for_the_next_one() -> None:
    """Their tracebacks refer to the frames in which the handles are."""
    errors: list[BaseException] = []

    def process(envelope: Any, collector: Any, context: Any) -> None:
        sum_up(envelope, collector, context)
        if envelope.offset % 2:
            error = ValueError("no")
            errors.append(error)
            raise error

    worker = AWorker(process, config=a_job(**DEAD_LETTERS))
    report = worker.run(rows(*[("a", 1)] * 10))

    assert (10, 5, 5) == (report.records_in, report.records_out, report.dead_letters)
    assert [1, 2, 3, 4, 5] == [value["total"] for _, value in worker.outputs()]


_STATE = """
import threading
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Bytes)

@sz.task(inputs=[orders])
class Job(sz.Task[str, bytes]):
    total = sz.value(sz.Long, default=0)
    seen = sz.counter()
    names = sz.map(sz.String, sz.String)
    items = sz.list(sz.String)
    kept = sz.value(sz.Long, default=0, ttl=sz.hours(1))
    over = sz.timer("processing")

    def process(self, message, out):
        self.seen.add()
        if message.key == "a":
            return
        thread = threading.Thread(target=self.late, name="late")
        thread.start()
        thread.join()

    def late(self):
        try:
            {use}
        except Exception:
            pass

    @over.fires
    def is_over(self, timer, out):
        pass
"""


@pytest.mark.parametrize("policy", ["fail", "dead-letter"])
@pytest.mark.parametrize(
    "use",
    [
        "self.total.get()",
        "self.total.set(1)",
        "self.total.clear()",
        "self.seen.add()",
        "self.names.put('x', 'y')",
        "list(self.names.items())",
        "self.items.append('x')",
        "len(self.items)",
        "self.kept.set(1)",
        "self.over.set(0)",
        "self.over.get()",
        "self.over.clear()",
    ],
)
def test_state_of_a_task_class_that_another_thread_uses_ends_the_job_under_every_policy(
    tmp_path: Path, use: str, policy: str
) -> None:
    """It would act on the message in hand, whichever that is."""
    job = tmp_path / "job.py"
    job.write_text(_STATE.format(use=use))
    job.with_suffix(".properties").write_text(
        "job.name=job\nsystems.kafka.bootstrap.servers=localhost:1\nlocal.store.dir=/data\n"
        f"task.error.policy={policy}\ntask.dead.letter.output=dead\n"
    )

    with pytest.raises(
        SamzapyError, match=r"wanted state or a timer \(store .*\) to be called only while .* thread late"
    ):
        run_task(job, [("a", b""), ("b", b"")])


def test_state_of_a_task_class_is_refused_between_two_micro_batches() -> None:
    scope = MessageScope(TASK, HostThreads())
    scope.stores = {"seen": 1}

    scope.begin()
    assert 1 == scope.reachable.in_hand["seen"]
    scope.end()

    with pytest.raises(OutsideMessageError, match="after its message"):
        scope.reachable.in_hand["seen"]


_KEPT = """
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Bytes)

@sz.task(inputs=[orders])
class Job(sz.Task[str, bytes]):
    names = sz.map(sz.Long, sz.String{more})
    items = sz.list(sz.String{more})

    def process(self, message, out):
        if message.value == b"keep":
            for number in range(3):
                self.names.put(number, message.key)
                self.items.append(message.key)
            self.kept = {kept}
            next(self.kept)
        else:
            {use}
"""
_PROPERTIES = "job.name=job\nsystems.kafka.bootstrap.servers=localhost:1\nlocal.store.dir=/data\n"


@pytest.mark.parametrize("key", ["a", "b"])
@pytest.mark.parametrize("more", ["", ", ttl=sz.hours(1)"], ids=["for ever", "with a ttl"])
@pytest.mark.parametrize("kept", ["self.names.items()", "self.names.items(reverse=True)", "iter(self.items)"])
@pytest.mark.parametrize("use", ["next(self.kept)", "self.names.put(9, 'x'); next(self.kept)"])
def test_entries_that_are_read_on_in_another_message_are_refused(
    tmp_path: Path, use: str, kept: str, more: str, key: str
) -> None:
    """They would be those of another key, or as old as their message."""
    job = tmp_path / "job.py"
    job.write_text(_KEPT.format(use=use, kept=kept, more=more))
    job.with_suffix(".properties").write_text(_PROPERTIES)

    with pytest.raises(
        SamzapyError, match="wanted the next entry of store .* only while process handles its message"
    ):
        run_task(job, [("a", b"keep"), (key, b"use")])
