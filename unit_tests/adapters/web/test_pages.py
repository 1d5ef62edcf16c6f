"""The coordinator's web page: each route, its escapes, its headers, its bounds."""

import re
import threading
from base64 import b64encode
from collections import Counter
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from html.parser import HTMLParser
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit

import pytest

from samzapy.adapters.web import pages
from samzapy.adapters.web.guard import Guard
from samzapy.adapters.web.page_rendering import STATIC
from samzapy.adapters.web.pages import EVENTS_PER_S_MAX, KEPT_MAX, LOOK_MS, VIEWERS_MAX, period_s
from samzapy.adapters.web.routes import Answering, make_app
from samzapy.adapters.web.server import CoordinatorServer, ServerAccess
from samzapy.model.container import ContainerPhase
from samzapy.model.container_end import ContainerEnd
from samzapy.model.credential import Scope, credential
from samzapy.model.failing import Failing
from samzapy.model.finding import Finding
from samzapy.model.placement import StatusCode
from samzapy.stream.position import Position
from samzapy.testing.virtual_clock import VirtualClock
from samzapy.testing.waiting import wait_until
from unit_tests.fixtures.launched_job import a_move
from unit_tests.fixtures.operated_page import MemoryHistory, MemoryOperations
from unit_tests.fixtures.page_job import XSS, NamedJob, PageJob

PAGES = ("/", "/ui/tasks", "/ui/containers", "/ui/requests", "/ui/timeline", "/ui/load")
BYTES_MAX = 150_000
SECRET = "s" * 32


class Served:
    """A job made by hand, behind a real server."""

    def __init__(self, job, secret=None):
        self.job = job
        self.asked = 0
        self.changes_after_reading = []
        guard = Guard() if secret is None else Guard(job="flights-1", secrets=lambda: [secret])
        self.leader = None
        self.server = CoordinatorServer(
            host="127.0.0.1",
            port=0,
            answering=Answering(
                snapshot=self._snapshot,
                put=lambda heartbeat: True,
                clock=self.job.clock,
                lease_ms=10_000,
                leader=lambda: self.leader,
                brokers=lambda: "kafka-1:9092 refuses connections.",
            ),
            access=ServerAccess(guard=guard),
        )
        self.url = self.server.start()
        self.address = (urlsplit(self.url).hostname, urlsplit(self.url).port)

    def _snapshot(self):
        self.asked += 1
        snapshot = self.job.snapshot()
        while self.changes_after_reading:
            self.changes_after_reading.pop(0)()
        return snapshot

    def get(self, path, headers=None):
        """Status, headers and text of an answer."""
        with closing(HTTPConnection(*self.address, timeout=30)) as connection:
            connection.request("GET", path, headers=headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read().decode()

    def text(self, path):
        status, _, text = self.get(path)
        assert 200 == status, text
        return text

    def wait_for_looks(self):
        """Return when the looks that were begun are taken.

        This answer comes from the same thread, and needs no look.
        """
        self.job.leads = False
        assert 503 == self.get("/")[0]
        self.job.leads = True

    @contextmanager
    def watching(self):
        """A stream of events, as an open file of lines."""
        with closing(HTTPConnection(*self.address, timeout=30)) as connection:
            connection.request("GET", "/ui/events")
            yield connection.getresponse()


@contextmanager
def serving(*args, job=None, secret=None):
    served = Served(job or PageJob(*args), secret)
    try:
        yield served
    finally:
        served.server.stop()


@pytest.fixture
def served():
    with serving() as served:
        served.job.receive_heartbeats()
        yield served


class Elements(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)

    def named(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", "4 tasks in 2 containers on 2 hosts"),
        ("/ui/tasks", "Generation 1 plans it on processor 0."),
        ("/ui/task?name=Partition_1", "execution e1 of processor 1 on host-1"),
        ("/ui/containers", "fault domain rack-1"),
        ("/ui/requests", "There are no requests."),
        ("/ui/timeline", "Term 1 began"),
        ("/ui/load", "kafka.orders.3"),
    ],
)
def test_each_view_shows_the_job(served, path, expected):
    served.text(path)
    served.job.receive_heartbeats()

    status, headers, text = served.get(path)

    assert (200, "text/html; charset=utf-8") == (status, headers["Content-Type"])
    assert expected in text
    assert "flights-1" in text
    assert "close" == headers["Connection"], "a viewer keeps no connection but that of its events"


