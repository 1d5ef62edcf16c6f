"""The progress of an execution that runs no tasks of its processor.

It is a standby, or the reserve of a move.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyProgress:
    """The progress of a standby with the local state that it keeps.

    Counts of records are of offsets, markers included.

    Attributes:
        tasks: those of its processor in the plan in force, as it has read that.
        level: those of them whose state here has reached the end that their changelogs had at its start, or is
            at hand: it stands in the directory that their runner works in.
        lag: records of their changelogs beyond the state here, over all tasks that are kept.
        restored, total: how far the way from where it began to the ends as they were then has been gone.
        at_hand: how many of the level ones are so because they stand with their runner.
        is_query_warm: whether the query was warmed up here, so that the first real one begins at once.
    """

    tasks: int = 0
    level: int = 0
    lag: int = 0
    restored: int = 0
    total: int = 0
    at_hand: int = 0
    is_query_warm: bool = True

    @property
    def percent(self) -> int:
        """How much of the restore is done, in whole percent; 100 only when all of it is."""
        if self.restored >= self.total:
            return 100 if self.level >= self.tasks else 99
        return self.restored * 100 // self.total

    def as_json(self) -> Mapping[str, int | bool]:
        return {spelled: getattr(self, name) for name, spelled in _JSON.items()} | {_REHEARSED: self.is_query_warm}

    @classmethod
    def from_json(cls, fields: Mapping[str, object]) -> StandbyProgress:
        """The other way.

        A count that is left out is 0; without a value for the query it needs no warm-up.

        Raises:
            ValueError: a count is none, or the word on the query neither true nor false.
        """
        counts: dict[str, int] = {}
        for name, spelled in _JSON.items():
            value = fields.get(spelled, 0)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
                raise ValueError(f"warm.{spelled}: wanted a whole number, found {value!r:.100}")
            counts[name] = value
        is_query_warm = fields.get(_REHEARSED, True)
        if not isinstance(is_query_warm, bool):
            raise ValueError(f"warm.{_REHEARSED}: wanted true or false, found {is_query_warm!r:.100}")
        return cls(**counts, is_query_warm=is_query_warm)


_REHEARSED: Final = "rehearsed"
_JSON: Final = {
    "tasks": "tasks",
    "level": "level",
    "lag": "lag",
    "restored": "restored",
    "total": "total",
    "at_hand": "atHand",
}
