"""The messages of the placement topic: operators' requests, and answers to them.

Requests and responses stand on the placement topic (`stream.placement` has keys and codecs). A request names an
action; SEP-22 knows only moves, so an action that is left out is `place-container`.
"""

from __future__ import annotations

import re
import uuid as uuids
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NewType

from samzapy.model.expiry import EXPIRY_MS_MAX
from samzapy.model.job import ProcessorId, TaskName
from samzapy.model.ssp import SystemStream, check_factor
from samzapy.model.strict_json import parse_json_text

REQUEST_TYPE: Final = "ContainerPlacementRequestMessage"
RESPONSE_TYPE: Final = "ContainerPlacementResponseMessage"
ANY_HOST: Final = "ANY_HOST"
LAST_SEEN: Final = "LAST_SEEN"
FORCE_RESTART_LAST_SEEN: Final = "FORCE_RESTART_LAST_SEEN"
"""Samza's restart in place that stops the container first (SAMZA-2579)."""
STANDBY: Final = "STANDBY"
SPECIAL_DESTINATIONS: Final = frozenset({ANY_HOST, LAST_SEEN, FORCE_RESTART_LAST_SEEN, STANDBY})
"""Destinations that are no host: no host can be called so."""
CONTAINERS_MAX: Final = 10_000
MESSAGE_LENGTH_MAX: Final = 4000
"""Of the text of a response, in characters."""

# Part of keys and of texts for people: nothing that needs escaping, and nothing that a shell would take apart.
_PROCESSOR_ID = re.compile(r"[A-Za-z0-9_.\-]{1,128}")
_DEPLOYMENT_ID = re.compile(r"[A-Za-z0-9_.\-]{1,128}")
_HOST = re.compile(r"[A-Za-z0-9_.\-]{0,253}")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_LONG_MAX: Final = 2**63 - 1
_BY = re.compile(r"[A-Za-z0-9_.\-]{1,255}")
_COMMON: Final = frozenset({"expectedGeneration", "by"})
"""Arguments that each action has which waits for its turn."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999, where calendars end."""


class StatusCode(StrEnum):
    """How a request stands, in Samza's words.

    CREATED is the operator's; all others are the coordinator's.
    """

    CREATED = "CREATED"
    BAD_REQUEST = "BAD_REQUEST"
    ACCEPTED = "ACCEPTED"
    IN_PROGRESS = "IN_PROGRESS"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @property
    def is_terminal(self) -> bool:
        """Nothing comes after it."""
        return self in (StatusCode.BAD_REQUEST, StatusCode.SUCCEEDED, StatusCode.FAILED)


UNFINISHED: Final = frozenset({StatusCode.ACCEPTED, StatusCode.IN_PROGRESS})
UNSUCCESSFUL: Final = frozenset({StatusCode.BAD_REQUEST, StatusCode.FAILED})


class Phase(StrEnum):
    """How far a request is that is under way.

    RESERVING: a container is wanted, and is not up. RESTORING: it catches up with the state of the tasks. STOPPING: the
    current owner is to release them. STARTING: they are free, and begin at their destination.
    """

    RESERVING = "RESERVING"
    RESTORING = "RESTORING"
    STOPPING = "STOPPING"
    STARTING = "STARTING"


class PlacementNamespace(StrEnum):
    """Which family of requests a key belongs to."""

    PLACEMENT = "samza-place-container-v1"
    CONTROL = "samzapy-control-v1"


class Action(StrEnum):
    """The actions of requests."""

    PLACE_CONTAINER = "place-container"
    CONTAINER_STATUS = "container-status"
    CONTROL_STANDBY = "control-standby"
    RESTART_QUERY = "restart-query"
    RESTART_CONTAINER = "restart-container"
    STOP = "stop"
    SCALE = "scale"
    REWIND = "rewind"

    @property
    def namespace(self) -> PlacementNamespace:
        """The namespace of its requests."""
        is_placement = self in (Action.PLACE_CONTAINER, Action.CONTAINER_STATUS, Action.CONTROL_STANDBY)
        return PlacementNamespace.PLACEMENT if is_placement else PlacementNamespace.CONTROL

    @property
    def is_of_job(self) -> bool:
        """Whether it is for the job as a whole, and names no processor."""
        return self in (Action.SCALE, Action.REWIND, Action.STOP)


