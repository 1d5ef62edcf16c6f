"""Events of time, broker and topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samzapy.stream.log import Write
from samzapy.testing.memory_log import MemoryLog

if TYPE_CHECKING:
    from simulation.world import World


def time_passes(world: World) -> None:
    world.advance(world.random.randrange(1, 1500))


def time_leaps(world: World) -> None:
    ms = world.random.choice((6_000, 12_000, 40_000))
    world.fault("time leaps", f"{ms} ms")
    world.advance(ms)


def wall_clock_jumps(world: World) -> None:
    ms = world.random.choice((-3_600_000, -20_000, 20_000, 30 * 86_400_000))
    world.fault("wall clock jumps", f"{ms} ms")
    world.clock.jump_wall(ms)


def broker_goes_away(world: World) -> None:
    world.broker_away = 1 + world.random.randrange(4)
    world.fault("broker away", f"for {world.broker_away} requests")


def another_program_writes(world: World) -> None:
    """Another program writes a record, on a key that exists or not.

    It may have any headers except the leader's next ones.
    """
    stranger = MemoryLog(world.stream, "another program")
    stranger.take_over()
    records, _ = world.stream.read_stable(0)
    own = [record for record in records if record.offset not in world.checks.foreign and record.key is not None]
    if not own:
        return
    copied = own[world.random.randrange(len(own))]
    key = copied.key if world.random.random() < 0.8 else world.random.choice((b"\xff", b"config/no.such", b"epoch"))
    value = world.random.choice((None, None, copied.value, b"junk", own[world.random.randrange(len(own))].value))
    headers: dict[str, bytes] = {}
    if world.random.random() < 0.3:
        headers = {name: header for name, header in copied.headers if header is not None}
        if value is not None:
            # Unreadable bytes under a leader's own headers stop readers by design, where a cleaner's pass ends
            # between them and the record that undoes them (docs/internals/adr/0019).
            key, value = copied.key, copied.value
        if world.random.random() < 0.3:
            headers |= {name: str(10**6 + world.random.randrange(9)).encode() for name in ("term", "seq")}
    offset = world.stream.end_offset
    stranger.append_atomically([Write(key=key or b"", value=value, headers=headers)])
    world.checks.foreign.add(offset)
    last = own[-1]
    if (key, value, headers) != (last.key, last.value, dict(last.headers)):
        # An exact copy of the last record of the stream replaces nothing. Once the cleaner has taken the original,
        # readers take the copy for it, and rightly so.
        world.checks.foreign_left.setdefault(key, offset)
    world.fault("another program writes", f"{key!r}: {value!r:.40} at {offset}")


def stream_is_compacted(world: World) -> None:
    """Compact the stream as far as the cleaner may go, or less.

    Tombstones live until every reader has seen them.
    """
    end = world.stream.end_offset
    keep_until = None if world.random.random() < 0.5 else world.random.randrange(end + 1)
    keep_until = world.keep_until(keep_until)
    readers = [container.orders.offset_next for container in world.containers if container.alive]
    world.stream.compact(keep_until=keep_until, tombstones_until=min([*readers, end]))
    world.checks.is_compacted = True
    world.note(f"compacted until {keep_until}")
    world.check_replay()


def checkpoints_are_compacted(world: World) -> None:
    world.checkpoints.compact(tombstones_until=world.checkpoints.end_offset)
    world.placement.compact(tombstones_until=world.placement.end_offset)
    world.changelogs.compact()
