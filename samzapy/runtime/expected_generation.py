"""The option that names the plan that a start wants to be in force.

A module of its own: a help page needs it, and not the start of a job.
"""

from __future__ import annotations

import click

expected_generation_option = click.option(
    "--expected-generation",
    type=click.IntRange(min=0),
    metavar="N",
    help="Refuse to start unless plan N is still in force; `samzapy job plan` prints N.",
)
