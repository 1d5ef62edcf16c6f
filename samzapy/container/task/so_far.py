"""The cost of messages that a worker has in hand before it reports them.

A report comes at the end of a micro-batch, or of a bunch of messages in a tail. Where messages are slow, the busy task
and its busiest key would stay unknown for a minute. So the worker notes its cost so far, and the driver adds it until
the report comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from samzapy.model.task_stats import TaskStats

NOTED_AFTER_S: Final = 2.0
"""Work that is done earlier is not noted: its report comes in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoFar:
    """The unreported cost of a task.

    Attributes:
        route: a route of the task.
        elapsed_ns: since its worker began with the micro-batch; 0 in a tail, whose time counts while it runs.
        stats: the busy time and the keys.
    """

    route: int
    elapsed_ns: int
    stats: TaskStats
