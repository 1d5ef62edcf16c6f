"""Measure the job API: classes against functions, typed values against JSON.

As `bench_hot_path`: the CPU time of the thread that runs user code, with a real local store and librdkafka's producer
in front of its mock broker. Each round runs every subject once, in turn, every other round in the opposite order: a
subject pays for what the one before it left in the caches. A ratio is of the least times of two subjects of the same
run.
"""

from __future__ import annotations

import gc
import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from bench_hot_path import RECORDS, OneTask, a_slot
from bench_report import bullets, table

from samzapy.config import in_force, merge, parse_config, read_properties
from samzapy.container.task.work_plan import Rows
from samzapy.task import load_task_factory

_PROPERTIES = """
job.name=bench
task.inputs=kafka.orders
systems.kafka.bootstrap.servers=127.0.0.1:1
local.store.dir=/data
"""
_DECLARED = """
import samzapy as sz

class Order(sz.Struct):
    item: str
    amount: float

orders = sz.Stream("kafka.orders", key=sz.Bytes, value={value}{time})
out = sz.Stream("kafka.out", key=sz.Bytes, value={output})

@sz.task(inputs=[orders], outputs=[out])
class Job(sz.Task[bytes, object]):
{body}
"""
_FUNCTION = """
import samzapy

@samzapy.task
def job(envelope, collector, context):
{body}
"""
_MANY, _FEW = 25_000, 250


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A job.

    Attributes:
        properties: beside those of all jobs.
        keys: how many there are.
        step_ms: by how much each record is later than the one before it; 0: those of a round have one moment.
    """

    name: str
    text: str
    properties: str = ""
    keys: int = _MANY
    step_ms: int = 0


def _function(body: str) -> str:
    return _FUNCTION.format(body="".join(f"    {line}\n" for line in body.splitlines()))


def _class(
    body: str, value: str = "sz.Bytes", output: str = "sz.Bytes", state: str = "", time: str = "", more: str = ""
) -> str:
    method = "".join(f"        {line}\n" for line in body.splitlines())
    own = "".join(f"    {line}\n" for line in state.splitlines())
    text = f"{own}    def process(self, message, to):\n{method}{more}"
    return _DECLARED.format(value=value, output=output, body=text, time=time)


_COUNT_JSON = """store = context.store("counts")
seen = (store.get() or 0) + 1
store.put(seen)
collector.send("out", b"%d" % seen, key=envelope.key)"""
_COUNT_BYTES = """store = context.store("counts")
seen = store.get()
count = b"1" if seen is None else b"%d" % (int(seen) + 1)
store.put(count)
collector.send("out", count, key=envelope.key)"""
_COUNTER = 'to.send(out, b"%d" % self.counts.add(), key=message.key)'
_IN_TIME = ", disorder_ms=1000"
_SETS_TIMER = f"{_COUNTER}\nself.over.set(message.time_ms + 3_600_000)"
_TIMER = 'counts = sz.counter()\nover = sz.timer("event")'
_FIRES = """
    @over.fires
    def is_over(self, timer, to):
        self.counts.clear()
