"""How long a change of the plan is expected to keep a key of a running job waiting. An estimate, and no promise.

Everybody whom a change concerns ends a micro-batch, lets go, and starts a new query; before that a container brings
the state of its tasks level, one after the other. The figures are those of `scripts/bench scale`
(docs/internals/performance.md,
"the pause of a key when the factor changes") on a machine with two cores: another one differs, and so do micro-batches
that take long. Containers start side by side, so the one with the most state to take over counts.
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
    """How long keys of a container wait that has so many bytes to copy on its host and to restore, in milliseconds."""
    return QUERY_RESTART_MS + (copy_bytes * COPY_MS_PER_MB + restore_bytes * RESTORE_MS_PER_MB) // _MB
