"""The actions of the page on a real cluster (`adapters.web.actions.Operations`)."""

from __future__ import annotations

from collections.abc import Callable

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.coordinator.state import CoordinatorState
from samzapy.inspection.page.actions import (
    ActionPlan,
    check_possible,
    place_plan,
    restart_plan,
    rewind_plan,
    scale_plan,
)
from samzapy.model.placement import Action, ContainerPlacementRequestMessage, rewind_of, scale_of
from samzapy.placement import ContainerPlacementMetadataStore
from samzapy.plan.groupers import Groupers
from samzapy.runtime.planned_changes import rewind_moves, scale_change


class KafkaOperations:
    """Plans and sends requests.

    Args:
        groupers: the job's own, of the last submission.
        signing: the credential that requests are signed with; None: they are not signed.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        job: str,
        groupers: Callable[[], Groupers],
        signing: Callable[[], str | None],
    ) -> None:
        self._connection = connection
        self._job = job
        self._groupers = groupers
        self._signing = signing

    def plan(self, message: ContainerPlacementRequestMessage, state: CoordinatorState) -> ActionPlan:
        """See `Operations.plan`."""
        check_possible(message, state)
        match message.action:
            case Action.SCALE:
                wanted = scale_of(message.arguments)
                return scale_plan(message, scale_change(wanted, state, self._groupers(), self._connection))
            case Action.REWIND:
                rewind = rewind_of(message.arguments)
                return rewind_plan(message, rewind_moves(rewind, state, self._connection, self._job))
            case Action.PLACE_CONTAINER:
                return place_plan(message, state)
            case _:
                return restart_plan(message, state)

    def send(self, message: ContainerPlacementRequestMessage) -> None:
        """See `Operations.send`."""
        connection = self._connection
        with ContainerPlacementMetadataStore(
            connection.bootstrap_servers,
            job=self._job,
            properties=connection.properties,
            credential=self._signing,
        ) as store:
            store.write_request(message)