@pytest.mark.parametrize("path", [*PAGES, "/ui/page.css", "/ui/page.js", "/ui/tasks?sort=x"])
def test_every_answer_has_the_headers_that_bind_a_browser(served, path):
    _, headers, _ = served.get(path)

    assert (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ) == headers["Content-Security-Policy"]
    assert ("nosniff", "no-referrer") == (headers["X-Content-Type-Options"], headers["Referrer-Policy"])
    assert ("private, max-age=86400" if "page." in path else "no-store") == headers["Cache-Control"]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_inline_script_or_style_and_only_relative_links(served, path):
    page = Elements(served.text(path))

    assert all(set(script) == {"src", "defer"} for script in page.named("script"))
    assert [] == page.named("style")
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        for name in ("href", "src", "action", "data-events"):
            link = attributes.get(name, "")
            assert not link.startswith(("/", "http")), link
            assert link.startswith("data:") or ":" not in link.partition("?")[0], link


def test_the_pages_link_to_each_other_from_each_depth(served):
    def paths(path):
        base = f"http://proxy/jobs/flights{path}"
        return {urlsplit(urljoin(base, link["href"])).path for link in Elements(served.text(path)).named("a")}

    expected = {f"/jobs/flights{path}" for path in PAGES}
    assert [] == [path for path in PAGES if not expected <= paths(path)]


def test_a_page_is_small(served):
    with serving(1_000, 1_000) as large:
        large.job.receive_heartbeats(lag=50)
        shared = sum(len(large.get(f"/ui/{name}")[2].encode()) for name in STATIC)

        for path in PAGES:
            assert len(large.text(path).encode()) + shared <= BYTES_MAX, path


@pytest.mark.parametrize("name", XSS)
def test_no_text_of_a_topic_becomes_markup(name):
    assert elements_of_a_job_called("x") == elements_of_a_job_called(name)


def elements_of_a_job_called(name):
    """The elements of all pages with the names of their attributes.

    Each text of the job has that name.
    """
    with serving(job=NamedJob(name)) as served:
        for _ in range(2):
            served.job.receive_heartbeats()
            task = quote(served.job.task_names[0])
            paths = (*PAGES, f"/ui/task?name={task}", f"/ui/tasks?q={quote(name)}")
            pages = {number: Elements(served.text(path)) for number, path in enumerate(paths)}
            assert served.job.task_names[0] in "".join(pages[1].texts)
            served.job.change_names()
        return {
            number: Counter((tag, *sorted(attributes)) for tag, attributes in page.tags)
            for number, page in pages.items()
        }


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/ui/tasks?sort=colour", "sort"),
        ("/ui/tasks?state=%3Cb%3E", "state"),
        ("/ui/tasks?page=x", "page"),
        ("/ui/timeline?kind=x", "kind"),
        ("/ui/requests?page=0", "page"),
        ("/ui/task?name=%3Cb%3E", "name"),
        ("/ui/task", "name"),
    ],
)
def test_a_query_that_cannot_be_answered_is_refused_with_the_reason(served, path, name):
    status, _, text = served.get(path)

    assert 400 == status
    assert f"{name}: wanted" in text
    assert "<b>" not in text


def test_the_tasks_are_filtered_sorted_and_paged_without_a_script():
    with serving(230, 2) as served:
        served.job.receive_heartbeats(lag=5)

        def shown(query):
            return re.findall(r'href="task\?name=(\w+)"', served.text(f"/ui/tasks{query}"))

        assert [f"Partition_{number}" for number in range(50)] == shown("")
        assert [f"Partition_{number}" for number in range(200, 230)] == shown("?page=5")
        assert shown("?page=5") == shown("?page=99")
        assert ["Partition_229"] == shown("?q=_229")
        assert "Partition_229" == shown("?sort=-plan")[0]
        assert "Page 2 of 5" in served.text("/ui/tasks?page=2")


