"""The tasks of the worker in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from samzapy.adapters.host.threads import HostThreads
from samzapy.container.task.joint_transaction import JointTransaction
from samzapy.container.task.runner import TaskRunner
from samzapy.container.task.tail import TaskRows
from samzapy.container.task.transaction import TransactionLimits
from samzapy.container.task.work_plan import Report, WorkPlan
from samzapy.task import TaskFactory
from samzapy.testing.memory.local_state import MemoryEnvironment, MemoryStateDirectory
from samzapy.testing.memory.process import CrashAt
from samzapy.testing.memory.slot import MemorySlot
from samzapy.testing.virtual_clock import VirtualClock


class MemoryTasks:
    """The tasks, each with its local state.

    Attributes:
        declared: the declarations of their job.
    """

    def __init__(
        self,
        new_task: TaskFactory,
        state_of: Callable[[str], MemoryStateDirectory],
        clock: VirtualClock,
        crash_points: CrashAt,
    ) -> None:
        self.declared = new_task.declared
        self.clock, self.crash_points = clock, crash_points
        self._new_task = new_task
        self._state_of = state_of
        self._runners: dict[int, TaskRunner] = {}
        self._environments: list[MemoryEnvironment] = []

    def runner(self, plan: WorkPlan, routes: Sequence[int]) -> TaskRunner:
        """The runner of the task with these routes; it is made at its first use."""
        first = routes[0]
        if first not in self._runners:
            config = plan.config
            environment = self._state_of(plan.routes[first].task_name).existing()
            assert environment is not None, "the start has made it"
            self._environments.append(environment)
            self._runners[first] = TaskRunner(
                plan=plan,
                routes=routes,
                new_task=self._new_task,
                environment=environment,
                limits=TransactionLimits(
                    duration_max_s=config.transaction_max_ms / 1000,
                    bytes_max=config.transaction_max_bytes,
                    now_s=self.now_s,
                    wall_ms=self.clock.wall_ms,
                    boot_ms=self.clock.boot_ms,
                ),
                crash_points=self.crash_points,
                is_interrupted=lambda: False,
                threads=HostThreads(),
            )
        return self._runners[first]

    def timed(self, plan: WorkPlan) -> Sequence[TaskRunner]:
        """The runners of all tasks, if the job acts by time."""
        if not self.declared.acts_by_time:
            return ()
        return [self.runner(plan, routes) for routes in plan.tasks]

    def run(
        self, plan: WorkPlan, slot: MemorySlot, tasks: Sequence[TaskRows], must_end: Callable[[], bool]
    ) -> Sequence[Report]:
        """Handle rows of several tasks in joint transactions, as a tail does."""
        joint = JointTransaction(slot, self.crash_points, self.now_s, must_end)
        return joint.run(self.runner(plan, routes).work(chunks, joint) for routes, chunks in tasks)

    def due_ms(self, plan: WorkPlan, routes: Sequence[int], covered_ms: Mapping[int, int]) -> int:
        """When the next timer of a task is due, as of `container.task.tail.DueMs`."""
        runner = self.runner(plan, routes)
        runner.covered(covered_ms)
        return runner.due_ms()

    def now_s(self) -> float:
        """The host's monotonic clock."""
        return self.clock.monotonic_ms() / 1000

    def close(self) -> None:
        """Close the instances of user code."""
        for runner in self._runners.values():
            runner.close()

    def drop(self) -> None:
        """Drop the tasks where they are."""
        self._runners = {}
        for environment in self._environments:
            environment.close()
        self._environments = []
