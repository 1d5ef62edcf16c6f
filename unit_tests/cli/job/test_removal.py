"""`samzapy job delete` and `job reset` show what goes before they ask."""

from __future__ import annotations

import json
from collections.abc import Iterable

import click
import pytest
from click.testing import CliRunner, Result

from samzapy.cli.job import removal
from samzapy.cli.output import confirm
from samzapy.coordinator.state import INITIAL
from samzapy.model.topic_checks import TopicFound
from samzapy.model.topics import coordinator_spec, coordinator_topic
from samzapy.testing.builders import a_topic_found

STREAM = coordinator_topic("flights-1")


class Cluster:
    """A cluster with the coordinator stream of a stopped job.

    Attributes:
        removed: what the command removed.
    """

    def __init__(self) -> None:
        self.removed: list[removal.Removal] = []

    def check_reachable(self) -> None:
        pass

    def member_count(self, group: str) -> int:
        return 0

    def find(self, names: Iterable[str]) -> dict[str, TopicFound]:
        return {name: a_topic_found(coordinator_spec("flights-1", 1)) for name in names if name == STREAM}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr("samzapy.adapters.kafka.admin.KafkaAdmin", lambda connection: cluster)
    monkeypatch.setattr(removal, "recorded_state", lambda address: INITIAL)
    monkeypatch.setattr(removal, "_carry_out", lambda address, admin, what: cluster.removed.append(what))
    for ends, offset in (("beginning_offsets", 3), ("end_offsets", 10)):
        monkeypatch.setattr(
            f"samzapy.adapters.kafka.reading.{ends}", lambda _, places, offset=offset: dict.fromkeys(places, offset)
        )
    monkeypatch.setattr(confirm, "is_at_terminal", lambda: True)
    return cluster


def invoke(command: click.Command, *options: str, answer: str = "") -> Result:
    target = ("--job", "flights-1", "--bootstrap-servers", "localhost:1")
    return CliRunner().invoke(command, [*target, *options], input=answer)


@pytest.mark.parametrize("command", [removal.delete, removal.reset], ids=["delete", "reset"])
def test_the_list_is_shown_before_the_question_also_where_the_result_is_json(
    cluster: Cluster, command: click.Command
) -> None:
    asked = invoke(command, "-o", "json", answer="y\n")

    assert 0 == asked.exit_code, asked.exception
    before, question, _ = asked.stderr.partition("Remove all of it?")
    assert question and f"{STREAM}  1 partitions, 7 records at most" in before
    assert [STREAM] == json.loads(asked.stdout)["topics"]
    assert 1 == len(cluster.removed)


def test_nothing_is_removed_after_another_answer(cluster: Cluster) -> None:
    asked = invoke(removal.delete, "-o", "json", answer="n\n")

    assert "wanted yes, found another answer; nothing was removed" in str(asked.exception)
    assert ("", []) == (asked.stdout, cluster.removed)


@pytest.mark.parametrize("options", [["--yes", "-o", "json"], ["--yes"]], ids=["JSON", "table"])
def test_without_a_question_the_list_is_on_stdout_alone(cluster: Cluster, options: list[str]) -> None:
    removed = invoke(removal.delete, *options)

    assert "" == removed.stderr
    assert STREAM in removed.stdout
