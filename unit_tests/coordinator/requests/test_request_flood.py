"""20,000 requests at once, and their use of memory."""

import random
import tracemalloc
from collections import Counter
from uuid import UUID

import pytest

from samzapy.coordinator.replay import replay
from samzapy.model.placement import Action, ContainerPlacementRequestMessage, StatusCode
from samzapy.stream.codec import encode
from samzapy.stream.log import Write
from samzapy.stream.placement import Encoding, Place, encode_message
from samzapy.stream.records import MemoryPhase, RequestMemoryPut, RequestPut, RestartPut
from samzapy.testing.memory_placement import read_inbox
from unit_tests.coordinator.requests.test_request_queue import Job, an_id
from unit_tests.fixtures.golden_rows import leaders_headers

pytestmark = pytest.mark.slow

COUNT = 20_000
KILLS = 5
MEMORY_BYTES_MAX = 10 * 1024 * 1024


def a_flood(job, luck):
    """Shuffled requests with every kind of bad one, 30 % of them duplicates.

    Half of the duplicates have other content.
    """
    numbers = list(range(round(COUNT * 0.7)))
    numbers += [luck.choice(numbers) for _ in range(COUNT - len(numbers))]
    luck.shuffle(numbers)
    now_ms, bad = job.now_ms(), Counter()
    for number in numbers:
        action = luck.choice([Action.RESTART_QUERY, Action.CONTAINER_STATUS, Action.PLACE_CONTAINER])
        place = Place(namespace=action.namespace, encoding=luck.choice(list(Encoding)))
        kind = luck.choice(["good"] * 6 + ["deployment", "future", "negative", "unreadable"])
        bad[kind] += 1
        message = ContainerPlacementRequestMessage(
            uuid=UUID(an_id(number)),
            deployment_id="0-deadbeef" if kind == "deployment" else job.run_id,
            processor_id=luck.choice("01"),
            destination_host="h",
            timestamp_ms=now_ms + luck.randrange(-10_000, 10_000) + (10**13 if kind == "future" else 0),
            action=action,
        )
        write = encode_message(message, place)
        if kind == "negative":
            negative = b'{"processorId":"0","deploymentId":"d","subType":"ContainerPlacementRequestMessage",'
            write = Write(key=write.key, value=negative + b'"uuid":"%s","timestamp":-5}' % an_id(number).encode())
        if kind == "unreadable":
            write = Write(key=write.key, value=luck.randbytes(luck.randrange(300)))
        job.operator.append_atomically([write])
    return len(set(numbers)), bad


def test_a_flood_of_requests_gives_each_uuid_one_terminal_status_and_leaves_little():
    luck = random.Random(5)
    job = Job()
    unique, bad = a_flood(job, luck)
    assert min(bad.values()) > COUNT / 20
    kills_at = sorted(luck.sample(range(2, 40), KILLS))
    killed = 0

    for round_number in range(200):
        command = read_inbox(job.world.placement, job.state.inbox.offset_next, job.now_ms(), 500)
        if command.requests:
            job.world.queue.append(command)
        numbers = {f"e{processor}": put.number for processor, put in job.state.restarts.items()}
        if round_number in kills_at:
            # After a part of its writes, it is gone.
            job.service._stream.log.tear_next_append(1 + luck.randrange(300))
            job.receives_heartbeats(**numbers)
            job.service = job.leader(f"successor{round_number}")
            killed += 1
        job.world.clock.advance(200)
        job.receives_heartbeats(**numbers)
        if job.state.inbox.offset_next >= job.world.placement.end_offset and not job.state.requests:
            break

    assert killed == KILLS
    assert job.state.term.term > KILLS
    assert not job.state.requests
    assert len(job.state.request_memory) == unique
    ends = {}
    for record in job.records(RequestPut):
        if record.status_code.is_terminal:
            assert ends.setdefault(record.uuid, record.status_code) is record.status_code
    assert len(ends) == unique
    assert set(Counter(ends.values())) >= {StatusCode.BAD_REQUEST, StatusCode.SUCCEEDED}
    ordered = [record.uuid for record in job.records(RestartPut)]
    assert len(ordered) == len(set(ordered))
    assert {uuid: memory.status_code for uuid, memory in job.state.request_memory.items()} == ends
    answers = job.latest()
    counts = Counter(value is not None for key, value in answers.items() if b"ResponseMessage" in key)
    assert counts == {True: unique}


def test_twenty_thousand_uuids_take_less_than_ten_megabytes():
    memories = [
        RequestMemoryPut(
            uuid=an_id(number),
            timestamp_ms=1_767_225_600_000 + number,
            place="samza-place-container-v1.text.json",
            run_id="1767225600000-8f3a1b2c",
            status_code=StatusCode.SUCCEEDED,
            decided_at_ms=1_767_225_700_000 + number,
            phase=MemoryPhase.COLLECTED,
            offset=100_000 + number,
            action="restart-query",
            processor_id=str(number % 100),
        )
        for number in range(COUNT)
    ]
    job = Job()
    log = job.world.log()
    log.take_over()
    log.append_atomically(
        [
            Write(key=key, value=value, headers=dict(leaders_headers(seq)))
            for seq, (key, value) in enumerate(map(encode, memories))
        ]
    )
    del memories
    records = [record for record in job.world.log().read() if record.key.startswith(b"request-memory/")]
    tracemalloc.start()
    try:
        state = replay(records, topic="t").state
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(state.request_memory) == COUNT
    assert taken < MEMORY_BYTES_MAX, f"{taken / 1024 / 1024:.1f} MB"
