"""The job `jobs/rules.py` under a ledger: each task's copy of the rules is judged."""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from confluent_kafka import KafkaError

from integration_tests.ledger_run import (
    JOBS,
    Inputs,
    LedgerRun,
    Seen,
    Subject,
    Topics,
    feeding_producer,
    flush,
    owner_and_name,
)
from integration_tests.support.ledger import Place, Violation
from integration_tests.support.rules_ledger import (
    Life,
    Read,
    ReceivedRule,
    Rules,
    Weighted,
    check_copies,
    check_rules,
    rule_of,
    sums_of_weighted,
)
from samzapy.model.grant import Grant
from samzapy.stream.records import GrantPut

RULES, HEARD = "rules", "heard"
RULE_PARTITIONS = 2
RULES_PER_S = 4.0
# In front of the name of an entry that is a task's; a mark that closes a copy has another byte there.
_ENTRY = b"\x00"


class RulesSubject(Subject):
    """Running sums weighted by rules: a broadcast input, and a store of that scope."""

    file = JOBS / "rules.py"
    name = "rules-1"
    topics: ClassVar[Inputs] = {RULES: RULE_PARTITIONS}
    outputs: ClassVar[Inputs] = {**Subject.answers, HEARD: RULE_PARTITIONS}
    stores = ("sums", "weighted", "rules")

    def __init__(self) -> None:
        self._fed = Counter[int]()
        self._received = self._taken = 0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def feed(self, bootstrap_servers: str) -> None:
        arguments = (bootstrap_servers,)
        self._thread = threading.Thread(target=self._run, args=arguments, name="rules", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.close()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, bootstrap_servers: str) -> None:
        def delivered(error: KafkaError | None, message: Any) -> None:
            assert error is None, error
            # A position is then the number of rules that were read. The broker gives no offset of a record that
            # was sent again after a lost answer.
            assert message.offset() in (None, json.loads(message.value())["n"] - 1), message.offset()

        try:
            producer = feeding_producer(bootstrap_servers)
            while not self._ended.wait(1 / RULES_PER_S):
                partition = self._fed.total() % RULE_PARTITIONS
                self._fed[partition] += 1
                value = rule_of(partition, self._fed[partition])
                # They have keys, as the ledger's records do: which bucket that is must not matter.
                key = json.loads(value)["name"]
                producer.produce(RULES, value, key, partition, on_delivery=delivered)
                producer.poll(0)
            flush(producer)
        except BaseException as error:
            self._error = error

    def check(self, run: LedgerRun, outputs: Topics) -> Iterator[Violation]:
        yield from super().check(run, outputs)
        rules = Rules([self._fed[partition] for partition in range(RULE_PARTITIONS)])
        tasks = run.planned_buckets()
        received = [
            _received_rule(HEARD, number, seen)
            for number in range(RULE_PARTITIONS)
            for seen in outputs[HEARD, number]
        ]
        weighted = [
            _weighted(topic, number, seen)
            for (topic, number), records in sorted(outputs.items())
            if topic in self.answers
            for seen in records
        ]
        self._received = len(received)
        lives = _lives(run)
        self._taken = sum(life.source != life.task for life in lives)
        yield from check_rules(rules, lives, tasks, received, weighted)
        yield from run.check_keyed_store("weighted", sums_of_weighted(weighted))
        copies = {
            "the changelog": _copies(run.changelog_records(RULES)),
            "the local store": {task: _copies(run.local_entries(task, RULES).items())[task] for task in tasks},
        }
        yield from check_copies(rules, tasks, copies)

    def summary(self) -> str:
        return f"{self._fed.total()} rules, received {self._received} times, {self._taken} copies taken over"


def _read(fields: Mapping[str, Any]) -> Read:
    return tuple((n, hashed) for n, hashed in fields["read"])


def _received_rule(topic: str, number: int, seen: Seen) -> ReceivedRule:
    fields = json.loads(seen.value or b"")
    task = dict(seen.headers)["task"] or b""
    return ReceivedRule(Place(topic, number, seen.offset), task.decode(), number, fields["n"], _read(fields))


def _weighted(topic: str, number: int, seen: Seen) -> Weighted:
    fields = json.loads(seen.value or b"")
    task = dict(seen.headers)["task"] or b""
    place = Place(topic, number, seen.offset)
    weighted = fields.get("weighted")
    return Weighted(
        place, task.decode(), fields["k"], fields["n"], weighted, _read(fields), fields["name"], fields["weight"]
    )


def _lives(run: LedgerRun) -> Sequence[Life]:
    """By the coordinator stream, of which nothing is compacted yet."""
    grants = {record.grant.epoch: record.grant for record in run.stream() if isinstance(record, GrantPut)}
    return [_life(grants[epoch]) for epoch in sorted(grants)]


def _life(grant: Grant) -> Life:
    starts = {str(start.ssp_kb): start.offset_next for start in grant.starts}
    positions = (f"kafka.{RULES}.{number}@{grant.task_name}" for number in range(RULE_PARTITIONS))
    source = grant.broadcast_parent or grant.task_name
    return Life(grant.task_name, grant.epoch, source, tuple(starts[position] for position in positions))


def _copies(records: Iterable[tuple[bytes, bytes | None]]) -> Mapping[str, Mapping[str, Any]]:
    """The copy of each task, without the mark that closes it."""
    copies: dict[str, dict[str, Any]] = defaultdict(dict)
    for key, value in records:
        task, name = owner_and_name(key)
        if not name.startswith(_ENTRY):
            continue
        copies[task].pop(name[1:].decode(), None)
        if value is not None:
            copies[task][name[1:].decode()] = json.loads(value)
    return copies
