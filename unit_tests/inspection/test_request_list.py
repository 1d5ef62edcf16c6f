"""The open requests in the status of a job, and the last ones that failed."""

from dataclasses import replace

import pytest

from samzapy.cli.job.status import _print, request_lines
from samzapy.coordinator.state import INITIAL
from samzapy.inspection.request_list import FAILED_MAX, LATELY_MS, requests_json
from samzapy.inspection.status import status_of_log
from samzapy.model.placement import Action, StatusCode
from unit_tests.fixtures.launched_job import a_memory, a_move
from unit_tests.fixtures.operated_job import ScaledJob, an_id

MOVE = {
    "uuid": "u",
    "action": "place-container",
    "processorId": "0",
    "destinationHost": "host-b",
    "arguments": "",
    "statusCode": "IN_PROGRESS",
    "phase": "RESTORING",
    "responseMessage": "a reserve restores the state",
    "acceptedAtMs": 1000,
    "decidedAtMs": 2000,
}
SCALE = {
    "uuid": "v",
    "action": "scale",
    "processorId": "",
    "destinationHost": "",
    "arguments": "",
    "statusCode": "BAD_REQUEST",
    "phase": "",
    "responseMessage": "wanted a factor up to 256",
    "acceptedAtMs": None,
    "decidedAtMs": 5000,
}


def a_state(*requests, closed=()):
    return replace(
        INITIAL,
        requests={request.uuid: request for request in requests},
        request_memory={memory.uuid: memory for memory in closed},
    )


def test_open_requests_come_first_in_the_order_of_service():
    accepted = replace(a_move(StatusCode.ACCEPTED), uuid="a", timestamp_ms=2)
    begun = replace(
        a_move(StatusCode.IN_PROGRESS),
        phase="RESTORING",
        response_message="a reserve restores the state",
        accepted_at_ms=1000,
        decided_at_ms=2000,
    )
    failed = a_memory("f", 9, StatusCode.FAILED)

    rows = requests_json(a_state(accepted, begun, closed=[failed]), {})

    assert ["u", "a", "f"] == [row["uuid"] for row in rows]
    assert MOVE == rows[0]


def test_a_closed_request_has_the_text_of_its_answer_if_this_leader_gave_it():
    state = a_state(closed=[a_memory("v", 5000, StatusCode.BAD_REQUEST)])

    assert [SCALE] == requests_json(state, {"v": "wanted a factor up to 256"})
    assert [SCALE | {"responseMessage": ""}] == requests_json(state, {})


def test_the_last_requests_that_failed_or_were_refused_are_listed_the_newest_first():
    codes = (StatusCode.FAILED, StatusCode.BAD_REQUEST)
    failed = [a_memory(f"f{number:02}", number, codes[number % 2]) for number in range(FAILED_MAX + 2)]
    succeeded = a_memory("s", 99, StatusCode.SUCCEEDED)

    rows = requests_json(a_state(closed=[*failed, succeeded]), {})

    assert [f"f{number:02}" for number in range(FAILED_MAX + 1, 1, -1)] == [row["uuid"] for row in rows]


def test_a_failed_request_is_listed_once_while_the_log_has_both_its_records():
    refused = replace(a_move(StatusCode.BAD_REQUEST), response_message="wanted a host", decided_at_ms=5)

    rows = requests_json(a_state(refused, closed=[a_memory("u", 5, StatusCode.BAD_REQUEST)]), {})

    assert [("u", "wanted a host")] == [(row["uuid"], row["responseMessage"]) for row in rows]


def test_a_request_is_in_the_status_from_its_reading_on_and_stays_there_if_it_is_refused():
    job = ScaledJob()
    job.settles()
    job.scale(1, 2)
    job.ask(2, Action.RESTART_QUERY, processor_id="9")
    job.reads()

    listed = {row["uuid"]: row for row in job.shown()["requests"]}

    assert [an_id(1), an_id(2)] == list(listed)
    assert ("IN_PROGRESS", "BAD_REQUEST") == tuple(row["statusCode"] for row in listed.values())
    assert "processor" in listed[an_id(2)]["responseMessage"]
    assert [an_id(1), an_id(2)] == [row["uuid"] for row in status_of_log("j", job.state, None)["requests"]]

    job.settles()
    assert [an_id(2)] == [row["uuid"] for row in job.shown()["requests"]]


def test_people_see_where_an_open_request_is():
    assert [
        "request u: place-container 0 to host-b: IN_PROGRESS RESTORING: a reserve restores the state"
    ] == request_lines({"requests": [MOVE]}, LATELY_MS * 9)
    accepted = SCALE | {"statusCode": "ACCEPTED", "arguments": '{"factor":"4"}', "responseMessage": ""}
    assert ['request v: scale {"factor":"4"}: ACCEPTED'] == request_lines({"requests": [accepted]}, 0)


@pytest.mark.parametrize(("age_ms", "is_shown"), [(0, True), (LATELY_MS - 1, True), (LATELY_MS, False)])
def test_people_see_a_refused_request_for_an_hour(age_ms, is_shown):
    line = "request v: scale: BAD_REQUEST at 1970-01-01T00:00:05.000+00:00: wanted a factor up to 256"

    assert ([line] if is_shown else []) == request_lines({"requests": [SCALE]}, 5000 + age_ms)


def test_a_terminal_obeys_no_text_of_a_request(capsys):
    _print({"requests": [MOVE | {"responseMessage": "\x1b[31m", "destinationHost": "\x1b[2J"}]})

    assert "request u: place-container 0 to \\x1b[2J: IN_PROGRESS" in (output := capsys.readouterr().out)
    assert "\x1b" not in output


def test_the_status_of_a_leader_of_an_earlier_release_has_no_requests():
    assert [] == request_lines({"job": "j"}, 0)
