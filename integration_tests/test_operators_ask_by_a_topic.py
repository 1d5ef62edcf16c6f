"""Requests on the placement topic: by Kafka's tools, Python and the command line.

The coordinators are processes that are killed; the container only sends a container's heartbeats.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from integration_tests.console_tools import SEPARATOR, consume, produce
from integration_tests.operated_job import OperatedJob
from samzapy.cli.container.group import container as container_command
from samzapy.cli.container.place_container import main as place_container
from samzapy.errors import RejectedError
from samzapy.inspection.load import json_rows
from samzapy.placement import (
    Action,
    ContainerPlacementMetadataStore,
    ContainerPlacementRequestMessage,
    Encoding,
    StatusCode,
)
from samzapy.stream.codec import decode
from samzapy.stream.records import MemoryPhase, RequestMemoryPut, RequestPut
from samzapy.testing.broker import DevBroker
from samzapy.testing.waiting import wait_until

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "placement-messages.md"
RUN_OF_THE_PAGE = "1767225600000-8f3a1b2c"


def samzapy(job: OperatedJob, *arguments: str) -> Result:
    address = ["--job", job.job, "--bootstrap-servers", job.bootstrap_servers]
    return CliRunner().invoke(container_command, [*arguments, *address])


@pytest.fixture
def job(broker: DevBroker) -> Iterator[OperatedJob]:
    with OperatedJob(broker.bootstrap_servers, job_placement_expiry_ms="300000") as operated_job:
        yield operated_job


def answered(store: ContainerPlacementMetadataStore, request: uuid.UUID, status: StatusCode) -> str:
    """The text of the answer, once it has that status."""

    def text() -> str | None:
        response = store.read_container_placement_response_message(request)
        return response.response_message if response is not None and response.status_code is status else None

    return wait_until(text, 30, f"the answer {status}")


def requests_in_status(job: OperatedJob) -> list[tuple[object, object]]:
    """The uuids and statuses of the requests in the leader's `GET /status`."""
    return [(row["uuid"], row["statusCode"]) for row in json_rows(job.leader.ask()[1], "requests")]


