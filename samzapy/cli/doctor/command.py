"""`samzapy doctor`: diagnose a job and suggest remedies. Read-only.

Its options. `examination` has its work, and is imported when the command runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from samzapy.cli.output.findings import show_findings
from samzapy.cli.output.option import output_option
from samzapy.cli.target.address import read_of_a_job

if TYPE_CHECKING:
    from samzapy.runtime.job_address import JobAddress


@click.command()
@read_of_a_job
@click.option("--changelogs", is_flag=True, help="Also read all changelogs; takes a while for a large state.")
@click.option("--intermediates", is_flag=True, help="Also read all intermediate streams; takes a while too.")
@click.option(
    "--patience",
    "patience_s",
    type=click.IntRange(min=0),
    metavar="SECONDS",
    help="Report transactions that are open for longer [default: the job's transaction timeouts and a margin]. If an "
    "age is unknown, wait this long for the transaction to end.",
)
@click.option(
    "--sample",
    "sample_count",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    metavar="N",
    help="Sample the keys of the last N records of each input partition, if the job keeps state by key; 0: off.",
)
@output_option()
@click.pass_context
def doctor(
    context: click.Context,
    address: JobAddress,
    changelogs: bool,
    intermediates: bool,
    patience_s: int | None,
    sample_count: int,
    output: str,
) -> None:
    """Diagnose a job, and suggest a remedy for each finding.

    It examines topics, records, open transactions, input keys, leader and containers. Each finding has a code, a
    severity, a description and a remedy. Exits with 0 without findings, 6 if the job is degraded, 8 if data is wrong, 3
    if there is no such job.

    \b
    Example:
      samzapy doctor --job flight-delays-1 --bootstrap-servers localhost:9092
    """
    from samzapy.cli.doctor.examination import Examination

    patience_ms = None if patience_s is None else patience_s * 1000
    examination = Examination(
        address,
        patience_ms=patience_ms,
        with_changelogs=changelogs,
        with_intermediates=intermediates,
        sample_count=sample_count,
    )
    findings = examination.findings()
    not_read = [] if changelogs else ["the records of changelogs (ask with --changelogs)"]
    not_read += ["the records of intermediate streams (ask with --intermediates)"] if examination.has_more else []
    not_read += [] if sample_count else ["the keys of inputs (ask with --sample N)"]
    not_read += examination.not_looked_at
    show_findings(context, address.job, findings, not_read, output)
