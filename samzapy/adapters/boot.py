"""Which boot of the host this is: what was before a reboot is known by another id."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
