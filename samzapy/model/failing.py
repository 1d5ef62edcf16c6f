"""The report of a query that fails repeatedly without a commit.

Or without one of the message that it fails at. A container sends it in heartbeats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

REASON_LENGTH_MAX: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """Failures of a container's query since its last commit.

    Or failures at one message that is not committed, where those are more (`container.query_retries`).

    Attributes:
        attempts: starts of the query that led to no such commit.
        for_ms: time since the first of these failures.
        left_ms: time until the container gives up; 0 where the next failure ends it.
        reason: the failure of the last start, in one line.
    """

    attempts: int
    for_ms: int
    left_ms: int
    reason: str

    def as_json(self) -> Mapping[str, int | str]:
        counts = {spelled: getattr(self, name) for name, spelled in _JSON.items()}
        return {**counts, "reason": self.reason[:REASON_LENGTH_MAX]}

    @classmethod
    def from_json(cls, fields: Mapping[str, object]) -> Failing:
        """The value that `as_json` describes. A field that is left out is 0, or empty.

        Raises:
            ValueError: a count is no whole number of 0 or more, or the reason is no text.
        """
        counts: dict[str, int] = {}
        for name, spelled in _JSON.items():
            value = fields.get(spelled, 0)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
                raise ValueError(f"failing.{spelled}: wanted a whole number, found {value!r:.100}")
            counts[name] = value
        reason = fields.get("reason", "")
        if not isinstance(reason, str):
            raise ValueError(f"failing.reason: wanted a text, found {reason!r:.100}")
        # Lone surrogates are legal in JSON, and cannot be shown.
        return cls(**counts, reason=reason[:REASON_LENGTH_MAX].encode(errors="replace").decode())


_JSON: Final = {"attempts": "attempts", "for_ms": "forMs", "left_ms": "leftMs"}
