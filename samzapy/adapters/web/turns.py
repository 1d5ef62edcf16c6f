"""Slow work for the page, one thing after the other, in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from starlette.exceptions import HTTPException

T = TypeVar("T")
WAITING_MAX: Final = 4
"""Works that wait for their turn or are under way."""


class Turns:
    """A thread with a short queue. Only the event loop calls its methods."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._waiting = 0

    async def take(self, work: Callable[[], T]) -> T:
        """The result of `work`.

        Raises:
            HTTPException: too many wait.
        """
        if self._waiting >= WAITING_MAX:
            raise HTTPException(503, f"wanted a turn, found {WAITING_MAX} requests before this one; ask again")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._waiting -= 1
