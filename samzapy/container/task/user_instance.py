"""The user's instance of a task in a worker process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from samzapy.container.task.handling import Handler
from samzapy.container.task.message_source import Source
from samzapy.container.task.time_keeping import TimeKeeping
from samzapy.container.task.user_calls import UserCalls
from samzapy.container.task.user_errors import user_traceback
from samzapy.model.text import error_text
from samzapy.task import LoadedTask

_LOG = logging.getLogger(__name__)


class UserInstance:
    """The instance, from its making to its `close`.

    Attributes:
        handlers: by route.
        failed_at_init: the error of the making or of `init`; empty without one.
    """

    def __init__(
        self,
        task_name: str,
        new_task: Callable[[], LoadedTask],
        sources: Mapping[int, Source],
        calls: UserCalls,
        time: TimeKeeping,
    ) -> None:
        """Make the instance and call its `init`."""
        self.handlers: dict[int, Handler] = {}
        self._task_name = task_name
        self._is_interrupted = calls.is_interrupted
        self._task: LoadedTask | None = None
        self.failed_at_init = ""
        try:
            self._make(new_task, sources, calls, time)
        except BaseException as error:  # User code may raise anything, and no message is in hand.
            if self._is_interrupted():
                raise
            trace = user_traceback(error)
            self.failed_at_init = f"task {task_name} failed in init: {error_text(error)}\n{trace}".rstrip()

    def _make(
        self, new_task: Callable[[], LoadedTask], sources: Mapping[int, Source], calls: UserCalls, time: TimeKeeping
    ) -> None:
        self._task = task = new_task()
        for route, source in sources.items():
            process = task.handlers.get(str(source.ssp_kb.ssp.system_stream), task.process)
            self.handlers[route] = time.handler(route, process)
        if task.bind is not None:
            task.bind(calls.state.scope.reachable, calls.handles.context, time.of_task())
        time.call(task)
        if task.init is not None:
            task.init(calls.handles.context)

    def close(self) -> None:
        """Close the instance.

        A failure is logged and nothing more, under every policy: the messages that the instance handled are committed,
        and the next query must not fail for it.
        """
        if self._task is None or self._task.close is None:
            return
        try:
            self._task.close()
        except BaseException as error:  # User code may raise anything.
            if self._is_interrupted():
                raise
            text = f"{error_text(error)}\n{user_traceback(error)}".rstrip()
            _LOG.warning(
                "task %s failed in close: %s\nEverything it handled is committed, and the job goes on",
                self._task_name,
                text,
            )
