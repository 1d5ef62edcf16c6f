"""The report of a message that user code has had in hand for long.

A container sends it in heartbeats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from samzapy.model.job import TaskName
from samzapy.model.ssp import SystemStreamPartition

SLOW_MS: Final = 5_000
"""A message that is in hand for so long is reported."""
_NAME_LENGTH_MAX: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowMessage:
    """A message in hand, and for how long."""

    task_name: TaskName
    ssp: SystemStreamPartition
    offset: int
    for_ms: int

    def as_json(self) -> Mapping[str, object]:
        return {"task": self.task_name, "ssp": str(self.ssp), "offset": self.offset, "forMs": self.for_ms}

    @classmethod
    def from_json(cls, fields: Mapping[str, object]) -> SlowMessage:
        """The value that `as_json` describes.

        Raises:
            ValueError: a field is missing or wrong; says which.
        """
        texts = [fields.get(name) for name in ("task", "ssp")]
        for name, text in zip(("task", "ssp"), texts, strict=True):
            if not isinstance(text, str) or not 0 < len(text) <= _NAME_LENGTH_MAX or not text.isprintable():
                raise ValueError(f"slowMessages.{name}: wanted a name, found {text!r:.100}")
        numbers = [fields.get(name) for name in ("offset", "forMs")]
        for name, number in zip(("offset", "forMs"), numbers, strict=True):
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**63:
                raise ValueError(f"slowMessages.{name}: wanted a whole number, found {number!r:.100}")
        return cls(
            task_name=TaskName(str(texts[0])),
            ssp=SystemStreamPartition.parse(str(texts[1])),
            offset=int(str(numbers[0])),
            for_ms=int(str(numbers[1])),
        )
