from __future__ import annotations

from samzapy.container.task.measures import KEYS_EVERY, Meter, Stopwatch, with_input
from samzapy.container.task.work_plan import Report, ReportKind, Rows


class AClock:
    def __init__(self) -> None:
        self.now_s = 10.0

    def __call__(self) -> float:
        return self.now_s


def a_report(route: int) -> Report:
    return Report(
        kind=ReportKind.COMMITTED, route=route, offset_next=1, records_in=1, records_out=0, dead_letters=0, commits=1
    )


def keyed(*keys: bytes) -> Rows:
    count = len(keys)
    return Rows(0, list(range(count)), list(keys), [None] * count, [0] * count, None)


def test_only_the_time_that_getting_an_item_takes_is_waited() -> None:
    clock = AClock()
    watch = Stopwatch(clock)

    def coming():  # type: ignore[no-untyped-def]
        for item in "ab":
            clock.now_s += 1.0
            yield item
        clock.now_s += 0.5

    for _ in watch.waiting(coming()):
        clock.now_s += 100.0

    assert 2_500_000_000 == watch.total_ns


def test_the_time_of_a_call_counts_also_when_it_fails() -> None:
    clock = AClock()
    watch = Stopwatch(clock)

    def fail(seconds: float) -> None:
        clock.now_s += seconds
        raise ValueError("no")

    for _ in range(2):
        try:
            watch.timed(fail, 1.5)
        except ValueError:
            continue

    assert (2, 3_000_000_000) == (watch.count, watch.total_ns)


def test_one_key_in_so_many_is_looked_at_however_the_rows_are_cut() -> None:
    keys = [b"%d" % number for number in range(KEYS_EVERY * 6)]
    for size in (1, 50, KEYS_EVERY, 100, len(keys)):
        meter = Meter(AClock())
        chunks = [keyed(*keys[start : start + size]) for start in range(0, len(keys), size)]

        assert len(keys) == sum(len(rows.keys) for rows in meter.begin(chunks))

        (report,) = meter.attach([a_report(0)], 0, {})
        assert report.measured is not None
        assert {str(KEYS_EVERY * number): 1 for number in range(6)} == report.measured.keys.counts, size
        assert 6 == report.measured.keys.sampled


def test_a_measure_without_a_report_is_left_out() -> None:
    assert [] == list(Meter(AClock()).attach([], 0, {}))
    assert [] == list(with_input([], 5))


def test_the_first_report_has_the_time_of_waiting_for_rows() -> None:
    reports = with_input([a_report(0), a_report(1)], 5)

    assert [5, None] == [report.measured and report.measured.input_ns for report in reports]


def test_the_cost_so_far_grows_with_the_work_and_is_kept_until_the_next_micro_batch() -> None:
    clock = AClock()
    meter = Meter(clock)
    assert 0 == meter.so_far(only_open=False).busy_ns

    for _ in meter.begin([keyed(*[b"k"] * KEYS_EVERY)]):
        clock.now_s += 4.0
        assert (4_000_000_000, ("k", 1.0)) == (
            meter.so_far(only_open=True).busy_ns,
            meter.so_far(only_open=True).keys.busiest(),
        )
    meter.attach([a_report(0)], 0, {})
    clock.now_s += 9.0

    assert (4_000_000_000, 0) == (meter.so_far(only_open=False).busy_ns, meter.so_far(only_open=True).busy_ns)
    meter.forget()
    assert 0 == meter.so_far(only_open=False).busy_ns
