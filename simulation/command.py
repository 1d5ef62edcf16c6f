"""`scripts/simulate`: a job's history made from a seed, with all its faults.

Each step is checked against the invariants.
"""

from __future__ import annotations

import traceback
from pathlib import Path

import click

from samzapy.errors import ExitCode
from simulation.checks import BrokenLawError
from simulation.configurations import Kind
from simulation.simulate import simulate as a_history
from simulation.world import EVENT_COUNT


@click.command()
@click.option("--seed", type=int, required=True, help="The number that the history is made from.")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="Histories, from that seed on.")
@click.option("--events", type=click.IntRange(1), default=EVENT_COUNT, show_default=True, help="Events of each.")
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in Kind]),
    help="The kind of job; by default the seed chooses.",
)
@click.pass_context
def simulate(context: click.Context, seed: int, count: int, events: int, kind: str | None) -> None:
    """Live through a job's history made from a seed, and check each step.

    One history is shown line by line; of several, each that breaks a law or ends in an error is named. Exit code 1
    then.
    """
    broken = 0
    for number in range(seed, seed + count):
        try:
            history = a_history(
                number, events, click.echo if count == 1 else None, None if kind is None else Kind(kind)
            )
        except BrokenLawError as error:
            broken += 1
            click.echo(f"seed {number}: {error}")
        except Exception as error:
            # No law, but the product cannot continue; the other histories are still simulated.
            broken += 1
            if count == 1:
                click.echo("".join(traceback.format_exception(error)), err=True)
            click.echo(f"seed {number}: {_error_text(error)}")
        else:
            figures = (
                f"{history.kind}, {history.events} events, {sum(history.faults.values())} faults, "
                f"{history.terms} terms, {history.grants} grants, {history.commits} commits"
            )
            click.echo(f"seed {number}: {figures}, {history.virtual_ms // 1000} s, digest {history.digest}")
    context.exit(ExitCode.FAILED if broken else ExitCode.OK)


def _error_text(error: Exception) -> str:
    """The error that ended a history, its place, and the command to repeat it."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    summary = f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno}, in {place.name})"
    return "\n".join((summary, *getattr(error, "__notes__", ())))


if __name__ == "__main__":
    simulate()