ACTION_OF_UNREADABLE: Final = Action.PLACE_CONTAINER
"""The action in the response to a request whose own action cannot be read."""

Refusal = NewType("Refusal", str)
"""Why a request is refused, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlacementMessage:
    """The fields that requests and responses share.

    Attributes:
        uuid: of the request; lower case, with dashes.
        deployment_id: the run of the job that the request is for (`app.run.id`, shown by `samzapy job status`).
        processor_id: logical id of the container; empty for actions that are for the whole job.
        destination_host: where a move goes; empty for actions that need none.
        request_expiry: the request fails when it is not done so long after the coordinator read it; None: the
            job's default.
        timestamp_ms: milliseconds since 1970, by the clock of the message's writer.
    """

    uuid: uuids.UUID
    deployment_id: str
    processor_id: str
    destination_host: str = ""
    request_expiry: timedelta | None = None
    status_code: StatusCode
    timestamp_ms: int
    action: Action = Action.PLACE_CONTAINER


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlacementRequestMessage(ContainerPlacementMessage):
    """A request, written by an operator.

    `arguments`: further arguments of the action, by name, as texts.
    """

    status_code: StatusCode = StatusCode.CREATED
    arguments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlacementResponseMessage(ContainerPlacementMessage):
    """The answer to a request, written by the coordinator.

    `timestamp_ms` is when it was decided.

    `phase`: how far one is that is under way, or was when it failed; empty where there is nothing to tell.
    """

    response_message: str
    phase: str = ""


def check_message(message: ContainerPlacementRequestMessage) -> None:
    """Raise ValueError that names an invalid field."""
    if message.action is Action.CONTAINER_STATUS and message.arguments:
        if message.processor_id:
            raise ValueError("processorId, arguments.uuid: wanted one of them, found both")
    elif not message.action.is_of_job:
        _check("processorId", message.processor_id, _PROCESSOR_ID)
    elif message.processor_id:
        raise ValueError(f"processorId: wanted none, because {message.action} is for the whole job; found one")
    _check("deploymentId", message.deployment_id, _DEPLOYMENT_ID)
    _check("destinationHost", message.destination_host, _HOST)
    check_arguments(message.action, message.arguments)
    if message.action is Action.PLACE_CONTAINER and not message.destination_host:
        raise ValueError(f"destinationHost: wanted a host or {ANY_HOST}, found nothing")
    if not 0 <= message.timestamp_ms <= _LONG_MAX:
        raise ValueError(f"timestamp: wanted milliseconds since 1970, found {message.timestamp_ms}")
    if message.request_expiry is not None and not 0 < expiry_ms(message.request_expiry) <= EXPIRY_MS_MAX:
        raise ValueError(
            f"requestExpiry: wanted 1 to {EXPIRY_MS_MAX} ms (7 days), found {expiry_ms(message.request_expiry)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The arguments of `scale`: key buckets per input partition, or containers.

    None leaves a number as it is.
    """

    factor: int | None = None
    containers: int | None = None


class Mark(StrEnum):
    """The kinds of a place in an input."""

    OLDEST = "oldest"
    NEWEST = "newest"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Target:
    """Where to rewind to.

    `number`: the offset, or milliseconds since 1970; 0 where the mark says it all.
    """

    mark: Mark
    number: int = 0

    def __str__(self) -> str:
        match self.mark:
            case Mark.OFFSET:
                return f"offset {self.number}"
            case Mark.TIME:
                return (_EPOCH + timedelta(milliseconds=self.number)).isoformat(timespec="milliseconds")
            case _:
                return self.mark.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """The arguments of `rewind`: another place in `stream`, for all or some readers.

    `partition`, `task`, `processor` restrict the rewind; None is no restriction. At most one of the last two is set.
    """

    stream: SystemStream
    to: Target
    partition: int | None = None
    task: TaskName | None = None
    processor: ProcessorId | None = None


