"""The handles of user code for one message: collector, context and stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from samzapy.container.task.message_scope import Place, in_init
from samzapy.container.task.outputs import Collector
from samzapy.container.task.stores import Store, TaskState
from samzapy.container.task.work_plan import Route
from samzapy.errors import UndeclaredError
from samzapy.state import State
from samzapy.task import MessageCollector, TaskContext


class Context:
    """The surroundings of a task (`task.TaskContext`)."""

    def __init__(
        self, route: Route, properties: Mapping[str, str], intermediates: Mapping[str, str], state: TaskState
    ) -> None:
        self._route = route
        self._properties = properties
        self._intermediates = intermediates
        self._state = state
        # The place of its message; None while that message is in hand.
        self.expired_at: Place | None = in_init
        # Whether the message in hand asked for a store.
        self.has_given = False

    def successor(self) -> Context:
        """The context of the next message."""
        new = Context(self._route, self._properties, self._intermediates, self._state)
        new.expired_at = None
        return new

    @property
    def task_name(self) -> str:
        return self._route.task_name

    @property
    def partition_id(self) -> int:
        return self._route.partition_id

    @property
    def config(self) -> Mapping[str, str]:
        return self._properties

    @property
    def watermark_ms(self) -> int | None:
        return self._state.keys.watermark_ms()

    def intermediate(self, name: str) -> str:
        system_stream = self._intermediates.get(name)
        if system_stream is None:
            declared = ", ".join(self._intermediates) or "none"
            raise UndeclaredError(
                f"wanted the intermediate stream {name!r}, found {declared}; declare it with "
                f"task.intermediate.{name}.partitions=..."
            )
        return system_stream

    def keys(self, state: State) -> Iterator[Any]:
        # As `store`.
        if self.expired_at is not None and not self._state.scope.is_own_thread():
            self._state.scope.refuse("context.keys", self.expired_at)
        return self._state.keys.of(state.name)

    def store(self, name: str) -> Store:
        # The thread that handles messages may keep a context, which acts on the message in hand.
        if self.expired_at is not None and not self._state.scope.is_own_thread():
            self._state.scope.refuse("context.store", self.expired_at)
        store = self._state.stores.get(name)
        if store is None:
            declared = ", ".join(self._state.stores) or "none"
            raise UndeclaredError(
                f"wanted store {name!r}, found {declared}; declare it with stores.{name}.msg.serde=..."
            )
        self.has_given = True
        return store


class Handles:
    """The handles of one task.

    They go from message to message. Once user code keeps one of them, the next message gets new ones.
    """

    def __init__(self, collector: Collector, context: Context, state: TaskState) -> None:
        self.collector = collector
        self.context = context
        self._state = state

    def renew(self) -> tuple[Collector, Context, tuple[Store, ...]]:
        """Make the handles of the next message."""
        self.collector, self.context = self.collector.successor(), self.context.successor()
        return self.collector, self.context, self._state.renew_stores()

    def expire(self, place: Place) -> None:
        """Let the handles act on no other message: theirs, at `place`, has been handled."""
        self.collector.expired_at = self.context.expired_at = place
        for store in self._state.stores.values():
            store.expired_at = place

    @property
    def bytes_held(self) -> int:
        """The bytes of outputs and state that wait for the commit."""
        return self.collector.bytes_sent + self._state.bytes_held

    def forget(self) -> None:
        """Drop outputs and state: they are committed, or they never will be."""
        self._state.forget()
        self.collector.forget()


def _kept_protocols(collector: Collector, context: Context) -> tuple[MessageCollector, TaskContext]:
    """Let mypy check that the handles keep the protocols of `samzapy.task`."""
    return collector, context