def test_the_overview_has_the_worst_cause_in_its_sentence_and_the_others_below(served):
    served.job.change_container("e1", phase=ContainerPhase.LOST, reason="no heartbeat")
    failing = Failing(attempts=1, for_ms=1, left_ms=1, reason="<b>disk full</b>")
    served.job.receive_heartbeats(heartbeats={"e0": {"failing": failing}})

    text = " ".join("".join(Elements(served.text("/")).texts).split())

    assert "FAILING 2 of 4 tasks fail; 1 container on 1 host. Cause: the query of its container failed once:" in text
    assert "failed once: <b>disk full</b> WAITING 2: container-lost: container e1 on host-1 was declared lost" in text


def test_the_overview_has_one_line_about_failed_requests_with_a_link(served):
    refused = "expectedGeneration: wanted the plan that is in force, 1, found 0"
    move = replace(a_move(StatusCode.FAILED), response_message=refused, decided_at_ms=served.job.clock.wall_ms())
    served.job.change(requests={"u": move, "v": replace(move, uuid="v", response_message="x" * 4_000)})
    served.job.receive_heartbeats()

    page = Elements(served.text("/"))

    text = " ".join("".join(page.texts).split())
    assert f"Failed requests of the last hour: 2. The latest: place-container, FAILED: {refused}" in text
    assert 2 == [link["href"] for link in page.named("a")].count("ui/requests"), "the menu has one too"


def test_the_overview_has_the_same_live_parts_with_and_without_findings_and_stores(served):
    def live_parts():
        text = served.text("/")
        ids = [attributes["id"] for _, attributes in Elements(text).tags if "data-live" in attributes]
        return ids, "topic-missing" in text, "stores-head" in text

    parts, *has = live_parts()
    assert [False, False] == has
    finding = Finding(code="topic-missing", subject="topic a", found="a is not there", remedy="Make it")
    for findings, config, expected in (
        ((finding,), {}, [True, False]),
        ((), {"stores.counts.msg.serde": "json"}, [False, True]),
    ):
        served.job.findings = findings
        served.job.change(config=config)
        served.job.receive_heartbeats()
        shown, *has = live_parts()
        assert (parts, expected) == (shown, has), "the script replaces only parts that both pages have"


@pytest.mark.parametrize("path", ["/", "/ui/tasks"])
def test_a_process_that_does_not_lead_links_to_the_leader(served, path):
    served.job.leads, served.leader = False, "http://c:1"

    status, headers, text = served.get(path)

    assert (503, "no-store") == (status, headers["Cache-Control"])
    assert '<a class="name" href="http://c:1">http://c:1</a>' in text
    assert 503 == served.get("/ui/events")[0]


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", ' http://"><b>'])
def test_the_url_of_a_leader_is_a_link_only_if_it_is_http(served, url):
    served.job.leads, served.leader = False, url

    page = Elements(served.get("/")[2])

    assert ["#main"] == [link["href"] for link in page.named("a")]
    assert [] == page.named("b")
    assert url in "".join(page.texts)


def test_a_process_that_knows_no_leader_answers_so(served):
    served.job.leads, served.leader = False, served.url
    served.job.change(term=replace(served.job.state.term, url=served.url))

    assert "No leader is known." in served.get("/")[2]


@pytest.mark.parametrize("path", [*PAGES, "/ui/task", "/ui/events", "/ui/page.css", "/ui/page.js"])
def test_a_credential_to_read_is_wanted_where_the_job_has_a_secret(path):
    def status_for(scope):
        password = f"me:{credential(SECRET, 'flights-1', scope, 'name')}"
        basic = {"Authorization": f"Basic {b64encode(password.encode()).decode()}"}
        served.job.leads = False
        return served.get(path, basic)[0]

    with serving(secret=SECRET) as served:
        status, headers, _ = served.get(path)
        assert 401 == status
        assert headers["WWW-Authenticate"].startswith("Basic "), "Chromium asks for it if it is the first one"
        assert 403 == status_for(Scope.HEARTBEAT)
        assert status_for(Scope.READ) in (200, 503)


