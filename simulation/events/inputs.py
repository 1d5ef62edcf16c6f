"""Events of the inputs: messages arrive, and partitions are added."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samzapy.model.ssp import SystemStreamPartition
from simulation.configurations import SETTLE_MS
from simulation.events import coordinators
from simulation.inputs import ssps_of

if TYPE_CHECKING:
    from simulation.world import World

PARTITIONS_MAX = 8


def input_arrives(world: World, count_max: int = 6) -> None:
    streams = list(world.counts)
    stream = streams[world.random.randrange(len(streams))]
    ssp = SystemStreamPartition.parse(f"{stream}.{world.random.randrange(world.counts[stream])}")
    world.inputs.write(ssp, 1 + world.random.randrange(count_max))
    for added, older in world.older_ends.items():
        if ssp in older and world.clock.monotonic_ms() < world.noticed_ms[added]:
            # By a producer that has not noticed: a key of the added partition may be among it.
            older[ssp] = world.inputs.end(ssp)


def input_grows(world: World) -> None:
    """Add partitions to an input.

    They are noticed at the next look, or at the next submission.
    """
    stream = "kafka.orders" if world.random.random() < 0.5 else "kafka.refunds"
    before = world.counts[stream]
    if 2 * before <= PARTITIONS_MAX and (world.partition_count() + before) * world.factor() <= world.positions_max:
        world.counts[stream] = 2 * before
    world.submission = world.a_submission(world.submission.config)
    world.note(f"{stream} has {world.counts[stream]} partitions")
    ssps = ssps_of(stream, range(world.counts[stream]))
    if _was_read(world, stream):
        for added in ssps[before:]:
            world.older_ends[added] = {ssp: world.inputs.end(ssp) for ssp in ssps[:before]}
            world.noticed_ms[added] = world.clock.monotonic_ms() + SETTLE_MS
    if world.random.random() < 0.5:
        world.hand_in()
    elif world.random.random() < 0.5:
        coordinators.topics_are_looked_at(world)


def _was_read(world: World, stream: str) -> bool:
    grants = world.checks.state.grants.values()
    return any(str(start.ssp_kb.ssp.system_stream) == stream for grant in grants for start in grant.starts)
