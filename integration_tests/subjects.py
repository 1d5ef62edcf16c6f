"""The jobs that can go through a walk (`scripts/chaos --scale --job NAME`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from integration_tests.ledger_run import Subject
from integration_tests.repartition_subject import RepartitionSubject
from integration_tests.rules_subject import RulesSubject

SUBJECTS: Mapping[str, Callable[[], Subject]] = {
    "running_sums": Subject,
    "rules": RulesSubject,
    "repartition": RepartitionSubject,
}
"""By the names of their files. One is made for each run."""