def recorded_arguments(text: str) -> Mapping[str, str]:
    """The arguments of a recorded request.

    `text` is a JSON object of texts, or empty for none. Raises ValueError.
    """
    arguments = parse_json_text(text) if text else {}
    if not isinstance(arguments, dict) or not all(isinstance(value, str) for value in arguments.values()):
        raise ValueError(f"arguments: wanted a JSON object of texts, found {text[:100]!r}")
    return arguments


def check_arguments(action: Action, arguments: Mapping[str, str]) -> None:
    """Raise ValueError for arguments that the action does not have, or that are empty."""
    if action is Action.CONTAINER_STATUS and arguments:
        request_meant(arguments)
        return
    if action is Action.STOP and arguments:
        raise ValueError(f"arguments: wanted none for {action}, found {', '.join(sorted(arguments))[:100]}")
    generation_expected(arguments)
    by = arguments.get("by")
    if by is not None and not _BY.fullmatch(by):
        raise ValueError(f"arguments.by: wanted a text like {_BY.pattern}, found {by[:100]!r}")
    if action is Action.SCALE:
        scale_of(arguments)
    elif action is Action.REWIND:
        rewind_of(arguments)
    elif action is Action.CONTROL_STANDBY:
        is_standby_wanted(arguments)
    elif unknown := sorted(arguments.keys() - _COMMON):
        raise ValueError(
            f"arguments: wanted expectedGeneration and by for {action}, found {', '.join(unknown)[:100]}"
        )


def generation_expected(arguments: Mapping[str, str]) -> int | None:
    """The plan that the caller looked at; None if the request is for any plan.

    Raises ValueError.
    """
    return _number_or_none(arguments, "expectedGeneration")


def scale_of(arguments: Mapping[str, str]) -> Scale:
    """The arguments of `scale`. Raises ValueError."""
    unknown = sorted(arguments.keys() - _COMMON - {"factor", "containers"})
    if unknown:
        raise ValueError(
            f"arguments: wanted factor or containers, and expectedGeneration, found {', '.join(unknown)[:100]}"
        )
    if "factor" in arguments and "containers" in arguments:
        raise ValueError("arguments: wanted factor or containers, found both; ask for one after the other")
    if "factor" not in arguments and "containers" not in arguments:
        raise ValueError(
            f"arguments.factor: wanted a power of two from 1 to 256, or arguments.containers from 1 to "
            f"{CONTAINERS_MAX}, found nothing"
        )
    factor, containers = _number_or_none(arguments, "factor"), _number_or_none(arguments, "containers")
    if factor is not None:
        check_factor(factor)
    if containers is not None and not 0 < containers <= CONTAINERS_MAX:
        raise ValueError(f"arguments.containers: wanted a number from 1 to {CONTAINERS_MAX}, found {containers}")
    return Scale(factor=factor, containers=containers)


def is_standby_wanted(arguments: Mapping[str, str]) -> bool:
    """The argument of `control-standby`: whether there is to be one more, or one less.

    Raises ValueError.
    """
    unknown = sorted(arguments.keys() - _COMMON - {"command"})
    if unknown:
        raise ValueError(f"arguments: wanted command, found {', '.join(unknown)[:100]}")
    command = arguments.get("command")
    if command not in ("start", "stop"):
        raise ValueError(
            f"arguments.command: wanted start or stop, found {'nothing' if command is None else command!r:.100}"
        )
    return command == "start"


