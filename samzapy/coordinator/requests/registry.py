"""The handler of each action."""

from __future__ import annotations

from typing import Final

from samzapy.coordinator.requests.container_status import CONTAINER_STATUS
from samzapy.coordinator.requests.control_standby import CONTROLLING_STANDBYS
from samzapy.coordinator.requests.handler import ImmediateHandler, RequestHandler
from samzapy.coordinator.requests.place_container import MOVING
from samzapy.coordinator.requests.restart_container import REPLACING
from samzapy.coordinator.requests.restart_query import RESTARTING
from samzapy.coordinator.requests.rewind import REWINDING
from samzapy.coordinator.requests.scale import SCALE
from samzapy.coordinator.requests.stop_job import STOP
from samzapy.model.placement import Action

HANDLERS: Final[dict[Action, RequestHandler]] = {
    Action.PLACE_CONTAINER: MOVING,
    Action.RESTART_QUERY: RESTARTING,
    Action.RESTART_CONTAINER: REPLACING,
    Action.CONTROL_STANDBY: CONTROLLING_STANDBYS,
    Action.SCALE: SCALE,
    Action.REWIND: REWINDING,
}
"""The handlers of the requests that wait for their turn."""

IMMEDIATE: Final[dict[Action, ImmediateHandler]] = {
    Action.CONTAINER_STATUS: CONTAINER_STATUS,
    Action.STOP: STOP,
}
"""The handlers of the requests that are answered when they are read."""
