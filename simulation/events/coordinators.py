"""Events of election candidates: rounds, elections, pauses, deaths, and reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.coordinators import is_drivable

if TYPE_CHECKING:
    from simulation.world import World


def coordinator_round(world: World) -> None:
    drivable = [candidate for candidate in world.candidates if is_drivable(candidate)]
    if world.random.random() < 0.7:
        drivable = [
            candidate for candidate in drivable if candidate.service.is_leader or candidate.name in world.elected
        ]
    process = world.pick(drivable)
    if process is not None:
        process.round(world.probe)
        world.check_leader(process)


def coordinator_dies(world: World) -> None:
    process = world.pick([candidate for candidate in world.candidates if candidate.alive and not candidate.busy])
    if process is not None:
        world.fault("coordinator killed", process.name)
        process.alive = False


def coordinator_comes_back(world: World) -> None:
    for index, process in enumerate(world.candidates):
        if not process.alive:
            world.candidates[index] = world.a_candidate(process.name)
            world.note(f"{process.name} is there again")
            return


def coordinator_pauses(world: World) -> None:
    process = world.pick([candidate for candidate in world.candidates if is_drivable(candidate)])
    if process is not None:
        world.fault("coordinator paused", process.name)
        process.paused = True


def coordinator_continues(world: World) -> None:
    process = world.pick([candidate for candidate in world.candidates if candidate.alive and candidate.paused])
    if process is not None:
        process.paused = False
        world.note(f"{process.name} continues")


def election(world: World) -> None:
    living = [candidate.name for candidate in world.candidates if candidate.alive]
    if not living:
        return
    world.elected = {living[world.random.randrange(len(living))]}
    if world.random.random() < 0.25:
        world.fault("two are elected")
        world.elected.add(living[world.random.randrange(len(living))])
    world.note(f"elected: {sorted(world.elected)}")


def topics_are_looked_at(world: World) -> None:
    """A leader, or a process that believes to lead, checks the topics.

    The result may arrive late, and is lost if its term ends.
    """
    process = world.pick(
        [candidate for candidate in world.candidates if is_drivable(candidate) and candidate.service.is_leader]
    )
    if process is not None:
        process.queue.append(world.look_at_topics())


def inbox_is_read(world: World) -> None:
    """A leader, or a process that believes to lead, reads the inbox.

    Its messages may be lost with its term.
    """
    process = world.pick(
        [candidate for candidate in world.candidates if is_drivable(candidate) and candidate.service.is_leader]
    )
    if process is not None:
        world.read_inbox(process, 1 + world.random.randrange(8))