def request_meant(arguments: Mapping[str, str]) -> str:
    """The `uuid` of a request, an argument of `container-status`.

    It takes the place of a processor. Raises ValueError.
    """
    unknown = sorted(arguments.keys() - {"uuid"})
    if unknown:
        raise ValueError(f"arguments: wanted uuid, found {', '.join(unknown)[:100]}")
    uuid = arguments.get("uuid", "")
    if not is_uuid(uuid):
        raise ValueError(f"arguments.uuid: wanted one in lower case, with dashes, found {uuid[:100]!r}")
    return uuid


def rewind_of(arguments: Mapping[str, str]) -> Rewind:
    """The arguments of `rewind`. Raises ValueError."""
    unknown = sorted(arguments.keys() - _COMMON - {"stream", "to", "partition", "task", "processor"})
    if unknown:
        raise ValueError(
            f"arguments: wanted stream, to, partition, task and processor, found {', '.join(unknown)[:100]}"
        )
    for name in ("stream", "to"):
        if name not in arguments:
            raise ValueError(f"arguments.{name}: wanted one, found nothing")
    if "task" in arguments and "processor" in arguments:
        raise ValueError("arguments.task, arguments.processor: wanted at most one of them, found both")
    partition, task, processor = (arguments.get(name) for name in ("partition", "task", "processor"))
    return Rewind(
        stream=SystemStream.parse(arguments["stream"]),
        to=target_of(arguments["to"]),
        partition=None if partition is None else _number("arguments.partition", partition),
        task=None if task is None else TaskName(task),
        processor=None if processor is None else ProcessorId(processor),
    )


def rewind_arguments(
    stream: str, to: str, *, partition: int | None = None, task: str | None = None, processor: str | None = None
) -> Mapping[str, str]:
    """The arguments of `rewind`, not checked yet: the other way of `rewind_of`."""
    given = {
        "stream": stream,
        "to": to,
        "partition": None if partition is None else str(partition),
        "task": task,
        "processor": processor,
    }
    return {name: text for name, text in given.items() if text is not None}


def target_of(text: str) -> Target:
    """Read `oldest`, `newest`, an offset or a time.

    A time is milliseconds since 1970 (`1767225600000ms`), or ISO 8601 with its distance from UTC
    (`2026-01-01T00:00:00Z`). Raises ValueError.
    """
    if text in (Mark.OLDEST, Mark.NEWEST):
        return Target(Mark(text))
    if text.isascii() and text.isdigit():
        return Target(Mark.OFFSET, _number("arguments.to", text))
    time_ms = _time_ms(text)
    if time_ms is None or not 0 <= time_ms <= _TIME_MS_MAX:
        raise ValueError(
            "arguments.to: wanted oldest, newest, an offset, milliseconds since 1970 like 1767225600000ms, or a time "
            f"with its distance from UTC like 2026-01-01T00:00:00Z; found {text[:100]!r}"
        )
    return Target(Mark.TIME, time_ms)


def _time_ms(text: str) -> int | None:
    """Milliseconds since 1970; None if `text` is no time, or has no time zone."""
    number = text.removesuffix("ms")
    if number != text and number.isascii() and number.isdigit() and len(number) < 19:
        return int(number)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if at.tzinfo is None else (at - _EPOCH) // timedelta(milliseconds=1)


def _number_or_none(arguments: Mapping[str, str], name: str) -> int | None:
    return _number(f"arguments.{name}", arguments[name]) if name in arguments else None


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ValueError(f"{name}: wanted a whole number, found {text[:100]!r}")
    return int(text)


def expiry_ms(expiry: timedelta) -> int:
    """A duration in whole milliseconds."""
    return expiry // timedelta(milliseconds=1)


def is_uuid(text: str) -> bool:
    """Whether `text` is a uuid in its one spelling: lower case, with dashes."""
    return _UUID.fullmatch(text) is not None


def _check(name: str, value: str, pattern: re.Pattern[str]) -> None:
    if not pattern.fullmatch(value):
        shown = value if len(value) <= 100 else f"{value[:100]}..."
        raise ValueError(f"{name}: wanted a text like {pattern.pattern}, found {shown!r}")
