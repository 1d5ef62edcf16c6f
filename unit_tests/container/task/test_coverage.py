"""How far inputs were read, in time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from samzapy.container.task.coverage import KEPT_MS, Coverage


def a_coverage(*seen: tuple[int, int]) -> Coverage[str]:
    coverage: Coverage[str] = Coverage()
    for at_ms, end in seen:
        coverage.note_ends(at_ms, {"p": end})
    return coverage


def test_an_input_is_covered_up_to_the_newest_moment_whose_end_was_read() -> None:
    coverage = a_coverage((1000, 10), (2000, 15), (3000, 20))

    assert [None, 1000, 1000, 2000, 3000] == [coverage.covered_ms("p", offset) for offset in (9, 10, 14, 15, 99)]
    assert coverage.covered_ms("another", 99) is None


def test_a_lagging_reader_covers_an_old_moment_only() -> None:
    assert 1000 == a_coverage(*((1000 * number, 100 * number) for number in range(1, 60))).covered_ms("p", 100)


def test_ends_older_than_two_minutes_are_forgotten() -> None:
    assert a_coverage((0, 5), (KEPT_MS + 1, 9)).covered_ms("p", 5) is None


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 5))), st.integers(0, 30))
def test_coverage_agrees_with_a_search_through_all_moments(steps: list[tuple[int, int]], offset: int) -> None:
    seen, at_ms, end = [], 0, 0
    for later_ms, more in steps:
        at_ms, end = at_ms + later_ms, end + more
        seen.append((at_ms, end))

    assert a_coverage(*seen).covered_ms("p", offset) == max((at for at, end in seen if end <= offset), default=None)