def test_a_leader_without_an_answering_broker_names_the_time_and_its_brokers(served):
    served.job.unverified_ms = 23_400

    for path in PAGES:
        status, _, text = served.get(path)
        assert 503 == status
        assert "no broker has answered it for 23 s" in text
        assert "broker-unreachable" in text
        assert "kafka-1:9092 refuses connections." in text
        assert "No leader is known" not in text


def test_a_path_beside_the_files_of_the_page_is_not_there(served):
    for path in ("/ui/page.html", "/ui/../routes.py", "/ui/%2e%2e/routes.py", "/ui/templates/base.html", "/ui/"):
        assert 404 == served.get(path)[0], path


def test_every_route_is_documented_with_its_scope():
    answering = Answering(
        snapshot=lambda: None,
        put=lambda heartbeat: True,
        clock=VirtualClock(),
        url="",
        lease_ms=1,
        leader=lambda: None,
        operations=MemoryOperations(),
        history=MemoryHistory(None),
    )
    page = (Path(__file__).parents[3] / "docs/reference/http.md").read_text()
    rows = re.findall(r"^\| (`.*`) \| (?:heartbeat|read|operate) \|", page, re.MULTILINE)

    assert {route.path for route in make_app(answering, []).routes} == {
        path for row in rows for path in re.findall(r"`\w+ ([\w/.]+)(?:\?[\w=&]+)?`", row)
    }


# --- looks ---


def test_the_containers_have_the_last_ends_by_an_error(served):
    end = ContainerEnd(
        processor_id="1",
        execution_id="e1",
        host="host-1",
        exit_code=7,
        error="E",
        message="failed",
        ended_at_ms=60_000,
    )
    assert "Last ends by an error" not in served.text("/ui/containers")
    served.job.change(container_ends={"1": end})
    served.job.receive_heartbeats()

    text = served.text("/ui/containers")

    assert "Last ends by an error" in text
    assert str(end) in text


def test_heartbeats_feed_the_last_hour_without_a_viewer(served):
    for _ in range(5):
        served.job.receive_heartbeats(after_ms=10_000)
        assert 200 == served.get("/containerHeartbeat?executionContainerId=e0")[0]
        served.wait_for_looks()

    (line,) = re.findall(r'<polyline points="([^"]+)"/>', served.text("/"))[:1]
    assert 4 == len(line.split()), "the first look has no rate"


def test_an_event_between_two_looks_is_in_the_timeline(served):
    served.text("/ui/timeline")
    served.job.findings = (
        Finding(code="topic-missing", subject="topic a", found="a is not there", remedy="Make it"),
    )
    served.job.receive_heartbeats()

    assert "topic-missing: a is not there" in served.text("/ui/timeline")
    assert "topic-missing" not in served.text("/ui/timeline?kind=move")


def a_later_term(served, term, coordinator_id):
    """The texts of the timeline after a look, a change, and a term of that leader."""
    served.text("/ui/timeline")
    served.job.change(term=replace(served.job.state.term, term=term, coordinator_id=coordinator_id))
    served.job.change_container("e1", phase=ContainerPhase.LOST, reason="no heartbeat")
    served.job.receive_heartbeats()
    return served.text("/ui/timeline")


def test_a_process_that_leads_again_behind_another_leader_begins_with_the_recorded_moments(served):
    text = a_later_term(served, 3, "a")

    assert "Term 3 began" in text
    assert "Term 1 began" not in text
    assert "is LOST" not in text, "the other leader saw when that was"


def test_a_look_behind_another_leader_has_a_number_of_its_own(served):
    def number():
        return int(re.search(r'data-look="(\d+)"', served.text("/"))[1])

    first = number()
    a_later_term(served, 3, "a")

    assert number() == first + 1, "viewers load a view if the number is new"


def test_a_process_that_leads_in_the_next_term_too_keeps_its_timeline(served):
    text = a_later_term(served, 2, "a")

    assert "Term 1 began" in text
    assert "Term 2 began" in text
    assert "is LOST: no heartbeat" in text


def test_a_process_that_leads_behind_the_next_term_of_another_begins_anew(served):
    assert "is LOST" not in a_later_term(served, 2, "b")


