"""Actions in a real browser, by the keyboard alone.

Plan and apply, other generations, hostile names, a proxy.
"""

import json
from urllib.parse import quote

import pytest

from samzapy.model.credential import Scope, credential
from samzapy.stream.records import RequestPut
from unit_tests.fixtures.browser import IN_A_BROWSER, Tab, picture, poor_contrasts, proxied
from unit_tests.fixtures.operated_page import OperatedPage
from unit_tests.fixtures.page_job import XSS

SECRET = "s" * 32

pytestmark = IN_A_BROWSER


@pytest.fixture
def open_tab(browser):
    opened = []

    def open_tab(served=None, context=None, **options):
        served = served or OperatedPage(**options)
        opened.append(Tab(browser, served, **(context or {})))
        return opened[-1]

    yield open_tab
    for tab in opened:
        tab.context.close()
        tab.served.server.stop()


def arguments(page):
    page.job.reads()
    return json.loads(page.job.records(RequestPut)[-1].arguments)


def tab_to(tab, name):
    """Reach a field or button by the Tab key."""
    labelled = "() => (document.activeElement.labels?.[0] ?? document.activeElement).textContent.trim()"
    for _ in range(60):
        tab.press("Tab")
        if tab.page.evaluate(labelled).startswith(name):
            assert tab.page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle !== 'none'")
            return
    raise AssertionError(f"wanted {name}, found the end of the page")


def test_a_move_is_planned_and_applied_by_the_keyboard_alone(open_tab):
    tab = open_tab()
    tab.open("/")
    tab_to(tab, "Actions")
    tab.press("Enter")
    tab.page.get_by_role("heading", name="Actions", exact=True).wait_for()
    picture(tab, "actions-light")
    tab_to(tab, "Processor")
    tab.page.keyboard.type("1")
    tab_to(tab, "To host")
    tab.page.keyboard.type("LAST_SEEN")
    tab_to(tab, "Plan the move")
    tab.press("Enter")
    tab.page.get_by_role("heading", name="Move processor 1 to LAST_SEEN").wait_for()
    assert tab.shows("2 tasks pause.")
    tab_to(tab, "Apply")
    tab.press("Enter")

    assert tab.shows("is written. Its answer appears below.")
    assert {"expectedGeneration": "1"} == arguments(tab.served)
    assert [] == tab.troubles


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_actions_plans_and_answers_have_readable_contrast(open_tab, scheme):
    tab = open_tab(context={"color_scheme": scheme})
    tab.page.goto(f"{tab.served.url}/ui/actions")
    assert [] == poor_contrasts(tab), "actions"
    tab.page.get_by_label("Key buckets per partition").select_option("4")
    tab.page.get_by_role("button", name="Plan the factor").click()
    assert tab.shows("16 splits")
    assert [] == poor_contrasts(tab), "plan"
    tab.page.get_by_role("button", name="Apply").click()
    assert tab.shows("is written.")
    assert [] == poor_contrasts(tab), "answer"
    tab.page.goto(f"{tab.served.url}/ui/plan?action=scale&factor=0")
    assert [] == poor_contrasts(tab), "refused"


def test_a_restart_is_planned_and_applied_without_script(open_tab):
    tab = open_tab(context={"java_script_enabled": False})
    tab.page.goto(f"{tab.served.url}/ui/actions")
    tab.page.get_by_role("button", name="Plan the restart").click()
    assert tab.shows("another query starts in the same process")
    tab.page.get_by_role("button", name="Apply").click()

    assert tab.shows("is written. Its answer appears below.")
    assert "restart-query" == tab.served.operations.sent[0].action


def test_a_factor_is_planned_and_applied_and_its_answer_appears(open_tab):
    tab = open_tab()
    tab.page.goto(f"{tab.served.url}/ui/actions")
    tab.page.get_by_label("Key buckets per partition").select_option("4")
    tab.page.get_by_role("button", name="Plan the factor").click()
    assert tab.shows("16 splits")
    picture(tab, "plan-light")
    tab.page.get_by_role("button", name="Apply").click()
    assert tab.shows("is written.")

    tab.served.job.reads()
    tab.served.job.world.clock.advance(5_000)

    assert tab.shows("IN_PROGRESS")
    assert [] == tab.troubles


