"""How long a change of the plan is expected to pause a key of a running job.

It is an estimate, and no promise.

Every container that a change concerns ends a micro-batch, releases tasks, and starts a new query. Before that it
restores the state of its tasks, one after the other. The figures are those of `scripts/bench scale`
(docs/internals/performance.md, "the pause of a key when the factor changes") on a machine with two cores. Other
machines, and long micro-batches, differ. Containers start side by side, so the one with the most state to take over
decides.
"""

from __future__ import annotations

from typing import Final

QUERY_RESTART_MS: Final = 1_200
"""Without state: 1.1 s for a merge and 1.3 s for a split."""

COPY_MS_PER_MB: Final = 9
"""Out of a store on the same host: 200 MB add 1.7 s."""

RESTORE_MS_PER_MB: Final = 20
"""Out of the changelog: 200 MB in 3.9 s."""

_MB: Final = 1_000_000


def expected_pause_ms(*, copy_bytes: int, restore_bytes: int) -> int:
    """The expected pause of a container's keys in milliseconds.

    The container has so many bytes to copy on its host and to restore.
    """
    return QUERY_RESTART_MS + (copy_bytes * COPY_MS_PER_MB + restore_bytes * RESTORE_MS_PER_MB) // _MB
