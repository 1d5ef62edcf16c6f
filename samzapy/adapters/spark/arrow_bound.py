"""Bound the Arrow batches for Python workers, in rows and in bytes.

Spark bounds an Arrow batch by both. For the bytes, Arrow measures all columns at each row, which is a fifth of the
JVM's time for a record of a kilobyte. So once records have been small for a while, only the bound on rows remains, with
a limit on the memory that Arrow may hold. If records then become large all at once, their micro-batch exceeds the limit
and fails like any other. The next query has both bounds again, and keeps them.

An Arrow batch is written, sent and read again, which is cheaper while it fits in the processor's caches. So without the
bound on bytes, batches of larger records have fewer rows.
"""

from __future__ import annotations

from typing import Any, Final, Self

from pyspark.sql import SparkSession

ROWS_SETTING: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES_SETTING: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
ROWS_MAX: Final = 10_000
BYTES_MAX: Final = 8 * 1024 * 1024
_UNBOUNDED = 2**31 - 1
_CACHED_BYTES = 2 * 1024 * 1024
_SMALL_BATCHES = 10
# Arrow grows a buffer by doubling it, and holds both while it copies.
_HELD_PER_CORE = 8 * BYTES_MAX
_ANY_NUMBER = 2**63 - 1
# Arrow's texts when it would hold more than that, and when the JVM allows less.
_PASSED = ("due to memory limit", "Failure allocating buffer")


class ArrowBound:
    """The bound of one container's queries, one after the other.

    Args:
        cores: the number of Arrow batches that are filled at the same time.
        rows_max: of an Arrow batch; 0: any number.
        keeps_bytes: whether the bound on bytes always remains.
    """

    def __init__(self, *, cores: int, rows_max: int, keeps_bytes: bool = False) -> None:
        self._cores = cores
        self._rows_max = rows_max
        self._keeps_bytes = keeps_bytes or not rows_max
        self._small_batches = 0
        self._is_left_out = False
        self._row_bytes = 0
        self._rows = rows_max

    @classmethod
    def of(cls, session: SparkSession, cores: int) -> Self:
        """The bound with the session's settings; a user's own bound on bytes is kept."""
        rows, given = session.conf.get(ROWS_SETTING), session.conf.get(BYTES_SETTING)
        return cls(cores=cores, rows_max=max(0, int(rows or 0)), keeps_bytes=given != str(BYTES_MAX))

    def begin(self, session: SparkSession) -> None:
        """Prepare for a new query, which has both bounds by its settings.

        `session` is the caller's.
        """
        self._small_batches, self._is_left_out, self._rows = 0, False, self._rows_max
        _limit(session, None)

    def apply(self, session: SparkSession) -> None:
        """Set the bounds for the next micro-batch; `session`: the query's own."""
        is_left_out = self._small_batches >= _SMALL_BATCHES and not self._keeps_bytes
        # Spark takes 0 rows for any number.
        cached = max(1, _CACHED_BYTES // max(1, self._row_bytes))
        rows = min(self._rows_max, cached) if is_left_out else self._rows_max
        if rows != self._rows:
            self._rows = rows
            session.conf.set(ROWS_SETTING, rows)
        if is_left_out is self._is_left_out:
            return
        self._is_left_out = is_left_out
        session.conf.set(BYTES_SETTING, _UNBOUNDED if is_left_out else BYTES_MAX)
        _limit(session, self._cores * _HELD_PER_CORE if is_left_out else None)

    def ended(self, row_bytes: int) -> None:
        """Note a finished micro-batch.

        It had at most so many bytes per row in an Arrow batch.
        """
        is_small = row_bytes * self._rows_max <= 2 * BYTES_MAX
        self._small_batches = self._small_batches + 1 if is_small else 0
        self._row_bytes = row_bytes

    def failed(self, text: str) -> str | None:
        """Note a failed micro-batch.

        Returns the reason if records became large; both bounds remain from now on.
        """
        if not self._is_left_out or not any(words in text for words in _PASSED):
            return None
        self._keeps_bytes = True
        return (
            "wanted records as small as those before, found large ones all at once; they are read in smaller pieces"
        )


def _limit(session: SparkSession, more_max: int | None) -> None:
    """Let Arrow hold so much more than now; None: any number.

    Failed micro-batches may have left some memory allocated.
    """
    jvm: Any = session._jvm
    allocator = jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator()
    allocator.setLimit(_ANY_NUMBER if more_max is None else allocator.getAllocatedMemory() + more_max)
