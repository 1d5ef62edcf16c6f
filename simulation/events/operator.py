"""Events of the operator: configurations and requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from samzapy.model.placement import Action, rewind_arguments
from simulation.configurations import PROCESSORS
from simulation.events import inputs
from simulation.inputs import ssps_of

if TYPE_CHECKING:
    from simulation.world import World

FLOOD_MAX = 16


def operator_changes_the_configuration(world: World) -> None:
    world.submission = world.a_submission(world.configs[world.random.randrange(len(world.configs))])
    world.note(f"configured: {world.submission.cause}")
    if world.random.random() < 0.5:
        world.hand_in()


def operator_asks(world: World, action: Action | None = None) -> None:
    run, generation = world.checks.state.run, world.checks.state.generation
    asked = world.operator.ask(
        "" if run is None else run.run_id,
        world.processors_asked_for(),
        world.clock.wall_ms(),
        factors=world.factors(),
        rewind=_rewind(world),
        generation=0 if generation is None else generation.generation,
        action=action,
        containers=world.container_counts(),
    )
    world.note(f"asked: {asked}")


def operator_rewinds(world: World) -> None:
    operator_asks(world, Action.REWIND)


def operator_scales(world: World) -> None:
    """Ask for several changes of the factor in a row.

    The parts of a partition are then not at one place when the next change comes.
    """
    for _ in range(world.partition_count()):
        inputs.input_arrives(world, FLOOD_MAX)
    operator_asks(world, Action.SCALE)


def _rewind(world: World) -> Mapping[str, str]:
    """Some place in some input; of a task or a processor, sometimes."""
    streams = sorted(world.counts)
    stream = streams[world.random.randrange(len(streams))]
    partition = world.random.randrange(world.counts[stream]) if world.random.random() < 0.5 else None
    offset = world.random.randrange(1 + world.inputs.end(ssps_of(stream, [partition or 0])[0]))
    to = ("oldest", "newest", f"{offset}ms", f"{offset}ms" if partition is None else f"{offset}")
    tasks = [planned.task_name for planned in world.checks.state.plan]
    luck = world.random.random()
    return rewind_arguments(
        stream,
        to[world.random.randrange(len(to))],
        partition=partition,
        task=world.pick(tasks) if luck < 0.3 else None,
        processor=world.pick([*PROCESSORS]) if luck > 0.8 else None,
    )
