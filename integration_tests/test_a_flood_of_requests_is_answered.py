"""A flood of requests on a real broker, while their coordinators are killed.

The same in memory, with deaths in the middle of a transaction: unit_tests/coordinator/requests/test_request_flood.py.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from uuid import UUID

from confluent_kafka import Producer

from integration_tests.operated_job import OperatedJob
from samzapy.adapters.kafka.reading import read_to_end
from samzapy.model.placement import RESPONSE_TYPE, Action, ContainerPlacementRequestMessage, StatusCode
from samzapy.stream.codec import decode
from samzapy.stream.placement import Encoding, Place, decode_message, encode_message
from samzapy.stream.records import InboxPut, RequestMemoryPut, RequestPut, RestartPut, TermPut
from samzapy.testing.broker import DevBroker
from samzapy.testing.waiting import wait_until

COUNT = int(os.environ.get("SAMZAPY_FLOOD", "4000"))
"""The documented number is 20,000; CI uses fewer."""
KILLS = 5 if COUNT >= 20_000 else 2
EXPIRY_MS = 10_000
GROWTH_MB_MAX = 150
DEADLINE_S = 600


def a_flood(job: OperatedJob, luck: Random) -> tuple[set[str], Counter[str]]:
    """Shuffled requests with 30 % duplicates and every kind of bad request."""
    numbers = list(range(round(COUNT * 0.7)))
    numbers += [luck.choice(numbers) for _ in range(COUNT - len(numbers))]
    luck.shuffle(numbers)
    producer = Producer({"bootstrap.servers": job.bootstrap_servers, "linger.ms": 50})
    now_ms, kinds = time.time_ns() // 1_000_000, Counter[str]()
    uuids = {number: str(UUID(int=luck.getrandbits(128), version=4)) for number in sorted(set(numbers))}
    for number in numbers:
        action = luck.choice([Action.RESTART_QUERY, Action.CONTAINER_STATUS, Action.PLACE_CONTAINER])
        kind = luck.choice(["good"] * 6 + ["deployment", "processor", "future", "negative", "unreadable"])
        kinds[kind] += 1
        message = ContainerPlacementRequestMessage(
            uuid=UUID(uuids[number]),
            deployment_id="0-deadbeef" if kind == "deployment" else job.run_id,
            processor_id="9" if kind == "processor" else "0",
            destination_host="h",
            timestamp_ms=now_ms + luck.randrange(-10_000, 10_000) + (10**13 if kind == "future" else 0),
            action=action,
        )
        encoding = Encoding.JSON if kind == "negative" else luck.choice(list(Encoding))
        write = encode_message(message, Place(namespace=action.namespace, encoding=encoding))
        value = write.value or b""
        if kind == "negative":
            value = value.replace(b'"timestamp":', b'"timestamp":-')
        if kind == "unreadable":
            value = luck.randbytes(luck.randrange(300))
        producer.produce(job.placement, value, write.key, partition=0)
        producer.poll(0)
    assert 0 == producer.flush(60)
    return set(uuids.values()), kinds


def peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def positions_when_terms_began(puts: Sequence[object]) -> Mapping[int, int]:
    """By later terms: the read position of the placement topic at their begin."""
    positions: dict[int, int] = {}
    position = 0
    for put in puts:
        if isinstance(put, InboxPut):
            position = put.offset_next
        if isinstance(put, TermPut) and put.term > 1:
            positions[put.term] = position
    return positions


def test_each_uuid_of_a_flood_gets_one_terminal_status_however_often_the_leader_is_killed(broker: DevBroker) -> None:
    luck = Random(5)
    with OperatedJob(broker.bootstrap_servers, job_placement_expiry_ms=str(EXPIRY_MS)) as job:
        idle_mb, peaks_mb, terms_after_kills = peak_mb(job.leader.pid), [], []
        uuids, kinds = a_flood(job, luck)
        assert min(kinds.values()) > COUNT / 20
        for number in range(1, KILLS + 1):
            # All in its first half: a leader reads hundreds while it is looked at, and one that has read all is idle.
            part = COUNT * number // (2 * (KILLS + 1))
            wait_until(lambda least=part: job.position > least, DEADLINE_S, "a part of the flood to be read")
            peaks_mb.append(peak_mb(job.leader.pid))
            job.fail_over()
            terms_after_kills.append(job.term)
        wait_until(lambda: job.position >= COUNT and not job.requests, DEADLINE_S, "all to be answered")
        peaks_mb.append(peak_mb(job.leader.pid))
        puts = [decode(record, topic=job.topic) for record in job.history if record.value is not None]
        standing = {record.key: record.value for record in read_to_end(job.connection, job.placement)}

    # On a busy machine a leader may lose its office besides.
    positions = positions_when_terms_began(puts)
    for term in terms_after_kills:
        assert positions[term] < COUNT, f"all was read before term {term} began: no leader was killed at work"
    ends: dict[str, StatusCode] = {}
    for put in puts:
        if isinstance(put, RequestPut) and put.status_code.is_terminal:
            assert ends.setdefault(put.uuid, put.status_code) is put.status_code
    assert uuids == ends.keys()
    assert {StatusCode.BAD_REQUEST, StatusCode.SUCCEEDED} <= set(ends.values())
    assert ends == {put.uuid: put.status_code for put in puts if isinstance(put, RequestMemoryPut)}
    ordered = [put.uuid for put in puts if isinstance(put, RestartPut)]
    assert len(ordered) == len(set(ordered)) > 0
    answers = [
        decode_message(value) for key, value in standing.items() if value and RESPONSE_TYPE.encode() in (key or b"")
    ]
    assert sorted(ends.items()) == sorted((str(answer.uuid), answer.status_code) for answer in answers)
    assert max(peaks_mb) - idle_mb < GROWTH_MB_MAX, f"{idle_mb:.0f} MB idle, then {peaks_mb}"
