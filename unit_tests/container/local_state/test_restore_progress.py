from __future__ import annotations

from collections.abc import Sequence

from samzapy.container.local_state.restore_progress import REPORT_EVERY_MS, RestoreProgress, Restoring
from samzapy.testing.virtual_clock import VirtualClock


class ARestore:
    """Tasks with a number of records to read, the reports, and the first task read."""

    def __init__(self, *to_read: int) -> None:
        self.to_read = to_read
        self.clock = VirtualClock()
        self.asked: list[int] = []
        self.reports: list[Restoring] = []
        self.progress = RestoreProgress(
            len(to_read), ahead_of=self._ahead_of, now_ms=self.clock.monotonic_ms, report=self.reports.append
        )

    def _ahead_of(self, number: int) -> Sequence[int]:
        self.asked.append(number)
        return self.to_read[number:]

    def level(self, number: int, *, ms_per_record: int) -> None:
        for read in range(self.to_read[number] + 1):
            self.progress.task_reads(read, self.to_read[number])
            self.clock.advance(ms_per_record if read < self.to_read[number] else 0)
        self.progress.task_is_level()


def test_progress_counts_the_current_task_and_the_tasks_after_it() -> None:
    restore = ARestore(2, 10, 8)

    for number in range(3):
        restore.level(number, ms_per_record=1000)

    assert [
        Restoring(tasks=3, level=1, restored=5, total=20, left_ms=15_000),
        Restoring(tasks=3, level=1, restored=10, total=20, left_ms=10_000),
        Restoring(tasks=3, level=2, restored=15, total=20, left_ms=5_000),
    ] == restore.reports
    assert [2] == restore.asked


def test_a_short_restore_reports_nothing_and_looks_at_no_state_twice() -> None:
    restore = ARestore(4, 0)

    for number in range(2):
        restore.level(number, ms_per_record=REPORT_EVERY_MS // 4 - 1)

    assert ([], []) == (restore.reports, restore.asked)


def test_there_is_no_estimate_while_nothing_was_read() -> None:
    restore = ARestore(4)
    restore.clock.advance(REPORT_EVERY_MS)

    restore.progress.task_reads(0, 4)

    assert [None] == [progress.left_ms for progress in restore.reports]
    assert "0 of 1 tasks are level, 0 of 4 records were read" == str(restore.reports[0])
    assert {"restored": 0, "restoreTotal": 4} == restore.reports[0].as_json()


def test_progress_is_shown_in_words_and_in_figures() -> None:
    progress = Restoring(tasks=8, level=3, restored=1_200_000, total=4_000_000, left_ms=13_001)

    assert "3 of 8 tasks are level, 1,200,000 of 4,000,000 records were read, about 14 s left" == str(progress)
    assert {"restored": 1_200_000, "restoreTotal": 4_000_000, "restoreLeftMs": 13_001} == progress.as_json()
