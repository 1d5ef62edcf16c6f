"""The pure parts of `scripts/drill`: signs, answers, and the table."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from drill import drill
from drill_incidents import INCIDENTS
from drill_signs import Row, Sighting, answered, table, text_of_command, text_of_page, words_seen


def test_only_text_that_a_reader_sees_is_searched() -> None:
    html = "<title>a hidden sign</title><script>sign()</script><p class='sign'>The disk\n is <b>full</b>.</p>"

    assert "The disk is full ." == text_of_page(html)


def test_a_sign_is_found_in_any_text_of_the_json_of_a_command() -> None:
    output = json.dumps({"degraded": ["record-foreign: offset 7"], "tasks": [{"standstill": {"cause": "no-room"}}]})

    assert "record-foreign: offset 7" == words_seen(text_of_command(output), "record-foreign: .*")
    assert "no-room" == words_seen(text_of_command(output), "no-room")


def test_an_error_of_a_command_is_text() -> None:
    assert "refused" == words_seen(text_of_command("samzapy: Connection refused"), "refused")


def test_a_sign_that_is_not_there_gives_no_words() -> None:
    assert "" == words_seen("The job keeps up with its inputs.", "no-room")


def test_long_words_are_cut() -> None:
    words = words_seen("no-room: " + "x" * 500, "no-room: .*")

    assert 160 == len(words)
    assert words.endswith("…")


@pytest.mark.parametrize(
    ("answer", "meant"),
    [
        ("2", "broker-slow"),
        ("broker-down", "broker-down"),
        ("Broker Slow", "broker-slow"),
        ("slow", "broker-slow"),
        ("broker", ""),
        ("0", ""),
        ("3", ""),
        ("", ""),
    ],
)
def test_an_answer_is_a_number_or_a_part_of_one_name(answer: str, meant: str) -> None:
    assert meant == answered(answer, ["broker-down", "broker-slow"])


def a_sighting(seconds: float = 12.4, words: str = "no-room: a | b") -> Sighting:
    return Sighting(seconds, "job status", words)


def test_the_table_has_the_times_and_the_words() -> None:
    lines = table([Row("lost-host", a_sighting(), None, 2.06)]).splitlines()

    assert "| lost-host | 12 | `job status`: no-room: a \\| b | - | not shown within 60 s | 2.1 |" == lines[2]
    assert [7, 7, 7] == [len(re.findall(r"(?<!\\)\|", line)) for line in lines]


@pytest.mark.parametrize(
    ("cli", "page", "is_shown"),
    [
        (a_sighting(60.0), a_sighting(1.0), True),
        (a_sighting(60.1), a_sighting(1.0), False),
        (a_sighting(), None, False),
        (None, a_sighting(), False),
    ],
)
def test_an_incident_is_shown_if_both_ways_show_it_in_time(
    cli: Sighting | None, page: Sighting | None, is_shown: bool
) -> None:
    assert is_shown == Row("lost-host", cli, page, 1.0).is_shown


def test_ten_incidents_have_different_causes_and_valid_signs() -> None:
    assert 10 == len(INCIDENTS) == len({one.cause for one in INCIDENTS.values()})
    for incident in INCIDENTS.values():
        for sign in (incident.cli, incident.page):
            assert "" == words_seen("The job keeps up with its inputs. Overview RUNNING", sign)


def test_the_list_has_each_incident_and_its_cause() -> None:
    lines = CliRunner().invoke(drill, ["list"]).stdout.splitlines()

    assert [(one.name, one.cause) for one in INCIDENTS.values()] == [
        (line.split()[0], line.split(maxsplit=1)[1]) for line in lines
    ]


def test_the_guide_has_a_row_for_each_incident() -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/drill.md").read_text(encoding="utf-8")

    assert list(INCIDENTS) == re.findall(r"^\| `([a-z-]+)` \|", guide, re.MULTILINE)[: len(INCIDENTS)]
