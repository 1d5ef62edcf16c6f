"""Serdes: how a value of Python becomes bytes, and back.

`None` (no key, a tombstone) passes through every one of them.
"""

from __future__ import annotations

from samzapy.model.serde.base import Serde, SerdeError
from samzapy.model.serde.named import key_serde_of, serde_of

__all__ = ["Serde", "SerdeError", "key_serde_of", "serde_of"]