def test_a_time_of_the_timeline_is_taken_as_a_moment(served):
    (began,) = re.findall(r'<td class="time">(.+?)</td>', served.text("/ui/timeline"))

    started_at_ms = served.job.state.term.started_at_ms
    assert Position(timestamp_ms=started_at_ms // 1000 * 1000) == Position.parse(began)


def test_a_look_is_shared_for_a_second(served):
    first = served.text("/")
    served.job.clock.advance(999)
    assert first == served.text("/")
    served.job.clock.advance(1)
    assert first != served.text("/")


def test_a_change_between_the_reading_and_the_look_is_shown_by_the_next_request(served):
    """As where the page's thread is busy.

    With the thread's time for the old figures the next look came later.
    """
    served.text("/ui/tasks")
    served.job.clock.advance(LOOK_MS - 1)
    served.changes_after_reading += [
        lambda: served.job.change_container("e1", phase=ContainerPhase.LOST, reason="no heartbeat"),
        served.job.receive_heartbeats,
    ]

    before, after = served.text("/ui/tasks"), served.text("/ui/tasks")

    assert "declared lost (no heartbeat)" not in before
    assert "declared lost (no heartbeat)" in after


def test_a_view_is_made_once_for_twenty_viewers(served, monkeypatch):
    made, html_of = [], pages.html_of
    monkeypatch.setattr(pages, "html_of", lambda *args, **more: made.append(args[0]) or html_of(*args, **more))

    shown = {served.text("/ui/tasks") for _ in range(20)}

    assert (1, ["tasks"]) == (len(shown), made)


def test_pages_that_are_kept_are_bounded_and_not_mixed_up(served):
    pages = {number: served.text(f"/ui/tasks?q={number}") for number in range(KEPT_MAX + 5)}

    for number, page in pages.items():
        assert f'value="{number}"' in page
        assert page == served.text(f"/ui/tasks?q={number}")


# --- events ---


def next_event(stream):
    """The data of the next event; None at the end of the stream."""
    while line := stream.readline():
        if line.startswith(b"data: "):
            return int(line[6:])
    return None


def test_a_viewer_gets_an_event_for_each_new_look_and_none_without(served):
    with served.watching() as stream:
        assert (200, "text/event-stream; charset=utf-8") == (stream.status, stream.headers["Content-Type"])
        first, looks_before = next_event(stream), served.asked
        wait_until(lambda: served.asked >= looks_before + 3, 20, "the stream to look for something new")
        served.job.receive_heartbeats()
        assert first + 1 == next_event(stream)


def test_the_stream_ends_when_the_process_does_not_lead_any_more(served):
    with served.watching() as stream:
        assert next_event(stream)
        served.job.leads = False

        assert 0 == next_event(stream)
        assert None is next_event(stream)


def test_many_viewers_get_fewer_events_each():
    assert [1.0, 1.0, 2.0] == [period_s(viewers) for viewers in (1, EVENTS_PER_S_MAX, 2 * EVENTS_PER_S_MAX)]


def test_viewers_are_bounded_and_their_places_become_free(served):
    with ExitStack() as watching:
        for _ in range(VIEWERS_MAX):
            assert 200 == watching.enter_context(served.watching()).status
        status, headers, text = served.get("/ui/events")
        assert (503, "30") == (status, headers["Retry-After"])
        assert f"{VIEWERS_MAX} viewers" in text
        assert 200 == served.get("/containerHeartbeat?executionContainerId=e0")[0]

    def is_admitted():
        with served.watching() as stream:
            return stream.status == 200

    wait_until(is_admitted, 20, "a free place")


def test_a_server_with_a_viewer_stops_at_once_and_logs_nothing(served, caplog):
    ended = threading.Event()

    def watch():
        with served.watching() as stream:
            started.set()
            while next_event(stream) is not None:
                pass
        ended.set()

    started = threading.Event()
    thread = threading.Thread(target=watch)
    thread.start()
    assert started.wait(20)

    served.server.stop()

    assert ended.wait(20)
    thread.join()
    assert [] == [record for record in caplog.records if record.name.startswith("uvicorn")]
