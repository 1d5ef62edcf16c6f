"""Remove the messages of served requests from the placement topic, and forget their uuids.

Theory. Messages are removed when they are of an earlier run, or old, or more than are to be remembered. A uuid is
forgotten, the smallest (timestamp, uuid) first, when its messages are removed and the position on the topic is past the
tombstones. From then on a request that is not newer than a forgotten one is refused as too old, so nothing is done
twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from samzapy.coordinator.commands import CollectRequests, MessagesRemoved
from samzapy.coordinator.requests.rewind import taken_up
from samzapy.coordinator.requests.turns import in_order, order_of, run_id_of
from samzapy.coordinator.state import CoordinatorState, tombstone
from samzapy.stream.log import Write
from samzapy.stream.placement import Place, tombstones
from samzapy.stream.records import CoordinatorRecord, InboxPut, MemoryPhase, RequestMemoryPut


def collect(command: CollectRequests, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """The messages that are to be removed, the uuids that are forgotten, and startpoints that nobody needs any more."""
    run_id = run_id_of(state)
    surplus = len(state.request_memory) - command.memory_max
    first = in_order(state.request_memory.values())[:surplus] if surplus > 0 else ()
    outdated = {
        memory.uuid: memory
        for memory in state.request_memory.values()
        if memory.phase is MemoryPhase.ANSWERED
        and (memory.run_id != run_id or command.now_ms - memory.decided_at_ms >= command.retention_ms)
    }
    outdated |= {memory.uuid: memory for memory in first if memory.phase is MemoryPhase.ANSWERED}
    forgotten = [
        memory
        for memory in first
        if memory.phase is MemoryPhase.COLLECTED and memory.offset <= state.inbox.offset_next
    ]
    return (
        *(replace(memory, phase=MemoryPhase.COLLECTING) for memory in in_order(outdated.values())),
        *_forget(forgotten, state.inbox),
        *taken_up(state),
    )


def collected(command: MessagesRemoved, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """Notes that messages were removed from the topic."""
    memories = (state.request_memory.get(uuid) for uuid in command.uuids)
    return tuple(
        replace(memory, phase=MemoryPhase.COLLECTED, offset=max(memory.offset, command.offset_next))
        for memory in memories
        if memory is not None and memory.phase is MemoryPhase.COLLECTING
    )


def removal_of(memory: RequestMemoryPut) -> Sequence[Write]:
    """What removes the messages of a request from the placement topic."""
    return tombstones(memory.uuid, Place.parse(memory.place))


def _forget(memories: Sequence[RequestMemoryPut], inbox: InboxPut) -> Iterable[CoordinatorRecord]:
    """What makes older requests too old comes first: torn, more is refused than was forgotten, and never less."""
    if not memories:
        return ()
    newest = max((inbox.forgotten_timestamp_ms, inbox.forgotten_uuid), *map(order_of, memories))
    horizon = replace(inbox, forgotten_timestamp_ms=newest[0], forgotten_uuid=newest[1])
    return (horizon, *map(tombstone, memories))