def lines_of_the_page(run_id: str) -> list[str]:
    """The requests in docs/reference/placement-messages.md, for this run and time."""
    lines = re.findall(r"^.*RequestMessage\"?\]?\|.*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    now = f'"timestamp":{time.time_ns() // 1_000_000}'
    return [re.sub(r'"timestamp":\d+', now, line.replace(RUN_OF_THE_PAGE, run_id)) for line in lines]


def test_requests_of_the_console_producer_get_answers_that_the_console_consumer_reads(job: OperatedJob) -> None:
    lines = lines_of_the_page(job.run_id)
    assert 3 == len(lines)

    produce(job.bootstrap_servers, job.placement, lines)

    with job.store() as store:
        wait_until(lambda: job.ordered == 1, 30, "the restart to be ordered")
        restart = uuid.UUID(lines[1].partition("/")[2].partition(".")[0])
        answered(store, restart, StatusCode.SUCCEEDED)
    keys = [line.partition(SEPARATOR)[0].replace("RequestMessage", "ResponseMessage") for line in lines]

    def are_terminal(standing: Mapping[str, str]) -> bool:
        return all(re.search("SUCCEEDED|BAD_REQUEST", standing.get(key, "")) for key in keys)

    standing = consume(job.bootstrap_servers, job.placement, are_terminal)
    answers = {key: json.loads(standing[key]) for key in keys}
    assert ["SUCCEEDED", "SUCCEEDED", "BAD_REQUEST"] == [answer["statusCode"] for answer in answers.values()]
    status, _, move = answers.values()
    assert json.loads(status["responseMessage"])["processorId"] == "0"
    assert "wanted another container than that of processor 0" in move["responseMessage"]
    assert all(answer["timestamp"] > 1_700_000_000_000 for answer in answers.values())
    ((refused, code),) = requests_in_status(job)
    assert str(refused) in lines[2] and "BAD_REQUEST" == code


def test_the_successor_of_a_leader_killed_between_request_and_answer_answers(
    job: OperatedJob,
) -> None:
    job.restarts = False
    rogue = Producer({"bootstrap.servers": job.bootstrap_servers})
    for key, value in ((b"\xff\xfe", b"\x00" * 1000), (b"[" * 100, b"{" * 100_000), (b"job", b"junk")):
        rogue.produce(job.placement, value, key, partition=0)
    assert 0 == rogue.flush(30)
    with job.store(Encoding.AVRO) as store:
        request = store.write_container_placement_request_message(job.run_id, "0", action=Action.RESTART_QUERY)
        answered(store, request, StatusCode.IN_PROGRESS)
        wait_until(lambda: job.ordered == 1, 30, "the order")
        _, shown = job.leader.ask()
        assert [0, 1, 2] == sorted(
            int(re.findall(r"at offset (\d+)", finding["found"])[0])
            for finding in shown["findings"]  # type: ignore[attr-defined]
        )

        job.fail_over()
        open_one = [(str(request), "IN_PROGRESS")]
        wait_until(lambda: requests_in_status(job) == open_one, 30, "the next leader to show the request")
        # The same request again, and once more with other content: neither is a second one.
        message = store.read_container_placement_request_message(request)
        assert message is not None
        store.write_request(message)
        job.restarts = True

        text = answered(store, request, StatusCode.SUCCEEDED)
        assert "runs again, in e1" in text
        store.write_request(message)
        last = store.write_container_placement_request_message(job.run_id, "0", action=Action.CONTAINER_STATUS)
        answered(store, last, StatusCode.SUCCEEDED)
        assert text == answered(store, request, StatusCode.SUCCEEDED)
        assert 1 == job.ordered


def test_the_next_leader_knows_a_uuid_whose_messages_were_removed(broker: DevBroker) -> None:
    settings = {"job_placement_retention_ms": "1000", "job_placement_expiry_ms": "300000"}
    with OperatedJob(broker.bootstrap_servers, **settings) as job, job.store() as store:
        # The request stays open, and so on its topic, until it was read here.
        job.restarts = False
        request = store.write_container_placement_request_message(job.run_id, "0", action=Action.RESTART_QUERY)
        message = store.read_container_placement_request_message(request)
        assert message is not None
        job.restarts = True
        first = wait_until(lambda: collected_at(job, request), 30, "the messages to be removed")
        assert store.read_container_placement_request_message(request) is None
        assert store.read_container_placement_response_message(request) is None

        job.fail_over()
        store.write_request(message)
        store.write_request(replace(message, processor_id="9", timestamp_ms=message.timestamp_ms + 1))

        def is_removed_again() -> bool:
            return (
                collected_at(job, request) > first and store.read_container_placement_request_message(request) is None
            )

        wait_until(is_removed_again, 30, "the same uuid to be removed again")
        assert 1 == job.ordered
        assert store.read_container_placement_response_message(request) is None
    puts = [decode(record, topic=job.topic) for record in job.history if record.key == f"request/{request}".encode()]
    ends = {put.status_code for put in puts if isinstance(put, RequestPut) and put.status_code.is_terminal}
    assert {StatusCode.SUCCEEDED} == ends


def collected_at(job: OperatedJob, request: uuid.UUID) -> int:
    """The offset after the tombstones of a request; 0 while its messages are kept."""
    key = f"request-memory/{request}".encode()
    newest = next((record for record in reversed(job.history) if record.key == key), None)
    put = None if newest is None else decode(newest, topic=job.topic)
    return put.offset if isinstance(put, RequestMemoryPut) and put.phase is MemoryPhase.COLLECTED else 0


def examples_of_the_page(language: str, job: OperatedJob) -> list[str]:
    """The first examples in that language, about this job on this broker."""
    example = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[
        0
    ]
    for shown, real in (
        ("localhost:9092", job.bootstrap_servers),
        ("flight-delays-1", job.job),
        (RUN_OF_THE_PAGE, job.run_id),
    ):
        assert shown in example or shown == RUN_OF_THE_PAGE
        example = example.replace(shown, real)
    return example.splitlines()


def test_the_examples_of_the_page_work_as_described(job: OperatedJob) -> None:
    names: dict[str, object] = {}
    exec("\n".join(examples_of_the_page("python", job)), names)  # our own page
    asked = names["uuid"]
    assert isinstance(asked, uuid.UUID)
    with job.store() as store:
        answered(store, asked, StatusCode.SUCCEEDED)

    commands = [line.split() for line in examples_of_the_page("bash", job)]
    results = [CliRunner().invoke(container_command, words[2:]) for words in commands]

    assert ["status", "restart", "place", "standby", "gc"] == [words[2] for words in commands]
    # The job has one container, not on that host, and people started it.
    assert [0, 0, 1, 1, 0] == [result.exit_code for result in results], [result.output for result in results]
    assert "found worker-7; start one there first" in str(results[2].exception)
    assert "samzapy job submit" in str(results[3].exception)


def test_the_command_line_requests_waits_and_cleans_up(job: OperatedJob) -> None:
    status = samzapy(job, "status", "--processor-id", "0")
    restart = samzapy(job, "restart", "--processor-id", "0", "--request-expiry", "30")
    unknown = samzapy(job, "status", "--processor-id", "9")
    job.restarts = False
    late = samzapy(job, "restart", "--processor-id", "0", "--request-expiry", "0.5")
    left = samzapy(job, "restart", "--processor-id", "0", "--no-wait")

    assert 0 == status.exit_code, status.output
    assert {"processorId": "0", "isRunning": True} == {
        name: json.loads(status.stdout)[name] for name in ("processorId", "isRunning")
    }
    assert "SUCCEEDED: the query of processor 0 runs again" in restart.stdout
    assert isinstance(unknown.exception, RejectedError)
    assert "wanted one of 0, found 9" in str(unknown.exception)
    assert "expired: 500 ms" in str(late.exception)
    with job.store() as store:
        open_request = uuid.UUID(left.stdout.strip())
        answered(store, open_request, StatusCode.IN_PROGRESS)

        cleared = samzapy(job, "gc")

        assert "8 messages removed" in cleared.stdout
        assert [open_request] == [message.uuid for message in store.read_all_container_placement_request_messages()]
        store.delete_all_container_placement_messages(open_request)
        assert store.read_container_placement_request_message(open_request) is None
        store.write_request(
            ContainerPlacementRequestMessage(
                uuid=uuid.uuid4(), deployment_id="0-0", processor_id="0", destination_host="h", timestamp_ms=5
            )
        )
        store.delete_all_container_placement_messages()
        assert [] == store.read_all_container_placement_request_messages()


def test_place_container_writes_a_request_and_prints_its_uuid(
    job: OperatedJob, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--deployment-id", job.run_id, "--app-name", job.job_name, "--processor-id", "0"]
    words += [
        "--request-expiry",
        "10",
        "--destination-host",
        "worker-7",
        "--bootstrap-servers",
        job.bootstrap_servers,
    ]
    written: list[str] = []

    for app_id in (["--app.id", "1"], ["--app.id=1"], ["--app.id", "=", "1"]):
        with pytest.raises(SystemExit) as ended:
            place_container([*words, *app_id])
        assert 0 == ended.value.code
        printed = capsys.readouterr().out
        written += re.findall(r"\ARequest received query the status using: ([0-9a-f-]{36})\n\Z", printed)

    assert 3 == len({*written})
    with job.store() as store:
        for request in map(uuid.UUID, written):
            message = store.read_container_placement_request_message(request)
            assert message is not None
            assert ("0", "worker-7") == (message.processor_id, message.destination_host)
            # The job has one container, which is not there.
            assert "found worker-7" in answered(store, request, StatusCode.BAD_REQUEST)
    keys = {
        f"samza-place-container-v1/{request}.ContainerPlacement{kind}Message"
        for request in written
        for kind in ("Request", "Response")
    }
    standing = consume(job.bootstrap_servers, job.placement, lambda messages: keys <= messages.keys())
    assert [10_000] * 6 == [json.loads(standing[key])["requestExpiry"] for key in sorted(keys)]


def test_an_unread_request_has_the_status_created(job: OperatedJob) -> None:
    job.leader.kill()
    with job.store() as store:
        request = store.write_container_placement_request_message(job.run_id, "0", action=Action.CONTAINER_STATUS)

    result = samzapy(job, "status", str(request))
    unknown = samzapy(job, "status", str(uuid.uuid4()))

    assert (0, "CREATED: not read yet") == (result.exit_code, result.stdout.partition(";")[0])
    assert isinstance(unknown.exception, RejectedError)


def test_each_of_two_jobs_with_the_same_processors_obeys_its_own_requests(broker: DevBroker) -> None:
    with (
        OperatedJob(broker.bootstrap_servers) as job,
        OperatedJob(broker.bootstrap_servers) as other,
        job.store() as store,
        other.store() as others,
    ):
        request = store.write_container_placement_request_message(job.run_id, "0", action=Action.RESTART_QUERY)
        answered(store, request, StatusCode.SUCCEEDED)
        message = store.read_container_placement_request_message(request)
        assert message is not None

        # On the other job's topic the same request names a run of another job, also for its next leader.
        others.write_request(message)
        assert job.run_id in answered(others, request, StatusCode.BAD_REQUEST)
        other.fail_over()
        own = others.write_container_placement_request_message(other.run_id, "0", action=Action.RESTART_QUERY)
        answered(others, own, StatusCode.SUCCEEDED)

        assert (1, 1) == (job.ordered, other.ordered)
        assert store.read_container_placement_response_message(own) is None
        answered(store, request, StatusCode.SUCCEEDED)
