"""`samzapy job plan`: the plan that a submission would make. Read-only.

Its options. `planning` has its work, and is imported when the command runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from samzapy.cli.output.option import output_option
from samzapy.cli.target.address import Target, job_file_option, timeout_option, with_target


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """How the cluster is asked.

    Attributes:
        sample_count: how many records of each partition are read for their keys.
        timeout_s: how long the command waits for a broker.
    """

    sample_count: int
    timeout_s: float


def _with_asking(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options about the cluster to a command, which receives them as `asking`."""

    @click.option(
        "--sample",
        "sample_count",
        type=click.IntRange(min=0),
        default=1000,
        show_default=True,
        metavar="N",
        help="Sample the last N records of each partition for keys that reach several tasks, if the job keeps state by "
        "key; 0 turns sampling off.",
    )
    @timeout_option
    @wraps(command)
    def asked(*args: Any, sample_count: int, timeout_s: float, **options: Any) -> None:
        command(*args, asking=_Asking(sample_count=sample_count, timeout_s=timeout_s), **options)

    return asked


@click.command()
@partial(with_target, has_job=False, has_servers=False)
@job_file_option
@click.option(
    "--partitions",
    metavar="STREAM=N,...",
    help="Give the partition counts of the inputs, so that no cluster is needed.",
)
@click.option(
    "--processors",
    metavar="ID@HOST,...",
    help="Plan for these processors [default: the current ones, else processor.id].",
)
@click.option(
    "--previous",
    "previous_file",
    type=click.Path(path_type=Path),
    help="Read the plan in force from this output of `job plan -o json` or GET /jobModel [default: from the cluster].",
)
@_with_asking
@output_option()
def plan(
    target: Target,
    job_file: Path | None,
    partitions: str | None,
    processors: str | None,
    previous_file: Path | None,
    asking: _Asking,
    output: str,
) -> None:
    """Show the plan that a submission would make now.

    It also shows the difference to the plan in force.

    Each task is shown with its inputs, its processor, the reason for that processor, and the size of the state to
    restore. Nothing is written. The plan names its generation. `samzapy job submit` and `samzapy run` with
    --expected-generation are refused if another one is in force by then.

    \b
    Examples:
      samzapy job plan --config flights.properties
      samzapy job plan --config flights.properties --partitions kafka.flights=8 --processors 0@host-a,1@host-b
    """
    from samzapy.cli.job.planning import show_plan

    show_plan(
        target,
        job_file,
        partitions=partitions,
        processors=processors,
        previous_file=previous_file,
        sample_count=asking.sample_count,
        timeout_s=asking.timeout_s,
        output=output,
    )