"""
_RARE_JSON = 'if envelope.value["amount"] > 990:\n    collector.send("out", envelope.value_bytes, key=envelope.key)'
_RARE_TYPED = "if message.value.amount > 990:\n    to.send(out, message.value_bytes, key=message.key)"


def _cases() -> Sequence[Case]:
    counted = [
        case
        for keys in (_MANY, _FEW)
        for case in (
            Case(name=f"count, JSON store, {keys} keys", text=_function(_COUNT_JSON), keys=keys,
                 properties="stores.counts.msg.serde=json\n"),
            Case(name=f"count, bytes store, {keys} keys", text=_function(_COUNT_BYTES), keys=keys,
                 properties="stores.counts.msg.serde=bytes\n"),
            Case(name=f"count, sz.counter(), {keys} keys", text=_class(_COUNTER, state="counts = sz.counter()"),
                 keys=keys),
        )
    ]  # fmt: skip
    return [
        Case(name="1:1, function", text=_function('collector.send("out", envelope.value, key=envelope.key)')),
        Case(name="1:1, class", text=_class("to.send(out, message.value, key=message.key)")),
        Case(
            name="1 % out, json",
            text=_function(_RARE_JSON),
            properties="systems.kafka.streams.orders.samza.msg.serde=json\n",
        ),
        Case(name="1 % out, sz.Json(T)", text=_class(_RARE_TYPED, value="sz.Json(Order)")),
        *counted,
        Case(name="count, event time kept", text=_class(_COUNTER, state="counts = sz.counter()", time=_IN_TIME)),
        Case(
            name="count, event time moved by each record",
            step_ms=1,
            text=_class(_COUNTER, state="counts = sz.counter()", time=_IN_TIME),
        ),
        Case(name="count, timer in event time", text=_class(_SETS_TIMER, state=_TIMER, more=_FIRES)),
    ]


RATIOS: Sequence[tuple[str, str, str, float]] = (
    ("class, of function", "1:1, class", "1:1, function", 0.97),
    ("sz.Json(T), of json", "1 % out, sz.Json(T)", "1 % out, json", 1.8),
    ("counter, of a JSON store", f"count, sz.counter(), {_MANY} keys", f"count, JSON store, {_MANY} keys", 1.2),
    ("counter, of a JSON store", f"count, sz.counter(), {_FEW} keys", f"count, JSON store, {_FEW} keys", 1.4),
    ("counter, of a bytes store", f"count, sz.counter(), {_MANY} keys", f"count, bytes store, {_MANY} keys", 1.0),
    ("event time kept, of a counter", "count, event time kept", f"count, sz.counter(), {_MANY} keys", 0.95),
    ("event timer set, of a counter", "count, timer in event time", f"count, sz.counter(), {_MANY} keys", 0.5),
)
"""The comparisons: a title, the subject, the other one, and the wanted speed ratio."""


class _Subject:
    """The task of a case, which gets the next records in each round."""

    def __init__(self, case: Case, directory: Path, slot: Any) -> None:
        directory.mkdir(parents=True)
        job_file = directory / "job.py"
        job_file.write_text(case.text)
        factory = load_task_factory(job_file)
        properties = read_properties(_PROPERTIES + case.properties, "bench.properties")
        settings = merge(file=properties, environment={}, overrides=(), declared=factory.declared.settings())
        self._task = OneTask(parse_config(in_force(settings)), factory, directory, slot)
        self._first, self._case, self._random = 0, case, Random(1)

    def ns_per_record(self) -> float:
        """The CPU time of this thread for a record of the next transaction."""
        rows = _rows(self._random, self._first, self._case)
        self._first += RECORDS
        return self._task.ns_per_record([rows])


def _rows(random: Random, first: int, case: Case) -> Rows:
    """Orders of 200 bytes with six fields, of which a task reads one."""
    values = [
        json.dumps(
            {
                "id": number,
                "item": random.randbytes(8).hex(),
                "amount": random.uniform(0, 1000),
                "note": "x" * 60,
                "shop": "shop-17",
                "tags": ["a", "b"],
            }
        ).encode()
        for number in range(500)
    ]
    return Rows(
        0,
        range(first, first + RECORDS),
        [b"%08d" % random.randrange(case.keys) for _ in range(RECORDS)],
        [values[number % len(values)] for number in range(RECORDS)],
        [1_700_000_000_000 + first + number * case.step_ms for number in range(RECORDS)],
        None,
    )


def measure(rounds: int) -> Mapping[str, Sequence[float]]:
    """Nanoseconds per record of each case, by its name."""
    figures: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        slot = a_slot()
        subjects = {
            case.name: _Subject(case, Path(directory, str(number)), slot) for number, case in enumerate(_cases())
        }
        # As the worker process does.
        gc.collect()
        gc.freeze()
        for number in range(rounds):
            for name, subject in list(subjects.items())[:: 1 if number % 2 == 0 else -1]:
                figures.setdefault(name, []).append(subject.ns_per_record())
    return figures


def section(figures: Mapping[str, Sequence[float]], conditions: Sequence[str]) -> str:
    """The section of the page."""
    speeds = table(
        ("speed", "wanted", "found", ""),
        [_ratio_row(figures, *ratio) for ratio in RATIOS],
    )
    rows = table(
        ("job", "ns per record", "median"),
        [(name, f"{min(taken):.0f}", f"{statistics.median(taken):.0f}") for name, taken in figures.items()],
    )
    rounds = len(next(iter(figures.values())))
    method = (
        f"CPU time of the thread that runs user code, the least of {rounds} rounds of {RECORDS:,} records; each round "
        "runs every job once, every other round in the opposite order. A real local store, and librdkafka's producer "
        "in front of its mock broker. Orders of 200 bytes with six fields, of which a job reads one."
    )
    return "\n\n".join(["## Job API", speeds, rows, bullets([method, *conditions])])


def _ratio_row(
    figures: Mapping[str, Sequence[float]], title: str, one: str, other: str, wanted: float
) -> tuple[str, str, str, str]:
    ratio = min(figures[other]) / min(figures[one])
    keys = f", {one.rpartition(', ')[2]}" if "keys" in one else ""
    return f"{title}{keys}", f">= {wanted}", f"{ratio:.2f}", "pass" if ratio >= wanted else "**fail**"
