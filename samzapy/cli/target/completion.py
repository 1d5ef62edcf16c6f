"""Names for the completion of a shell, read from the target.

A shell asks while its user types. So the answer is quick, and nothing is printed where the cluster is away.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

import click

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.broker_wait import CommandWait
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.cli.target.address import Layer, Target, target_of
from samzapy.cli.target.profiles import profiles_path, read_profiles
from samzapy.cli.target.requests import recorded_state
from samzapy.config import KEYS
from samzapy.coordinator.assignment.replanning import recorded_config
from samzapy.coordinator.state import CoordinatorState, sorted_processors
from samzapy.errors import SamzapyError
from samzapy.model.topics import coordinator_topic

QUICK_S: Final = 1.5


def complete_jobs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The jobs on the cluster."""

    def ask() -> Iterable[str]:
        prefix = coordinator_topic("")
        names = KafkaAdmin(_quick(_target(context, wants_job=False).cluster())).topic_names()
        return (name.removeprefix(prefix) for name in names if name.startswith(prefix))

    return _beginning(incomplete, _within(QUICK_S, ask))


def complete_processors(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The processors of the plan in force."""
    return _of_state(
        context, incomplete, lambda state: sorted_processors({planned.processor_id for planned in state.plan})
    )


def complete_tasks(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The tasks of the plan in force."""
    return _of_state(context, incomplete, lambda state: [planned.task_name for planned in state.plan])


def complete_inputs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The recorded inputs of the job, as system.stream."""
    return _of_state(context, incomplete, lambda state: map(str, state.inputs))


def complete_stores(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The stores of the recorded configuration."""

    def names(state: CoordinatorState) -> Iterable[str]:
        config = recorded_config(state)
        return () if config is None else (store.name for store in config.stores)

    return _of_state(context, incomplete, names)


def complete_keys(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The config keys without a `<name>` part; no cluster is asked."""
    return _beginning(incomplete, (spec.name for spec in KEYS if "<" not in spec.name))


def complete_profiles(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names of the profiles; no cluster is asked."""
    return _beginning(incomplete, _within(QUICK_S, lambda: read_profiles(profiles_path(os.environ)).profiles))


def _of_state(
    context: click.Context, incomplete: str, names: Callable[[CoordinatorState], Iterable[str]]
) -> list[str]:
    def ask() -> Iterable[str]:
        address = _target(context, wants_job=True).address()
        return names(recorded_state(replace(address, connection=_quick(address.connection))))

    return _beginning(incomplete, _within(QUICK_S, ask))


def _target(context: click.Context, *, wants_job: bool) -> Target:
    """The target that the typed options name."""
    typed = context.params
    layer = Layer(
        "command line",
        typed.get("config_file"),
        typed.get("job") if wants_job else None,
        typed.get("bootstrap_servers"),
        typed.get("overrides") or (),
    )
    return target_of(layer, typed.get("profile"), os.environ, wants_job=wants_job)


def _quick(connection: KafkaConnection) -> KafkaConnection:
    return replace(connection, command_wait=CommandWait(QUICK_S, lambda text: None))


def _within(wait_s: float, ask: Callable[[], Iterable[str]]) -> list[str]:
    """The answer, if it comes in time; an error is no answer."""
    answer: list[str] = []

    def put() -> None:
        try:
            answer.extend(ask())
        except SamzapyError:
            logging.getLogger(__name__).debug("nothing to complete", exc_info=True)

    # A thread, because some questions have deadlines of their own, such as that for an open transaction.
    asking = threading.Thread(target=put, daemon=True)
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        asking.start()
        asking.join(wait_s)
    finally:
        logging.disable(disabled)
    return [] if asking.is_alive() else answer


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
