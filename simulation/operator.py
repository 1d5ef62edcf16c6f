"""An operator: writes good, late, repeated and broken requests to the topic."""

from __future__ import annotations

import uuid as uuids
from collections.abc import Container, Mapping, Sequence
from datetime import timedelta
from random import Random

from samzapy.coordinator.state import CoordinatorState
from samzapy.model.placement import (
    ANY_HOST,
    FORCE_RESTART_LAST_SEEN,
    LAST_SEEN,
    REQUEST_TYPE,
    RESPONSE_TYPE,
    STANDBY,
    Action,
    ContainerPlacementRequestMessage,
)
from samzapy.stream.keys import KeyForm
from samzapy.stream.log import Write
from samzapy.stream.placement import Encoding, Place, decode_message, encode_message, message_key
from samzapy.stream.records import MemoryPhase
from samzapy.testing.memory_log import MemoryLog, MemoryTopic
from samzapy.testing.memory_placement import read_inbox
from simulation.state import HOSTS

_ALL_GOOD = 0.5
_FAR_MS = 10 * 365 * 86_400_000

# Actions that stop, or replace, self-managed containers would end a history, or be refused.
_ACTIONS = (
    *(action for action in Action if action not in (Action.STOP, Action.RESTART_CONTAINER)),
    Action.RESTART_QUERY,
    Action.PLACE_CONTAINER,
    Action.PLACE_CONTAINER,
)
_DESTINATIONS = (*HOSTS, ANY_HOST, ANY_HOST, LAST_SEEN, FORCE_RESTART_LAST_SEEN, STANDBY, "nowhere")


class Operator:
    """Writes to `topic` and looks for the answers.

    Args:
        actions: the actions to choose from.
        destinations: the hosts, and names for hosts, that containers are to move to.

    Attributes:
        stops: the runs that were asked to stop.
    """

    def __init__(
        self,
        topic: MemoryTopic,
        random: Random,
        actions: Sequence[Action] = _ACTIONS,
        destinations: Sequence[str] = _DESTINATIONS,
    ) -> None:
        self._actions = actions
        self._destinations = destinations
        self._topic = topic
        self._random = random
        self._log = MemoryLog(topic, "operator")
        # With their timestamps: a request that is delivered again has the same one.
        self._written: list[tuple[uuids.UUID, int]] = []
        self._asked: dict[bytes, str] = {}
        self.stops: set[str] = set()

    def ask(
        self,
        run_id: str,
        processors: Sequence[str],
        now_ms: int,
        *,
        factors: Sequence[int],
        rewind: Mapping[str, str],
        generation: int,
        action: Action | None = None,
        containers: Sequence[int] = (),
    ) -> str:
        """Write one request, or something else; returns its description.

        Args:
            factors: those that may be asked for.
            rewind: the arguments of one.
            generation: the plan in force.
            action: the action of a well-formed request; None: any request, in any form.
            containers: the container counts that may be asked for; none if containers are self-managed.
        """
        random = self._random
        luck = random.random() if action is None else _ALL_GOOD
        is_again = action is None and bool(self._written) and random.random() < 0.3
        uuid, timestamp_ms = random.choice(self._written) if is_again else self._new_request(now_ms, luck)
        action = action or random.choice(self._actions)
        processor_id = "9" if 0.1 < luck < 0.15 else random.choice(processors)
        if action in (Action.STOP, Action.REWIND, Action.SCALE):
            processor_id = ""
        if action is Action.STOP:
            self.stops.add(run_id)
        arguments: Mapping[str, str] = rewind if action is Action.REWIND else {}
        if action is Action.CONTROL_STANDBY:
            arguments = _standby_command(uuid)
        if action is Action.SCALE:
            arguments = self._scale(factors, containers, generation)
        message = ContainerPlacementRequestMessage(
            uuid=uuid,
            deployment_id=_deployment(run_id, luck),
            processor_id=processor_id,
            destination_host=random.choice(self._destinations),
            timestamp_ms=timestamp_ms,
            action=action,
            arguments=arguments,
            # The next scale may begin during this one.
            request_expiry=timedelta(seconds=3) if action.is_of_job and random.random() < 0.7 else None,
        )
        place = Place(
            namespace=message.action.namespace,
            key_form=random.choice(tuple(KeyForm)),
            encoding=random.choice(tuple(Encoding)),
        )
        self._write(uuid, encode_message(message, place), place, luck)
        request = " ".join([message.action, *arguments.values()])
        return f"{request} {uuid}{' again' if is_again else ''}"

    def _new_request(self, now_ms: int, luck: float) -> tuple[uuids.UUID, int]:
        """Uuid and timestamp of another request; the clock of some of them is far off."""
        uuid = uuids.UUID(int=self._random.getrandbits(128))
        is_far = 0.15 < luck < 0.25
        away_ms = self._random.choice((_FAR_MS, -3_600_000)) if is_far else self._random.randrange(99)
        self._written.append((uuid, now_ms + away_ms))
        return uuid, now_ms + away_ms

    def _scale(self, factors: Sequence[int], containers: Sequence[int], generation: int) -> Mapping[str, str]:
        arguments = {"factor": str(self._random.choice(factors))}
        if containers and self._random.random() < 0.6:
            arguments = {"containers": str(self._random.choice(containers))}
        if self._random.random() < 0.2:
            # A plan that may be another one by the time it is looked at.
            arguments["expectedGeneration"] = str(generation)
        return arguments

    def _write(self, uuid: uuids.UUID, write: Write, place: Place, luck: float) -> None:
        """Write a request, or something unreadable in its place."""
        if luck > 0.9:
            write = Write(key=write.key, value=b"{" if luck > 0.95 else b"\xc3\x01")
        elif luck > 0.85:
            write = Write(key=b"\xff" if luck > 0.87 else b"no key of ours", value=write.value)
        elif luck > 0.82:
            # Removed by hand, which takes nothing back.
            write = Write(key=message_key(str(uuid), REQUEST_TYPE, place), value=None)
        if write.value is None:
            self._asked.pop(write.key, None)
        elif luck <= 0.85 or luck > 0.9:
            self._asked[write.key] = str(uuid)
        self._log.take_over()
        self._log.append_atomically([write])

    def unanswered(self, state: CoordinatorState, ended: Container[str]) -> list[str]:
        """Open requests and missing answers at the end.

        Args:
            ended: the uuids that ever had a terminal status.
        """
        if state.requests:
            return [f"open: {request.uuid} {request.status_code}" for request in state.requests.values()]
        unread = read_inbox(self._topic, state.inbox.offset_next, 0)
        if unread.requests or unread.unreadable:
            return ["the inbox was not read to its end"]
        if left_out := sorted(uuid for uuid in self._asked.values() if uuid not in ended):
            return [f"{uuid} was read and is not served" for uuid in left_out]
        latest = {record.key: record.value for record in MemoryLog(self._topic).read()}
        unanswered = []
        for memory in state.request_memory.values():
            value = latest.get(message_key(memory.uuid, RESPONSE_TYPE, Place.parse(memory.place)))
            status = None if value is None else decode_message(value).status_code
            if memory.phase is not MemoryPhase.COLLECTED and status is not memory.status_code:
                unanswered.append(f"{memory.uuid} was {memory.status_code}, its answer has {status}")
        return unanswered


def _standby_command(uuid: uuids.UUID) -> Mapping[str, str]:
    return {"command": "start" if uuid.int % 2 else "stop"}


def _deployment(run_id: str, luck: float) -> str:
    """The run that a request is for; sometimes another one."""
    return "0-00000000" if luck < 0.1 or not run_id else run_id
