"""An auditor of the coordinator stream that shares no code with the coordinator.

It reads the records of the topic, decodes them with the schemas in `schemas/` alone, folds them in its
own way, and names the offset of each contradiction: a number missing, two owners of a task, a grant given away
from an execution that could still commit. So a fault in the coordinator's own fold cannot hide itself.
Imports nothing of samzapy but its schema files.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

_NEXT = {"STARTED": {"RUNNING", "STOPPED", "LOST"}, "RUNNING": {"STOPPED", "LOST"}, "LOST": {"FENCED"}}
_LIVING, _GONE = {"STARTED", "RUNNING"}, {"STOPPED", "FENCED"}


class Audited(NamedTuple):
    """A record as read from the topic."""

    offset: int
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Audit:
    """The stream so far, and its contradictions."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.term, self.seq, self.epoch = 0, -1, 0
        self.phases: dict[str, str] = {}
        self.processor_of: dict[str, str] = {}
        self.grants: dict[str, dict[str, Any]] = {}
        self.plans: dict[str, dict[str, Any]] = {}
        self.generation: dict[str, Any] | None = None
        self._schemas = schemas()

    def read(self, records: Iterable[Audited]) -> Audit:
        """Fold `records`, which come in the order of their offsets."""
        for record in records:
            self._at = record.offset
            self._numbers(record)
            self._fold(record)
        return self

    def owners(self) -> Mapping[str, str]:
        """Which execution runs each task of the plan in force."""
        owners = {}
        for task in self._planned():
            living = {grant["execution_id"] for grant in self._living(task)}
            if len(living) == 1:
                owners[task] = living.pop()
        return owners

    def owners_of_buckets(self) -> Mapping[str, Sequence[str]]:
        """The executions that hold each SSPKb of the plan in force; one if nothing moves."""
        held = [
            (Bucket.of(start["ssp_kb"]), str(grant["execution_id"]))
            for grant in self.grants.values()
            if not grant["released"] and self.phases.get(grant["execution_id"]) not in _GONE
            for start in grant["starts"]
        ]
        return {
            ssp_kb: [execution for bucket, execution in held if bucket.overlaps(Bucket.of(ssp_kb))]
            for ssp_kbs in self.planned_buckets().values()
            for ssp_kb in ssp_kbs
        }

    def newest_executions(self) -> Mapping[str, str]:
        """Of each processor the execution that was heard of last."""
        return {processor: execution for execution, processor in self.processor_of.items()}

    def planned_buckets(self) -> Mapping[str, list[str]]:
        """The SSPKbs of each task's broadcast inputs in the plan in force, as texts."""
        return {plan["task_name"]: list(plan["ssp_kbs"]) for plan in self._plan()}

    def planned_positions(self) -> Mapping[str, list[str]]:
        """The same, and its positions in the broadcast inputs."""
        return {
            plan["task_name"]: [*plan["ssp_kbs"], *(f"{ssp}@{plan['task_name']}" for ssp in plan["broadcast_ssps"])]
            for plan in self._plan()
        }

    def finish(self) -> list[str]:
        """All complaints, those about the stream as a whole included."""
        if self.generation is None:
            return [*self.complaints, "no plan ever took effect"]
        tasks = self._planned()
        if len(tasks) != self.generation["task_count"]:
            self._complain(f"generation {self.generation['generation']} wants {self.generation['task_count']} tasks")
        for task in tasks:
            if not any(grant["task_name"] == task for grant in self.grants.values()):
                self._complain(f"task {task} of the plan in force was never granted")
        return self.complaints

    def _numbers(self, record: Audited) -> None:
        """(term, seq) without a gap; a term begins with its own record."""
        headers = {name: (value or b"").decode() for name, value in record.headers}
        missing = [name for name in ("term", "seq", "event", "cause", "actor") if name not in headers]
        if missing:
            self._complain(f"key {record.key!r} lacks the headers {missing}")
            return
        term, seq = int(headers["term"]), int(headers["seq"])
        if seq != self.seq + 1:
            self._complain(f"seq {seq} follows {self.seq}: {'a gap' if seq > self.seq else 'two writers'}")
        if term != self.term and (term != self.term + 1 or record.key != b"term"):
            self._complain(f"{record.key.decode()} of term {term} follows term {self.term}")
        self.term, self.seq = term, seq

    def _fold(self, record: Audited) -> None:
        kind, _, rest = record.key.decode().partition("/")
        if record.value is None:
            if kind == "grant":
                self._withdraw(record.key.decode())
            self.plans.pop(rest, None)
            return
        value = decode(record.value, self._schemas)
        if kind == "term" and value["term"] != self.term:
            self._complain(f"the record of term {value['term']} was written in term {self.term}")
        elif kind == "container":
            self._container(value)
        elif kind == "epoch":
            if value["epoch"] <= self.epoch:
                self._complain(f"epoch {value['epoch']} follows {self.epoch}")
            self.epoch = value["epoch"]
        elif kind == "plan":
            self.plans[rest] = value
        elif kind == "generation":
            self.generation = value
        elif kind == "grant":
            self._grant(record.key.decode(), value)

    def _container(self, value: Mapping[str, Any]) -> None:
        name, phase = value["execution_id"], value["phase"]
        before = self.phases.get(name)
        # The first that is heard of an execution may be that it runs.
        if phase not in (_LIVING if before is None else {before} | _NEXT.get(before, set())):
            self._complain(f"execution {name} went from {before} to {phase}")
        self.phases[name] = phase
        self.processor_of[name] = value["processor_id"]

    def _grant(self, key: str, value: dict[str, Any]) -> None:
        before = self.grants.get(key)
        if before is not None:
            if before["released"] or value != before | {"released": True}:
                self._complain(f"{key} was changed, and not only released")
            self.grants[key] = value
            return
        if value["epoch"] != self.epoch:
            self._complain(f"{key} has epoch {value['epoch']}, the last one given out is {self.epoch}")
        if self.phases.get(value["execution_id"]) not in _LIVING:
            self._complain(f"{key} goes to {value['execution_id']}, {self.phases.get(value['execution_id'])}")
        mine = [Bucket.of(start["ssp_kb"]) for start in value["starts"]]
        for other in self.grants.values():
            theirs = [Bucket.of(start["ssp_kb"]) for start in other["starts"]]
            overlaps = other["task_name"] == value["task_name"] or any(a.overlaps(b) for a in mine for b in theirs)
            if overlaps and self.phases.get(other["execution_id"]) not in _GONE and not other["released"]:
                self._complain(
                    f"{key} goes to {value['execution_id']} while {other['execution_id']} "
                    f"({self.phases.get(other['execution_id'])}) has it under epoch {other['epoch']}: two owners"
                )
        self.grants[key] = value

    def _withdraw(self, key: str) -> None:
        grant = self.grants.pop(key, None)
        if grant is None:
            return
        later = [g for g in self.grants.values() if g["epoch"] > grant["epoch"]]
        given = [Bucket.of(start["ssp_kb"]) for other in later for start in other["starts"]]
        lost = [start["ssp_kb"] for start in grant["starts"] if not _is_covered(Bucket.of(start["ssp_kb"]), given)]
        if lost:
            self._complain(f"{key} was removed and no later grant has {', '.join(lost)}")

    def _planned(self) -> list[str]:
        return [plan["task_name"] for plan in self._plan()]

    def _plan(self) -> list[dict[str, Any]]:
        number = f"{self.generation['generation'] if self.generation else 0}/task/"
        return [plan for rest, plan in sorted(self.plans.items()) if rest.startswith(number)]

    def _living(self, task: str) -> list[dict[str, Any]]:
        grants = [grant for grant in self.grants.values() if grant["task_name"] == task]
        return [grant for grant in grants if self.phases.get(grant["execution_id"]) not in _GONE]

    def _complain(self, text: str) -> None:
        self.complaints.append(f"offset {self._at}: {text}")


