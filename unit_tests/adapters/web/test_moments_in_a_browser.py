"""The job as it was, and differences of moments, in a real browser."""

from urllib.parse import quote

import pytest

from samzapy.stream.codec import decode
from samzapy.stream.records import ContainerPut
from unit_tests.fixtures.browser import IN_A_BROWSER, Tab, picture, poor_contrasts, proxied
from unit_tests.fixtures.operated_page import OperatedPage
from unit_tests.fixtures.page_job import XSS

pytestmark = IN_A_BROWSER


@pytest.fixture
def tab(browser, request):
    tab = Tab(browser, OperatedPage(), color_scheme=getattr(request, "param", "light"))
    yield tab
    tab.context.close()
    tab.served.server.stop()


def test_the_timeline_leads_to_a_moment_and_to_a_difference_by_the_keyboard(tab):
    offset = tab.served.job.world.topic.end_offset - 1
    tab.open("/ui/timeline")
    tab.served.job.scale(1, 2)
    tab.served.job.settles()

    tab.page.get_by_label("The job as it was at").focus()
    tab.press("Control+A")
    tab.page.keyboard.type(str(offset))
    tab.press("Enter")
    tab.page.get_by_role("heading", name="The job as it was").wait_for()
    # The last offset is that of a transaction's marker.
    assert tab.shows(f"After offset {offset - 1} of the coordinator stream")
    assert 4 == tab.page.get_by_role("region", name="Tasks").locator("tbody tr").count()
    picture(tab, "moment-light")
    while tab.focused() != "Later":
        tab.press("Tab")
    tab.press("Enter")
    assert tab.shows(f"After offset {offset + 1} of the coordinator stream")

    while tab.focused() != "Compare with now":
        tab.press("Tab")
    tab.press("Enter")
    tab.page.get_by_role("heading", name="The difference of two moments").wait_for()
    assert 12 == tab.page.get_by_role("region", name="Tasks").locator("tbody tr").count()
    picture(tab, "diff-light")
    assert [] == tab.troubles


@pytest.mark.parametrize("tab", ["light", "dark"], indirect=True)
def test_moments_and_differences_have_readable_contrast(tab):
    before = tab.served.job.world.topic.end_offset - 1
    tab.served.job.scale(1, 2)
    tab.served.job.settles()
    after = tab.served.job.world.topic.end_offset - 1

    for path, heading in (
        (f"/ui/moment?at={after}", "The job as it was"),
        (f"/ui/diff?from={before}&to={after}", "The difference of two moments"),
    ):
        tab.page.goto(f"{tab.served.url}{path}")
        tab.page.get_by_role("heading", name=heading).wait_for()
        assert [] == poor_contrasts(tab), path
    assert [] == tab.troubles


def test_an_event_of_the_timeline_has_the_offset_of_its_moment(tab):
    tab.open("/ui/timeline")
    tab.served.job.scale(1, 2)
    tab.served.job.world.clock.advance(5_000)
    tab.page.locator("#events a").first.click()

    assert tab.shows("of the coordinator stream")
    assert [] == tab.troubles


def test_moments_work_through_a_proxy_under_a_path(tab):
    with proxied(tab.served, "/jobs/flights/") as url:
        tab.page.goto(f"{url}ui/moment?at=3")
        tab.page.get_by_role("link", name="Earlier").click()
        assert tab.shows("After offset 2 of the coordinator stream")
        tab.page.get_by_role("link", name="Timeline").click()
        tab.page.get_by_role("heading", name="Timeline").wait_for()
        tab.page.goto("about:blank")
    assert [] == tab.troubles


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("moment?at=", "at: wanted an offset"),
        ("moment?at=99999", "found that it ends at"),
        ("diff?from=9&to=3", "wanted the earlier moment first"),
        ("diff?from=3&to=x", "to: wanted an offset"),
    ],
)
def test_a_moment_that_there_is_not_is_refused_with_the_reason(tab, path, reason):
    assert 400 == tab.page.goto(f"{tab.served.url}/ui/{path}").status
    assert tab.shows(reason)


@pytest.mark.parametrize("name", XSS)
def test_no_name_in_a_moment_becomes_a_script(tab, name):
    host = f"h{name}"
    tab.served.job.handles([tab.served.job.heartbeat("e7", host=host)])
    puts = [decode(record, topic="t") for record in tab.served.job.world.log().read() if record.value is not None]
    assert host in [put.container.host for put in puts if isinstance(put, ContainerPut)]
    end = tab.served.job.world.topic.end_offset - 1

    tab.page.goto(f"{tab.served.url}/ui/moment?at={end}")
    assert tab.page.evaluate("name => document.body.textContent.includes(name)", host)
    tab.page.goto(f"{tab.served.url}/ui/diff?from=3&to={end}")
    assert tab.page.evaluate("name => document.body.textContent.includes(name)", host)
    tab.page.goto(f"{tab.served.url}/ui/moment?at={quote(name)}")
    tab.page.get_by_role("heading", name="Refused").wait_for()

    assert [] == [text for text in tab.troubles if "status of 400" not in text]
