"""The route of each record that a worker reads by itself, in its tail.

It is the JVM's rule (`adapters.spark.lookup`), over the same table.
"""

from __future__ import annotations

from collections.abc import Collection

from samzapy.container.task.lookup_table import FIRST_LIST, FOREIGN, LookupTable
from samzapy.plan.elasticity import key_bucket

_NONE: tuple[int, ...] = ()


class TailRoutes:
    """The routes of one worker's tail; records of other routes are foreign."""

    def __init__(self, table: LookupTable, own: Collection[int]) -> None:
        self._factor = table.factor
        self._firsts = {topic: first * table.factor for topic, first in table.bases.items()}
        # Without floors the JVM checks no offset: the scan begins at the start.
        self._floors = table.floors
        self._routes = [tuple(route for route in _routes_at(table, entry) if route in own) for entry in table.routes]

    def of(self, topic: str, partition: int, key: bytes | None, offset: int) -> tuple[int, ...]:
        """The routes of a record.

        Empty if it is foreign, or was handled before the query began.
        """
        factor = self._factor
        place = self._firsts[topic] + partition * factor
        if factor > 1:
            place += key_bucket(key, offset, factor)
        return self._routes[place] if offset >= self._floors[place] else _NONE


def _routes_at(table: LookupTable, entry: int) -> tuple[int, ...]:
    if entry == FOREIGN:
        return _NONE
    return tuple(table.lists[FIRST_LIST - entry]) if entry <= FIRST_LIST else (entry,)
