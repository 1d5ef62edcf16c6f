"""Actions of the page over HTTP: plan, apply, and each reason to write nothing."""

import json
from base64 import b64encode

import pytest

from samzapy.adapters.web.actions import FORM_BYTES_MAX, PLAN_MS
from samzapy.model.credential import Scope, credential
from samzapy.model.placement import Action, StatusCode
from samzapy.stream.records import RequestPut
from unit_tests.fixtures.operated_page import OperatedPage

SECRET = "s" * 32
ACTIONS = {
    "place": {"action": "place", "processor": "0", "host": "ANY_HOST"},
    "restart": {"action": "restart", "processor": "1"},
    "scale": {"action": "scale", "factor": "4"},
    "rewind": {"action": "rewind", "stream": "kafka.orders", "to": "newest"},
}


@pytest.fixture
def serve():
    pages = []

    def serve(**options):
        pages.append(OperatedPage(**options))
        return pages[-1]

    yield serve
    for page in pages:
        page.server.stop()


def as_browser(scope, name="me"):
    password = credential(SECRET, "flights-1", scope, name)
    return {"Authorization": "Basic " + b64encode(f"anyone:{password}".encode()).decode()}


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("place", "move to the container e1"),
        ("restart", "another query starts in the same process"),
        ("scale", "splits"),
        ("rewind", "400 are skipped"),
    ],
)
def test_an_action_is_planned_and_then_served_by_the_coordinator(serve, action, expected):
    page = serve()

    status, plan = page.plan(**ACTIONS[action])
    assert (200, []) == (status, page.operations.sent), plan
    assert expected in plan
    status, headers, _ = page.apply(plan)

    (sent,) = page.operations.sent
    assert (303, f"requests?written={sent.uuid}") == (status, headers["Location"])
    page.job.reads()
    (put,) = [put for put in page.job.records(RequestPut) if put.status_code is StatusCode.IN_PROGRESS][:1]
    assert str(sent.uuid) == put.uuid
    assert "1" == json.loads(put.arguments)["expectedGeneration"]


def test_an_action_for_another_generation_is_planned_again_and_not_written(serve):
    page = serve()
    _, plan = page.plan(**ACTIONS["restart"])
    page.job.scale(1, 2)

    status, _, anew = page.apply(plan)

    assert (409, []) == (status, page.operations.sent)
    assert "The plan was made for generation 1, and generation 2 is in force." in anew
    assert 303 == page.apply(anew)[0]
    assert ["2"] == [message.arguments["expectedGeneration"] for message in page.operations.sent]


def test_an_action_that_loses_a_race_with_another_plan_fails_at_the_coordinator(serve):
    page = serve()
    page.job.ask(1, Action.SCALE, processor_id="", arguments={"factor": "2"})
    _, plan = page.plan(**ACTIONS["restart"])
    assert 303 == page.apply(plan)[0]

    page.job.reads()

    request = [put for put in page.job.records(RequestPut) if put.action == Action.RESTART_QUERY][-1]
    assert StatusCode.FAILED is request.status_code
    assert "expectedGeneration: wanted the plan that is in force, 2, found 1" in request.response_message


def test_a_form_that_is_sent_twice_is_one_request(serve):
    page = serve()
    _, plan = page.plan(**ACTIONS["restart"])

    assert [303, 303] == [page.apply(plan)[0] for _ in range(2)]
    page.job.reads()

    assert 1 == len({put.uuid for put in page.job.records(RequestPut)})


def test_a_form_that_is_sent_again_after_its_request_is_done_is_one_request(serve):
    page = serve()
    _, plan = page.plan(**ACTIONS["scale"])
    first = page.apply(plan)
    page.job.reads()
    page.job.settles()
    assert 4 == page.job.state.generation.factor

    again = page.apply(plan)

    (sent,) = page.operations.sent
    expected = (303, f"requests?written={sent.uuid}")
    assert [expected, expected] == [(status, headers["Location"]) for status, headers, _ in (first, again)]
    page.job.reads()
    assert 1 == len({put.uuid for put in page.job.records(RequestPut)})


def test_a_request_names_the_user_that_sent_it(serve):
    page = serve(secret=SECRET)
    operator = as_browser(Scope.OPERATE)
    _, plan = page.plan(operator, **ACTIONS["restart"])

    assert 303 == page.apply(plan, operator)[0]
    page.job.reads()

    assert "me" == json.loads(page.job.records(RequestPut)[-1].arguments)["by"]


