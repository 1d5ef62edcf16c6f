"""HTML of the page's views, made by Jinja2, which escapes every value.

Templates, style and script are files of the package. They are read by their names in two tables, so no request chooses
a file. Jinja2 is imported when the first page is asked for: most processes of a job never show one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

from samzapy.errors import RejectedError
from samzapy.inspection.page.heat_map import heat_map
from samzapy.inspection.page.hosts import hosts
from samzapy.inspection.page.look import Look
from samzapy.inspection.page.overview import job_state, overview
from samzapy.inspection.page.requests import request_rows
from samzapy.inspection.page.task_rows import TaskState
from samzapy.inspection.page.task_table import TaskQuery, page_of, paged, selected
from samzapy.inspection.page.task_view import reasons, task_view
from samzapy.inspection.page.timeline import EventKind
from samzapy.inspection.page.trend import SPAN_MS
from samzapy.model.job import TaskName
from samzapy.stream.audit import time_text

if TYPE_CHECKING:
    from jinja2 import Environment, Template

Html = str
STATIC: Final = {"page.css": "text/css", "page.js": "text/javascript"}
_TEMPLATES: Final = (
    *("base.html", "parts.html", "overview.html", "tasks.html", "task.html", "containers.html"),
    *("requests.html", "timeline.html", "load.html", "message.html"),
    *("actions.html", "plan.html", "refused.html", "moment.html", "diff.html"),
)
PIECES_BETWEEN_RESTS: Final = 200
CHART_WIDTH: Final = 480
CHART_HEIGHT: Final = 80


def html_of(
    name: str,
    look: Look,
    parameters: Mapping[str, str],
    rest: Callable[[], None],
    *,
    operates: bool = False,
    has_history: bool = False,
) -> Html:
    """The page of a view.

    Args:
        rest: called now and then, to let other threads run.
        operates: whether the caller may use actions.
        has_history: whether moments of the past can be shown.

    Raises:
        RejectedError: a parameter of the URL has a value that there is not.
    """
    values = {**_VALUES[name](look, parameters), "operates": operates, "has_history": has_history}
    return _render(name, look, rest, values)


def single_html(name: str, look: Look, values: Mapping[str, object], rest: Callable[[], None]) -> Html:
    """A page that is made for one request alone."""
    return _render(name, look, rest, values)


def leader_html(url: str | None, view: str) -> Html:
    """The page of a process that does not lead, with the URL of the leader."""
    # The URL comes from a topic, so it may be any text.
    is_link = url is not None and url.startswith(("http://", "https://"))
    return _template("message.html").render(
        root=_root(view),
        title="This process does not lead the job",
        link=url if is_link else None,
        unlinked=url,
        text="",
    )


def obstacle_html(obstacle: str, view: str) -> Html:
    """The page of a leader that cannot answer now, and why."""
    return _template("message.html").render(
        root=_root(view), title="The leader does not reach its brokers", link=None, unlinked=None, text=obstacle
    )


def refusal_html(reason: str, view: str) -> Html:
    """The page that tells why a URL has no answer."""
    return _template("message.html").render(
        root=_root(view), title="This page cannot be shown", link=None, unlinked=None, text=reason
    )


@cache
def static_bytes(name: str) -> bytes:
    """A file of `STATIC`."""
    assert name in STATIC, name
    return resources.files("samzapy.adapters.web").joinpath("static", name).read_bytes()


def _render(view: str, look: Look, rest: Callable[[], None], values: Mapping[str, object]) -> Html:
    counts: dict[TaskState, int] = {}
    for row in look.tasks:
        counts[row.state] = counts.get(row.state, 0) + 1
    job_now, sentence = job_state(look, counts)
    pieces = _template(f"{view}.html").generate(
        root=_root(view),
        view=view,
        look=look,
        state=look.snapshot.state,
        job_word=job_now.value,
        sentence=sentence,
        counts=counts,
        **values,
    )
    html = []
    for number, piece in enumerate(pieces):
        html.append(piece)
        if number % PIECES_BETWEEN_RESTS == 0:
            rest()
    return "".join(html)


def _overview(look: Look, parameters: Mapping[str, str]) -> Mapping[str, object]:
    return {
        "overview": overview(look),
        "charts": (
            _chart(look, "Records handled per second", [sample.records_per_s for sample in look.trend]),
            _chart(look, "Lag in records", [sample.lag for sample in look.trend]),
        ),
    }


def _tasks(look: Look, parameters: Mapping[str, str]) -> Mapping[str, object]:
    query = TaskQuery.of(parameters)
    return {"query": query, "page": selected(look.tasks, query), "states": list(TaskState), "reasons": _why(look)}


def _why(look: Look) -> Callable[[str], str]:
    """The reasons of a task, in one text; made only for the rows that are shown."""
    planned = {item.task_name: item for item in look.snapshot.state.plan}

    def why(task_name: str) -> str:
        item = planned.get(TaskName(task_name))
        return "" if item is None else " ".join(reasons(item, look.snapshot.state))

    return why


def _task(look: Look, parameters: Mapping[str, str]) -> Mapping[str, object]:
    return {"task": task_view(look, parameters.get("name", ""))}


def _containers(look: Look, parameters: Mapping[str, str]) -> Mapping[str, object]:
    return {"hosts": hosts(look, page_of(parameters))}


def _requests(look: Look, parameters: Mapping[str, str]) -> Mapping[str, object]:
    return {"page": paged(request_rows(look), page_of(parameters)), "written": parameters.get("written", "")[:36]}


def _timeline(look: Look, parameters: Mapping[str, str]) -> Mapping[str, object]:
    kind = parameters.get("kind", "")
    if kind and kind not in set(EventKind):
        raise RejectedError(f"kind: wanted one of {', '.join(EventKind)}, found {kind[:50]!r}")
    events = [event for event in reversed(look.events) if not kind or event.kind == kind]
    return {"page": paged(events, page_of(parameters)), "kind": kind, "kinds": list(EventKind)}


def _load(look: Look, parameters: Mapping[str, str]) -> Mapping[str, object]:
    return {"heat_map": heat_map(look), "overview": overview(look)}


_VALUES: Final[Mapping[str, Callable[[Look, Mapping[str, str]], Mapping[str, object]]]] = {
    "overview": _overview,
    "tasks": _tasks,
    "task": _task,
    "containers": _containers,
    "requests": _requests,
    "timeline": _timeline,
    "load": _load,
}


def _root(view: str) -> str:
    """The way from a view back to the path of the overview."""
    return "" if view == "overview" else "../"


def _chart(look: Look, label: str, values: Sequence[float | None]) -> Mapping[str, object]:
    """A line chart of the last hour; a time without a value is a gap in its line."""
    known = [value for value in values if value is not None]
    largest = max(known, default=0.0) or 1.0
    segments: list[list[str]] = [[]]
    for sample, value in zip(look.trend, values, strict=True):
        if value is None:
            segments.append([])
            continue
        x = CHART_WIDTH * (1 - (look.now_ms - sample.at_ms) / SPAN_MS)
        y = CHART_HEIGHT * (1 - value / largest)
        segments[-1].append(f"{x:.1f},{y:.1f}")
    lines = [" ".join(points if len(points) > 1 else points * 2) for points in segments if points]
    latest = values[-1] if values else None
    return {"label": label, "lines": lines, "latest": latest, "largest": max(known, default=None)}


@cache
def _environment() -> Environment:
    from jinja2 import DictLoader, Environment, StrictUndefined

    files = resources.files("samzapy.adapters.web").joinpath("templates")
    environment = Environment(
        loader=DictLoader({name: files.joinpath(name).read_text(encoding="utf-8") for name in _TEMPLATES}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=_number, percent=_percent, utc=_utc, age=_age, size=_size)
    environment.globals.update(
        width=CHART_WIDTH,
        height=CHART_HEIGHT,
        digests={name: hashlib.sha256(static_bytes(name)).hexdigest()[:12] for name in STATIC},
    )
    return environment


def _template(name: str) -> Template:
    return _environment().get_template(name)


def _number(value: float | None) -> str:
    """A number as it is read: with separators, `-` if it is not known."""
    return "-" if value is None else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _utc(at_ms: int | None) -> str:
    return "-" if at_ms is None else time_text(at_ms)[:19].replace("T", " ") + " UTC"


def _age(ms: int | None) -> str:
    """A span of time in its largest unit."""
    if ms is None:
        return "-"
    seconds = max(0, ms) // 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _size(count: int | None) -> str:
    if count is None:
        return "-"
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:,.0f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"