def test_a_rewind_shows_the_repeated_messages_before_it_is_applied(open_tab):
    tab = open_tab()
    tab.page.goto(f"{tab.served.url}/ui/actions")
    tab.page.get_by_label("To", exact=True).fill("42")
    tab.page.get_by_label("Partition", exact=True).fill("2")
    tab.page.get_by_role("button", name="Plan the rewind").click()
    assert tab.shows("42 are skipped")
    tab.page.get_by_role("button", name="Apply").click()

    assert tab.shows("is written.")
    assert {"stream": "kafka.orders", "to": "42", "partition": "2", "expectedGeneration": "1"} == arguments(
        tab.served
    )


def test_a_plan_for_another_generation_is_refused_and_made_again(open_tab):
    tab = open_tab()
    tab.page.goto(f"{tab.served.url}/ui/plan?action=restart&processor=0")
    tab.served.job.scale(1, 2)

    tab.page.get_by_role("button", name="Apply").click()
    tab.page.get_by_role("alert").filter(has_text="generation 2 is in force").wait_for()
    assert [] == tab.served.operations.sent
    tab.page.get_by_role("button", name="Apply").click()

    assert tab.shows("is written.")
    assert "2" == tab.served.operations.sent[0].arguments["expectedGeneration"]


def test_a_page_of_another_site_cannot_apply_a_plan(open_tab):
    tab = open_tab()
    _, plan = tab.served.plan(action="restart", processor="0")
    form = plan[plan.index('<form method="post"') : plan.index("</form>") + 7]
    # A page of the origin `null`, as any page of another site.
    tab.page.goto("data:text/html," + quote(form.replace('action="apply"', f'action="{tab.served.url}/ui/apply"')))

    tab.page.get_by_role("button", name="Apply").click()

    assert tab.shows("own pages")
    assert [] == tab.served.operations.sent


def test_an_operator_acts_with_the_password_that_the_browser_asked_for(open_tab):
    def password(scope):
        return {"username": "x", "password": credential(SECRET, "flights-1", scope, "me")}

    served = OperatedPage(secret=SECRET)
    reader = open_tab(served, {"http_credentials": password(Scope.READ)})
    reader.open("/")
    assert 0 == reader.page.get_by_role("link", name="Actions").count()
    assert 403 == reader.page.goto(f"{served.url}/ui/actions").status

    tab = open_tab(served, {"http_credentials": password(Scope.OPERATE)})
    tab.open("/")
    tab.page.get_by_role("link", name="Actions").click()
    tab.page.get_by_role("button", name="Plan the restart").click()
    tab.page.get_by_role("button", name="Apply").click()

    assert tab.shows("is written.")
    assert {"expectedGeneration": "1", "by": "me"} == arguments(served)


def test_actions_work_through_a_proxy_under_a_path(open_tab):
    tab = open_tab()
    with proxied(tab.served, "/jobs/flights/") as url:
        tab.page.goto(url)
        tab.page.get_by_role("link", name="Actions").click()
        tab.page.get_by_role("button", name="Plan the restart").click()
        tab.page.get_by_role("button", name="Apply").click()
        assert tab.shows("is written.")
        assert tab.page.url.startswith(f"{url}ui/requests?written=")
        tab.page.goto("about:blank")
    assert [] == tab.troubles


@pytest.mark.parametrize("name", XSS)
def test_no_name_in_an_action_becomes_a_script(open_tab, name):
    tab = open_tab()
    for field, value in {"Processor": "1", "Task": name, "To": name}.items():
        tab.page.goto(f"{tab.served.url}/ui/actions")
        form = tab.page.locator("form").filter(has_text="Rewind an input")
        form.get_by_label("To", exact=True).fill("oldest")
        if field == "Processor":
            form.get_by_label(field).select_option(value)
        else:
            form.get_by_label(field, exact=True).fill(value[:100])
        form.get_by_role("button").click()
        tab.page.get_by_role("heading", level=1).wait_for()
    assert tab.shows("wanted oldest, newest")
    host = f"h{name}"
    snapshot = tab.served.job.service.status()
    container = next(iter(snapshot.state.containers.values()))
    object.__setattr__(container, "host", host)
    tab.page.goto(f"{tab.served.url}/ui/actions")
    assert host in tab.page.evaluate("() => [...document.querySelectorAll('option')].map((one) => one.value)")
    tab.page.goto(f"{tab.served.url}/ui/plan?action=place&processor=0&host=ANY_HOST")
    tab.page.get_by_role("heading", level=1).wait_for()

    errors = [text for text in tab.troubles if "status of 400" not in text]
    assert [] == errors
