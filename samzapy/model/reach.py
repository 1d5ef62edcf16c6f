"""How a state or timer of a task's instance reaches its stores."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

from samzapy.errors import OutsideMessageError


class Stores(Protocol):
    """Stores by name."""

    def __getitem__(self, name: str, /) -> Any: ...


class Reach(Protocol):
    """How a state or timer of a task's instance reaches its stores.

    Attributes:
        in_hand: the stores for the call in hand of the current thread; without one, an object that refuses.
    """

    in_hand: Stores


class _Declaration(Protocol):
    """A state or a timer."""

    name: str

    @property
    def place(self) -> str: ...


class Unbound:
    """A `Reach` of a state or timer that belongs to no task: it refuses."""

    def __init__(self, kind: str, declaration: _Declaration) -> None:
        """Refuse the use of a declaration, which is called `kind` in the error."""
        self._kind = kind
        self._declaration = declaration
        self.in_hand: Stores = self

    def __getitem__(self, name: str) -> NoReturn:
        raise self.error()

    def error(self) -> OutsideMessageError:
        return OutsideMessageError(
            f"{self._kind} {self._declaration.name} ({self._declaration.place}): wanted a use by an instance of its "
            "task while it handles a message, found one before or elsewhere; in a test, run the task with "
            "samzapy.testing.task_kit.run_task"
        )
