"""The longest time of a request.

A module of its own, because options of commands name it, and a command that prints its help loads no messages.
"""

from __future__ import annotations

from typing import Final

EXPIRY_MS_MAX: Final = 7 * 24 * 60 * 60 * 1000
