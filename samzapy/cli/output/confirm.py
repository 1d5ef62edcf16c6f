"""The question before a command removes something or repeats something."""

from __future__ import annotations

import sys

import click

from samzapy.errors import RejectedError


def confirm(question: str, rejection: str) -> None:
    """Ask the operator a question whose answer must be yes.

    Args:
        rejection: the rest of an error about another answer: what stays as it is.

    Raises:
        RejectedError: the answer is not yes, or there is no terminal to ask at.
    """
    if not is_at_terminal():
        raise RejectedError(f"wanted a terminal to ask at, found none; {rejection}. --yes does it without a question")
    if not click.confirm(question, err=True):
        raise RejectedError(f"wanted yes, found another answer; {rejection}")


def is_at_terminal() -> bool:
    """Whether an operator can answer a question."""
    return sys.stdin.isatty()
