"""Events of containers: they work, report, start, stop, pause and die."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.configurations import PROCESSORS

if TYPE_CHECKING:
    from simulation.world import World

STEPS_MAX = 4
"""The most steps of a container between two events."""
CONTAINERS_MAX = 6


def container_follows(world: World) -> None:
    container = world.a_running_container()
    if container is not None:
        count = container.follow(None if world.random.random() < 0.7 else 1 + world.random.randrange(4))
        if count:
            world.note(f"{container.execution_id} reads {count}")


def container_works(world: World) -> None:
    container = world.a_running_container()
    for _ in range(1 + world.random.randrange(STEPS_MAX)):
        if container is not None and container.alive:
            did = container.step(world.clock.monotonic_ms(), world.random.random())
            world.note(f"{container.execution_id} {did}")


def container_says(world: World) -> None:
    container = world.a_running_container()
    if container is not None:
        world.send(container)


def container_starts(world: World) -> None:
    living = [container for container in world.containers if container.alive]
    if len(living) >= CONTAINERS_MAX:
        return
    processor_id = PROCESSORS[world.random.randrange(len(PROCESSORS))]
    if any(container.processor_id == processor_id for container in living) and world.random.random() < 0.5:
        return
    world.start_container(processor_id)


def container_dies(world: World) -> None:
    container = world.pick([container for container in world.containers if container.alive])
    if container is not None:
        world.fault("container killed", container.execution_id)
        container.die(world.random.random())


def commit_of_the_dead_arrives(world: World) -> None:
    container = world.pick([container for container in world.containers if container.is_commit_in_flight])
    if container is not None:
        world.fault("commit arrives late", container.execution_id)
        world.note(f"{container.execution_id}, dead, {container.commit_arrives()}")


def container_pauses(world: World) -> None:
    container = world.a_running_container()
    if container is not None:
        world.fault("container paused", container.execution_id)
        container.paused = True


def container_continues(world: World) -> None:
    container = world.pick(
        [
            container
            for container in world.containers
            if container.alive and container.paused and not container.is_hung
        ]
    )
    if container is not None:
        container.paused = False
        world.note(f"{container.execution_id} continues")


def container_is_asked_to_stop(world: World) -> None:
    container = world.a_running_container()
    if container is not None:
        container.stopping = True
        world.note(f"{container.execution_id} is asked to stop")


def all_stop(world: World) -> None:
    for container in world.containers:
        container.stopping = True
    world.note("all are asked to stop")
