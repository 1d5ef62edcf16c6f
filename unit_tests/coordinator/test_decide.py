"""The table of decisions."""

from typing import get_args

from samzapy.coordinator.commands import Command
from samzapy.coordinator.decide import DECISIONS


def test_every_type_of_command_has_a_row():
    assert set(get_args(Command)) == set(DECISIONS)
