"""Findings as a table or as JSON, and the exit code that they mean."""

from __future__ import annotations

from collections.abc import Sequence

import click

from samzapy.cli.output.columns import Columns
from samzapy.cli.output.option import is_json, print_json
from samzapy.cli.output.terminal import printable
from samzapy.errors import ExitCode
from samzapy.model.finding import Finding, Severity, finding_json, losing_data


def show_findings(
    context: click.Context, job: str, findings: Sequence[Finding], not_looked_at: Sequence[str], output: str
) -> None:
    """Print the findings about a job and end the command.

    The exit code is 8 if one of them has severity `data`, 6 if one has `degraded`, else 0.
    """
    if is_json(output):
        shown = [finding_json(finding) for finding in findings]
        print_json({"job": job, "findings": shown, "notLookedAt": not_looked_at}, output)
    else:
        _print(findings, not_looked_at)
    if losing_data(findings):
        context.exit(ExitCode.BAD_DATA)
    if any(finding.severity is not Severity.NOTICE for finding in findings):
        context.exit(ExitCode.DEGRADED)


def _print(findings: Sequence[Finding], not_looked_at: Sequence[str]) -> None:
    table = Columns(("severity", "code", "subject", "found", "remedy"))
    if findings:
        rows = [
            (finding.severity.value, finding.code, finding.subject, finding.found, finding.remedy)
            for finding in findings
        ]
        table.write(rows)
    else:
        click.echo("nothing is wrong")
    for part in not_looked_at:
        click.echo(printable(f"not looked at: {part}"))
    if table.is_cut:
        # A code is to be looked up in the guide, and a remedy to be followed.
        click.echo("cut to the terminal: -o wide shows all")
