"""One history from one seed, of any kind of job (`world`, `launched_world`)."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from simulation.checks import BrokenLawError
from simulation.configurations import Kind
from simulation.launched_world import LaunchedWorld
from simulation.world import EVENT_COUNT, History, World


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Switch the garbage collector off.

    Most objects of a history are freed without it, once its world is gone. Searching for garbage meanwhile takes a
    tenth of the time.
    """
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_collecting:
            gc.enable()


def simulate(
    seed: int,
    event_count: int = EVENT_COUNT,
    tell: Callable[[str], None] | None = None,
    kind: Kind | None = None,
) -> History:
    """The history of `seed`; the seed chooses the kind of job if the caller does not.

    `tell` hears each line of the trace as it happens.

    Raises:
        BrokenLawError: a law did not hold; names the command that repeats the history.
        Exception: any error of the product, or the simulation; a note names the command that repeats it.
    """
    again = f"See it happen with: scripts/simulate --seed {seed} --events {event_count}"
    if kind is not None:
        again += f" --kind {kind}"
    try:
        with _nothing_collected():
            world = LaunchedWorld if kind is Kind.LAUNCHED else World
            return world(seed, tell, kind).run(event_count)
    except BrokenLawError as error:
        raise BrokenLawError(f"{error}\n{again}") from error
    except Exception as error:
        error.add_note(again)
        raise
