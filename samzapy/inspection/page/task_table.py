"""The table of tasks: filtered, sorted and cut into pages by a query."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlencode

from samzapy.errors import RejectedError
from samzapy.inspection.page.task_rows import TaskRow, TaskState

R = TypeVar("R")
ROWS_PER_PAGE: Final = 50
FILTER_LENGTH_MAX: Final = 300
_PAGE_DIGITS_MAX: Final = 6
_NUMBER: Final = re.compile("([0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskQuery:
    """The choice of rows.

    Attributes:
        text: a part of the name of the task, its processor, its owner or its host; empty: all.
        state: None: all.
        sort: a key of `SORTS`.
        is_descending: the largest value comes first.
        page: from 1 on.
    """

    text: str = ""
    state: TaskState | None = None
    sort: str = "plan"
    is_descending: bool = False
    page: int = 1

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> TaskQuery:
        """The query in the parameters of a URL; others are ignored.

        Raises:
            RejectedError: a parameter has a value that there is not.
        """
        sort, state, text = parameters.get("sort", "plan"), parameters.get("state", ""), parameters.get("q", "")
        name = sort.removeprefix("-")
        if name not in SORTS:
            raise RejectedError(
                f"sort: wanted one of {', '.join(SORTS)}, found {name[:50]!r}; - in front reverses it"
            )
        if state and state not in set(TaskState):
            raise RejectedError(f"state: wanted one of {', '.join(TaskState)}, found {state[:50]!r}")
        if len(text) > FILTER_LENGTH_MAX:
            raise RejectedError(f"q: wanted at most {FILTER_LENGTH_MAX} characters, found {len(text)}; shorten it")
        return cls(
            text=text,
            state=TaskState(state) if state else None,
            sort=name,
            is_descending=sort.startswith("-"),
            page=page_of(parameters),
        )

    def link(self, **changes: object) -> str:
        """The query of a URL with some parameters changed."""
        other = replace(self, **changes)  # type: ignore[arg-type]
        sort = f"-{other.sort}" if other.is_descending else other.sort
        values = {
            "q": other.text,
            "state": "" if other.state is None else other.state.value,
            "sort": "" if sort == "plan" else sort,
            "page": "" if other.page == 1 else str(other.page),
        }
        return "?" + urlencode({name: value for name, value in values.items() if value})

    def sorted_by(self, name: str) -> str:
        """The query of a URL with another order; the present one is reversed."""
        starts_descending = name in _LARGEST_FIRST
        is_descending = not self.is_descending if name == self.sort else starts_descending
        return self.link(sort=name, is_descending=is_descending, page=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[R]):
    """Some of the rows of a list.

    Attributes:
        count: the rows on all pages.
        number: of this page; the last one where a later one was asked for.
    """

    rows: Sequence[R]
    count: int
    number: int
    page_count: int


def selected(rows: Sequence[TaskRow], query: TaskQuery) -> Page[TaskRow]:
    """The rows of one page."""
    text = query.text.casefold()
    chosen = [
        row
        for row in rows
        if (query.state is None or row.state is query.state)
        and (not text or any(text in name.casefold() for name in _names(row)))
    ]
    value = SORTS[query.sort]
    if value is not None:
        # Two passes keep rows without a value at the end in both directions, in the order of the plan.
        valued = [(value(row), row) for row in chosen]
        known = [pair for pair in valued if pair[0] is not None]
        known.sort(key=itemgetter(0), reverse=query.is_descending)
        chosen = [row for _, row in (*known, *(pair for pair in valued if pair[0] is None))]
    elif query.is_descending:
        chosen.reverse()
    return paged(chosen, query.page)


def paged(rows: Sequence[R], number: int, size: int = ROWS_PER_PAGE) -> Page[R]:
    """The page of that number; the last one where there are fewer."""
    page_count = max(1, -(-len(rows) // size))
    number = min(number, page_count)
    return Page(rows=rows[(number - 1) * size : number * size], count=len(rows), number=number, page_count=page_count)


def page_of(parameters: Mapping[str, str]) -> int:
    """The parameter `page`; 1 without one.

    Raises:
        RejectedError: it is no number from 1 on.
    """
    text = parameters.get("page", "") or "1"
    is_number = text.isascii() and text.isdigit() and len(text) <= _PAGE_DIGITS_MAX
    if not is_number or int(text) < 1:
        raise RejectedError(f"page: wanted a number from 1 to 999999, found {text[:50]!r}")
    return int(text)


def _names(row: TaskRow) -> tuple[str, ...]:
    return (row.load.task, row.load.processor_id, row.load.owner, row.host)


def _natural(name: str) -> tuple[tuple[tuple[int, str], ...], str] | None:
    """The place of a name in an order that has 2 before 10.

    None for an empty name.
    """
    if not name:
        return None
    # Parts with digits have odd places, so a number meets a number. The longer number is the larger one.
    parts = _NUMBER.split(name)
    parts[1::2] = (digits.lstrip("0") for digits in parts[1::2])
    return tuple((len(part) if place % 2 else 0, part) for place, part in enumerate(parts)), name


def _since(row: TaskRow) -> int | None:
    return row.moved.since_ms if row.moved is not None and row.moved.is_commit else None


_STATE_ORDER: Final = {state: number for number, state in enumerate(TaskState)}
_LARGEST_FIRST: Final = frozenset({"lag", "rate", "busy", "commit"})
SORTS: Final[Mapping[str, Callable[[TaskRow], Any] | None]] = {
    "plan": None,
    "task": lambda row: _natural(row.load.task),
    "state": lambda row: _STATE_ORDER[row.state],
    "processor": lambda row: (len(row.load.processor_id), row.load.processor_id),
    "owner": lambda row: _natural(row.load.owner),
    "lag": lambda row: row.load.lag,
    "rate": lambda row: row.load.records_per_s,
    "busy": lambda row: row.load.batch_share,
    "commit": _since,
}
"""The orders, by their name in the URL; None: the order of the plan."""