class Bucket(NamedTuple):
    """A parsed `kafka.orders.3:1/4` or `kafka.rules.0@Partition_3` (no owner)."""

    ssp: str
    bucket: int
    factor: int
    reader: str = ""

    @classmethod
    def of(cls, text: str) -> Bucket:
        if "@" in text:
            ssp, _, reader = text.partition("@")
            return cls(ssp, 0, 1, reader)
        ssp, _, part = text.partition(":")
        bucket, _, factor = part.partition("/")
        return cls(ssp, int(bucket), int(factor))

    def overlaps(self, other: Bucket) -> bool:
        """Whether a message can be of both."""
        smaller = min(self.factor, other.factor)
        return (self.ssp, self.reader, self.bucket % smaller) == (other.ssp, other.reader, other.bucket % smaller)


def _is_covered(wanted: Bucket, given: list[Bucket]) -> bool:
    if wanted.reader:
        # The owners of its key buckets took over its positions.
        return any(wanted.ssp == other.ssp and other.reader for other in given)
    finest = max((wanted.factor, *(other.factor for other in given)))
    parts = (Bucket(wanted.ssp, number, finest) for number in range(wanted.bucket, finest, wanted.factor))
    return all(any(part.overlaps(other) for other in given) for part in parts)


def decode(value: bytes, schemas: Mapping[bytes, Any]) -> dict[str, Any]:
    """An Avro single object as a plain dict."""
    datum = fastavro.schemaless_reader(io.BytesIO(value[10:]), schemas[value[2:10]], None)
    assert isinstance(datum, dict)
    return datum


def schemas() -> dict[bytes, Any]:
    """The shipped schemas by fingerprint, in the order of the bytes in a value."""
    schemas_by_fingerprint = {}
    for path in resources.files("samzapy").joinpath("schemas").iterdir():
        if not path.is_file():
            continue  # Schemas of earlier releases; this release wrote the audited stream.
        declared = json.loads(path.read_text(encoding="utf-8"))
        name = fingerprint(to_parsing_canonical_form(declared), "CRC-64-AVRO")
        schemas_by_fingerprint[bytes.fromhex(name)] = fastavro.parse_schema(declared)
    return schemas_by_fingerprint
