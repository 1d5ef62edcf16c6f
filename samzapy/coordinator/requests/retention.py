"""Remove messages of served requests from the placement topic; forget uuids.

Theory. Messages are removed if they belong to an earlier run, are old, or exceed the number to remember. A uuid is
forgotten when its messages are removed and the position on the topic is past the tombstones; the smallest
(timestamp, uuid) goes first. From then on a request that is not newer than a forgotten one is refused as too old, so no
request is served twice.
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
    """The messages to remove, the uuids to forget and the startpoints to drop.

    A startpoint is dropped when no grant will begin at it any more.
    """
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
    """Record that messages were removed from the topic."""
    memories = (state.request_memory.get(uuid) for uuid in command.uuids)
    return tuple(
        replace(memory, phase=MemoryPhase.COLLECTED, offset=max(memory.offset, command.offset_next))
        for memory in memories
        if memory is not None and memory.phase is MemoryPhase.COLLECTING
    )


def removal_of(memory: RequestMemoryPut) -> Sequence[Write]:
    """The tombstones that remove the messages of a request from the placement topic."""
    return tombstones(memory.uuid, Place.parse(memory.place))


def _forget(memories: Sequence[RequestMemoryPut], inbox: InboxPut) -> Iterable[CoordinatorRecord]:
    """Forget requests, and refuse older ones as too old from now on.

    The limit comes first: if the transaction is torn after it, more requests are refused than were forgotten, never
    fewer.
    """
    if not memories:
        return ()
    newest = max((inbox.forgotten_timestamp_ms, inbox.forgotten_uuid), *map(order_of, memories))
    horizon = replace(inbox, forgotten_timestamp_ms=newest[0], forgotten_uuid=newest[1])
    return (horizon, *map(tombstone, memories))