def test_the_plan_of_another_caller_cannot_be_applied(serve):
    page = serve(secret=SECRET)
    _, plan = page.plan(as_browser(Scope.OPERATE, "me"), **ACTIONS["restart"])

    status, _, text = page.apply(plan, as_browser(Scope.OPERATE, "you"))

    assert (409, []) == (status, page.operations.sent)
    assert "nothing was written" in text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": None}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
    ],
)
def test_a_form_of_another_site_is_refused(serve, headers, status):
    page = serve()
    _, plan = page.plan(**ACTIONS["restart"])

    assert status == page.apply(plan, headers)[0]
    assert [] == page.operations.sent


@pytest.mark.parametrize(("allowed_hosts", "status"), [((), 403), (("ops.example",), 303)])
def test_a_form_that_comes_through_a_proxy_needs_its_name_among_the_allowed_hosts(serve, allowed_hosts, status):
    page = serve(allowed_hosts=allowed_hosts)
    _, plan = page.plan(**ACTIONS["restart"])

    assert status == page.apply(plan, {"Origin": "https://ops.example", "Sec-Fetch-Site": "same-origin"})[0]
    assert len(page.operations.sent) == (status == 303)


def test_a_request_that_was_changed_after_its_plan_is_refused(serve):
    page = serve()
    _, plan = page.plan(**ACTIONS["restart"])
    other = page.plan(action="restart", processor="0")[1]
    request = other.partition('name="request" value="')[2].partition('"')[0].replace("&#34;", '"')

    assert 409 == page.apply(plan, request=request)[0]
    assert 409 == page.apply(plan, seal="9" * 18 + ".00")[0]
    assert 409 == page.apply(plan, seal="")[0]
    assert [] == page.operations.sent


def test_a_plan_can_be_applied_for_ten_minutes(serve):
    page = serve()
    _, plan = page.plan(**ACTIONS["restart"])
    page.job.world.clock.advance(PLAN_MS)
    assert 303 == page.apply(plan)[0]

    page.job.world.clock.advance(1)

    assert 409 == page.apply(plan)[0]


def test_a_form_that_is_too_long_is_refused(serve):
    page = serve()
    _, plan = page.plan(**ACTIONS["restart"])

    assert 413 == page.apply(plan, more="x" * FORM_BYTES_MAX)[0]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"action": "explode"}, "action: wanted place, restart, scale or rewind"),
        ({"action": "restart"}, "processorId: wanted a text like"),
        ({"action": "restart", "processor": "7"}, "processorId: wanted one of 0, 1, found 7"),
        (
            {"action": "place", "processor": "0", "host": "nowhere"},
            "destinationHost: wanted a host where a container",
        ),
        ({"action": "scale"}, "arguments.factor: wanted a power of two"),
        ({"action": "scale", "factor": "3"}, "wanted a factor that is a power of two"),
        ({"action": "scale", "containers": "3"}, "found self-managed containers"),
        ({"action": "rewind", "stream": "kafka.no", "to": "oldest"}, "stream: wanted an input of the job"),
        ({"action": "rewind", "stream": "kafka.orders", "to": "x"}, "arguments.to: wanted oldest"),
        ({"action": "rewind", "stream": "kafka.orders", "to": "7", "partition": "-1"}, "partition: wanted a whole"),
    ],
)
def test_an_action_that_is_not_possible_is_refused_with_the_reason(serve, fields, reason):
    status, text = serve().plan(**fields)

    assert 400 == status
    assert reason in text


def test_a_broker_that_does_not_answer_is_named(serve):
    page = serve()
    _, plan = page.plan(**ACTIONS["restart"])
    page.operations.is_broker_away = True

    status, _, text = page.apply(plan)

    assert 503 == status
    assert "no broker answered" in text


def test_actions_are_hidden_from_a_caller_with_the_read_scope(serve):
    page = serve(secret=SECRET)

    def overview(scope):
        return page.ask("GET", "/", headers=as_browser(scope))[2]

    assert 'href="ui/actions"' in overview(Scope.OPERATE)
    assert 'href="ui/actions"' not in overview(Scope.READ)
    assert 'href="ui/actions"' in overview(Scope.OPERATE)


def test_the_forms_offer_the_processors_hosts_and_inputs(serve):
    status, headers, text = serve().ask("GET", "/ui/actions?processor=1")

    assert 200 == status
    assert '<option value="1" selected>1</option>' in text
    assert '<option value="STANDBY">' in text
    assert '<option value="kafka.orders">' in text
    assert "same-origin" == headers["Referrer-Policy"]
    assert "form-action 'self'" in headers["Content-Security-Policy"]
